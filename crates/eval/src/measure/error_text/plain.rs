//! Error reports in plain texts, by their beginning and end.
//!
//! In: a text. Out: the passage that reports an error.

use super::document::{self, MAX_SENTENCE_REPORT_BYTES};
use super::uncaught;
use crate::measure::defects::clip;
use crate::measure::vocabulary::{self, WordMeaning};
use crate::recognise::action_text::without_result_labels;

/// Bytes at the beginning of a text that are matched with the patterns of error reports.
const HEAD_BYTES: usize = 300;

/// The passage that reports an error; `None` if the text is no error report.
pub(super) fn report(text: &str) -> Option<&str> {
    let text = without_result_labels(text);
    let head = clip(text, HEAD_BYTES);
    let is_report = match IS_ERROR.find(head) {
        Some(error) => !is_subject(head, error) && !document::is_about(text, error.as_str()),
        None if text.len() > MAX_SENTENCE_REPORT_BYTES => false,
        None => {
            IS_SHORT_ERROR.find(head).is_some_and(|error| !is_subject(head, error))
                || IS_PARSER_ERROR.is_match(head)
        }
    };
    if is_report { Some(text) } else { error_page(text).or_else(|| uncaught::at_end(text)) }
}

/// Whether the matched error is the subject of a definition: "404 Not Found is a status code". A report describes an
/// event instead.
fn is_subject(head: &str, error: regex::Match<'_>) -> bool {
    let definition = || DEFINITION.captures(head.get(error.end()..)?);
    // A description of the event follows a colon: "Error: is a directory".
    !error.as_str().contains([':', '('])
        && definition().is_some_and(|captures| captures.name("event").is_none())
}

// The rest of a sentence that defines an error. With an event ("is exceeded") it reports one.
regex!(
    DEFINITION,
    r#"(?xi)^ [\ "'’”)*_`]{0,3} (?: (?:errors?|codes?|status|responses?|messages?|exceptions?|pages?|requests?|entity|allowed|out
        |required|unavailable) \b [\ "'’”)*_`]{0,2} ){0,3}
    (?: \( [^()\n]{0,80} \) [\ ]? )?
    (?: is|are|means?|refers?|indicates?|denotes?|describes?|occurs?|happens? ) \b
    (?P<event> \s+ (?: exceeded|reached|expired|hit|over )\b )?"#
);

/// Beginnings that make a text of any length an error report. `{error}` is the word for an error in every language.
const ANY_LENGTH: &str = r#"(?x)^(?:
    (?i: traceback\ \(most\ recent\ call\ last\) )
  | (?i: (?: (?:tool|api|http|internal|server|validation|runtime|fatal|unexpected|execution|python|search|
             network|connection|input|parse|parsing|request|timeout|syntax|type|value|client|database|sql|
             file|io|unknown|call|function|invocation|os|shell|command|code)[\ _-]? ){0,3}
         (?: {error} )
         (?: \s* \(?(?:code|status)?\s*\#?\d{3,5}\)? )? \s* (?: [:：](?:[^:]|$) | !\s ) )
  | (?i: error \s* \n )
  | (?i: error(?:ed)? \s+ (?: \d{3}\b | executing | when | while | during | occurred | calling | running | invoking
         | fetching | loading | reading | opening | accessing | connecting | parsing | processing | retrieving
         | searching | performing | code\s*:?\s+\d | in\s+(?:tool|function|call|code)\b | from\s+(?:tool|server|api)\b ) )
  | (?i: (?: an? | some | the\ following ) \s+ (?:\w+\s+){0,2} (?:error|exception) \s+ (?:has\s+)? (?:occurred|was\s+raised|was\s+thrown|happened) )
  | (?i: there\ was\ an?\ (?:\w+\ ){0,2} error\b )
  | (?i: tool\ (?:execution|call|invocation)\ failed | execution\ failed\b | command\ failed\b | request\ failed\b )
  | (?: (?:[A-Za-z_]\w*\.){0,6} [A-Z]\w* (?: Error|Exception|Fault|Failure|Timeout|NotFound|Refused|Denied|Exceeded ) \s* (?: \( | : ) )
  | (?: Exception \s* : )
  # Error constants of programs and of POSIX.
  | (?: E(?:RR(?:OR)?)? _ [A-Z][A-Z0-9_]{2,60} \s* (?: [:\-–] | $ ) )
  | (?: E(?:NOENT|ACCES|PERM|EXIST|ISDIR|NOTDIR|NOSPC|CONNREFUSED|CONNRESET|TIMEDOUT|HOSTUNREACH|NOTFOUND|AI_AGAIN) \s* : )
  | (?i: http (?:/\d(?:\.\d)?)? \s* (?:error|status|response)? \s* (?:code)? \s* :? \s* [45]\d\d \b )
  | (?i: (?:status (?:[\ _]code)? ) \s* [:=] \s* [45]\d\d \b )
  | (?i: [45]\d\d \s* [:\-\ ] \s* (?: client\ error | server\ error | not\ found | forbidden | unauthori[sz]ed | bad\ request
         | internal\ server | too\ many | service\ (?:temporarily\ )?unavailable | bad\ gateway | gateway\ time | method\ not
         | gone\b | unprocessable | payment\ required | request\ timeout ) )
  | (?i: <(?:tool_use_)?error> | <tool_error> )
)"#;

/// Beginnings that make a text of at most [`MAX_SENTENCE_REPORT_BYTES`] an error report.
const SHORT: &str = r#"(?ix)^(?:
    (?: sorry,?\s+ | the\ tool\s+ | tool\s+ | request\s+ | operation\s+ | call\s+ )?
    (?: failed\s+(?:to\b|with\b|because\b|due\b|:) | failure\s*: | fatal\s*: | failed\s*: | unable\s+to\s+(?:\w+ly\s+)?
        (?:open|read|access|connect|fetch|load|parse|execute|import|resolve|retrieve|reach|complete|process|get|download|authenticate|establish|run|call|perform|decode|write|save|create)\b
      | (?:could\s+not|couldn't|cannot|can't|can\s+not)\s+
        (?:open|read|access|connect|fetch|load|parse|execute|import|resolve|retrieve|reach|complete|process|get|download|authenticate|establish|run|call|perform|decode|write|save|create)\b )
  | (?: the\s+)?(?:requested\s+|specified\s+)?(?:page|file|url|resource|tool|function|endpoint|module|path|document|directory|website)\b
    (?: [^\n:;] | [:;]\S )*?   # in one clause
    (?: (?:was\s+|were\s+|is\s+)?not\s+found | does\s+not\s+exist | doesn't\s+exist | could\s+not\s+be\s+(?:found|loaded|opened|reached) | is\s+unavailable )
  | (?: unknown|no\s+such|undefined ) \s+ (?:tool|function|file|command|url|page|resource|method|endpoint)\b
  | invalid \s+ (?:\w+\s+)? (?:url|uri|argument|arguments|parameter|parameters|input|request|api[\ _]key|json|path|query|token|credentials|syntax|format) \b
  | missing\s+required\s+ (?: \w+\s+){0,2} (?: arg|param|data|body|field|property|input|value|key|option|header|scope|permission|attribute|column|name|variable|['"`] )
  | (?: request|connection|operation|command|execution|tool|call|query )\s+ (?:has\s+)? (?:timed\s+out|was\s+refused|refused|was\s+reset) | timed\s*out\b
      # "timeout: 30" is a setting, "Time Out London" a name.
      | time(?:\s)?out\b \s* (?: $ | [.!,(] | : \s* [^\d\s] | (?: after|waiting|while|exceeded|expired|errors?|occurred|reached
          |was|during|when|reading|connecting|contacting|fetching
          |calling|executing|requesting|loading|opening|running|on|from )\b | of\s+\d )
  | (?: rate\s+limit (?: ed\b | \s* (?: $ | [.!,(] | : \s* [^\d\s] | (?: [^\n.:]{0,60}? \b )? (?:exceeded|reached|hit)\b | errors?\b ) )
       | too\s+many\s+requests | quota\s+exceeded | access\s+denied | permission\s+denied | not\s+authorized
      # "Forbidden City" is a name.
      | (?: unauthorized|forbidden )\b \s* (?: $ | [.!,:;(<\-–\n] | (?: to|by|for|from|access|request|error|resource|operation|action|user
          |token|you|the )\b )
      | authentication\s+(?:failed|required) | service\s+unavailable | internal\s+server\s+error | bad\s+gateway )
  | [\w./-]{1,60} \s* : \s* [^\n]*? (?: command\s+not\s+found | no\s+such\s+file\s+or\s+directory | permission\s+denied | connection\s+refused | not\s+found\s*$ )
)"#;

/// Messages of parsers: the unexpected token, and its position.
const PARSER: &str = r#"(?ix)^(?:
    (?: unterminated|unexpected|invalid|expected|expecting|unmatched|unclosed|unbalanced|missing|illegal|malformed|unindent
       |leading\ zeros|cannot\ assign|could\ not\ parse|parse\ error|bad|eof|eol )\b
    [^\n]{0,200}? (?: \b(?: string|literals?|token|character|identifier|indent\w*|syntax|bracket|parenthes\w+|brace|quote|comma
       |colon|delimiter|eof|eol|end\ of|expression|statement|symbol|escape|operator|keyword|property\ name|block|json|yaml
       |xml|sql )\b | ['"][^\w\s]{1,3}['"] )
    [^\n]{0,200}? \b (?: line|position|column|col|char|offset )\s*:?\s*\d
  | (?: ['"]?[\[({]['"]?\ )? was\ never\ closed\b
)"#;

regex!(IS_ERROR, &ANY_LENGTH.replace("{error}", &error_words()));
regex!(IS_PARSER_ERROR, PARSER);
regex!(IS_SHORT_ERROR, SHORT);

/// The word for an error in every language, longer ones first, so that no word hides a longer one.
fn error_words() -> String {
    let mut words: Vec<&str> = vocabulary::words_of(WordMeaning::Error).collect();
    words.sort_by_key(|word| usize::MAX - word.len());
    words.join("|")
}

regex!(
    TITLE,
    r"(?i)<title>\s*(?:error\s+)?[45]\d\d\b\s*(?:[-:|]|not|for|un|bad|int|ser|gat|too|me|go|err|</)"
);

/// The part of an HTML page from its title on, if the title is an HTTP error.
fn error_page(text: &str) -> Option<&str> {
    if text.as_bytes().first() != Some(&b'<') {
        return None;
    }
    let title = TITLE.find(clip(text, 4 * HEAD_BYTES))?;
    text.get(title.start()..)
}
