//! Steps that the instructions put before an action, and that the run skipped: "Before any change to a policy, call
//! `send_otp`", and a new address without it.
//!
//! Principle: instructions that name a tool, and what it comes before, are about the calls that are such an action. The
//! action needs an earlier call of the tool, whatever it returned. A sentence with a condition or a choice is not
//! compared, nor one that is about a thing that neither the call nor the user names; an earlier result that says that the
//! step was done (`verified: true`) stands for it. A confirmation of the user is such a step as well: it needs a message of
//! theirs before the action.
//!
//! In: the instructions, the tools that were offered and the calls of an agent. Out: one finding for each agent, on the
//! model span that wrote the call.

use verdict_otlp::trace::Idx;

use super::answer::sentences;
use super::conduct::Conduct;
use super::records::{Scalar, Structure};
use crate::measure::agent::agent_index;
use crate::measure::defects::Defect;
use crate::measure::dialogue::said_by_user;
use crate::measure::identifier::identifier_words;
use crate::measure::language::Action;
use crate::measure::tool_purpose::{ToolPurpose, action_of, offered, stems};
use crate::measure::{Finding, Memo};
use crate::recognise::{AgentTrace, Call, Part, Role};

/// Most bytes of instructions and of one sentence that are read.
const MAX_BYTES: usize = 32 << 10;
const MAX_SENTENCE: usize = 400;
/// Most calls of an agent that are read.
const MAX_CALLS: usize = 100;
/// Letters of a word by which it is the same: "verified", `verify_otp`.
const STEM: usize = 5;

// Where what comes later begins: English, German, French, Spanish and Portuguese, Italian.
regex!(
    BEFORE,
    r"(?i)\b(?:before|prior to|bevor|vor jeder|vor jedem|avant de|avant toute?|avant|antes de|prima di)\s+"
);
// Words by which a step is not always needed.
regex!(
    CONDITION,
    r"(?i)\b(?:if|unless|when|whenever|except|only|above|over|below|under|than|or|optional\w*|may|can|could|recommended|wenn|falls|außer|nur|oder|ab|si|sauf|ou|o|salvo|se|solo)\b|\d"
);

// A confirmation that the user has to give, in English, German, French, Spanish and Italian; and words by which a request
// confirms in advance.
regex!(
    CONFIRMS,
    r"(?ix)
    \b(?:get|obtain|ask\ for|wait\ for|require|request|need|have|receive)s?\ (?:\w+[\ '’]+){0,5}(?:confirmation|consent|approval|permission|agreement|go-ahead)\b
    |\bconfirm\ (?:\w+\ ){0,4}with\ (?:the\ )?(?:user|customer|client|caller|guest|patient|member|them)\b
    |\b(?:user|customer|client|caller|guest|patient|member|they)\ (?:\w+\ ){0,3}(?:confirm|agree|approve|consent)(?:s|ed)?\b
    |\bask\ (?:the\ )?(?:user|customer|client|caller|guest|patient|member|them)\ (?:\w+\ ){0,2}(?:for\ (?:\w+\ )?confirmation|to\ (?:confirm|approve|agree))\b
    |\b(?:bestätigung|zustimmung|einverständnis|accord|confirmation|consentement|confirmación|consentimiento|conferma|consenso)\ (?:explicite\ |expresa\ |esplicita\ )?(?:des|der|vom|von|du|de|del|dell['’])"
);
regex!(
    AGREES,
    r"(?i)\b(?:confirm\w*|yes|agree\w*|approv\w*|go ahead|without asking|no need|ja|oui|s[íi]|directly|right away|immediately)\b"
);

/// What the instructions put before what.
struct Order<'t> {
    /// The tools of the steps, in order.
    steps: Vec<&'t str>,
    /// The user has to confirm it.
    confirms: bool,
    /// What comes later.
    later: &'t str,
    sentence: &'t str,
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, attempts, i, .. } = *conduct;
    let made: Vec<(usize, &Call)> = conduct.calls(MAX_CALLS).collect();
    // Most runs only look things up, and need no instructions read.
    let acts = |(at, call): &(usize, &Call)| {
        call.llm.is_some() && attempts.has_succeeded(*at) && conduct.is_action(call)
    };
    if !made.iter().any(acts) {
        return None;
    }
    let text = agent_index::instructions(trace, i).filter(|text| text.len() <= MAX_BYTES)?;
    let tools: Vec<&str> =
        offered(trace, i).map(|tool| &*tool.name).filter(|name| is_distinct(name)).collect();
    let names_step = || tools.iter().any(|tool| text.contains(tool)) || CONFIRMS.is_match(text);
    if !memo.budget.spend(text.len() / 16 * (1 + tools.len() / 8)) || !BEFORE.is_match(text) || !names_step()
    {
        return None;
    }
    let read = sentences(text).into_iter().filter_map(|(start, end)| text.get(start..end));
    let orders: Vec<Order<'_>> = read.filter_map(|sentence| order(sentence, &tools)).collect();
    orders.iter().find_map(|order| {
        let is_step = |name: &str| order.steps.iter().any(|step| step.eq_ignore_ascii_case(name.trim()));
        made.iter().find_map(|(at, call)| {
            let llm = call.llm.filter(|_| attempts.has_succeeded(*at) && !is_step(&call.name))?;
            let is_meant = is_later(trace, memo, i, call, order.later, &tools);
            if is_meant && order.confirms && !has_spoken(trace, memo, i, llm) {
                let why = format!(
                    "a confirmation of the user was expected before {}, since the instructions say: \"{}\"",
                    call.name.trim(),
                    order.sentence.trim()
                );
                return conduct.finding(Defect::StepSkipped, why, call);
            }
            let skipped = order.steps.iter().filter(|_| is_meant).find(|step| {
                let is_it = |name: &str| name.trim().eq_ignore_ascii_case(step);
                let parts =
                    trace.views.get(llm).into_iter().flat_map(|view| &view.input).flat_map(|m| &m.parts);
                let in_prompt =
                    parts.into_iter().any(|part| matches!(part, Part::Call(of) if is_it(&of.name)));
                let earlier = made.iter().take_while(|(_, other)| other.start < call.start);
                !in_prompt && !earlier.into_iter().any(|(_, other)| is_it(&other.name))
            })?;
            if is_told(trace, memo, call, skipped) {
                return None;
            }
            let rationale = format!(
                "a call of {skipped} was expected before {}, since the instructions say: \"{}\"",
                call.name.trim(),
                order.sentence.trim()
            );
            conduct.finding(Defect::StepSkipped, rationale, call)
        })
    })
}

/// Whether the user said more than the request before a model call, or the request itself confirms.
fn has_spoken(trace: &AgentTrace, memo: &Memo, agent: usize, llm: Idx) -> bool {
    let Some(view) = trace.views.get(llm) else { return true };
    let of_user = view.input.iter().filter(|message| message.role == Role::User).count();
    of_user != 1 || said_by_user(trace, memo, agent).first().is_none_or(|task| AGREES.is_match(task))
}

/// Whether a tool's name cannot be a word of a sentence.
fn is_distinct(name: &str) -> bool {
    let has_inner_capital =
        name.bytes().zip(name.bytes().skip(1)).any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase());
    name.contains(['_', '-']) || has_inner_capital
}

/// The order that a sentence demands, if it has no condition.
fn order<'t>(sentence: &'t str, tools: &[&'t str]) -> Option<Order<'t>> {
    let before = BEFORE.find(sentence).filter(|_| sentence.len() <= MAX_SENTENCE)?;
    let rest = sentence.get(before.end()..)?;
    let end = rest.find([',', ':', ';', '(', '\n']).unwrap_or(rest.len());
    let later = rest.get(..end)?;
    let around = [sentence.get(..before.start())?, rest.get(end..)?];
    // A negation says what is not needed, or what must not be done: "do not" before what comes later is no condition.
    if around.iter().any(|part| CONDITION.is_match(part)) || CONDITION.is_match(later) {
        return None;
    }
    let is_in = |part: &str, tool: &str| {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        part.match_indices(tool).any(|(at, _)| {
            let before = part.get(..at).and_then(|text| text.chars().next_back());
            let after = part.get(at + tool.len()..).and_then(|text| text.chars().next());
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    };
    let named = |tool: &&&'t str| around.iter().any(|part| is_in(part, tool));
    let steps: Vec<&str> = tools.iter().filter(named).copied().collect();
    // Without a comma the step stands behind what comes later: "before a refund you must call check_id".
    let last =
        tools.iter().filter(|tool| is_in(later, tool)).filter_map(|tool| Some((later.rfind(tool)?, *tool)));
    let (steps, later) = match last.max_by_key(|(at, _)| *at).filter(|_| steps.is_empty()) {
        Some((at, tool)) => (vec![tool], later.get(..at)?),
        None => (steps, later),
    };
    let confirms = around.iter().any(|part| CONFIRMS.is_match(part));
    (!steps.is_empty() || confirms).then_some(Order { steps, confirms, later, sentence })
}

/// Whether a call is what comes later: its tool is named there, or its action and what it is done to.
fn is_later(trace: &AgentTrace, memo: &Memo, agent: usize, call: &Call, later: &str, tools: &[&str]) -> bool {
    let name = call.name.trim();
    if tools.iter().any(|tool| later.contains(tool)) {
        return later.contains(name) && is_distinct(name);
    }
    let purpose = ToolPurpose::of_call(trace, memo, call);
    let Some(first) = purpose.actions.first().filter(|_| !purpose.is_query()) else { return false };
    let words: Vec<String> = stems(later).collect();
    let verbs: Vec<Action> = words.iter().filter_map(|word| verb(word)).collect();
    if !verbs.contains(first) {
        return false;
    }
    let passed = call.parsed.as_deref().and_then(serde_json::Value::as_object).into_iter().flatten();
    let mut known: Vec<String> = passed.flat_map(|(key, _)| identifier_words(key)).collect();
    known.extend(identifier_words(name));
    known.extend(said_by_user(trace, memo, agent).iter().flat_map(|text| stems(text).collect::<Vec<_>>()));
    let is_known = |word: &String| known.iter().any(|of| alike(of, word));
    words.iter().filter(|word| verb(word).is_none() && !is_plain(word)).all(is_known)
}

/// The action of a verb or of its noun: "cancellation".
fn verb(word: &str) -> Option<Action> {
    let of_noun = || {
        let root = ["lation", "ation", "tion", "ment", "al"].iter().find_map(|end| word.strip_suffix(end))?;
        action_of(root).or_else(|| action_of(&format!("{root}e"))).or_else(|| action_of(&format!("{root}te")))
    };
    // "Änderung", "Buchung".
    let of_german = || {
        let root = word.strip_suffix("en").unwrap_or(word).strip_suffix("ung")?;
        action_of(&format!("{root}n")).or_else(|| action_of(&format!("{root}en")))
    };
    let of_noun = || of_noun().or_else(of_german);
    action_of(word).or_else(of_noun)
}

/// Words that name nothing.
fn is_plain(word: &str) -> bool {
    const PLAIN: [&str; 19] = [
        "making",
        "doing",
        "performing",
        "each",
        "every",
        "kind",
        "type",
        "customer",
        "user",
        "must",
        "should",
        "always",
        "first",
        "muss",
        "müssen",
        "soll",
        "wird",
        "immer",
        "zuerst",
    ];
    PLAIN.contains(&word)
}

fn alike(one: &str, other: &str) -> bool {
    let begin = |word: &str| word.get(..STEM.min(word.len())).map(str::to_owned);
    one == other || one.len() >= STEM && other.len() >= STEM && begin(one) == begin(other)
}

/// Whether an earlier result says that the step was done.
fn is_told(trace: &AgentTrace, memo: &Memo, call: &Call, step: &str) -> bool {
    let step = identifier_words(step);
    let earlier = trace.calls.iter().take(MAX_CALLS).take_while(|other| other.start < call.start);
    earlier.filter_map(|other| other.result.as_ref()).any(|result| {
        let structure = Structure::of(result, memo);
        let Some(Structure(Some(parsed))) = structure.as_deref() else { return structure.is_none() };
        let fields = parsed.records.iter().flat_map(|record| &record.fields);
        fields.into_iter().any(|field| {
            let is_named = || field.name.iter().any(|word| step.iter().any(|of| alike_begin(word, of)));
            field.value == Scalar::Bool(true) && is_named()
        })
    })
}

/// "verified" and "verify".
fn alike_begin(one: &str, other: &str) -> bool {
    let length = one.len().min(other.len()).saturating_sub(1).max(4);
    one.get(..length).is_some_and(|begin| other.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::found as found_by;
    use crate::measure::testing::Script;

    const TOOLS: [&str; 5] = ["get_member", "send_code", "check_code", "cancel_contract", "update_email"];

    fn found(system: &str, task: &str, calls: &[(&str, &str)]) -> usize {
        let script = Script::new(task).system(system).tools(&TOOLS);
        let call = |script: Script, (tool, result): &(&str, &str)| {
            script.calls("", &[(*tool, r#"{"contract_no":"K-7"}"#)]).returns(result)
        };
        let trace = calls.iter().fold(script, call).answers("Done.").build();
        found_by(check, &trace).len()
    }

    #[test]
    fn action_without_the_step_that_comes_before_it_is_found() {
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        for system in [
            "Be kind. Before cancelling a contract, call send_code and check_code.",
            "Always call check_code before cancel_contract.",
            "Before the cancellation of a contract: check_code.",
            "You must run check_code before any cancellation.",
            "Before a cancellation you must call check_code.",
            "Vor jeder Kündigung muss check_code aufgerufen werden.",
        ] {
            assert_eq!(found(system, "Cancel K-7.", &[cancelled]), 1, "{system}");
            let both = [("send_code", "sent"), ("check_code", "ok"), cancelled];
            assert_eq!(found(system, "Cancel K-7.", &both), 0, "{system}");
        }
        let before = "Before cancelling a contract, call check_code.";
        assert_eq!(found(before, "Cancel K-7.", &[cancelled, ("check_code", "ok")]), 1, "too late");
    }

    #[test]
    fn confirmation_of_the_user_needs_a_message_of_theirs() {
        let system = "Always get the explicit confirmation of the customer before cancelling a contract.";
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        assert_eq!(found(system, "Cancel K-7.", &[cancelled]), 1);
        assert_eq!(found(system, "Cancel K-7, I confirm it.", &[cancelled]), 0);
        let asked = Script::new("Cancel K-7.").system(system).tools(&TOOLS).says("Shall I cancel K-7?");
        let asked = asked.user("Yes.").calls("", &[("cancel_contract", "{}")]).returns("ok").answers("Done.");
        let trace = asked.build();
        assert!(found_by(check, &trace).is_empty());
    }

    #[test]
    fn other_actions_conditions_and_known_steps_are_none() {
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        for system in [
            "Before cancelling a contract, call send_code or check_code if the member is new.",
            "Before cancelling a premium contract, call check_code.",
            "Before updating an email, call check_code.",
            "Call check_code when asked. Think before cancelling a contract.",
            "Ask for the reason before cancelling a contract.",
        ] {
            assert_eq!(found(system, "Cancel K-7.", &[cancelled]), 0, "{system}");
        }
        let system = "Before cancelling a contract, call check_code.";
        assert_eq!(
            found(
                system,
                "Cancel K-7.",
                &[("get_member", r#"{"member":"M-1","code_checked":true}"#), cancelled]
            ),
            0
        );
        assert_eq!(found(system, "Cancel K-7.", &[("get_member", r#"{"member":"M-1"}"#)]), 0);
        assert_eq!(found(system, "Cancel K-7.", &[("cancel_contract", "Error: locked")]), 0);
    }
}
