//! A run, told once: every span's content at the place where it first stands.
//!
//! In: the spans of an agent, of an agent with all beneath it, or of a trace. Out: blocks in the
//! order of the run, each agent's instructions once, of each prompt only what is new, plans marked,
//! tools listed where they are first offered (000, section 4.1.2). Every model call of a run repeats
//! the whole conversation before it; told naively, a run of n steps is n times too long.

use std::collections::{HashMap, HashSet};

use super::Asker;
use super::content::{Piece, What, excerpt, given, made, title, tools};
use super::parts::longest;
use super::prompt_page::Block;
use crate::recognise::{AgentTrace, Plan, SpanView};
use verdict_otlp::trace::{Idx, Kind};

/// Which spans a story is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// An agent's own, and of the agents that it called what they were asked and answered.
    Own(usize),
    /// An agent's, and all beneath it.
    Beneath(usize),
    /// Everything.
    Trace,
}

/// Bytes of a repeated text that are shown, to be recognised by.
const REMINDER: usize = 160;

/// Plans by the span that wrote them.
pub type Plans<'a> = HashMap<Idx, Vec<&'a Plan>>;

/// Every plan of a trace.
pub fn plans(trace: &AgentTrace) -> Plans<'_> {
    let mut out: Plans<'_> = HashMap::new();
    for (at, plan) in trace.agents.iter().flat_map(|agent| &agent.plans) {
        out.entry(*at).or_default().push(plan);
    }
    out
}

/// The order in which a run is told: into a span, what is beneath it, out of it.
#[derive(Clone, Copy)]
enum Visit {
    Enter(Idx),
    Leave(Idx),
}

/// Tells a story, cleaned. Where it would take more than all its parts of `room` bytes, the longest
/// texts are told by both their ends.
pub fn tell(asker: &Asker, trace: &AgentTrace, scope: Scope, room: usize) -> Vec<Block> {
    let mut story = gather(asker, trace, scope);
    let lengths: Vec<usize> = story.iter().map(|block| block.text.len()).collect();
    let most = longest(&lengths, room);
    for block in &mut story {
        if let Some((at, _)) = block.of {
            block.text = asker.shown(trace, at, &block.text, most);
        }
    }
    story
}

/// The blocks of a story, as they were sent.
fn gather(asker: &Asker, trace: &AgentTrace, scope: Scope) -> Vec<Block> {
    let judged = crate::measure::catalog::judged(trace);
    let mut teller = Teller {
        asker,
        trace,
        plans: plans(trace),
        heard: HashSet::new(),
        first: HashMap::new(),
        offered: HashSet::new(),
        out: Vec::new(),
    };
    let told = |at: Idx| judged.get(at).copied().unwrap_or(false) && of_scope(trace, scope, at);
    let mut stack: Vec<Visit> = tops(trace, scope).into_iter().rev().map(Visit::Enter).collect();
    while let Some(visit) = stack.pop() {
        match visit {
            Visit::Enter(at) => {
                stack.push(Visit::Leave(at));
                // What another agent did is told of that agent.
                let other = matches!(scope, Scope::Own(i) if trace.agents.get(i).is_some_and(|a| a.at != at))
                    && trace.views.get(at).is_some_and(|r| r.kind == Kind::Agent && !r.wrapper);
                if !other {
                    stack.extend(trace.tree.children(at).iter().rev().map(|&child| Visit::Enter(child)));
                }
                if told(at) {
                    teller.enter(at);
                }
            }
            Visit::Leave(at) if told(at) => teller.leave(at),
            Visit::Leave(_) => {}
        }
    }
    teller.out
}

/// Where a story begins. An agent without a span of its own may have several tops.
fn tops(trace: &AgentTrace, scope: Scope) -> Vec<Idx> {
    let (Scope::Own(i) | Scope::Beneath(i)) = scope else { return trace.tree.top().to_vec() };
    let at = trace.agents.get(i).map(|agent| agent.at);
    let own = at.filter(|&at| trace.views.get(at).is_some_and(|r| r.kind == Kind::Agent));
    own.map_or_else(|| trace.tree.top().to_vec(), |at| vec![at])
}

/// Whether a span belongs to a story.
pub(super) fn of_scope(trace: &AgentTrace, scope: Scope, at: Idx) -> bool {
    let owner = trace.owner.get(at).copied().flatten();
    match scope {
        Scope::Trace => true,
        Scope::Own(agent) => {
            // Of an agent that it called, the span itself: its task and its answer.
            let called =
                |i: usize| trace.agents.get(i).is_some_and(|a| a.at == at && a.parent == Some(agent));
            owner == Some(agent) || owner.is_some_and(called)
        }
        Scope::Beneath(agent) => {
            // Nested deeper than any run is; agents stand outermost first, so that this ends.
            let above = std::iter::successors(owner, |&i| trace.agents.get(i)?.parent.filter(|&p| p < i));
            above.take(MAX_DEPTH).any(|i| i == agent)
        }
    }
}

/// Agents that call agents that call agents: deeper nesting is a sender's fancy.
const MAX_DEPTH: usize = 64;

struct Teller<'a> {
    asker: &'a Asker,
    trace: &'a AgentTrace,
    plans: Plans<'a>,
    /// What each agent has been told, by its hash.
    heard: HashSet<(Option<usize>, u64)>,
    /// Where a text stands first.
    first: HashMap<u64, Idx>,
    /// Tools that were listed, by agent.
    offered: HashSet<(Option<usize>, u64)>,
    out: Vec<Block>,
}

impl<'a> Teller<'a> {
    fn enter(&mut self, at: Idx) {
        let Some(view) = self.trace.views.get(at) else { return };
        self.tools(at, view);
        let owner = self.owner(at);
        for piece in given(view) {
            if piece.text.trim().is_empty() {
                continue;
            }
            let is_leaf = matches!(view.kind, Kind::Llm | Kind::Tool) && !view.wrapper;
            let hash = hash(&piece.text);
            let new = self.heard.insert((owner, hash));
            // Another agent may be told the same; a container of spans only repeats.
            let told = self.first.contains_key(&hash);
            match piece.what.is_new() && is_leaf {
                true => self.say(at, &piece),
                false if new && !told => self.say(at, &piece),
                false if new && is_leaf => self.say(at, &piece),
                false => {}
            }
        }
        // What has no children needs no second visit, and what has some ends after them.
        if self.trace.tree.children(at).is_empty() {
            self.ended(at, view);
        }
    }

    /// What a span that holds others came to stands after them.
    fn leave(&mut self, at: Idx) {
        let Some(view) = self.trace.views.get(at) else { return };
        if !self.trace.tree.children(at).is_empty() {
            self.ended(at, view);
        }
    }

    fn ended(&mut self, at: Idx, view: &SpanView) {
        let owner = self.owner(at);
        let is_leaf = matches!(view.kind, Kind::Llm | Kind::Tool) && !view.wrapper;
        let mut said = String::new();
        for piece in made(view) {
            let new = self.heard.insert((owner, hash(&piece.text)));
            said.push_str(&piece.text);
            if is_leaf || piece.what == What::Error || new && !self.first.contains_key(&hash(&piece.text)) {
                self.say(at, &piece);
            }
        }
        let plans = self.plans.get(&at).cloned().unwrap_or_default();
        for plan in plans.into_iter().filter(|plan| !said.contains(&*plan.text)) {
            let piece = Piece { what: What::Output, text: std::borrow::Cow::Borrowed(&plan.text) };
            self.say(at, &piece);
        }
    }

    fn say(&mut self, at: Idx, piece: &Piece<'_>) {
        let hash = hash(&piece.text);
        let mut label = format!("{} | {}", title(self.asker, self.trace, at), piece.what.words());
        let plans = self.plans.get(&at).filter(|_| piece.what == What::Output);
        let plan = plans.and_then(|plans| plans.iter().find(|plan| piece.text.contains(&*plan.text)));
        if let Some(plan) = plan {
            label.push_str(if plan.replan { ", REPLAN" } else { ", PLAN" });
        }
        let before = self.first.get(&hash).copied().filter(|&first| first != at);
        let mut text = std::borrow::Cow::Borrowed(&*piece.text);
        if let Some(first) = before.filter(|_| piece.text.len() > 2 * REMINDER) {
            let id = self.trace.tree.spans.get(first).map(|span| span.id).unwrap_or_default();
            label.push_str(&format!(", the very same text as in span {id}"));
            text = excerpt(&piece.text, REMINDER);
        }
        self.first.entry(hash).or_insert(at);
        let (binds, plan) = (piece.what.binds() || plan.is_some(), plan.is_some());
        self.push(at, label, text.into_owned(), binds, plan);
    }

    /// Tools that an agent has not been shown before.
    fn tools(&mut self, at: Idx, view: &SpanView) {
        let owner = self.owner(at);
        let new: Vec<_> = view
            .tools
            .iter()
            .filter(|tool| {
                let full = u8::from(tool.parameters.is_some());
                let key = super::stable_hash::stable_hash([tool.name.as_bytes(), &[full][..]]);
                self.offered.insert((owner, key))
            })
            .cloned()
            .collect();
        if new.is_empty() {
            return;
        }
        let agent = owner.and_then(|i| self.trace.agents.get(i)).and_then(|agent| agent.name.as_ref());
        let to = agent.map_or_else(String::new, |n| format!(" to {}", self.asker.name(n)));
        self.push(at, format!("tools offered{to}"), tools(&new), true, false);
    }

    fn push(&mut self, at: Idx, label: String, text: String, binds: bool, plan: bool) {
        let id = self.trace.tree.spans.get(at).map(|span| span.id).unwrap_or_default();
        self.out.push(Block { of: Some((at, id)), plan, ..Block::about(label, text, binds) });
    }

    fn owner(&self, at: Idx) -> Option<usize> {
        self.trace.owner.get(at).copied().flatten()
    }
}

/// Texts are told apart by 64 bits; a chance collision would leave one text out of one prompt.
fn hash(text: &str) -> u64 {
    super::stable_hash::stable_hash([text.trim().as_bytes()])
}
