//! Placeholders in executed calls: `YOUR_API_KEY`, `path/to/file`, `[Recipient's name]`.
//!
//! Principle: the arguments of a call are complete. A placeholder marks a value that the model did not have and left to
//! a reader, but a call is executed before a person reads it. Placeholders are allowed in texts and files that the
//! model writes for later use, and if a message, a result or the tool's definition has them.
//!
//! In: the arguments of calls. Out: one finding for each placeholder, on the model span that wrote the call.

use foldhash::HashSet;
use verdict_otlp::trace::{Idx, Kind};

use crate::measure::calls::attempts::{Attempt, CallAttempts};
use crate::measure::conversation::runs_code;
use crate::measure::defects::Defect;
use crate::measure::excerpt::{around, clip};
use crate::measure::identifier::NameWords;
use crate::measure::provenance::{KnownTexts, have_wording};
use crate::measure::tool_purpose::is_of_kind;
use crate::measure::{Finding, Memo};
use crate::recognise::{AgentTrace, Call};

/// Maximum calls of a trace that are read.
const MAX_CALLS: usize = 2_000;
/// Maximum bytes of the arguments of one call that are read.
const MAX_BYTES: usize = 32 << 10;
/// Maximum findings of a trace.
const MAX_FINDINGS: usize = 4;
/// The words of placeholders in all languages, with one line for each group and language.
const WORDS: &str = include_str!("../language/data/placeholders.txt");

// A name in capitals or with underscores, brackets with an instruction to the reader, or a path such as "path/to/file".
// The words of all languages, since arguments have the words of code and forms.
regex!(
    PLACEHOLDER,
    &[
        r"(?i)\b(?:{your}|{my})[-_](?:[a-z0-9]+[-_]){0,3}?(?:(?:{secret})[-_](?:api\b|{here.})|{secret.})",
        r"\byour[-_](?:[a-z0-9]+[-_]){0,2}(?:id|username|user|email|domain|project|account|url|endpoint|name|file|path|host|bucket|organization|org)(?:[-_]here)?\b",
        r"\b(?:{insert})[-_](?:[\p{L}0-9]+[-_]){0,4}(?:{here.})|\b(?:{here})[-_](?:[\p{L}0-9]+[-_]){1,4}(?:{insert.})|\breplace[-_]?me\b|\bchange[-_]?me\b",
        r"<(?:{your}|{insert})[ _-][^<>\n]{1,40}>|<(?:api|access|auth|secret)[ _-]?(?:key|token)>",
        r"\[(?:{your}|{insert}|{party})(?:['’]s)?(?: [\p{L}'’]{2,15}){0,3}\]",
        r"\b(?:{path})/(?:{to})/[\w.-]+",
        "{whole}",
    ]
    .map(with_words)
    .join("|")
);

/// The pattern with the words of the data file in place of the names of their groups in braces. After a word of
/// `{name.}` no letter may follow: a word that ends in an ASCII character is followed by `\b`, which other scripts do
/// not need.
fn with_words(pattern: &str) -> String {
    let names = ["your", "my", "secret", "here", "insert", "party", "path", "to", "whole"];
    names.iter().fold(pattern.to_owned(), |pattern, name| {
        let lines = WORDS.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let words: Vec<&str> = lines.filter_map(|line| Some(line.split_once(' ')?.1)).collect();
        let words = words.join("|");
        let end = |word: &str| if word.ends_with(|c: char| c.is_ascii()) { r"\b" } else { "" };
        let words_with_borders: Vec<String> =
            words.split('|').map(|word| format!("{word}{}", end(word))).collect();
        pattern
            .replace(&format!("{{{name}}}"), &words)
            .replace(&format!("{{{name}.}}"), &words_with_borders.join("|"))
    })
}

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(Idx, Finding)> {
    let mut out = Vec::new();
    let mut reported: HashSet<String> = HashSet::default();
    for (i, call) in trace.calls.iter().enumerate().take(MAX_CALLS) {
        let Some(arguments) = call.arguments.as_deref() else { continue };
        let arguments = clip(arguments, MAX_BYTES);
        if out.len() >= MAX_FINDINGS || !memo.budget.spend(1 + arguments.len() / 4) {
            break;
        }
        let Some(placeholder_match) = PLACEHOLDER.find(arguments) else { continue };
        let placeholder = placeholder_match.as_str();
        let is_variable = runs_code(&call.name) && is_assigned(arguments, placeholder);
        if is_variable || reported.contains(placeholder) || is_for_reader(trace, memo, call) {
            continue;
        }
        let Some(llm) =
            author(trace, call, placeholder).filter(|_| !is_known(trace, memo, call, placeholder))
        else {
            continue;
        };
        reported.insert(placeholder.to_owned());
        let quote = around(arguments, placeholder_match.start(), placeholder_match.end(), 60);
        let rationale = format!(
            "whole arguments were expected, since {} carries them out; they contain the placeholder {placeholder}",
            call.name.trim()
        );
        let finding = Defect::PlaceholderExecuted.finding(rationale, quote).citing_at(trace, call.at);
        // If the call failed, its failure is the finding.
        let has_failed = attempts.at(i).is_some_and(Attempt::failed);
        out.push((llm, if has_failed { finding.noted() } else { finding }));
    }
    out
}

/// Whether code assigns a value to this name, so that the name is a variable.
fn is_assigned(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let after = code.get(at + name.len()..).unwrap_or_default().trim_start();
        let before = code.get(..at).unwrap_or_default().trim_end();
        after.starts_with('=') && !after.starts_with("==")
            || ["for", "as", "let", "const", "var", "def"]
                .iter()
                .any(|word| before.strip_suffix(word).is_some_and(|b| !b.ends_with(char::is_alphanumeric)))
    })
}

/// Whether the tool ends the run or writes a text, which a reader may complete.
fn is_for_reader(trace: &AgentTrace, memo: &Memo, call: &Call) -> bool {
    trace.control_tools.is_control(&call.name) || writes_text(&NameWords::cached(&call.name, memo))
}

/// Whether a tool with these words in its name writes a text for a reader.
pub(super) fn writes_text(name: &[String]) -> bool {
    is_of_kind("writes", name)
}

/// The model span that wrote the call: the span that requested it, or else the last span before the call whose output
/// has the placeholder, since an agent may execute the text of another one.
fn author(trace: &AgentTrace, call: &Call, placeholder: &str) -> Option<Idx> {
    let has = |at: Idx| trace.views.get(at).is_some_and(|view| view.output_text().contains(placeholder));
    let end = |at: Idx| trace.tree.spans.get(at).map_or(u64::MAX, |span| span.end);
    let latest_with_placeholder = || {
        let llms =
            (0..trace.views.len()).filter(|at| trace.views.get(*at).is_some_and(|v| v.kind == Kind::Llm));
        llms.filter(|at| end(*at) <= call.start && has(*at)).max_by_key(|at| end(*at))
    };
    call.llm.or_else(latest_with_placeholder)
}

/// Whether a message, a result or the tool's definition has the placeholder.
fn is_known(trace: &AgentTrace, memo: &Memo, call: &Call, placeholder: &str) -> bool {
    let definition = call.definition.as_ref();
    let is_in_description =
        definition.and_then(|d| d.description.as_deref()).is_some_and(|d| d.contains(placeholder));
    let schema = definition.and_then(|d| d.parameters.as_deref());
    let is_in_schema = || schema.is_some_and(|schema| schema.to_string().contains(placeholder));
    let is_in_earlier_text = || {
        let known = KnownTexts::cached(trace, memo);
        let texts = known.before(trace, call).into_iter().flatten();
        have_wording(texts, memo, |text| text.contains(placeholder))
    };
    is_in_description || is_in_schema() || is_in_earlier_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn finding_count(script: Script) -> usize {
        let (trace, memo) = (script.build(), Memo::new());
        let findings = find(&trace, &memo, &CallAttempts::get(&trace, &memo));
        findings.into_iter().filter(|(_, finding)| !finding.is_note()).count()
    }

    fn call(tool: &str, arguments: &str) -> Script {
        Script::new("Please take care of it.").calls("", &[(tool, arguments)]).returns("ok").answers("Done.")
    }

    #[test]
    fn placeholder_in_executed_arguments_is_found() {
        for (tool, arguments) in [
            ("http_get", r#"{"url":"https://maps.example/v1?key=YOUR_API_KEY"}"#),
            ("python", r#"{"code":"token = 'your_access_token_here'\nprint(get(token))"}"#),
            (
                "send_email",
                r#"{"to":"ana@mill.example","body":"Dear [Recipient's Name], the meeting is at 9."}"#,
            ),
            ("load_table", r#"{"path":"path/to/sales.csv"}"#),
            ("query", r#"{"auth":"<insert token>","q":"open orders"}"#),
            ("http_get", r#"{"key":"你的密钥"}"#),
        ] {
            assert_eq!(finding_count(call(tool, arguments)), 1, "{arguments}");
        }
    }

    /// Arguments that must contain a placeholder and others that must not, in each language.
    #[test]
    fn placeholders_are_those_of_their_sentences() {
        let mut section = "";
        let mut wrong = Vec::new();
        for line in include_str!("../language/sentences/placeholders.txt").lines() {
            match line.strip_prefix("= ") {
                Some(heading) => section = heading,
                None if PLACEHOLDER.is_match(line) != section.ends_with('+') => wrong.push((section, line)),
                None => {}
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn failure_of_the_call_is_the_finding() {
        let failed = Script::new("Look it up.").calls("", &[("http_get", r#"{"key":"YOUR_API_KEY"}"#)]);
        assert_eq!(finding_count(failed.returns("Error: invalid key").answers("It failed.")), 0);
    }

    #[test]
    fn whole_arguments_known_values_and_texts_for_readers_are_not() {
        for (tool, arguments) in [
            ("send_email", r#"{"body":"You can reset your password [here](https://mill.example)."}"#),
            ("write_file", r#"{"name":".env.example","text":"KEY=YOUR_API_KEY"}"#),
            ("search", r#"{"query":"your name meaning"}"#),
            ("list_folder", r#"{"path":"/home/ana/path"}"#),
        ] {
            assert_eq!(finding_count(call(tool, arguments)), 0, "{arguments}");
        }
        let script = Script::new("Call it with the key YOUR_API_KEY, the sandbox accepts that.")
            .calls("", &[("http_get", r#"{"key":"YOUR_API_KEY"}"#)])
            .returns("ok");
        assert_eq!(finding_count(script.answers("Done.")), 0);
    }
}
