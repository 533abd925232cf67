//! Verifiable instructions of a prompt: imperative, unconditional, and about the output itself.
//!
//! In: a system or user message. Out: [`OutputInstruction`]s. Uncertain cases are skipped:
//! sentences with a condition, text in code fences and examples, and rules about tools' inputs.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use regex::{Captures, Regex};

use crate::measure::defects::{QUOTE_BYTES, clip, clip_end};
use crate::measure::excerpt::head;
use crate::measure::language::is_english_alone;
use crate::measure::numbers;
use crate::measure::occurrences::{Occurrences, SearchAt};
use crate::pattern::pattern;

/// Maximum instructions per prompt.
const MAX_INSTRUCTIONS: usize = 32;
/// Maximum matches per pattern and prompt.
const MAX_MATCHES: usize = 8;
/// Maximum bytes of a system prompt that are read; the rest of a longer one is data.
const SYSTEM_BYTES: usize = 32 * 1024;
/// Bytes read at both ends of a long user message; the middle is data.
const USER_BYTES: usize = 2048;
/// Bytes on both sides of a match that are searched for the sentence.
const SENTENCE_BYTES: usize = 300;

/// Maximum bytes of a marker or a forbidden phrase.
const MAX_MARK_BYTES: usize = 60;
/// Maximum bytes of a match; a longer one joins two instructions. The length of each match is checked, since bounded
/// gaps in the patterns would make their automata large.
const MAX_MATCH_BYTES: usize = 200;

/// A rule for the output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutputRule {
    /// The output ends with this marker.
    EndsWith(String),
    /// The output starts with this marker.
    StartsWith(String),
    /// The output has a text between `<tag>` and `</tag>`.
    Enclosed(String),
    /// JSON and nothing else.
    OnlyJson,
    /// Yes or no and nothing else.
    OnlyYesOrNo,
    /// A number and nothing else.
    OnlyNumber,
    /// The output contains a number.
    HasNumber,
    /// The output has at most this length.
    AtMost(usize, LengthUnit),
    /// The output has exactly this number of bullet points.
    Bullets(usize),
    NoFence,
    NoMarkdown,
    /// The output has a code fence. The language is part of the message only.
    Fence(Option<String>),
    /// The output does not contain this word or phrase.
    Forbidden(String),
    /// This tool must be used in the run.
    UseTool(String),
    /// Some tool must be used in the run.
    UseSomeTool,
    /// A step has at most one tool call.
    OneCall,
}

/// The unit of a length limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LengthUnit {
    Words,
    Sentences,
    Characters,
}

/// The outputs that an instruction applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputScope {
    /// Every output of the model.
    Every,
    /// The final answer, not intermediate steps.
    Answer,
    Plan,
}

/// An instruction about outputs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutputInstruction {
    pub rule: OutputRule,
    /// The outputs to which the instruction applies.
    pub scope: OutputScope,
    /// The sentence of the instruction, verbatim.
    pub sentence: String,
}

/// A system message, its instructions, and whether it is English.
#[derive(Clone)]
pub(super) struct SystemMessage {
    text: Rc<str>,
    pub(super) instructions: Rc<[OutputInstruction]>,
    /// Whether the message is in English, the language of the patterns.
    pub(super) is_english: bool,
}

thread_local! {
    /// Cached system messages, the most recently used first: a service sends the same message in every trace.
    static CACHE: RefCell<VecDeque<SystemMessage>> = const { RefCell::new(VecDeque::new()) };
}

/// Maximum cached messages, of at most [`SYSTEM_BYTES`] each.
const MAX_CACHED: usize = 16;

/// The instructions of a system message, from the cache if they are there.
pub(super) fn system_message(text: &str) -> SystemMessage {
    let text = clip(text, SYSTEM_BYTES);
    CACHE.with_borrow_mut(|cache| {
        let index = cache.iter().position(|cached| *cached.text == *text);
        let message = index.and_then(|index| cache.remove(index)).unwrap_or_else(|| SystemMessage {
            text: text.into(),
            instructions: read_instructions(text).into(),
            is_english: is_english_alone(text),
        });
        cache.truncate(MAX_CACHED - 1);
        cache.push_front(message.clone());
        message
    })
}

/// The instructions of a user message.
pub(crate) fn user_instructions(text: &str) -> Vec<OutputInstruction> {
    if text.len() <= 2 * USER_BYTES {
        return read_instructions(text);
    }
    let mut instructions = read_instructions(clip(text, USER_BYTES));
    instructions.extend(read_instructions(clip_end(text, USER_BYTES)));
    instructions
}

/// Makes a rule from a match of a pattern; `None` if the match is no instruction.
type RuleFromMatch = fn(&Captures<'_>) -> Option<OutputRule>;
/// Groups of words in lower case. A pattern is tried only if the prompt contains a word of each group.
type Cues = &'static [&'static [&'static str]];

struct RulePattern {
    regex: Regex,
    /// Makes the rule from a match of the pattern.
    make: RuleFromMatch,
    /// For each group of cues, the bits of its words.
    cues: Vec<CueBits>,
}

/// A set of cues, with one bit for each of [`Patterns::cues`].
type CueBits = u64;

struct Patterns {
    patterns: Vec<RulePattern>,
    /// The cues of all patterns, found in one pass over a prompt.
    cues: Occurrences,
}

impl Patterns {
    /// The cues that occur in `text`, in any case.
    fn cues_in(&self, text: &str) -> CueBits {
        let mut bits = 0;
        self.cues.find_each(text, |cue, _| {
            bits |= 1 << cue;
            true
        });
        bits
    }
}

/// A quoted marker or a tag, in the group `mark`.
const MARK: &str = r#"(?:the\s+)?(?:exact\s+)?(?:(?:tag|token|marker|word|phrase|string|line|text|sentence|keyword)s?\s*:?\s*)?(?:['"`“](?:\\n|\s)*(?P<mark>[^'"`”\n]+?)(?:\\n)?['"`”]|(?P<tag></?[a-z][\w-]+>|\[[A-Z_]+\]))"#;
/// The model's own output.
const OUTPUT: &str = r"(?:final\s+)?(?:response|answer|reply|output|message|plan|summary)s?";
const NUMBER: &str = r"(?P<n>\d{1,5}|a\s+single|a|one|two|three|four|five|six|seven|eight|nine|ten)";

checked_static!(PATTERNS: Patterns = patterns());

/// Compiles the patterns of instructions, each with the words that a match must contain.
fn patterns() -> Result<Patterns, String> {
    let answer_verb = r"(?:answer|respond|reply|return|output)";
    let sources: [(String, RuleFromMatch, Cues); 19] = [
        (
            r#"(?:write|add|append|put|output|print|include|place)\s+(?:the\s+)?['"`]?(?:\\n|\s)*(?P<tag></?[a-z][\w-]+>|\[[A-Z_]+\])['"`]?\s*(?:tag|marker|token|sequence)?\s*(?:and\s+(?:then\s+)?stop|at\s+the\s+(?:very\s+)?end|to\s+(?:mark|signal)\s+the\s+end)"#.to_owned(),
            |c| Some(OutputRule::EndsWith(mark(c)?)),
            &[&["<", "["], &["stop", "end"]],
        ),
        (
            format!(r"(?:end|finish|conclude|close)\s+(?:your|the|every|each|all)\s+{OUTPUT}\s+with\s+{MARK}"),
            |c| Some(OutputRule::EndsWith(mark(c)?)),
            &[&["with"], &["end", "finish", "conclude", "close"]],
        ),
        (
            format!(r"{OUTPUT}\s+(?:must|should|has\s+to|needs\s+to)\s+(?:always\s+)?end\s+with\s+{MARK}"),
            |c| Some(OutputRule::EndsWith(mark(c)?)),
            &[&["end with"]],
        ),
        (
            format!(r"(?:start|begin|prefix)\s+(?:your|the|every|each|all)\s+{OUTPUT}\s+with\s+{MARK}"),
            |c| Some(OutputRule::StartsWith(mark(c)?)),
            &[&["with"], &["start", "begin", "prefix"]],
        ),
        (
            format!(r"{OUTPUT}\s+(?:must|should|has\s+to|needs\s+to)\s+(?:always\s+)?(?:start|begin)\s+with\s+{MARK}"),
            |c| Some(OutputRule::StartsWith(mark(c)?)),
            &[&["with"], &["start", "begin"]],
        ),
        (
            format!(r#"{OUTPUT}\b[^.\n]*?\b(?:in|within|inside|between|with|using)\s+(?:the\s+)?['"`]?<(?P<tag>[a-z][\w-]+)>(?:[^<\n]*</[a-z][\w-]+>)?['"`]?(?:\s+(?:xml\s+)?tags?)?"#),
            |c| Some(OutputRule::Enclosed(c.name("tag")?.as_str().to_owned())),
            &[&["<"]],
        ),
        (
            format!(r"{answer_verb}\b[^.\n]*?\b(?:only|just|solely|exclusively|nothing\s+but|strictly)\b[^.\n]*?\bjson\b|\b(?:only|just)\s+{answer_verb}\b[^.\n]*?\bjson\b|{answer_verb}\b[^.\n]*?\bjson\b[^.\n]*?\bonly\b|{OUTPUT}\s+(?:must|should|has\s+to)\s+be\s+(?:a\s+|an\s+)?(?:single\s+)?valid\s+json\b"),
            |_| Some(OutputRule::OnlyJson),
            &[&["json"]],
        ),
        (
            format!(r#"{answer_verb}\b[^.\n]*?\b(?:only|just|simply|exactly|single\s+word)\b[^.\n]*?['"`]?\byes\b['"`]?\s*(?:or|/)\s*['"`]?no\b|{answer_verb}\s+(?:with\s+)?(?:either\s+)?['"`]?yes['"`]?\s*(?:or|/)\s*['"`]?no['"`]?\s+only\b"#),
            |_| Some(OutputRule::OnlyYesOrNo),
            &[&["yes"]],
        ),
        (
            format!(r"{answer_verb}\b[^.\n]*?\b(?:only|just|nothing\s+but)\s+(?:with\s+)?(?:a|the|one)\s+(?:single\s+|final\s+)?(?:number|integer|numeric\s+value)\b(?P<of>\s+of\b|\s+and\b|\s+with\b)?|{answer_verb}\s+with\s+(?:a|the|one)\s+(?:single\s+)?(?:number|integer)\s+only\b"),
            |c| c.name("of").is_none().then_some(OutputRule::OnlyNumber),
            &[&["number", "integer", "numeric"], &["only", "just", "nothing"]],
        ),
        (
            format!(r"{answer_verb}\s+(?:only\s+)?with\s+(?:a|one)\s+(?:single\s+)?number\b"),
            |_| Some(OutputRule::HasNumber),
            &[&["number"]],
        ),
        (
            format!(r"\b(?:at\s+most|no\s+more\s+than|not\s+more\s+than|a\s+maximum\s+of|maximum|max\.?|under|less\s+than|fewer\s+than|within|not\s+exceed(?:ing)?|limit(?:ed)?\s+to)\s+{NUMBER}\s+(?P<u>words?|sentences?|characters?)\b"),
            length_limit,
            &[&["word", "sentence", "character"]],
        ),
        (
            format!(r"\b{NUMBER}\s+(?P<u>words?|sentences?|characters?)\s+(?:or\s+(?:less|fewer)|max(?:imum)?\b|at\s+most)"),
            length_limit,
            &[&["word", "sentence", "character"]],
        ),
        (
            r"\b(?:in|with|using)\s+(?:exactly\s+|only\s+|just\s+)?(?P<n>a\s+single|one|1)\s+(?:short\s+)?(?P<u>words?|sentences?)\b".to_owned(),
            length_limit,
            &[&["word", "sentence"]],
        ),
        (
            format!(r"\bexactly\s+{NUMBER}\s+bullet(?:\s+point)?s?\b"),
            |c| Some(OutputRule::Bullets(number(c.name("n")?.as_str())?)),
            &[&["bullet"]],
        ),
        (
            r"(?:do\s+not|don't|never|must\s+not|without|avoid)\s+(?:\w+\s+){0,6}?(?:code\s*(?:block|fence)s?\b|backticks|```)".to_owned(),
            |_| Some(OutputRule::NoFence),
            &[&["code", "backtick", "```"]],
        ),
        (
            r"(?:do\s+not|don't|never|must\s+not|without|avoid)\s+(?:us(?:e|ing)\s+|any\s+|include\s+|including\s+){1,2}markdown\b(?:\s+(?P<part>code|fences?|tables?|links?))?".to_owned(),
            |c| c.name("part").is_none().then_some(OutputRule::NoMarkdown),
            &[&["markdown"]],
        ),
        (
            r"(?:must|always|should)\b[^.\n]*?\b(?:in|within|inside|as)\s+(?:a|an)\s+(?:single\s+)?(?:(?P<lang>python|sql|bash|json|yaml|javascript|typescript|rust|java|html)\s+)?(?:markdown\s+)?(?:fenced\s+)?code\s*(?:block|fence)\b".to_owned(),
            |c| Some(OutputRule::Fence(c.name("lang").map(|l| l.as_str().to_ascii_lowercase()))),
            &[&["code block", "code fence", "codeblock"]],
        ),
        (
            r#"(?:never|do\s+not|don't|must\s+not|avoid)\s+(?:ever\s+)?(?:say|saying|use|using|mention|mentioning|include|including|write|writing|output)\s+the\s+(?:exact\s+)?(?:word|phrase|term|expression)s?\s+['"`“](?P<mark>[^'"`”\n]+)['"`”]"#.to_owned(),
            |c| Some(OutputRule::Forbidden(mark(c)?)),
            &[&["word", "phrase", "term", "expression"]],
        ),
        (
            r"(?P<one>(?:only|at\s+most|exactly|no\s+more\s+than)\s+(?:call\s+|use\s+|make\s+|invoke\s+)?(?:one|1|a\s+single)\s+(?:tool|function)s?\s*(?:calls?)?\s+(?:at\s+a\s+time|at\s+once|(?:per|in\s+each|in\s+one|in\s+a\s+single|in\s+every)\s+(?:step|turn|message|response|action|iteration|request|reply))|\bone\s+(?:tool|function)(?:\s+call)?\s+at\s+a\s+time|(?:do\s+not|don't|never)\s+(?:call|make|use|invoke)\s+(?:multiple|more\s+than\s+one|several|parallel)\s+(?:tools?|functions?)(?:\s+calls?)?)|(?:must|always|have\s+to|required\s+to)\s+(?:first\s+)?(?:use|call|invoke|consult|query)\s+(?:(?P<some>(?:the|your|one\s+of\s+the|at\s+least\s+one|one\s+of\s+your)\s+(?:available\s+|provided\s+|given\s+)?tools?\b|tools\b|a\s+tool\b)|(?:the\s+|your\s+)?['\x22`]?(?P<name>[A-Za-z][\w.-]+?)['\x22`]?\s+(?:tool|function|agent|team\s+member)\b)|(?P<memory>(?:never|do\s+not|don't)\s+(?:answer|respond|reply)\s+(?:\w+\s+)?from\s+(?:your\s+)?(?:own\s+)?(?:memory|knowledge))".to_owned(),
            tool_rule,
            &[&["tool", "function", "agent", "team member", "memory", "knowledge"]],
        ),
    ];
    let all_cues = sources.iter().flat_map(|(_, _, cues)| cues.iter().copied().flatten());
    let cues: Vec<&str> = all_cues.copied().collect::<BTreeSet<_>>().into_iter().collect();
    if cues.len() > CueBits::BITS as usize {
        return Err("more cues than bits".to_owned());
    }
    let bit = |word: &&str| cues.iter().position(|cue| cue == word).map_or(0, |index| 1 << index);
    let bits = |group: &&[&str]| group.iter().map(bit).fold(0, |bits, bit: CueBits| bits | bit);
    let build = |(source, make, cues): &(String, RuleFromMatch, Cues)| {
        let regex = pattern(&format!("(?i){source}")).map_err(|error| error.to_string())?;
        Ok(RulePattern { regex, make: *make, cues: cues.iter().map(bits).collect() })
    };
    let patterns = sources.iter().map(build).collect::<Result<_, String>>()?;
    Ok(Patterns { patterns, cues: Occurrences::new(&cues, true, SearchAt::AllBytes)? })
}

/// The marker of a match; `None` if its length is outside the limits.
fn mark(c: &Captures<'_>) -> Option<String> {
    let mark = c.name("mark").or_else(|| c.name("tag"))?;
    Some(mark.as_str().trim().to_owned()).filter(|m| (2..=MAX_MARK_BYTES).contains(&m.len()))
}

/// The number that a text states in digits or as a word.
fn number(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    match text.as_str() {
        "a" => Some(1),
        _ if text.ends_with("single") => Some(1),
        _ => text.parse().ok().or_else(|| Some(numbers::from_any_word(&text)? as usize)),
    }
    .filter(|n| *n > 0)
}

/// The rule of a match of a length limit.
fn length_limit(c: &Captures<'_>) -> Option<OutputRule> {
    let unit = match c.name("u")?.as_str().to_ascii_lowercase().as_bytes().first()? {
        b'w' => LengthUnit::Words,
        b's' => LengthUnit::Sentences,
        _ => LengthUnit::Characters,
    };
    Some(OutputRule::AtMost(number(c.name("n")?.as_str())?, unit))
}

/// The rule of a match about tools.
fn tool_rule(c: &Captures<'_>) -> Option<OutputRule> {
    if c.name("one").is_some() {
        return Some(OutputRule::OneCall);
    }
    if c.name("some").is_some() || c.name("memory").is_some() {
        return Some(OutputRule::UseSomeTool);
    }
    Some(OutputRule::UseTool(c.name("name")?.as_str().to_owned()))
}

// Words of conditional instructions and of examples.
regex!(
    CONDITION,
    r"(?i)\b(?:if|whenever|when|once|unless|in case|otherwise|except|for example|for instance|e\.g|such as|example|examples|until|optionally|optional|may|might|could|prefer|preferably|ideally|whether|sometimes|try to|cannot|can not|instead of|where|user|users|customer)\b"
);

// A length limit is read only if its sentence is about the output, and not about a part of the output.
regex!(
    ABOUT_OUTPUT,
    r"(?i)\b(?:answer|respond|response|reply|output|summari[sz]e|summary|explain|describe|be (?:brief|concise)|keep (?:it|your))\b"
);
regex!(
    ABOUT_PART,
    r"(?i)\b(?:each|per|every|title|headline|query|queries|argument|arguments|parameter|parameters|name|field|key|value|step|bullet|item|section|paragraph|subject|tool|tools|function|input|thought|reasoning|commit|first|last)\b"
);

/// The instructions of a text about outputs, each rule once.
fn read_instructions(text: &str) -> Vec<OutputInstruction> {
    let text = without_examples(text);
    let cues = PATTERNS.cues_in(&text);
    let mut instructions: Vec<OutputInstruction> = Vec::new();
    for pattern in &PATTERNS.patterns {
        if !pattern.cues.iter().all(|group| cues & group != 0) {
            continue;
        }
        for captures in pattern.regex.captures_iter(&text).take(MAX_MATCHES) {
            let Some(full_match) = captures.get(0).filter(|m| m.len() <= MAX_MATCH_BYTES) else { continue };
            let sentence = sentence(&text, full_match.start(), full_match.end());
            let Some(rule) = (pattern.make)(&captures) else { continue };
            if let Some(instruction) = accepted_instruction(rule, sentence)
                && instructions.len() < MAX_INSTRUCTIONS
                && !instructions.iter().any(|other| other.rule == instruction.rule)
            {
                instructions.push(instruction);
            }
        }
    }
    instructions
}

/// The instruction with this rule, if its sentence is an unconditional instruction about outputs; else `None`.
fn accepted_instruction(rule: OutputRule, sentence: &str) -> Option<OutputInstruction> {
    if sentence.trim_end().ends_with('?') || CONDITION.is_match(sentence) {
        return None;
    }
    let lower = sentence.to_ascii_lowercase();
    let is_about_part = ABOUT_PART.is_match(sentence);
    match &rule {
        OutputRule::AtMost(..) if is_about_part || !ABOUT_OUTPUT.is_match(sentence) => return None,
        OutputRule::OnlyJson
        | OutputRule::OnlyNumber
        | OutputRule::OnlyYesOrNo
        | OutputRule::HasNumber
        | OutputRule::Bullets(_)
            if ["tool", "function", "argument", "parameter", "input", "field"]
                .iter()
                .any(|w| lower.contains(w)) =>
        {
            return None;
        }
        // Providers may separate the reasoning from the output and remove its tags.
        OutputRule::Enclosed(tag)
            if ["think", "thinking", "thought", "reasoning", "scratchpad"].contains(&tag.as_str()) =>
        {
            return None;
        }
        _ => {}
    }
    let every_output =
        ["every response", "each response", "every message", "each message", "every reply", "every output"];
    let scope = match &rule {
        OutputRule::OneCall => OutputScope::Every,
        OutputRule::EndsWith(_) | OutputRule::StartsWith(_) if lower.contains("plan") => OutputScope::Plan,
        OutputRule::Forbidden(_) => OutputScope::Every,
        _ if every_output.iter().any(|e| lower.contains(e)) => OutputScope::Every,
        _ => OutputScope::Answer,
    };
    Some(OutputInstruction { rule, scope, sentence: head(sentence.trim(), QUOTE_BYTES).to_owned() })
}

/// The sentence around the match `start..end`. A full stop inside the match does not end the sentence.
pub(super) fn sentence(text: &str, start: usize, end: usize) -> &str {
    let before = clip_end(text.get(..start).unwrap_or(""), SENTENCE_BYTES);
    let after = clip(text.get(end..).unwrap_or(""), SENTENCE_BYTES);
    let is_end = |bytes: &[u8], i: usize| match bytes.get(i) {
        Some(b'\n') => true,
        Some(b'.' | b'!' | b'?' | b';') => bytes.get(i + 1).is_none_or(u8::is_ascii_whitespace),
        _ => false,
    };
    let from = (0..before.len()).rev().find(|&i| is_end(before.as_bytes(), i)).map_or(0, |i| i + 1);
    let to = (0..after.len()).find(|&i| is_end(after.as_bytes(), i)).map_or(after.len(), |i| i + 1);
    text.get(start - (before.len() - from)..end + to).unwrap_or("")
}

/// The text without the content of code fences and `<example>` tags, which is no instruction.
fn without_examples(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, piece) in text.split("```").enumerate() {
        if i % 2 == 0 {
            out.push_str(piece);
        } else {
            // The fence itself remains, since a sentence may name it ("do not use ```").
            out.push_str("```");
        }
    }
    let mut rest = out.as_str();
    let mut without_tags = String::with_capacity(out.len());
    while let Some(start) = memchr::memmem::find(rest.as_bytes(), b"<example") {
        without_tags.push_str(rest.get(..start).unwrap_or(""));
        let tail = rest.get(start..).unwrap_or("");
        match memchr::memmem::find(tail.as_bytes(), b"</example") {
            Some(end) => rest = tail.get(end..).and_then(|t| t.get(t.find('>')? + 1..)).unwrap_or(""),
            None => return without_tags,
        }
    }
    without_tags.push_str(rest);
    without_tags
}
