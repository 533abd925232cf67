//! The purpose of a tool: its actions, and the objects of these actions.
//!
//! In: a tool's name and description. Out: whether the tool returns information or changes a state, its actions, by the
//! verbs of its name or else by the first verb of its description, and the stems of its other words. The verbs are data
//! in `tool_verbs.txt`, which contains no names of particular tools.

use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use serde_json::Value;
use verdict_otlp::work;

use super::identifier::{NameWords, identifier_words};
use super::language::{Action, Language};
use super::memo::Memo;
use super::tool_index::OfferedTo;
use super::work_budget::BYTES_PER_STEP;
use crate::recognise::{AgentTrace, Call, Text, ToolDefinition};

/// Maximum words at the beginning of a description in which its verb is searched.
const MAX_LEAD_WORDS: usize = 5;
/// Maximum words of a description that are read.
const MAX_WORDS: usize = 40;
/// Maximum characters of a verb in Chinese or Japanese.
const MAX_VERB_CHARS: usize = 6;
/// Maximum tools of one agent that are read.
const MAX_TOOLS: usize = 256;
/// Maximum parameters of a tool that are read.
const MAX_PARAMETERS: usize = 64;

/// The purpose of a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Purpose {
    /// The tool returns information. An empty result is an answer.
    Query,
    /// The tool changes a state. The result may be empty.
    Action,
    #[default]
    Unknown,
}

/// A verb by which tools are named.
#[derive(Clone, Copy)]
struct Verb {
    action: Option<Action>,
    purpose: Purpose,
    /// Whether the word is also a common noun or is unspecific, so that it does not determine the purpose of a tool.
    is_weak: bool,
}

/// The data of `tool_verbs.txt`.
#[derive(Default)]
struct Verbs {
    /// By form of a verb in lower case.
    forms: HashMap<String, Verb>,
    /// By kind of tools, the words in names of these tools.
    kinds: HashMap<&'static str, HashSet<&'static str>>,
}

checked_static!(VERBS: Verbs = verbs(include_str!("tool_verbs.txt")));

/// Reads the data file.
fn verbs(file: &'static str) -> Result<Verbs, String> {
    let mut out = Verbs::default();
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let (head, words) = line.split_once(':').ok_or_else(|| format!("no verbs in {line:?}"))?;
        let Some((class, purpose)) = head.split_once(' ') else {
            out.kinds.entry(head).or_default().extend(words.split_whitespace());
            continue;
        };
        let action = Action::ALL.into_iter().find(|action| action.as_str() == class);
        if action.is_none() && class != "-" {
            return Err(format!("unknown class {class:?}"));
        }
        let purpose = match purpose {
            "query" => Purpose::Query,
            "action" => Purpose::Action,
            "either" => Purpose::Unknown,
            other => return Err(format!("unknown purpose {other:?}")),
        };
        for word in words.split_whitespace() {
            let verb = word.trim_end_matches('*');
            let entry = Verb { action, purpose, is_weak: verb != word };
            for form in forms(verb) {
                out.forms.entry(form).or_insert(entry);
            }
        }
    }
    Ok(out)
}

/// The English forms of a verb; forms that do not exist do no harm.
fn forms(verb: &str) -> impl Iterator<Item = String> {
    let root = verb.strip_suffix('e').unwrap_or(verb);
    let verb_forms = ["", "s", "es", "led", "ling"].map(|ending| format!("{verb}{ending}"));
    verb_forms.into_iter().chain(["ed", "ing"].map(|ending| format!("{root}{ending}")))
}

/// The verb of which a word in lower case is a form, or the verb in a name in Chinese or Japanese.
fn verb_of(word: &str) -> Option<Verb> {
    let in_unspaced = || if word.is_ascii() { None } else { verb_in_unspaced_name(word) };
    VERBS.forms.get(word).copied().or_else(in_unspaced)
}

/// The verb of a name without spaces: "取消订单", "予約を変更する". If there is one at the beginning and one at the end, a
/// verb that queries takes precedence over the other one, and a verb over a common noun, since the other is its object.
fn verb_in_unspaced_name(name: &str) -> Option<Verb> {
    // The name must begin with a Chinese or Japanese character.
    name.starts_with(|c: char| c >= '\u{3040}').then_some(())?;
    let name = name.strip_suffix("する").unwrap_or(name);
    let prefix_ends: Vec<usize> =
        name.char_indices().map(|(at, _)| at).skip(2).take(MAX_VERB_CHARS - 1).collect();
    let suffix_starts: Vec<usize> =
        name.char_indices().rev().map(|(at, _)| at).skip(1).take(MAX_VERB_CHARS - 1).collect();
    let verb_for = |part: Option<&str>| VERBS.forms.get(part?).copied();
    let first = prefix_ends.iter().rev().find_map(|end| verb_for(name.get(..*end)));
    let last = suffix_starts.iter().rev().find_map(|start| verb_for(name.get(*start..)));
    let candidates = || first.into_iter().chain(last);
    let is_strong = |verb: &Verb| !verb.is_weak;
    candidates()
        .find(|verb| is_strong(verb) && verb.purpose == Purpose::Query)
        .or_else(|| candidates().find(is_strong))
        .or_else(|| candidates().next())
}

/// The action of a word in lower case; `None` if it is no verb with an action.
pub(crate) fn action_of(word: &str) -> Option<Action> {
    verb_of(word)?.action
}

/// Whether a word in lower case is a verb by which tools are named, and not a common noun.
pub(crate) fn is_verb(word: &str) -> bool {
    VERBS.forms.get(word).is_some_and(|verb| !verb.is_weak)
}

/// Whether the results of a tool change without an action of the run: the tool waits, pages, or reads a clock or a
/// progress. Computed once per name.
pub(crate) fn varies(memo: &Memo, tool: &Text) -> bool {
    struct Varies(bool);
    memo.for_text(tool, |_| Varies(is_varying(&NameWords::cached(tool, memo)))).0
}

/// Whether the words of a tool's name include a word of a kind in `tool_verbs.txt`: the tool `prepares` an action for a
/// decision, `asks` somebody, `writes` a text for a reader, returns `documents` or the `records` of a user, or
/// `varies`.
pub(crate) fn is_of_kind<'w>(kind: &str, words: impl IntoIterator<Item = &'w String>) -> bool {
    let is_of = |kind_words: &HashSet<&str>| words.into_iter().any(|word| kind_words.contains(word.as_str()));
    VERBS.kinds.get(kind).is_some_and(is_of)
}

/// As [`varies`], by the words of the tool's name.
fn is_varying(words: &[String]) -> bool {
    let pairs: Vec<String> = words.windows(2).map(|pair| pair.concat()).collect();
    is_of_kind("varies", words) || is_of_kind("varies", &pairs)
}

/// Whether a call with one action may carry out the other action, as a deletion may be a cancellation.
pub(crate) fn are_alike(a: Action, b: Action) -> bool {
    use Action::*;
    const SIMILAR: [&[Action]; 4] = [
        &[Cancel, Delete, Refund, Return],
        &[Book, Order, Create, Add, Schedule, Submit, Pay, Save],
        &[Send, Notify, Transfer, Submit, Create],
        &[Pay, Transfer, Refund],
    ];
    let is_any = |action: Action| matches!(action, Update | Execute);
    a == b
        || is_any(a)
        || is_any(b)
        || SIMILAR.iter().any(|actions| actions.contains(&a) && actions.contains(&b))
}

/// The stems of the content words of a text, in lower case and in order.
pub(crate) fn stems(text: &str) -> impl Iterator<Item = String> + '_ {
    work::count(1 + text.len() / BYTES_PER_STEP);
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2);
    words.map(str::to_lowercase).filter(|word| has_content(word)).map(|mut word| {
        word.truncate(stem(&word).len());
        word
    })
}

/// Whether a word in lower case names an action or a thing. The function words are those of English alone: those of
/// another language may be content words in the names of tools ("die", "son").
fn has_content(word: &str) -> bool {
    let is_unspecific = VERBS.kinds.get("unspecific").is_some_and(|words| words.contains(word));
    !is_unspecific && (VERBS.forms.contains_key(word) || !Language::English.is_function_word(word))
}

/// A word without the ending of a plural.
fn stem(word: &str) -> &str {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u']) => stem,
        _ => word,
    }
}

/// The purpose and the actions of one tool.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolPurpose {
    purpose: Purpose,
    pub actions: Vec<Action>,
}

impl ToolPurpose {
    pub(crate) fn new(name: &str, description: Option<&str>) -> ToolPurpose {
        ToolPurpose::with_name_words(&identifier_words(name), description)
    }

    /// As [`ToolPurpose::new`], with the words of the name.
    fn with_name_words(words: &[String], description: Option<&str>) -> ToolPurpose {
        let mut actions: Vec<Action> = words.iter().filter_map(|word| action_of(word)).collect();
        if actions.is_empty() {
            actions.extend(lead_verbs(description).find_map(|verb| verb.action));
        }
        ToolPurpose { purpose: purpose_of(words, description), actions }
    }

    /// The purpose of the tool of a call, computed once per name.
    pub(crate) fn for_call(trace: &AgentTrace, memo: &Memo, call: &Call) -> Rc<ToolPurpose> {
        let name = &call.name;
        memo.for_text(name, |_| {
            ToolPurpose::with_name_words(&NameWords::cached(name, memo), description(trace, memo, call))
        })
    }

    /// Whether the tool returns information and changes nothing.
    pub(crate) fn is_query(&self) -> bool {
        self.purpose == Purpose::Query
    }

    /// Whether the tool may carry out `action`, which is also true for a tool without known actions.
    pub(crate) fn may_do(&self, action: Action) -> bool {
        self.actions.is_empty() || !self.is_query() && self.actions.iter().any(|a| are_alike(*a, action))
    }
}

/// The objects of a tool: the stems of the words of its name and of its description's first sentence, without its verb.
pub(crate) struct ToolObjects(pub HashSet<String>);

impl ToolObjects {
    pub(crate) fn new(name: &str, description: Option<&str>) -> ToolObjects {
        let mut objects = HashSet::default();
        let mut is_after_verb = false;
        for word in identifier_words(name) {
            let is_verb = action_of(&word).is_some();
            // After the verb, the words of a name are nouns: "order" in `cancel_order`.
            if !is_verb || is_after_verb {
                objects.extend(stems(&word));
            }
            is_after_verb |= is_verb;
        }
        let tool = ToolPurpose::new(name, description);
        let is_own_verb = |word: &str| action_of(word).is_some_and(|a| tool.actions.first() == Some(&a));
        let words = first_sentence_words(description).take(MAX_WORDS).flat_map(stems);
        objects.extend(words.filter(|word| !is_own_verb(word)));
        ToolObjects(objects)
    }

    /// The objects of a call's tool, computed once per name.
    pub(crate) fn for_call(trace: &AgentTrace, memo: &Memo, call: &Call) -> Rc<ToolObjects> {
        memo.for_text(&call.name, |name| ToolObjects::new(name, description(trace, memo, call)))
    }
}

/// The purpose of the tool of a call, computed once per name.
pub(crate) fn purpose(trace: &AgentTrace, memo: &Memo, call: &Call) -> Purpose {
    let compute_purpose =
        |_: &str| purpose_of(&NameWords::cached(&call.name, memo), description(trace, memo, call));
    *memo.for_text(&call.name, compute_purpose)
}

/// The purpose of a tool by the words of its name and its description.
fn purpose_of(words: &[String], description: Option<&str>) -> Purpose {
    let verbs = words.iter().filter_map(|word| verb_of(word));
    let mut verbs = verbs.chain(lead_verbs(description)).filter(|verb| !verb.is_weak);
    verbs.next().map_or(Purpose::Unknown, |verb| verb.purpose)
}

/// The verbs among the first words of a description.
fn lead_verbs(description: Option<&str>) -> impl Iterator<Item = Verb> {
    first_sentence_words(description).take(MAX_LEAD_WORDS).filter_map(|word| {
        match word.to_lowercase().as_str() {
            // In a description the verb states the returned value; in a name it means to take something back.
            "return" | "returns" => {
                Some(Verb { action: Some(Action::Search), purpose: Purpose::Query, is_weak: false })
            }
            word => verb_of(word),
        }
    })
}

/// The words of the first sentence of a description.
fn first_sentence_words(description: Option<&str>) -> impl Iterator<Item = &str> {
    let text = description.unwrap_or_default();
    let end = memchr::memmem::find(text.as_bytes(), b". ").unwrap_or(text.len());
    let sentence = text.get(..end).unwrap_or_default();
    sentence.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// The description of the tool of a call, from the call or else from the tools of its agent.
pub(crate) fn description<'t>(trace: &'t AgentTrace, memo: &Memo, call: &'t Call) -> Option<&'t str> {
    let call_description = call.definition.as_ref().and_then(|definition| definition.description.as_deref());
    call_description
        .or_else(|| OfferedTo::Agent(call.agent?).find(trace, memo, &call.name)?.description.as_deref())
}

/// The parameters of a tool with their schemas.
pub(crate) fn parameters(tool: &ToolDefinition) -> impl Iterator<Item = (&String, &Value)> {
    let properties = tool.parameters.as_deref().and_then(|schema| schema.get("properties"));
    properties.and_then(Value::as_object).into_iter().flatten().take(MAX_PARAMETERS)
}

/// Whether a verb in the name of a tool says that it opens what a lookup names.
pub(crate) fn opens(verb: &str) -> bool {
    matches!(verb, "open" | "read" | "fetch" | "get" | "view" | "visit" | "load" | "download")
}

/// The tools that were offered to an agent, without control tools.
pub(crate) fn offered_tools(trace: &AgentTrace, agent: usize) -> impl Iterator<Item = &ToolDefinition> {
    let tools = trace.agents.get(agent).map(|a| a.tools.as_slice()).unwrap_or_default();
    tools.iter().take(MAX_TOOLS).filter(|tool| !trace.control_tools.is_control(&tool.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_of_a_name_or_description_are_its_actions() {
        for (name, description, action) in [
            ("cancel_booking", None, Action::Cancel),
            ("sendEmail", None, Action::Send),
            ("get_order_details", None, Action::Search),
            ("appointment-schedule", None, Action::Schedule),
            ("sim_swap_v2", None, Action::Return),
            ("crm", Some("Updates the record of a customer. Never call it twice."), Action::Update),
        ] {
            let tool = ToolPurpose::new(name, description);
            assert_eq!(tool.actions.first(), Some(&action), "{name}");
        }
        assert!(ToolPurpose::new("frobnicate", None).may_do(Action::Cancel));
    }

    #[test]
    fn names_in_every_language_have_their_actions() {
        let mut language = "";
        let (mut count_by_language, mut wrong) =
            (std::collections::BTreeMap::<&str, usize>::new(), Vec::new());
        for line in include_str!("language/sentences/tool_names.txt").lines() {
            if let Some(next) = line.strip_prefix("= ") {
                language = next;
                continue;
            }
            *count_by_language.entry(language).or_default() += 1;
            let (action, name) = line.split_once(": ").unwrap_or(("", line));
            let tool = ToolPurpose::new(name, None);
            let first = tool.actions.first().map_or("", |action| action.as_str());
            let is_right = if action.is_empty() { tool.purpose != Purpose::Action } else { first == action };
            if !is_right {
                wrong.push(format!("{language}: {line}: {:?} {:?}", tool.actions, tool.purpose));
            }
        }
        assert!(wrong.is_empty(), "{} names:\n{}", wrong.len(), wrong.join("\n"));
        assert!(
            count_by_language.len() == 16 && count_by_language.values().all(|count| *count >= 20),
            "{count_by_language:?}"
        );
    }

    #[test]
    fn queries_carry_out_no_action_and_similar_actions_are_interchangeable() {
        assert!(ToolPurpose::new("get_order", None).is_query());
        assert!(!ToolPurpose::new("get_order", None).may_do(Action::Order));
        assert!(!ToolPurpose::new("order_search", None).may_do(Action::Order));
        assert!(ToolPurpose::new("delete_reservation", None).may_do(Action::Cancel));
        assert!(!ToolPurpose::new("send_invoice", None).may_do(Action::Cancel));
        assert!(are_alike(Action::Update, Action::Refund) && !are_alike(Action::Send, Action::Book));
    }

    #[test]
    fn objects_are_the_words_besides_the_verb() {
        let object_words = |name, description| {
            let mut objects: Vec<String> = ToolObjects::new(name, description).0.into_iter().collect();
            objects.sort_unstable();
            objects
        };
        let user_description = "Get the details of a user, including orders.";
        assert_eq!(object_words("get_user_details", Some(user_description)), ["order", "user"]);
        assert_eq!(object_words("cancel_pending_order", None), ["order", "pending"]);
        assert_eq!(
            object_words("get_fattura", Some("Restituisce informazioni. Gratuito.")),
            ["fattura", "restituisce"]
        );
    }

    #[test]
    fn purpose_follows_from_the_name_or_else_the_description() {
        for (name, description, purpose) in [
            ("find_member", "", Purpose::Query),
            ("file_search", "", Purpose::Query),
            ("return_delivered_items", "Returns items", Purpose::Action),
            ("weather", "Returns the weather", Purpose::Query),
            ("irrigation", "Starts the pump", Purpose::Action),
            ("order_status", "Gets the state of an order", Purpose::Query),
            ("order_status", "", Purpose::Unknown),
            ("open_account", "", Purpose::Unknown),
            ("weather", "", Purpose::Unknown),
        ] {
            assert_eq!(
                purpose_of(&identifier_words(name), Some(description)),
                purpose,
                "{name} {description}"
            );
        }
    }

    #[test]
    fn results_of_waiting_paging_and_progress_tools_vary() {
        let varies = |tool: &str| is_varying(&identifier_words(tool));
        for tool in ["page_down", "scrollDown", "job-status", "wait"] {
            assert!(varies(tool), "{tool}");
        }
        for tool in ["get_page", "look_up", "timetable"] {
            assert!(!varies(tool), "{tool}");
        }
    }
}
