//! Answers of a run in a file, so that the run can be repeated offline.
//!
//! One answer a line, as `line` writes it, by the question's prompt, form and sample.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::kept::{Errors, Said};
use super::line::{self, MAX_LINE};
use super::named::Key;

/// Answers of one run; a longer file is something else.
const MAX_ANSWERS: usize = 1_000_000;

/// Answers that were recorded. The last one for a question counts.
#[derive(Debug)]
pub(super) struct Recording(HashMap<Key, Arc<Said>>);

impl Recording {
    /// Reads all of a file.
    pub fn read(path: &Path) -> Result<Recording, String> {
        let file = File::open(path).map_err(|e| e.to_string())?;
        let mut reader = BufReader::new(file);
        let mut answers = HashMap::new();
        for number in 1..=MAX_ANSWERS {
            let mut text = String::new();
            let read = reader.by_ref().take(MAX_LINE).read_line(&mut text);
            let read = read.map_err(|e| format!("line {number}: {e}"))?;
            if read == 0 {
                return Ok(Recording(answers));
            }
            if text.trim().is_empty() {
                continue;
            }
            let (key, said) =
                line::read(text.trim()).ok_or_else(|| format!("line {number} is no recorded answer"))?;
            answers.insert(key, Arc::new(said));
        }
        Err(format!("it holds more than {MAX_ANSWERS} lines"))
    }

    /// The answer to a question.
    pub fn get(&self, key: &Key) -> Option<Arc<Said>> {
        self.0.get(key).cloned()
    }
}

/// A file that answers are appended to, each question's once.
#[derive(Debug)]
pub(super) struct Recorder {
    file: Mutex<(File, HashSet<Key>)>,
    errors: Errors,
}

impl Recorder {
    /// Creates the file where it is not there, for its owner only.
    pub fn open(path: &Path, errors: Errors) -> Result<Recorder, String> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let file = file.map_err(|e| e.to_string())?;
        Ok(Recorder { file: Mutex::new((file, HashSet::new())), errors })
    }

    /// Appends an answer. Blocks for as long as the operating system takes to copy a few KiB.
    pub fn record(&self, key: &Key, said: &Said) {
        let line = line::write(key, said) + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, known) = &mut *file;
        if known.contains(key) {
            return;
        }
        if known.len() < MAX_ANSWERS {
            known.insert(*key);
        }
        if let Err(why) = file.write_all(line.as_bytes()) {
            self.errors.inc();
            tracing::warn!(%why, "an answer could not be recorded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use verdict_eval::measure::Usage;

    fn said(n: u64) -> Said {
        Said {
            value: serde_json::json!({ "rationale": "line\nbreak é", "score": n }),
            weighted: Some(3.25),
            judge: "m/12345678".into(),
            usage: Usage { tokens: n, cost_usd: 0.5 },
        }
    }

    #[test]
    fn what_is_recorded_is_read_again_and_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::open(&path, Errors::default()).unwrap();
        recorder.record(&[1; 32], &said(1));
        recorder.record(&[1; 32], &said(1));
        recorder.record(&[2; 32], &said(2));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let recording = Recording::read(&path).unwrap();
        assert_eq!(*recording.get(&[2; 32]).unwrap(), said(2));
        assert_eq!(recording.get(&[3; 32]), None);
        // A second run appends; the last word counts.
        Recorder::open(&path, Errors::default()).unwrap().record(&[2; 32], &said(9));
        assert_eq!(*Recording::read(&path).unwrap().get(&[2; 32]).unwrap(), said(9));
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let good = line::write(&[1; 32], &said(1));
        std::fs::write(&path, format!("{good}\n\n{{\"key\":\"ab\"}}\n")).unwrap();
        assert_eq!(Recording::read(&path).unwrap_err(), "line 3 is no recorded answer");
        assert!(Recording::read(&folder.path().join("none")).is_err());
    }
}
