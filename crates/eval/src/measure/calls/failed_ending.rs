//! Outputs of programs whose end reports a failure: `[exit 2]`, `58 tests completed, 1 failed`, `BUILD FAILED`,
//! `Restarting (1) 6 seconds ago`.
//!
//! Principle: the end of an output reports how the program ended. Of the last lines, the last one that reports a
//! success or a failure decides, so that a failed attempt before a successful one is no failure. The words are those
//! of programs, which are English for users of any language.
//!
//! In: the result of a call. Out: the line that reports the failure.

use crate::measure::Memo;
use crate::measure::defects::clip_end;
use crate::measure::records::{RecordField, Structure};
use crate::pattern::WordSearcher;
use crate::recognise::{Call, Text};

/// Lines at the end of an output in which its summary is.
const LAST_LINES: usize = 8;
/// Maximum bytes at the end of an output that are read.
const END_BYTES: usize = 2_000;
/// Maximum bytes of a line of a report; longer lines are data.
const MAX_LINE_BYTES: usize = 400;
/// Keys of the output of a program in a structured result.
const OUTPUT_KEYS: [&str; 12] = [
    "output", "stdout", "stderr", "out", "err", "log", "logs", "tail", "text", "console", "content", "result",
];

/// Every line that matches [`FAILURE`] contains one of these.
const MARKS: [&str; 34] = [
    "ail",
    "AIL",
    "rror",
    "RROR",
    "exit",
    "Exit",
    "EXIT",
    "rc=",
    "rc:",
    "atal",
    "FATAL",
    "anic",
    "PANIC",
    "bort",
    "rash",
    "non-zero",
    "nonzero",
    "incomplete",
    "compile",
    "ERR",
    "***",
    "ejected",
    "CONFLICT",
    "core dumped",
    "egmentation",
    "Restarting (",
    "BackOff",
    "OOMKilled",
    "not ok",
    "CRITICAL",
    "illed",
    "✗",
    "✘",
    "✖",
];
checked_static!(MARK: WordSearcher = WordSearcher::new(&MARKS));

// The end of a run without success, in forms of shells, build tools, test runners and orchestrators.
regex!(
    FAILURE,
    r"(?x)
      \b(?i:exit(?:ed)?(?:\ with)?\ (?:code|status))\s?[:=]?\s?\(?[1-9]\d{0,2}\b
    | \b(?i:exit(?:ed)?)(?:\s?[:=]\s?|\s?\(?)[1-9]\d{0,2}\W*$
    | \bExited\ \([1-9] | \bActive:\ failed\b | \bstatus=[1-9]\d{0,2}/
    | ^\W*(?:rc|RC)\s?[:=]\s?[1-9]\d{0,2}\W*$
    | (?i:\bnon-?zero\ (?:exit|status|return))
    | (?:^|[\s\]:|])(?:ERROR|FATAL|FAILURE|FAILED|FAIL|CRITICAL|PANIC)\b
    | ^\W*(?i:(?:\w+\ )?error|fatal|failure|panic|aborted|aborting)\b\s?(?:\[[^\]]*\])?\s?[:!]
    | (?i:\berror\ [A-Z]{1,5}\d{2,6}\b)
    | (?i:\b[1-9]\d*\ (?:[a-z]+\ ){0,2}?(?:failed|failures?|failing|errors?|errored)\b)
    | (?i:\b(?:failed|failures?|errors?|errored)\b\s?[:=]\s?[1-9]\d*\b)
    | (?i:\b(?:build|tests?|deploy(?:ment)?|apply|job|pipeline|migration|restore|backup|upload|push|install(?:ation)?
        |compilation|command|script|task|run|check|stage|step|sync|import|export|rollout|release|update|upgrade)
        \ (?:has\ |is\ )?(?:failed|incomplete|aborted|crashed)\b)
    | (?i:\bfailed\W*$ | \bcould\ not\ compile\b | \bnpm\ err! | \bcore\ dumped\b | \bsegmentation\ fault\b )
    | ^make(?:\[\d+\])?:\ \*\*\* | !\ \[(?:remote\ )?rejected\] | \bCONFLICT\ \( | ^not\ ok\b | ^Killed\b
    | \bRestarting\ \([1-9] | \b(?:CrashLoop|ImagePull)BackOff\b | \bErrImagePull\b | \bOOMKilled\b
    | ^\W{0,3}[✗✘✖❌]"
);
// A line of success. A count of 0 failures is one.
regex!(
    SUCCESS,
    r"(?ix) \b(?: succe(?:ss|ssful|ssfully|eded) | passed | passing | completed? | finished | done | ok | up\ to\ date
        | recovered | (?:0|no)\ (?:\w+\ )?(?:failed|failures?|errors?) | exit(?:ed)?(?:\ with)?(?:\ (?:code|status))?\s?[:=]?\s?\(?0 )\b"
);

/// The line by which the end of the result reports a failure; `None` for another end.
pub(crate) fn failed_ending(call: &Call, memo: &Memo) -> Option<String> {
    struct Ending(Option<String>);
    let result = call.result.as_ref()?;
    memo.for_text(result, |_| Ending(find(result, memo))).0.clone()
}

fn find(result: &Text, memo: &Memo) -> Option<String> {
    // An output may be a text of a structured result. Most results have no mark of a failure.
    let end = clip_end(result.trim_end(), END_BYTES);
    MARK.find(end)?;
    if !result.trim_start().starts_with(['{', '[']) {
        return ending_line(end).map(str::to_owned);
    }
    let structure = Structure::cached(result, memo)?;
    let records = structure.0.as_ref()?.records.iter().take(2);
    let is_output = |field: &&RecordField| {
        matches!(&**field.name, [key] if OUTPUT_KEYS.contains(&key.as_str())) && field.is_text()
    };
    let mut outputs = records.flat_map(|record| &record.fields).filter(is_output);
    outputs.find_map(|field| ending_line(clip_end(field.shown(), END_BYTES)).map(str::to_owned))
}

/// The last line that reports an end, if it reports a failure.
fn ending_line(end: &str) -> Option<&str> {
    let lines = end.lines().rev().map(str::trim).filter(|line| !line.is_empty()).take(LAST_LINES);
    for line in lines.filter(|line| line.len() <= MAX_LINE_BYTES) {
        match (MARK.find(line).is_some() && FAILURE.is_match(line), SUCCESS.is_match(line)) {
            (true, _) => return Some(line),
            (false, true) => return None,
            (false, false) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_an_output_decides() {
        for output in [
            "> core@1.0 build\nsrc/a.ts(3,7): error TS2322: Type 'x'\n[exit 2]",
            "58 tests completed, 1 failed\n\nFAILURE: Build failed with an exception.\nBUILD FAILED in 14s",
            "queue.orders: Creation complete after 2s\n\nError: creating queue: AccessDenied\n\nApply incomplete. exit status 1",
            "Writing 61%\nERROR: timeout waiting for ack\nVerify skipped\nrc=3",
            "app-1\tRestarting (1) 6 seconds ago\ndb-1\tUp 3 weeks",
            "error[E0502]: cannot borrow\nerror: could not compile `jobq` (lib) due to 1 previous error",
            "02:19:43 ERROR restore FAILED: checksum mismatch in chunk 0117\n02:19:44 INFO cleaned up target",
            "make[1]: *** [all] Error 2",
            "To git.example:shop.git\n ! [rejected] main -> main (fetch first)",
            "ok 1 - adds\nnot ok 2 - removes",
            "Tests: 2 failed, 11 passed, 13 total",
            "Merge made\nCONFLICT (content): Merge conflict in a.txt",
            "Process exited with code 137",
            "checks: 12\nfailures: 3",
            "worker.service - Worker\n   Active: failed (Result: exit-code) since Mon; 3s ago",
        ] {
            assert!(ending_line(output).is_some(), "{output}");
        }
        for output in [
            "attempt 1 failed: timeout\nattempt 2: done",
            "3 errors found\n3 errors fixed, 0 errors remaining\nDone in 2s",
            "12 passed, 0 failed in 0.3s",
            "[exit 0]",
            "src/error.rs:14: // an error is returned",
            "fix: handle failed uploads\nfeat: exit codes of the worker",
            "no failures",
            "app-1\tUp 6 seconds\ndb-1\tUp 3 weeks",
            "exit 4 to the motorway is closed",
            "Compiling\nFinished release in 3.2s",
        ] {
            assert_eq!(ending_line(output), None, "{output}");
        }
    }
}
