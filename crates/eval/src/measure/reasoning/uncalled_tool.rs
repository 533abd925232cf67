//! Claims of the action that an offered tool is named for, without a call of the tool: "I have reset your MFA", and no
//! call of `reset_mfa`.
//!
//! Principle: a clause in the past with the verb and all nouns of an offered tool's name is a claim that needs a call
//! of this tool, or another call that may have carried out the action. Another call may have carried it out if the call
//! has the same verb or a similar action, if its arguments, its result or the tool's description mention the verb, or
//! if the instructions state that the action is automatic. A call that changed the same thing under another name
//! supports the claim unless the clause has a value that no call has. The state of a thing ("is scheduled") is a claim
//! only where the user asked for the action. The verb is read from the name, so that tools with verbs that are in no
//! list are compared as well.
//!
//! In: the texts of an agent in English, and all calls. Out: one finding for each agent, on the model span of the text.

use foldhash::HashSet;
use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::omitted_action::requested_tool;
use super::statements::{Clause, Prose, before_draft, clauses};
use super::undone_action::{is_adverb, is_past_of, precedes_participle};
use crate::measure::conversation::writes_code;
use crate::measure::defects::Defect;
use crate::measure::excerpt::head;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, GrammarGroup, Language, ReadText, WordClasses, classes};
use crate::measure::numbers::has_digit;
use crate::measure::records::{FieldValue, Structure};
use crate::measure::tool_purpose::{ToolPurpose, action_of, are_alike, description, offered_tools, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, agent_index};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Call, Content, Part, Role, Text, ToolDefinition};

/// Maximum bytes of a text: longer texts are about many things.
const MAX_TEXT_BYTES: usize = 3_000;
/// Maximum calls of a trace.
const MAX_CALLS: usize = 40;
/// Maximum bytes of all arguments and results, and of instructions, that are read.
const MAX_BYTES: usize = 64 << 10;
/// Maximum uncalled tools of an agent that are compared.
const MAX_TOOLS: usize = 24;
/// Maximum texts of an agent that are compared; the latest are compared.
const MAX_TEXTS: usize = 16;
/// Minimum letters of a verb: shorter verbs are parts of many words.
const MIN_VERB_LETTERS: usize = 3;
/// Classes of words by which a clause is about an earlier state.
const EARLIER_STATE: WordClasses = classes!(Already Exception Repetition);
/// Classes of words by which instructions state that an action is automatic, or part of another one.
const AUTOMATIC: WordClasses = classes!(Condition Sequence Automatic);

/// A tool that was offered and not called.
struct UncalledTool<'t> {
    name: &'t str,
    verb: String,
    action: Option<Action>,
    /// The stems of the nouns in the name.
    things: Vec<String>,
}

impl<'t> UncalledTool<'t> {
    /// Reads the name of a tool. `None` for a tool that returns information, or whose name is not a verb with a noun.
    fn new(tool: &'t ToolDefinition) -> Option<UncalledTool<'t>> {
        let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
        let words = name_words(&tool.name);
        let (verb, others) = words.split_first()?;
        let action = action_of(verb);
        let is_verb =
            verb.len() >= MIN_VERB_LETTERS && verb.is_ascii() && !action.is_some_and(Action::is_work);
        let things: Vec<String> = others.iter().flat_map(|word| stems(word)).collect();
        (is_verb && !purpose.is_query() && action != Some(Action::Execute) && !things.is_empty())
            .then(|| UncalledTool { name: tool.name.trim(), verb: verb.clone(), action, things })
    }

    /// The letters that all forms of the verb share.
    fn root(&self) -> &str {
        self.verb.strip_suffix(['e', 'y']).unwrap_or(&self.verb)
    }

    /// Whether a word is a past form of the verb, or of another verb for the same action.
    fn is_past_form(&self, word: &str) -> bool {
        let has_synonyms = |action: &Action| !matches!(action, Action::Update | Action::Add | Action::Create);
        let is_synonym =
            |action: Action| word.ends_with("ed") && Language::English.action_of(word) == Some(action);
        is_past_of(word, &self.verb)
            || word == self.verb && Language::English.is_in_group(word, GrammarGroup::UnchangedPast)
            || self.action.filter(has_synonyms).is_some_and(is_synonym)
    }

    /// Whether a call of another tool has the same verb or a similar action, or may carry out any action: a name of one
    /// word that is no verb does not show the action.
    fn is_similar(&self, call_words: &[String], actions: &[Action]) -> bool {
        // An update may change anything: it is compared by the nouns instead.
        let is_close = |action: &Action| {
            let is_known = |named: &Action| ![*named, *action].contains(&Action::Update);
            self.action.filter(is_known).is_some_and(|named| are_alike(named, *action))
        };
        actions.is_empty() && call_words.len() < 2
            || call_words.contains(&self.verb)
            || actions.contains(&Action::Execute)
            || actions.contains(&Action::Transfer)
            || actions.first().is_some_and(is_close)
    }
}

/// The words of a tool's name without the name of its server.
fn name_words(name: &str) -> Vec<String> {
    let tail = name.trim().rsplit(['.', '/', ':']).next().unwrap_or_default();
    identifier_words(tail.rsplit("__").next().unwrap_or_default())
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    claim_by_name(conduct).or_else(|| {
        let omitted = requested_tool::omitted(conduct)?;
        let finding = Defect::FalseClaim.finding(omitted.rationale(), omitted.claimed?);
        Some((conduct.agent.answer_at?, finding))
    })
}

/// The finding on a clause with the verb and the nouns of the name of an uncalled tool.
fn claim_by_name(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent_index, agent, .. } = *conduct;
    let is_examined = !trace.incomplete
        && trace.calls.len() <= MAX_CALLS
        && !agent.tools.is_empty()
        && trace.calls.iter().all(|call| call.arguments.is_some() && call.result.is_some());
    if !is_examined || !memo.budget.spend(agent.tools.len().min(MAX_TOOLS) * (1 + trace.calls.len())) {
        return None;
    }
    // Fast path: most agents call all their tools, under the offered names.
    let called_names: HashSet<&str> = trace.calls.iter().map(|call| call.name.trim()).collect();
    let mut uncalled =
        offered_tools(trace, agent_index).filter(|tool| !called_names.contains(tool.name.trim())).peekable();
    uncalled.peek()?;
    let called: HashSet<Vec<String>> = called_names.iter().map(|name| name_words(name)).collect();
    let tools: Vec<UncalledTool<'_>> = uncalled
        .filter(|tool| !called.contains(&name_words(&tool.name)))
        .filter_map(UncalledTool::new)
        .take(MAX_TOOLS)
        .collect();
    if tools.is_empty() {
        return None;
    }
    // Calls of an earlier part of the conversation are not recorded.
    let first = agent.llms.first().and_then(|at| trace.views.get(*at))?;
    let has_earlier_turns = first.input.iter().any(|message| {
        message.role == Role::Assistant
            || message.parts.iter().any(|part| matches!(part, Part::Call(_) | Part::Result { .. }))
    });
    if has_earlier_turns || first.input_content != Content::Present {
        return None;
    }
    agent.llms.iter().rev().take(MAX_TEXTS).find_map(|&at| {
        let view = trace.views.get(at)?;
        let text = view.output_text();
        let is_text = view.output_content == Content::Present && view.requests().next().is_none();
        if !is_text || text.len() > MAX_TEXT_BYTES || writes_code(&text) || !memo.budget.spend(1 + text.len() / 4) {
            return None;
        }
        let lower = text.to_lowercase();
        let is_named = |tool: &&UncalledTool<'_>| tool.things.iter().all(|thing| lower.contains(thing.as_str()));
        let named: Vec<&UncalledTool<'_>> = tools.iter().filter(is_named).collect();
        if named.is_empty() {
            return None;
        }
        let task = conduct.task(usize::MAX).map(|task| &**task);
        let language = Language::detected(&text, task, memo).filter(|language| *language == Language::English)?;
        let analysed = ReadText::new(&text, task, memo);
        if !analysed.refusals().is_empty() || !analysed.inability().is_empty() {
            return None;
        }
        let stated = before_draft(&text, language);
        let clauses = clauses(stated, &Prose::cached(stated, memo), language, memo);
        memo.budget.spend(clauses.len() * named.len()).then_some(())?;
        let states = |clause: &Clause<'_>| !clause.negated && !clause.modal && !clause.classes.has_any(EARLIER_STATE);
        let before = std::iter::once(None).chain(clauses.iter().map(Some));
        let (clause, tool) = before
            .zip(&clauses)
            .filter(|(_, clause)| states(clause))
            .flat_map(|(before, clause)| named.iter().map(move |tool| (before, clause, *tool)))
            .find(|(before, clause, tool)| {
                let before = before.filter(|before| states(before) && std::ptr::eq(before.sentence, clause.sentence));
                conduct.claims(before, clause, tool) && !conduct.may_be_done(clause, tool)
            })
            .map(|(_, clause, tool)| (clause, tool))?;
        let rationale = format!(
            "a call of {} was expected, since \"{}\" says that it was done; the tool was offered and never called, and \
             neither a call nor a result mentions it",
            tool.name,
            head(clause.sentence, 100)
        );
        Some((at, Defect::FalseClaim.finding(rationale, clause.sentence)))
    })
}

impl Conduct<'_> {
    /// Whether a clause claims that the action of a tool was done to the things of its name. The preceding clause of
    /// the sentence may have the subject: "I have unlocked the account and reset your MFA".
    fn claims(&self, before: Option<&Clause<'_>>, clause: &Clause<'_>, tool: &UncalledTool<'_>) -> bool {
        let words: Vec<&str> = clause.words.split_whitespace().collect();
        let is_in = |word: &str, group| Language::English.is_in_group(word, group);
        let is_speaker = |word: &str| is_in(word, GrammarGroup::Speaker);
        let follows_speaker =
            || before.is_some_and(|before| before.words.split_whitespace().next().is_some_and(is_speaker));
        let mut auxiliary: Option<&str> = None;
        let verb = words.iter().position(|word| {
            let is_framed = match auxiliary {
                Some(auxiliary) => precedes_participle(auxiliary),
                None => follows_speaker(),
            };
            if is_framed && tool.is_past_form(word) {
                return true;
            }
            if !is_adverb(word) {
                auxiliary = Some(word);
            }
            false
        });
        let Some((before_verb, after_verb)) = verb.and_then(|at| words.split_at_checked(at)) else {
            return false;
        };
        let is_active = auxiliary.is_none() || before_verb.iter().any(|word| is_speaker(word));
        let has_other_actor = before_verb.iter().any(|word| is_in(word, GrammarGroup::OtherActor))
            || !is_active && after_verb.contains(&"by");
        // "We are scheduled" claims no action of the speaker.
        if has_other_actor
            || is_active && auxiliary.is_some_and(|word| matches!(word, "is" | "are" | "was" | "were"))
        {
            return false;
        }
        // The first noun of the tool's name is the object of the verb, or the subject of a passive, without a
        // preposition before the noun.
        let searched_words = if is_active { after_verb.get(1..).unwrap_or_default() } else { before_verb };
        let is_first = |word: &&str| stems(word).any(|stem| tool.things.first() == Some(&stem));
        let Some(thing) = searched_words.iter().position(is_first) else { return false };
        let mut between = searched_words.get(..thing).unwrap_or_default().iter();
        if between.any(|word| is_in(word, GrammarGroup::Preposition)) {
            return false;
        }
        let clause_stems: HashSet<String> = stems(&clause.words).collect();
        tool.things.iter().all(|thing| clause_stems.contains(thing)) && (is_active || self.asks_for(tool))
    }

    /// Whether the user asked for the action of a tool.
    fn asks_for(&self, tool: &UncalledTool<'_>) -> bool {
        let named = tool.action.filter(|action| *action != Action::Update);
        let is_base = |word: &str| word == tool.verb || named.is_some() && action_of(word) == named;
        self.has_user_word(is_base)
    }

    /// Whether a message of the user states that the action of a tool was done.
    fn is_stated_by_user(&self, tool: &UncalledTool<'_>) -> bool {
        self.has_user_word(|word| word != tool.verb && is_past_of(word, &tool.verb))
    }

    /// Whether a message of the user has a word that matches, in lower case.
    fn has_user_word(&self, matches: impl Fn(&str) -> bool) -> bool {
        let has = |text: &Text| text.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(&matches);
        self.user_messages().iter().any(has)
    }

    /// Whether a call may have carried out the action of a tool, or the instructions state that it is automatic. True
    /// beyond the work budget.
    fn may_be_done(&self, clause: &Clause<'_>, tool: &UncalledTool<'_>) -> bool {
        let Conduct { trace, memo, .. } = *self;
        let texts =
            trace.calls.iter().flat_map(|call| [call.arguments.as_ref(), call.result.as_ref()]).flatten();
        let bytes: usize = texts.map(|text| text.len()).sum();
        if bytes > MAX_BYTES || !memo.budget.spend(1 + bytes / BYTES_PER_STEP) {
            return true;
        }
        let numbers = numbers(&clause.words);
        trace.calls.iter().any(|call| self.may_include(call, tool, &numbers))
            || self.is_automatic(tool)
            || self.is_stated_by_user(tool)
    }

    /// Whether a call may have carried out the action of another tool.
    fn may_include(&self, call: &Call, tool: &UncalledTool<'_>, values: &HashSet<String>) -> bool {
        let Conduct { trace, memo, .. } = *self;
        let purpose = ToolPurpose::for_call(trace, memo, call);
        let words = name_words(&call.name);
        if !purpose.is_query() && tool.is_similar(&words, &purpose.actions) {
            return true;
        }
        let has_root = |text: &str| contains_ignoring_case(text, tool.root());
        if call.arguments.as_deref().is_some_and(has_root) || self.mentions(call, tool) {
            return true;
        }
        if purpose.is_query() {
            return false;
        }
        if description(trace, memo, call).is_some_and(has_root) {
            return true;
        }
        let texts = || [call.arguments.as_deref(), call.result.as_deref()].into_iter().flatten();
        let names_thing = |word: String| tool.things.contains(&word);
        let has_thing = words.iter().flat_map(|word| stems(word)).any(names_thing)
            || texts().any(|text| tool.things.iter().any(|thing| contains_ignoring_case(text, thing)));
        // A change of the same thing may have been the action, if the call has the value of the clause.
        has_thing && (values.is_empty() || texts().any(|text| !numbers(text).is_disjoint(values)))
    }

    /// Whether the result of a call has a form of the verb, other than as the name of a field that is false or empty.
    fn mentions(&self, call: &Call, tool: &UncalledTool<'_>) -> bool {
        let Some(result) = &call.result else { return true };
        let has_root = |text: &str| contains_ignoring_case(text, tool.root());
        if !has_root(result) {
            return false;
        }
        let structure = Structure::cached(result, self.memo);
        let Some(Structure(Some(parsed))) = structure.as_deref() else { return true };
        let mut fields = parsed.records.iter().flat_map(|record| &record.fields);
        fields.any(|field| {
            let is_named = field.name.iter().any(|word| has_root(word));
            match &field.value {
                FieldValue::Bool(flag) => *flag && is_named,
                FieldValue::Number(number) => *number != 0.0 && is_named,
                FieldValue::Text(text) => !text.is_empty() && is_named || has_root(text),
            }
        })
    }

    /// Whether the instructions state that the action of a tool is automatic, or part of another action.
    fn is_automatic(&self, tool: &UncalledTool<'_>) -> bool {
        let instructions =
            agent_index::instructions(self.trace, self.agent_index).map(|text| &**text).unwrap_or_default();
        if instructions.len() > MAX_BYTES || !self.memo.budget.spend(1 + instructions.len() / BYTES_PER_STEP)
        {
            return true;
        }
        let statements = instructions.split(['\n', ';']).flat_map(|line| line.split(". "));
        let language = Language::detected(instructions, None, self.memo);
        statements.filter(|statement| contains_ignoring_case(statement, tool.root())).any(|statement| {
            let lower = statement.to_lowercase();
            let third_person = format!("{}s", tool.verb);
            let mut words = lower.split(|c: char| !c.is_alphanumeric());
            words.any(|word| word == third_person || word != tool.verb && is_past_of(word, &tool.verb))
                || language.is_none_or(|language| language.classes(statement).has_any(AUTOMATIC))
        })
    }
}

/// The runs of digits in a text, without zeros in front.
fn numbers(text: &str) -> HashSet<String> {
    if !has_digit(text) {
        return HashSet::default();
    }
    let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.map(|run| run.trim_start_matches('0')).filter(|run| !run.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::conduct::findings_of;
    use super::*;
    use crate::measure::testing::Script;

    /// The findings on a run: its calls with arguments and results, and its answer.
    fn finding_count(
        task: &str,
        system: &str,
        tools: &[&str],
        calls: &[(&str, &str, &str)],
        answer: &str,
    ) -> usize {
        let script = Script::new(task).system(system).tools(tools);
        let script = calls.iter().fold(script, |script, (tool, arguments, result)| {
            script.calls("", &[(*tool, arguments)]).returns(result)
        });
        findings_of(check, &script.answers(answer).build()).len()
    }

    #[test]
    fn deeds_that_an_uncalled_tool_is_named_for_are_found() {
        let bank: &[&str] = &["get_card", "unblock_card", "waive_fee"];
        let unblocked = ("unblock_card", r#"{"card_id":"c-9"}"#, r#"{"card_id":"c-9","blocked":false}"#);
        for answer in [
            "Your card works again. I have also waived the fee of 12 euros.",
            "The card is unblocked, and I've waived the annual fee.",
            "I've unblocked the card and waived the fee.",
        ] {
            assert_eq!(finding_count("My card is blocked.", "", bank, &[unblocked], answer), 1, "{answer}");
        }
        let radio: &[&str] = &["get_show", "update_show", "publish_show"];
        let renamed =
            ("update_show", r#"{"show":"s-7","title":"Night Owls"}"#, r#"{"show":"s-7","state":"draft"}"#);
        let task = "Rename the show to Night Owls and publish it at 21:30.";
        assert_eq!(finding_count(task, "", radio, &[renamed], "The show has been published at 21:30."), 1);
        assert_eq!(
            finding_count(
                task,
                "",
                radio,
                &[renamed],
                "The title is new and the show is published at 21:30."
            ),
            1
        );
        let home: &[&str] = &["read_meter", "reset_meter"];
        let read = ("read_meter", r#"{"id":4}"#, r#"{"kwh":18,"reset":false}"#);
        assert_eq!(
            finding_count(
                "Reset the meter, please.",
                "",
                home,
                &[read],
                "The meter shows 18 kWh. I have reset the meter."
            ),
            1
        );
        assert_eq!(
            finding_count("Reset the meter, please.", "", home, &[], "I've just reset the meter for you."),
            1
        );
    }

    #[test]
    fn other_calls_reports_and_other_actors_are_right() {
        let bank: &[&str] = &["get_card", "unblock_card", "waive_fee"];
        let unblocked = ("unblock_card", r#"{"card_id":"c-9"}"#, r#"{"card_id":"c-9","blocked":false}"#);
        let with_fee = ("unblock_card", r#"{"card_id":"c-9"}"#, r#"{"blocked":false,"fee":"waived"}"#);
        let looked_up = ("get_card", r#"{"card_id":"c-9"}"#, r#"{"fee":0,"waived_on":"2024-03-01"}"#);
        let task = "My card is blocked.";
        let claim = "I have waived the fee.";
        for (system, calls, answer) in [
            ("", &[unblocked, ("waive_fee", "{}", "ok")][..], claim),
            ("", &[with_fee], claim),
            ("", &[looked_up, unblocked], "The fee has been waived."),
            ("Unblocking a card waives the fee.", &[unblocked], claim),
            ("The fee is waived automatically.", &[unblocked], "The fee has been waived."),
            ("", &[unblocked], "I have not waived the fee."),
            ("", &[unblocked], "I can have the fee waived. Shall I?"),
            ("", &[unblocked], "The fee was waived by your branch."),
            ("", &[unblocked], "Once you have waived the fee, the card works."),
            ("", &[unblocked], "A colleague said \"I have waived the fee of the card\"."),
            (
                "",
                &[unblocked],
                "Here is a text for the customer:\n\n> I have waived the fee.\n\nShall I send it?",
            ),
            ("", &[unblocked], "I can unblock the card and have waived nothing of the fee."),
            ("", &[unblocked], "I have waived nothing in the list of the fee."),
            ("", &[unblocked], "Here is a draft for the customer:\n\nHello,\nI have waived the fee."),
            ("", &[unblocked], "I have blocked nothing, and the fee remains."),
        ] {
            assert_eq!(finding_count(task, system, bank, calls, answer), 0, "{system} {answer}");
        }
        assert_eq!(finding_count("My bank waived the fee, is that right?", "", bank, &[unblocked], claim), 0);
        let radio: &[&str] = &["update_show", "publish_show"];
        let at = ("update_show", r#"{"show":"s-7","on_air":"21:30"}"#, r#"{"show":"s-7"}"#);
        let state = ("update_show", r#"{"show":"s-7","state":"published"}"#, r#"{"show":"s-7"}"#);
        let plain = ("update_show", r#"{"show":"s-7","visible":true}"#, r#"{"show":"s-7"}"#);
        let task = "Publish the show at 21:30.";
        for call in [at, state] {
            assert_eq!(finding_count(task, "", radio, &[call], "The show has been published at 21:30."), 0);
        }
        assert_eq!(finding_count(task, "", radio, &[plain], "The show has been published."), 0);
        let cards: &[&str] = &["set_status", "activate_card"];
        let set = ("set_status", r#"{"card_id":"c-9","status":"active"}"#, "ok");
        assert_eq!(finding_count("Activate my card.", "", cards, &[set], "I have activated your card."), 0);
    }

    #[test]
    fn earlier_conversation_and_unrecorded_results_are_not_compared() {
        let tools: &[&str] = &["get_card", "waive_fee"];
        let earlier =
            Script::new("Hello.").tools(tools).says("Hello, how can I help?").user("What about the fee?");
        let trace = earlier.answers("I have waived the fee.").build();
        assert_eq!(findings_of(check, &trace).len(), 1, "all turns of the dialogue are recorded");
        let open = Script::new("Waive the fee.").tools(tools).incomplete();
        assert!(findings_of(check, &open.answers("I have waived the fee.").build()).is_empty());
    }
}
