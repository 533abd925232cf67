//! What a tool does, as a class of actions, and what it does it to.
//!
//! In: a tool's name and description. Out: its classes of actions, by the verbs of its name or else by the
//! first verb of its description, and the stems of its other words. Nothing is known of particular tools.

use foldhash::{HashMap, HashSet};

use super::identifier::identifier_words;
use super::language::Action;
use crate::recognise::{AgentTrace, ToolDefinition};

/// Words at the beginning of a description among which its verb is looked for.
const MAX_LEAD: usize = 5;
/// Maximum words of a description that are read.
const MAX_WORDS: usize = 40;
/// Maximum tools of one agent that are read.
const MAX_TOOLS: usize = 256;

// By form of a verb, the class of its action.
regex!(VERBS: HashMap<String, Action> = verbs(include_str!("tool_verbs.txt")));

fn verbs(file: &str) -> Result<HashMap<String, Action>, String> {
    let mut forms = HashMap::default();
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let (class, verbs) = line.split_once(':').ok_or_else(|| format!("no class in {line:?}"))?;
        let action = Action::ALL.into_iter().find(|action| action.as_str() == class);
        let action = action.ok_or_else(|| format!("unknown class {class:?}"))?;
        for verb in verbs.split_whitespace() {
            let root = verb.strip_suffix('e').unwrap_or(verb);
            let endings = ["s", "es", "led", "ling"].map(|ending| format!("{verb}{ending}"));
            let forms_of_root = ["ed", "ing"].map(|ending| format!("{root}{ending}"));
            for form in endings.into_iter().chain(forms_of_root).chain([verb.to_owned()]) {
                forms.entry(form).or_insert(action);
            }
        }
    }
    Ok(forms)
}

/// The class of actions of a word in lower case; none if it is no such verb.
pub(crate) fn action_of(word: &str) -> Option<Action> {
    VERBS.get(word).copied()
}

/// Whether a call of the one may be what the other states: cancelling is done by deleting as well.
pub(crate) fn are_alike(a: Action, b: Action) -> bool {
    use Action::*;
    const KINDS: [&[Action]; 4] = [
        &[Cancel, Delete, Refund, Return],
        &[Book, Order, Create, Add, Schedule, Submit, Pay, Save],
        &[Send, Notify, Transfer, Submit, Create],
        &[Pay, Transfer, Refund],
    ];
    let any = |action: Action| matches!(action, Update | Execute);
    a == b || any(a) || any(b) || KINDS.iter().any(|kind| kind.contains(&a) && kind.contains(&b))
}

/// The stems of the words of a text that carry meaning, in order.
pub(crate) fn stems(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2);
    words.map(str::to_lowercase).filter(|word| !is_function_word(word)).map(|word| stem(&word).to_owned())
}

/// A plural is the same word.
fn stem(word: &str) -> &str {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u']) => stem,
        _ => word,
    }
}

fn is_function_word(word: &str) -> bool {
    const WORDS: [&str; 45] = [
        "the",
        "and",
        "any",
        "for",
        "from",
        "with",
        "without",
        "this",
        "that",
        "these",
        "those",
        "their",
        "its",
        "your",
        "you",
        "our",
        "are",
        "was",
        "were",
        "has",
        "have",
        "had",
        "not",
        "cannot",
        "can",
        "unable",
        "could",
        "all",
        "one",
        "some",
        "into",
        "use",
        "used",
        "using",
        "tool",
        "function",
        "directly",
        "such",
        "also",
        "about",
        "information",
        "detail",
        "details",
        "data",
        "including",
    ];
    WORDS.contains(&word)
}

/// What one tool does.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolPurpose {
    pub actions: Vec<Action>,
    /// The stems of the other words of its name and of its description's first sentence.
    pub objects: HashSet<String>,
}

impl ToolPurpose {
    pub(crate) fn of(name: &str, description: Option<&str>) -> ToolPurpose {
        let mut purpose = ToolPurpose::default();
        for word in identifier_words(name) {
            let action = action_of(&word);
            // After its verb, the words of a name are nouns: "order" in `cancel_order`.
            if action.is_none() || !purpose.actions.is_empty() {
                purpose.objects.extend(stems(&word));
            }
            purpose.actions.extend(action);
        }
        let sentence = description.map(|d| d.split(". ").next().unwrap_or(d)).unwrap_or_default();
        let words =
            || sentence.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).take(MAX_WORDS);
        if purpose.actions.is_empty() {
            let lead = words().take(MAX_LEAD).find_map(|word| action_of(&word.to_lowercase()));
            purpose.actions.extend(lead);
        }
        let is_own_verb = |word: &str| action_of(word).is_some_and(|a| purpose.actions.first() == Some(&a));
        let nouns: Vec<String> = words().flat_map(stems).filter(|word| !is_own_verb(word)).collect();
        purpose.objects.extend(nouns);
        purpose
    }

    /// Whether the tool returns information and changes nothing: its first verb says so.
    pub(crate) fn is_query(&self) -> bool {
        self.actions.first().is_some_and(|action| action.is_work())
    }

    /// Whether it may do `action`; of an unknown tool it is not known that it does not.
    pub(crate) fn may_do(&self, action: Action) -> bool {
        self.actions.is_empty() || !self.is_query() && self.actions.iter().any(|a| are_alike(*a, action))
    }
}

/// The tools that an agent was offered, without those that only control the run.
pub(crate) fn offered(trace: &AgentTrace, agent: usize) -> impl Iterator<Item = &ToolDefinition> {
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
            let purpose = ToolPurpose::of(name, description);
            assert_eq!(purpose.actions.first(), Some(&action), "{name}");
        }
        assert!(ToolPurpose::of("frobnicate", None).may_do(Action::Cancel));
    }

    #[test]
    fn queries_do_nothing_and_alike_actions_support_each_other() {
        assert!(ToolPurpose::of("get_order", None).is_query());
        assert!(!ToolPurpose::of("get_order", None).may_do(Action::Order));
        assert!(ToolPurpose::of("delete_reservation", None).may_do(Action::Cancel));
        assert!(!ToolPurpose::of("send_invoice", None).may_do(Action::Cancel));
        assert!(are_alike(Action::Update, Action::Refund) && !are_alike(Action::Send, Action::Book));
    }

    #[test]
    fn objects_are_the_other_words() {
        let purpose =
            ToolPurpose::of("get_user_details", Some("Get the details of a user, including orders."));
        let mut objects: Vec<&str> = purpose.objects.iter().map(String::as_str).collect();
        objects.sort_unstable();
        assert_eq!(objects, ["order", "user"]);
        let cancel = ToolPurpose::of("cancel_pending_order", None);
        assert!(cancel.objects.contains("order") && !cancel.objects.contains("cancel"));
    }
}
