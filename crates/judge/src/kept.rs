//! Answers that are kept, and questions that are being asked: each question is paid for once.
//!
//! In: a question's key, and how to ask it. Out: its answer, from memory, from the folder, from
//! whoever is asking it already, or by asking. Of several who want the same answer the first asks
//! and the others wait; if the first is dropped, the next one asks.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use moka::sync::Cache;
use serde_json::Value;

use super::config::CacheConfig;
use super::folder::{Folder, FolderError};
use super::named::Key;
use verdict_eval::measure::{Unmeasured, Usage};
use verdict_telemetry::Fate;

/// What a judge said, once it has been held against its form.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Said {
    pub value: Value,
    /// The score by probabilities of its tokens.
    pub weighted: Option<f64>,
    /// The model and the hash of rubric and form.
    pub judge: Arc<str>,
    /// What it took when it was asked.
    pub usage: Usage,
}

/// How a question came out, how it came to that, and what it took this time.
#[derive(Debug)]
pub(super) struct Outcome {
    pub said: Result<Arc<Said>, Unmeasured>,
    pub fate: Fate,
    pub usage: Usage,
}

/// What the first to ask leaves to the others. Empty: nobody has an answer yet.
type Slot = tokio::sync::Mutex<Option<Result<Arc<Said>, Unmeasured>>>;

/// All answers.
#[derive(Debug)]
pub(super) struct Kept {
    memory: Cache<Key, Arc<Said>>,
    folder: Option<Arc<Folder>>,
    flights: Mutex<HashMap<Key, Weak<Slot>>>,
}

impl Kept {
    /// Opens the folder, if there is to be one; `before` may have it open already.
    pub fn open(config: &CacheConfig, before: Option<&Kept>, errors: &Errors) -> Result<Kept, FolderError> {
        let folder = match &config.directory {
            None => None,
            Some(path) => match before.and_then(|kept| kept.folder.as_ref()).filter(|f| f.is_at(path)) {
                Some(folder) => {
                    folder.bound(config.max_bytes.0);
                    Some(Arc::clone(folder))
                }
                None => Some(Arc::new(Folder::open(path, config.max_bytes.0, errors.clone())?)),
            },
        };
        // What is remembered stays valid: keys say all that an answer depends on.
        let memory = Cache::builder().max_capacity(config.entries).weigher(weight).build();
        for (key, said) in before.iter().flat_map(|kept| kept.memory.iter()) {
            memory.insert(*key, said);
        }
        Ok(Kept { memory, folder, flights: Mutex::default() })
    }

    /// The answer to the question `key`; `ask` is run if there is none. What is kept counts only
    /// if it `fits`.
    pub async fn of(
        &self,
        key: Key,
        fits: impl Fn(&Said) -> bool,
        ask: impl Future<Output = (Result<Said, Unmeasured>, Usage)>,
    ) -> Outcome {
        let free = |said, fate| Outcome { said, fate, usage: Usage::default() };
        if let Some(said) = self.memory.get(&key) {
            return free(Ok(said), Fate::Cached);
        }
        let flight = self.board(key);
        let mut slot = flight.slot.lock().await;
        if let Some(said) = &*slot {
            return free(said.clone(), Fate::Shared);
        }
        // It may have landed between looking and boarding.
        if let Some(said) = self.memory.get(&key) {
            return free(Ok(said), Fate::Cached);
        }
        if let Some(said) = self.on_disk(key).await.filter(|said| fits(said)) {
            let said = Arc::new(said);
            self.memory.insert(key, Arc::clone(&said));
            *slot = Some(Ok(Arc::clone(&said)));
            return free(Ok(said), Fate::Cached);
        }
        let (said, usage) = ask.await;
        let said = said.map(Arc::new);
        if let Ok(said) = &said {
            self.memory.insert(key, Arc::clone(said));
            self.keep(key, Arc::clone(said));
        }
        // A budget is one trace's own: the next may have enough.
        if said.as_ref().err() != Some(&Unmeasured::Budget) {
            *slot = Some(said.clone());
        }
        let fate = match &said {
            Ok(_) => Fate::Answered,
            Err(Unmeasured::Budget) => Fate::Budget,
            Err(Unmeasured::Timeout) => Fate::Timeout,
            Err(_) => Fate::Failed,
        };
        Outcome { said, fate, usage }
    }

    async fn on_disk(&self, key: Key) -> Option<Said> {
        let folder = Arc::clone(self.folder.as_ref().filter(|folder| folder.has(&key))?);
        tokio::task::spawn_blocking(move || folder.read(&key)).await.ok().flatten()
    }

    /// Nobody waits for the disk.
    fn keep(&self, key: Key, said: Arc<Said>) {
        if let Some(folder) = self.folder.clone() {
            tokio::task::spawn_blocking(move || folder.write(&key, &said));
        }
    }

    fn board(&self, key: Key) -> Flight<'_> {
        let mut flights = lock(&self.flights);
        let slot = flights.get(&key).and_then(Weak::upgrade).unwrap_or_default();
        flights.insert(key, Arc::downgrade(&slot));
        Flight { kept: self, key, slot }
    }
}

/// Bytes of an answer that count as one entry.
const USUAL_BYTES: usize = 2048;

/// A long answer takes the room of several: a judge that lies must not fill the memory.
fn weight(_: &Key, said: &Arc<Said>) -> u32 {
    u32::try_from(said.value.to_string().len().div_ceil(USUAL_BYTES)).unwrap_or(u32::MAX)
}

/// Counts what went wrong with files.
pub(super) type Errors = prometheus_client::metrics::counter::Counter;

/// One who wants an answer that is not there yet.
struct Flight<'a> {
    kept: &'a Kept,
    key: Key,
    slot: Arc<Slot>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut flights = lock(&self.kept.flights);
        // Nobody else holds it, and under this lock nobody can come to.
        if Arc::strong_count(&self.slot) == 1 {
            flights.remove(&self.key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn said(text: &str) -> Said {
        Said {
            value: Value::from(text),
            weighted: None,
            judge: "m/00000000".into(),
            usage: Usage { tokens: 7, cost_usd: 0.1 },
        }
    }

    fn kept(entries: u64) -> Arc<Kept> {
        let config = CacheConfig { entries, ..CacheConfig::default() };
        Arc::new(Kept::open(&config, None, &Errors::default()).unwrap())
    }

    /// Asks after a second; counts in `asked`.
    async fn ask(kept: &Kept, asked: &AtomicUsize, answer: Result<Said, Unmeasured>) -> Outcome {
        let asking = async {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            (answer, Usage { tokens: 7, cost_usd: 0.1 })
        };
        kept.of([1; 32], |_| true, asking).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_question_is_asked_once_and_paid_for_once() {
        let (kept, asked) = (kept(10), AtomicUsize::new(0));
        let all = futures_util::future::join_all((0..50).map(|_| ask(&kept, &asked, Ok(said("a"))))).await;
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(all.iter().map(|o| o.usage.tokens).sum::<u64>(), 7);
        assert_eq!(all.iter().filter(|o| o.fate == Fate::Shared).count(), 49);
        assert!(all.iter().all(|o| o.said.as_ref().unwrap().value == "a"));
        let later = ask(&kept, &asked, Ok(said("b"))).await;
        assert_eq!((later.fate, later.usage.tokens), (Fate::Cached, 0));
        assert!(lock(&kept.flights).is_empty(), "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_first_goes_another_carries_on() {
        let (kept, asked) = (kept(10), AtomicUsize::new(0));
        let mut first = Box::pin(ask(&kept, &asked, Ok(said("first"))));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(ask(&kept, &asked, Ok(said("second"))));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the second waits");
        drop(first);
        let second = second.await;
        assert_eq!((second.fate, asked.load(Ordering::Relaxed)), (Fate::Answered, 2));
        assert!(lock(&kept.flights).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_but_not_kept_and_a_spent_budget_is_ones_own() {
        let (kept, asked) = (kept(10), AtomicUsize::new(0));
        let (one, two) = tokio::join!(
            ask(&kept, &asked, Err(Unmeasured::JudgeError)),
            ask(&kept, &asked, Ok(said("never asked")))
        );
        assert_eq!(one.said, Err(Unmeasured::JudgeError));
        assert_eq!((two.said, two.fate), (Err(Unmeasured::JudgeError), Fate::Shared));
        let (poor, rich) =
            tokio::join!(ask(&kept, &asked, Err(Unmeasured::Budget)), ask(&kept, &asked, Ok(said("rich"))));
        assert_eq!((poor.said, poor.fate), (Err(Unmeasured::Budget), Fate::Budget));
        assert_eq!(rich.said.unwrap().value, "rich");
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn without_room_nothing_is_kept_and_what_is_under_way_is_shared_all_the_same() {
        let (kept, asked) = (kept(0), AtomicUsize::new(0));
        let (_, two) = tokio::join!(ask(&kept, &asked, Ok(said("a"))), ask(&kept, &asked, Ok(said("b"))));
        assert_eq!(two.fate, Fate::Shared);
        kept.memory.run_pending_tasks();
        ask(&kept, &asked, Ok(said("c"))).await;
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
