//! Recordings: the answers of a run in a file, with which the run can be repeated offline.
//!
//! Each line is one answer as `record` writes it. Its key is derived from prompt, form and sample.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::counter::Counter;

use crate::cache_key::CacheKey;
use crate::lock::lock;
use crate::record::{self, JudgeAnswer, MAX_LINE};

/// Maximum number of answers in a recording, which bounds its memory.
const MAX_ANSWERS: usize = 1_000_000;

/// Recorded answers. Of several answers to the same question the last one is used.
#[derive(Debug)]
pub(crate) struct Recording(HashMap<CacheKey, Arc<JudgeAnswer>>);

impl Recording {
    pub(crate) fn read(path: &Path) -> Result<Recording, String> {
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
            let (key, answer) =
                record::read(text.trim()).ok_or_else(|| format!("line {number} is not a recorded answer"))?;
            answers.insert(key, Arc::new(answer));
        }
        Err(format!("it has more than {MAX_ANSWERS} lines"))
    }

    pub(crate) fn get(&self, key: &CacheKey) -> Option<Arc<JudgeAnswer>> {
        self.0.get(key).cloned()
    }
}

/// A file to which answers are appended, one per question and process.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: Mutex<(File, HashSet<CacheKey>)>,
    errors: Counter,
}

impl Recorder {
    /// Creates the file, readable by its owner only, if it does not exist.
    pub(crate) fn open(path: &Path, errors: Counter) -> Result<Recorder, String> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let file = file.map_err(|e| e.to_string())?;
        Ok(Recorder { file: Mutex::new((file, HashSet::new())), errors })
    }

    /// Appends an answer. Blocking, but only for a write of a few KiB without fsync.
    pub(crate) fn record(&self, key: &CacheKey, answer: &JudgeAnswer) {
        let line = record::write(key, answer) + "\n";
        let mut file = lock(&self.file);
        let (file, recorded_keys) = &mut *file;
        if recorded_keys.contains(key) {
            return;
        }
        if recorded_keys.len() < MAX_ANSWERS {
            recorded_keys.insert(*key);
        }
        if let Err(error) = file.write_all(line.as_bytes()) {
            self.errors.inc();
            tracing::warn!(%error, "an answer could not be recorded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use verdict_eval::questions::Usage;

    fn answer(n: u64) -> JudgeAnswer {
        JudgeAnswer::new(
            "m/12345678",
            serde_json::json!({ "rationale": "line\nbreak é", "score": n }),
            Some(3.25),
            Usage { tokens: n, cost_usd: 0.5 },
        )
    }

    #[test]
    fn recorded_answers_are_read_again_one_per_question() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::open(&path, Counter::default()).unwrap();
        recorder.record(&[1; 32], &answer(1));
        recorder.record(&[1; 32], &answer(1));
        recorder.record(&[2; 32], &answer(2));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let recording = Recording::read(&path).unwrap();
        assert_eq!(*recording.get(&[2; 32]).unwrap(), answer(2));
        assert_eq!(recording.get(&[3; 32]), None);
        // A second run appends; the last answer counts.
        Recorder::open(&path, Counter::default()).unwrap().record(&[2; 32], &answer(9));
        assert_eq!(*Recording::read(&path).unwrap().get(&[2; 32]).unwrap(), answer(9));
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let good = record::write(&[1; 32], &answer(1));
        std::fs::write(&path, format!("{good}\n\n{{\"key\":\"ab\"}}\n")).unwrap();
        assert_eq!(Recording::read(&path).unwrap_err(), "line 3 is not a recorded answer");
        assert!(Recording::read(&folder.path().join("none")).is_err());
    }
}
