//! Sources that an answer claims to have read although no call opened them: "I read *Field ageing of tandems*", where a
//! search returned only the title.
//!
//! Principle: a claim to have read a source that a lookup only listed needs a call that opens the source. The title of
//! a source is not its content: where a tool that opens the source was offered, and no call has its key or its name,
//! the content was not read. Where the answer claims to have read both or all of the files with a word in their names,
//! and calls opened some of the listed files with this word, the claim needs a call for each of them. There is no
//! finding where a lookup returned the content together with the list, or where another call may have read the source.
//! [`listed_only`] compares statements about sources with what was read.
//!
//! In: the answer of an agent, and all calls. Out: one finding for each agent, on the model span that wrote the answer.

mod listed_only;

use verdict_otlp::trace::Idx;

use super::answer_span::answered_by;
use super::conduct::Conduct;
use crate::measure::defects::Defect;
use crate::measure::excerpt::lowercase;
use crate::measure::identifier::identifier_words;
use crate::measure::language::names::names_identifier;
use crate::measure::language::{Action, Language, ReadText, WordClass};
use crate::measure::numbers::from_any_word;
use crate::measure::records::{Record, RecordField, Structure};
use crate::measure::tool_purpose::{Purpose, is_of_kind, offered_tools, opens, parameters, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, agent_index};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Call, Content, Text, ToolDefinition};

/// Maximum bytes of an answer: longer answers are about many things.
const MAX_ANSWER_BYTES: usize = 6_000;
/// Maximum bytes of a message of the user: longer messages may contain the text that was read.
const MAX_MESSAGE_BYTES: usize = 2_000;
/// Maximum calls of a trace.
const MAX_CALLS: usize = 40;
/// Maximum bytes of their arguments and results.
const MAX_BYTES: usize = 64 << 10;
/// Minimum words and bytes of a title.
const MIN_TITLE_WORDS: usize = 3;
const MIN_TITLE_BYTES: usize = 15;
/// Maximum bytes of a row that lists a source without its content.
const MAX_ROW_BYTES: usize = 250;
/// Minimum characters of a word for files ("reports"), whose root is searched for in the names of files.
const MIN_NOUN_CHARS: usize = 5;
/// Bytes at the end of such a word in which its forms differ.
const ENDING_BYTES: usize = 3;
/// Maximum files of a list.
const MAX_FILES: usize = 50;
/// Minimum bytes of the name of a file: shorter names are parts of other words.
const MIN_FILE_NAME_BYTES: usize = 5;

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let is_examined = !trace.incomplete
        && answer.len() <= MAX_ANSWER_BYTES
        && (1..=MAX_CALLS).contains(&trace.calls.len())
        && !trace.calls.iter().any(|call| call.failed || call.arguments.is_none() || call.result.is_none());
    if !is_examined || !conduct.user_messages().iter().all(|text| text.len() <= MAX_MESSAGE_BYTES) {
        return None;
    }
    let texts = trace.calls.iter().flat_map(|call| [call.arguments.as_ref(), call.result.as_ref()]);
    let bytes: usize = texts.flatten().map(|text| text.len()).sum();
    if bytes > MAX_BYTES || !memo.budget.spend(1 + answer.len() / 4 + bytes / BYTES_PER_STEP) {
        return None;
    }
    let task = conduct.task(usize::MAX).map(|task| &**task);
    let analysed = ReadText::new(answer, task, memo);
    let claimed = || {
        let claims = analysed.claims_of_done_action();
        let is_reading = |action: Action| matches!(action, Action::Read | Action::Verify | Action::Search);
        let mut claims = claims.iter().filter(|claim| is_reading(claim.action)).peekable();
        claims.peek()?;
        let language = Language::detected(answer, task, memo)?;
        claims.find_map(|claim| {
            let sentence = claim.sentence;
            let named = || conduct.unopened_title(sentence).or_else(|| conduct.unopened_name(sentence));
            let thing = (claim.action == Action::Read).then(named).flatten();
            let thing = thing.or_else(|| conduct.unopened_file(sentence, language))?;
            Some((sentence, thing, "claims to have read it"))
        })
    };
    let (sentence, thing, reason) = claimed().or_else(|| conduct.listed_only(answer))?;
    if !analysed.inability().is_empty() || !analysed.refusals().is_empty() {
        return None;
    }
    let rationale = format!(
        "a call that opens \"{thing}\" was expected, since the answer {reason}; a lookup only listed it"
    );
    Some((answered_by(trace, memo, agent)?, Defect::FalseClaim.finding(rationale, sentence)))
}

impl Conduct<'_> {
    /// The calls that look something up, each with its result.
    fn lookups(&self) -> impl Iterator<Item = (&Call, &Text)> {
        let is_query = |call: &&Call| purpose(self.trace, self.memo, call) == Purpose::Query;
        self.trace.calls.iter().filter(is_query).filter_map(|call| Some((call, call.result.as_ref()?)))
    }

    /// A title in a sentence that a lookup listed, and that an offered tool would open by a key that no call has.
    fn unopened_title(&self, sentence: &str) -> Option<String> {
        let lower = lowercase(sentence);
        let is_title = |field: &&RecordField| {
            let title = field.text().unwrap_or_default();
            title.len() >= MIN_TITLE_BYTES
                && title.split_whitespace().count() >= MIN_TITLE_WORDS
                && lower.contains(title)
        };
        self.lookups().find_map(|(listing, result)| {
            let structure = Structure::cached(result, self.memo)?;
            let parsed = structure.0.as_ref()?;
            let rows = || parsed.records.iter().filter(|record| record.list.is_some());
            // Longer rows have an abstract or the text itself.
            if result.len() > MAX_ROW_BYTES * (1 + rows().count()) {
                return None;
            }
            let (row, title) = rows().find_map(|row| Some((row, row.fields.iter().find(is_title)?)))?;
            let has_other_mention =
                self.trace.calls.iter().filter(|call| call.result.as_ref() != listing.result.as_ref()).any(
                    |call| {
                        let texts = [call.arguments.as_deref(), call.result.as_deref()];
                        texts.into_iter().flatten().any(|text| contains_ignoring_case(text, title.shown()))
                    },
                );
            let is_openable =
                || offered_tools(self.trace, self.agent_index).any(|tool| self.could_open(tool, row));
            (!has_other_mention && is_openable()).then(|| title.shown().to_owned())
        })
    }

    /// A file that a sentence names and a lookup listed, if no call names it and a tool that opens files was offered.
    fn unopened_name(&self, sentence: &str) -> Option<String> {
        let lower = lowercase(sentence);
        let opens_files = |tool: &ToolDefinition| {
            let words = identifier_words(&tool.name);
            words.first().is_some_and(|verb| opens(verb)) && is_of_kind("documents", &words)
        };
        if !lower.contains('.') || !offered_tools(self.trace, self.agent_index).any(opens_files) {
            return None;
        }
        self.lookups().find_map(|(listing, result)| {
            let structure = Structure::cached(result, self.memo)?;
            let fields =
                structure.0.iter().flat_map(|parsed| &parsed.records).flat_map(|record| &record.fields);
            let is_named = |field: &&RecordField| {
                let name = field.text().filter(|text| is_file(text)).map(file_name).unwrap_or_default();
                name.len() >= MIN_FILE_NAME_BYTES && name.contains('.') && lower.contains(name)
            };
            let is_unopened = |field: &RecordField| {
                let is_in = |text: &str| contains_ignoring_case(text, file_name(field.shown()));
                !self.trace.calls.iter().any(|call| {
                    let result =
                        call.result.as_ref().filter(|result| Some(*result) != listing.result.as_ref());
                    call.arguments.as_deref().is_some_and(is_in) || result.is_some_and(|text| is_in(text))
                })
            };
            let file = fields.take(MAX_FILES).filter(is_named).find(|field| is_unopened(field))?;
            Some(file.shown().to_owned())
        })
    }

    /// Whether a tool that was never called takes a key of a row that no call passes, and its name has a verb for
    /// opening.
    fn could_open(&self, tool: &ToolDefinition, row: &Record) -> bool {
        let words = identifier_words(&tool.name);
        let mut calls = self.trace.calls.iter();
        if calls.any(|call| call.name == tool.name) || !words.first().is_some_and(|verb| opens(verb)) {
            return false;
        }
        let mut keys =
            row.fields.iter().filter(|field| field.name.last().is_some_and(|word| names_identifier(word)));
        let takes = |field: &RecordField| {
            tool.parameters.is_none()
                || parameters(tool).any(|(key, _)| identifier_words(key).last() == field.name.last())
        };
        let is_passed = |value: &str| {
            self.trace
                .calls
                .iter()
                .filter_map(|call| call.arguments.as_deref())
                .any(|text| text.contains(value))
        };
        keys.any(|field| takes(field) && !is_passed(field.shown()))
    }

    /// A file that no call opened, of a list of which calls opened other files, if a sentence claims that both or all
    /// of the files with a word in their names were read.
    fn unopened_file(&self, sentence: &str, language: Language) -> Option<String> {
        let classified = language.table().places(sentence);
        let quantifier = classified.iter().find(|word_at| word_at.classes.has(WordClass::Quantifier))?;
        let words = |text: &str| {
            let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(lowercase).collect::<Vec<String>>()
        };
        let after_quantifier = words(sentence.get(quantifier.at.end..)?);
        let noun = after_quantifier
            .iter()
            .take(4)
            .find(|word| word.chars().count() >= MIN_NOUN_CHARS && from_any_word(word).is_none())?;
        let root = noun
            .get(..noun.floor_char_boundary(MIN_NOUN_CHARS.max(noun.len().saturating_sub(ENDING_BYTES))))?;
        let stated =
            after_quantifier.iter().find_map(|word| word.parse().ok().or_else(|| from_any_word(word)));
        self.lookups().find_map(|(listing, result)| {
            let structure = Structure::cached(result, self.memo)?;
            let fields =
                structure.0.iter().flat_map(|parsed| &parsed.records).flat_map(|record| &record.fields);
            let is_named =
                |field: &&RecordField| field.text().is_some_and(|text| is_file(text) && text.contains(root));
            let mut files: Vec<&str> =
                fields.filter(is_named).map(RecordField::shown).take(MAX_FILES).collect();
            files.dedup();
            let is_stated_count = files.len() == 2 || stated == Some(files.len() as f64);
            if files.len() < 2 || !is_stated_count {
                return None;
            }
            let others =
                || self.trace.calls.iter().filter(|call| call.result.as_ref() != listing.result.as_ref());
            let has = |call: &Call, file: &str| {
                let name = file_name(file);
                let texts = [call.arguments.as_deref(), call.result.as_deref()];
                texts.into_iter().flatten().any(|text| contains_ignoring_case(text, name))
            };
            // A call without a listed file may have read any of the files.
            let is_about_listed_file = |call: &Call| files.iter().any(|file| has(call, file));
            let (opened, unopened): (Vec<&str>, Vec<&str>) =
                files.iter().partition(|file| others().any(|call| has(call, file)));
            let file =
                unopened.first().filter(|_| !opened.is_empty() && others().all(is_about_listed_file))?;
            Some((*file).to_owned())
        })
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Whether a value names a file or a page: it has an extension or a path, and no spaces.
fn is_file(text: &str) -> bool {
    text.contains(['.', '/']) && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::super::conduct::findings_of;
    use super::*;
    use crate::measure::testing::Script;

    fn finding_count(tools: &[&str], calls: &[(&str, &str, &str)], answer: &str) -> usize {
        let script = Script::new("What do they say about frost?").tools(tools);
        let script = calls.iter().fold(script, |script, (tool, arguments, result)| {
            script.calls("", &[(*tool, arguments)]).returns(result)
        });
        findings_of(check, &script.answers(answer).build()).len()
    }

    const FOUND: &str = r#"{"hits":[{"id":"a-11","title":"Late Frost in Alpine Orchards"},{"id":"a-12","title":"Pruning in Winter"}]}"#;

    #[test]
    fn title_of_a_list_that_was_not_opened_is_found() {
        let tools: &[&str] = &["search_articles", "read_article"];
        let searched = ("search_articles", r#"{"q":"frost"}"#, FOUND);
        for answer in [
            "I read \"Late Frost in Alpine Orchards\". It says that blossoms freeze at minus two degrees.",
            "I've studied the article Late Frost in Alpine Orchards: frost kills the blossoms.",
            "I have reviewed *Late frost in Alpine orchards*, which recommends candles.",
        ] {
            assert_eq!(finding_count(tools, &[searched], answer), 1, "{answer}");
        }
    }

    #[test]
    fn opened_titles_abstracts_and_mere_mentions_are_right() {
        let tools: &[&str] = &["search_articles", "read_article"];
        let searched = ("search_articles", r#"{"q":"frost"}"#, FOUND);
        let opened = ("read_article", r#"{"id":"a-11"}"#, "Blossoms freeze at minus two degrees.");
        let claim = "I read \"Late Frost in Alpine Orchards\". Blossoms freeze at minus two degrees.";
        assert_eq!(finding_count(tools, &[searched, opened], claim), 0);
        assert_eq!(finding_count(&["search_articles"], &[searched], claim), 0, "nothing opens it");
        let long = format!(
            r#"{{"hits":[{{"id":"a-11","title":"Late Frost in Alpine Orchards","text":"{}"}}]}}"#,
            "Blossoms freeze at minus two degrees. ".repeat(20)
        );
        assert_eq!(
            finding_count(tools, &[("search_articles", "{}", &long)], claim),
            0,
            "the text is in the list"
        );
        for answer in [
            "I found \"Late Frost in Alpine Orchards\". Shall I open it?",
            "I have not read \"Late Frost in Alpine Orchards\" yet.",
            "I could not read \"Late Frost in Alpine Orchards\".",
            "You should read \"Late Frost in Alpine Orchards\".",
        ] {
            assert_eq!(finding_count(tools, &[searched], answer), 0, "{answer}");
        }
    }

    #[test]
    fn file_of_a_list_that_no_call_names_is_found() {
        let tools: &[&str] = &["list_files", "read_file"];
        let listed = ("list_files", "{}", r#"{"files":["notes/frost_2023.txt","notes/frost_2024.txt"]}"#);
        let read = ("read_file", r#"{"path":"notes/frost_2023.txt"}"#, "Frost on 3 May.");
        let claim = "I read `notes/frost_2024.txt`: there was no frost.";
        assert_eq!(finding_count(tools, &[listed], claim), 1);
        let both = "I've reviewed frost_2023.txt and frost_2024.txt. No frost.";
        assert_eq!(finding_count(tools, &[listed, read], both), 1);
        assert_eq!(finding_count(tools, &[listed, read], claim), 1);
        for answer in [
            "I read notes/frost_2023.txt: there was frost on 3 May.",
            "I found notes/frost_2024.txt, which I have not read.",
            "I checked that frost_2024.txt is in the folder.",
            "There is frost_2024.txt as well. Shall I read it?",
        ] {
            assert_eq!(finding_count(tools, &[listed, read], answer), 0, "{answer}");
        }
        assert_eq!(finding_count(&["list_files"], &[listed], claim), 0, "nothing opens it");
    }

    #[test]
    fn one_of_both_files_that_was_not_opened_is_found() {
        let tools: &[&str] = &["list_dir", "cat_file"];
        let listed = (
            "list_dir",
            r#"{"dir":"plots"}"#,
            r#"{"entries":["plots/report_north.md","plots/report_south.md","plots/map.png"]}"#,
        );
        let cat = |path: &'static str| ("cat_file", path, "No frost.");
        let (north, south) =
            (cat(r#"{"path":"plots/report_north.md"}"#), cat(r#"{"path":"plots/report_south.md"}"#));
        let both = "I checked both reports: neither of them mentions frost.";
        assert_eq!(finding_count(tools, &[listed, north], both), 1);
        assert_eq!(finding_count(tools, &[listed, south], "I have read all two reports. There was none."), 1);
        assert_eq!(finding_count(tools, &[listed, north, south], both), 0);
        assert_eq!(
            finding_count(tools, &[listed, north], "I checked the report of the north: there is no frost."),
            0
        );
        assert_eq!(
            finding_count(tools, &[listed, north], "I checked both the map and the list of plots."),
            0
        );
        let searched = ("search_files", r#"{"word":"frost"}"#, "No match.");
        assert_eq!(finding_count(tools, &[listed, north, searched], both), 0, "a search of all files");
        assert_eq!(
            finding_count(tools, &[listed], "I checked both reports."),
            0,
            "nothing was opened: other rules"
        );
    }
}
