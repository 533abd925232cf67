//! Data that the model invented by its own admission, and used as data.
//!
//! Principle: where facts were requested, values that the model itself calls simulated, hypothetical, mock or assumed
//! are not facts, and later steps that depend on them are wrong. Data that the request allows (a simulation, an
//! example, an estimate) are not inventions. Assumptions that the final answer states to its reader are not either.
//!
//! In: the texts of models, with the comments of code that they write. Out: for each run, a finding on its first
//! invention, on the model span that wrote it. After the admission, the text must have specific values, with digits,
//! that no prompt and no result contains. The words of admissions are in the lists of eight languages
//! (`measure::language`).

use std::cell::OnceCell;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::{Idx, Kind};

use super::history::end_of;
use crate::measure::calls::attempts::{Attempt, CallAttempts};
use crate::measure::conversation::{is_code_runner, prompt_texts};
use crate::measure::defects::Defect;
use crate::measure::excerpt::{clip, head};
use crate::measure::language::{Invention, ReadText, WordClass, classes_in};
use crate::measure::numbers::has_digit;
use crate::measure::request::{Demand, TaskDemands};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, Severity, agent_index};
use crate::recognise::action_text::{has_fence, is_code_after_fence};
use crate::recognise::{Agent, AgentTrace, Call, Content, Part, ToolRequest};

/// Maximum model calls of a trace that are read.
const MAX_TEXTS: usize = 2_000;
/// Maximum bytes of one output that are read.
const MAX_BYTES: usize = 16 << 10;
/// Maximum depth of nested agents.
const MAX_DEPTH: usize = 32;
/// Maximum calls after an output whose results may follow from its data.
const MAX_LATER_CALLS: usize = 64;
/// Minimum specific values after an admission.
const MIN_VALUES: usize = 2;
/// Maximum specific values of one text that are searched for.
const MAX_VALUES: usize = 24;
// Names of functions that draw random numbers, in Python, R and JavaScript.
regex!(
    RANDOM,
    r"\b(?:np|numpy)\.random\.\w+|\brandom\.(?:random|randint|gauss|uniform|normalvariate|choices?|sample)\b|\bMath\.random\b|\b(?:rnorm|runif|rpois)\("
);

/// By agent and model span, the first call that the model requested and that runs code.
struct CodeRuns(HashMap<(usize, Idx), usize>);

impl CodeRuns {
    fn from_trace(trace: &AgentTrace, memo: &Memo) -> CodeRuns {
        let mut first = HashMap::default();
        for (agent, run) in trace.agents.iter().enumerate() {
            for &at in &run.calls {
                let Some(call) = trace.calls.get(at) else { continue };
                if let Some(llm) = call.llm.filter(|_| is_code_runner(&call.name, memo)) {
                    first.entry((agent, llm)).or_insert(at);
                }
            }
        }
        CodeRuns(first)
    }
}

/// The first invention of each run.
#[derive(Debug, Default)]
pub(crate) struct Invented {
    /// By the outermost agent of the run: the model span, its start, and the finding.
    first_by_run: HashMap<usize, (Idx, u64, Finding)>,
    /// By agent, the outermost agent of its run.
    runs: Vec<usize>,
}

impl Invented {
    /// The inventions of the trace, computed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Rc<Invented> {
        memo.trace(|| Invented::from_trace(trace, memo))
    }

    /// Findings by model span.
    pub(crate) fn findings(&self) -> impl Iterator<Item = (Idx, &Finding)> {
        self.first_by_run.values().map(|(at, _, finding)| (*at, finding))
    }

    /// Whether the run of the call used invented data after it.
    pub(crate) fn follows(&self, call: &Call) -> bool {
        let run = call.agent.and_then(|agent| self.runs.get(agent));
        run.and_then(|run| self.first_by_run.get(run)).is_some_and(|(_, start, _)| *start > call.start)
    }

    fn from_trace(trace: &AgentTrace, memo: &Memo) -> Invented {
        let runs: Vec<usize> = (0..trace.agents.len()).map(|i| outermost(trace, i)).collect();
        let mut invented = Invented { first_by_run: HashMap::default(), runs };
        let mut allowed: HashMap<usize, bool> = HashMap::default();
        let mut disclosed: HashMap<usize, OnceCell<bool>> = HashMap::default();
        let mut llms: Vec<(u64, Idx, usize)> = Vec::new();
        for (i, agent) in trace.agents.iter().enumerate() {
            let started = |at: &Idx| trace.tree.spans.get(*at).map_or(0, |span| span.start);
            llms.extend(agent.llms.iter().map(|at| (started(at), *at, i)));
        }
        llms.sort_unstable();
        for (start, at, agent) in llms.into_iter().take(MAX_TEXTS) {
            let run = invented.runs.get(agent).copied().unwrap_or(agent);
            if invented.first_by_run.contains_key(&run)
                || *allowed.entry(run).or_insert_with(|| allows_inventions(trace, memo, run))
            {
                continue;
            }
            let is_disclosed = disclosed.entry(run).or_default();
            let Some(finding) = (WrittenText { trace, memo, at, agent, run, is_disclosed }).finding() else {
                continue;
            };
            invented.first_by_run.insert(run, (at, start, finding));
        }
        invented
    }
}

/// The outermost agent of the run of an agent.
fn outermost(trace: &AgentTrace, agent: usize) -> usize {
    let parent = |at: &usize| trace.agents.get(*at).and_then(|agent| agent.parent);
    std::iter::successors(Some(agent), parent).take(MAX_DEPTH).last().unwrap_or(agent)
}

/// Whether the request of a run asks for no facts, or for data that are not real. True if its language is not known.
fn allows_inventions(trace: &AgentTrace, memo: &Memo, run: usize) -> bool {
    let Some(task) = agent_index::task(trace, run) else { return true };
    let demands = TaskDemands::cached(task, memo);
    let writes = demands.asks_for_text() || demands.asks_for_estimate();
    let has_tools = trace.agents.get(run).is_some_and(|a| !a.tools.is_empty() || !a.calls.is_empty());
    let is_unreal =
        || classes_in(clip(task, MAX_BYTES), None, memo).is_none_or(|classes| classes.has(WordClass::Unreal));
    writes || !demands.asks(Demand::Fact, memo) && !has_tools || is_unreal()
}

/// The output of one model call.
struct WrittenText<'t> {
    trace: &'t AgentTrace,
    memo: &'t Memo,
    at: Idx,
    agent: usize,
    run: usize,
    /// Whether the final answer of the run states that data were assumed, see [`WrittenText::is_disclosed`].
    is_disclosed: &'t OnceCell<bool>,
}

impl WrittenText<'_> {
    fn finding(&self) -> Option<Finding> {
        let view = self.trace.views.get(self.at).filter(|view| view.kind == Kind::Llm && !view.wrapper)?;
        if view.output_content != Content::Present || view.input_content != Content::Present {
            return None;
        }
        let is_final = self.is_final();
        if let Some(finding) = self.random_data_finding() {
            return Some(finding);
        }
        for part in view.output.iter().flat_map(|message| &message.parts) {
            let (Part::Text(text) | Part::Call(ToolRequest { arguments: Some(text), .. })) = part else {
                continue;
            };
            let text = clip(text, MAX_BYTES);
            if !self.memo.budget.spend(1 + text.len() / 4) {
                return None;
            }
            // Invented values have digits, which is cheaper to test than the sentences.
            if !has_digit(text) {
                continue;
            }
            let is_call = matches!(part, Part::Call(_));
            let comments = comments(text, is_call);
            let prose = if is_call { "" } else { text };
            if prose.is_empty() && comments.is_empty() {
                continue;
            }
            let read_prose = self.read_text(prose);
            let in_prose = read_prose.inventions().into_iter();
            let code_inventions = || read_prose.answered_by(&comments, self.memo).inventions();
            let in_code = if comments.is_empty() { Vec::new() } else { code_inventions() };
            let inventions = in_prose.chain(in_code).filter(|i| !(i.is_assumption && is_final));
            let text_values = OnceCell::new();
            for Invention { sentence, is_assumption } in inventions {
                let from = text.find(sentence.split('\n').next().unwrap_or(sentence)).unwrap_or(0);
                if !self.memo.budget.spend(1 + from / BYTES_PER_STEP) {
                    return None;
                }
                if is_assumption && self.is_disclosed() {
                    continue;
                }
                let values = text_values.get_or_init(|| values_at(text));
                let values = values.get(values.partition_point(|(at, _)| *at < from)..).unwrap_or_default();
                if let Some(values) = self.unknown_values(values).filter(|values| self.reach_answer(values)) {
                    return Some(self.finding_on(sentence, &values));
                }
            }
        }
        None
    }

    /// The finding on code that draws random numbers after the previous call failed, and whose result is in the answer
    /// of the run.
    fn random_data_finding(&self) -> Option<Finding> {
        let calls = &self.trace.agents.get(self.agent)?.calls;
        let agent_calls = || calls.iter().filter_map(|i| Some((*i, self.trace.calls.get(*i)?)));
        let at = self
            .memo
            .trace(|| CodeRuns::from_trace(self.trace, self.memo))
            .0
            .get(&(self.agent, self.at))
            .copied()?;
        let call = self.trace.calls.get(at)?;
        let code = clip(call.arguments.as_deref()?, MAX_BYTES);
        self.memo.budget.spend(1 + code.len() / 8 + calls.len() / 8).then_some(())?;
        let function = RANDOM.find(code)?.as_str();
        let attempts = CallAttempts::get(self.trace, self.memo);
        let (before, _) = agent_calls().take_while(|(i, _)| *i != at).last()?;
        let result = call.result.as_deref().filter(|_| attempts.at(before).is_some_and(Attempt::failed))?;
        let answer = self.trace.agents.get(self.run)?.answer.as_deref()?;
        let answer_figures: HashSet<String> =
            values(clip(answer, MAX_BYTES)).map(|value| figure(&value)).collect();
        let is_in_answer =
            values(clip(result, MAX_BYTES)).any(|value| answer_figures.contains(&figure(&value)));
        let rationale = format!(
            "facts were asked for, so values from a result or the request were expected; after a call had failed, the \
             code draws its data at random ({function}), and the answer tells them"
        );
        let severity = if self.is_disclosed() { Severity::Medium } else { Severity::High };
        is_in_answer.then(|| Finding { severity, ..Defect::InventedData.finding(rationale, function) })
    }

    /// The text in its language, or in that of the task.
    fn read_text<'p>(&self, prose: &'p str) -> ReadText<'p> {
        ReadText::new(prose, agent_index::task(self.trace, self.agent).map(|task| &**task), self.memo)
    }

    /// Whether the output is the answer of the run.
    fn is_final(&self) -> bool {
        let run = self.trace.agents.get(self.run);
        self.agent == self.run && run.is_some_and(|agent| agent.answer_at == Some(self.at))
    }

    /// Whether the final answer of the run states that data were assumed, or hedges; computed once for each run.
    fn is_disclosed(&self) -> bool {
        *self.is_disclosed.get_or_init(|| {
            let answer = self.trace.agents.get(self.run).and_then(|agent: &Agent| agent.answer.as_deref());
            answer.is_some_and(|answer| {
                if !self.memo.budget.spend(1 + answer.len() / 4) {
                    return false;
                }
                let text = self.read_text(answer);
                !text.inventions().is_empty() || !text.hedges().is_empty() || !text.inability().is_empty()
            })
        })
    }

    /// The values among the first [`MAX_VALUES`] that neither the prompt of this call nor an earlier result has; `None`
    /// for fewer than [`MIN_VALUES`], or beyond the work budget.
    fn unknown_values(&self, values: &[(usize, String)]) -> Option<Vec<String>> {
        let mut values: HashSet<String> =
            values.iter().take(MAX_VALUES).map(|(_, value)| value.clone()).collect();
        if values.len() < MIN_VALUES {
            return None;
        }
        let view = self.trace.views.get(self.at)?;
        let end = end_of(self.trace, self.at);
        let calls = self.trace.calls.iter().take_while(|call| call.start < end);
        for text in prompt_texts(view).map(Some).chain(calls.map(|call| call.result.as_ref())) {
            if !self.memo.budget.spend(1 + text.map_or(0, |text| text.len()) / 8) {
                return None;
            }
            let Some(text) = text else { continue };
            self::values(text).for_each(|value| _ = values.remove(&value));
            if values.len() < MIN_VALUES {
                return None;
            }
        }
        let mut values: Vec<String> = values.into_iter().collect();
        values.sort_unstable();
        Some(values)
    }

    /// Whether the answer of the run has one of the values, or a value of a later result, which may follow from them.
    /// Data that only a test uses do not reach the answer.
    fn reach_answer(&self, values: &[String]) -> bool {
        let answer = self.trace.agents.get(self.run).and_then(|agent: &Agent| agent.answer.as_deref());
        let Some(answer) = answer.filter(|_| !self.is_final()) else { return true };
        if !self.memo.budget.spend(1 + answer.len() / 4) {
            return false;
        }
        let figures =
            |text: &'_ str| -> HashSet<String> { self::values(text).map(|value| figure(&value)).collect() };
        let answer_figures = figures(clip(answer, MAX_BYTES));
        let end = end_of(self.trace, self.at);
        let first_later = self.trace.calls.partition_point(|call| call.start < end);
        let later_calls = self.trace.calls.iter().skip(first_later).take(MAX_LATER_CALLS);
        values.iter().any(|value| answer_figures.contains(&figure(value)))
            || later_calls.filter_map(|call| call.result.as_deref()).any(|result| {
                self.memo.budget.spend(1 + result.len().min(MAX_BYTES) / 8)
                    && figures(clip(result, MAX_BYTES)).iter().any(|value| answer_figures.contains(value))
            })
    }

    fn finding_on(&self, sentence: &str, values: &[String]) -> Finding {
        let shown: Vec<&str> = values.iter().take(3).map(String::as_str).collect();
        let rationale = format!(
            "facts were asked for, so values from a result or the request were expected; the model says that it made \
             them up (\"{}\"), among them {}",
            head(sentence.trim(), 100),
            shown.join(", ")
        );
        let severity = match self.is_disclosed() {
            true => Severity::Medium,
            false => Severity::High,
        };
        Finding { severity, ..Defect::InventedData.finding(rationale, sentence.trim()) }
    }
}

/// A value without the characters before its first and after its last digit.
pub(super) fn figure(value: &str) -> String {
    value.trim_matches(|c: char| !c.is_ascii_digit()).to_owned()
}

/// The specific values of a text, in lower case: words of at least two characters with a digit.
pub(super) fn values(text: &str) -> impl Iterator<Item = String> {
    words(text).filter_map(value)
}

/// As [`values`], each with the offset of its word.
fn values_at(text: &str) -> Vec<(usize, String)> {
    let at = |word: &str| word.as_ptr().addr() - text.as_ptr().addr();
    words(text).filter_map(|word| Some((at(word), value(word)?))).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '.' || c == ','))
}

/// The specific value of a word; `None` for another word.
fn value(word: &str) -> Option<String> {
    let word = word.trim_matches(['.', ',']).replace(',', "");
    (word.len() >= 2 && word.bytes().any(|b| b.is_ascii_digit())).then(|| word.to_lowercase())
}

/// The beginnings of comments in code.
const COMMENT_MARKS: [&str; 3] = ["# ", "// ", "-- "];

/// The comments of the code in a text, one on each line.
fn comments(text: &str, is_code: bool) -> String {
    let mut out = String::new();
    let has = |part: &&str| memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some();
    // A quick search excludes texts without a mark.
    if memchr::memchr3(b'#', b'/', b'-', text.as_bytes()).is_none()
        || !COMMENT_MARKS.iter().any(has)
        || !is_code && !has_fence(text)
    {
        return out;
    }
    let mut is_inside = is_code;
    // In arguments, line breaks are escaped.
    let unescaped = if is_code { text.replace("\\n", "\n") } else { text.to_owned() };
    for line in unescaped.lines() {
        let bare = line.trim_start();
        if let Some(is_code) = is_code_after_fence(bare, is_inside) {
            is_inside = is_code;
            continue;
        }
        let start = COMMENT_MARKS.iter().filter_map(|mark| Some(bare.find(*mark)? + mark.len())).min();
        if let Some(comment) = start.filter(|_| is_inside).and_then(|at| bare.get(at..)) {
            out.push_str(comment);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn findings_of(script: Script) -> Vec<(Idx, Severity)> {
        let trace = script.build();
        let invented = Invented::cached(&trace, &Memo::new());
        invented.findings().map(|(at, finding)| (at, finding.severity)).collect()
    }

    const QUESTION: &str = "How many visitors did the museum have in March, and how many in April?";

    #[test]
    fn data_that_the_model_calls_unreal_are_found_in_prose_and_in_comments() {
        for text in [
            "The site cannot be reached, so I used simulated figures: March 4310 visitors, April 5125 visitors.",
            "Let's assume the following figures:\n- March: 4310\n- April: 5125",
            "```python\n# Mock data, since the API is not available\nvisits = {'March': 4310, 'April': 5125}\n```",
            "Hier sind die Werte, die Daten sind simuliert: im März 4310 und im April 5125 Besucher.",
            "以下数据是虚构的：三月4310人，四月5125人。",
        ] {
            let run = || Script::new(QUESTION).tools(&["search"]);
            let actual = findings_of(run().says(text).answers("March had 4310 visitors, April 5125."));
            assert!(matches!(&actual[..], [(_, Severity::High)]), "{text}: {actual:?}");
        }
    }

    #[test]
    fn known_values_allowed_inventions_and_stated_assumptions_are_no_findings() {
        let text = "I used simulated figures: March 4310 visitors, April 5125 visitors.";
        let search_script =
            Script::new(QUESTION).calls("", &[("search", "{}")]).returns("March: 4310, April: 5125");
        assert!(findings_of(search_script.says(text).answers("4310 and 5125.")).is_empty());
        let asked =
            Script::new("Simulate the visitors of a museum: how many come in March?").tools(&["search"]);
        assert!(findings_of(asked.says(text).answers("4310.")).is_empty());
        let assumed = "Let's assume a term of 30 years at 4.25 percent.";
        let loan = Script::new("What is the monthly rate of a loan of 100,000?").tools(&["calculator"]);
        let disclosed_script =
            loan.says(assumed).answers("I assumed 30 years at 4.25 percent: 491.94 a month.");
        assert!(findings_of(disclosed_script).is_empty());
        let plain = Script::new(QUESTION).tools(&["search"]);
        let statement = "No simulated data were used. March: 4310, April: 5125.";
        assert!(findings_of(plain.says(statement).answers("4310 and 5125.")).is_empty());
    }

    #[test]
    fn final_answer_is_read_once_for_all_assumptions_of_a_run() {
        let answer = format!("{} March had many visitors.", "The museum is in the old town. ".repeat(400));
        // A text without a digit is not read.
        let assumptions = format!("Of 7:\n{}", "Let's assume the next value is unknown.\n".repeat(300));
        let work = |chats: usize| {
            let script = Script::new(QUESTION).tools(&["search"]);
            let script = (0..chats).fold(script, |script, _| script.says(&assumptions));
            let trace = script.answers(&answer).build();
            let (memo, before) = (Memo::new(), verdict_otlp::work::counted());
            Invented::cached(&trace, &memo);
            verdict_otlp::work::counted() - before
        };
        let (few, many) = (work(1), work(10));
        let searched = (assumptions.len() + answer.len()) as u64;
        println!("{few} and {many} bytes are searched, of {searched} for one model call");
        assert!(few < 16 * searched && many < 12 * few, "{few} and {many} bytes are searched");
    }

    #[test]
    fn invention_that_the_answer_admits_is_less_severe() {
        let run = Script::new(QUESTION).tools(&["search"]).answers(
            "I could not find the figures. Here are simulated values: March 4310 visitors, April 5125 visitors.",
        );
        assert!(matches!(&findings_of(run)[..], [(_, Severity::Medium)]));
    }
}
