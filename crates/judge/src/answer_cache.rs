//! The answer cache: the same question is sent only once.
//!
//! In: a question's key, and a future that asks it. Out: its answer from memory, from disk, from a pending
//! request for the same question, or from the future. Of several callers with the same question the first
//! asks and the others wait; if the first is dropped, the next one asks.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use moka::sync::Cache;
use prometheus_client::metrics::counter::Counter;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::Usage;
use verdict_telemetry::QuestionOutcome;

use crate::cache_key::CacheKey;
use crate::config::CacheConfig;
use crate::disk_cache::{DiskCache, DiskCacheError};
use crate::lock::lock;
use crate::record::JudgeAnswer;

/// The result of one question to one judge.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) answer: Result<Arc<JudgeAnswer>, Unmeasured>,
    pub(crate) outcome: QuestionOutcome,
    /// Tokens and cost of the requests that were sent for it.
    pub(crate) usage: Usage,
}

impl Resolved {
    /// The result of a question for which no request was sent.
    pub(crate) fn without_usage(
        answer: Result<Arc<JudgeAnswer>, Unmeasured>,
        outcome: QuestionOutcome,
    ) -> Resolved {
        Resolved { answer, outcome, usage: Usage::default() }
    }
}

/// The answer that the asking caller shares with the waiting callers; `None` until the answer has arrived.
type AnswerSlot = tokio::sync::Mutex<Option<Result<Arc<JudgeAnswer>, Unmeasured>>>;

#[derive(Debug)]
pub(crate) struct AnswerCache {
    memory: Cache<CacheKey, Arc<JudgeAnswer>>,
    disk: Option<Arc<DiskCache>>,
    // Not moka's `get_with`: it panics for a waiting caller after 200 callers that asked have been dropped.
    in_flight: Mutex<HashMap<CacheKey, Arc<AnswerSlot>>>,
}

impl AnswerCache {
    /// Opens the configured folder, or shares the open folder of `previous` if the path is the same. The bound of a
    /// shared folder remains until [`AnswerCache::set_max_bytes`].
    pub(crate) fn open(
        config: &CacheConfig,
        previous: Option<&AnswerCache>,
        errors: &Counter,
    ) -> Result<AnswerCache, DiskCacheError> {
        let max_bytes = config.max_bytes.0;
        let open = |path: &PathBuf| match previous.and_then(|cache| cache.disk.as_ref()) {
            Some(disk) if disk.is_at(path) => Ok(Arc::clone(disk)),
            _ => DiskCache::open(path, max_bytes, errors.clone()).map(Arc::new),
        };
        let disk = config.directory.as_ref().map(open).transpose()?;
        // Answers remain valid under another configuration: keys contain everything that an answer depends on.
        let memory = Cache::builder().max_capacity(config.entries).weigher(weight).build();
        for (key, answer) in previous.iter().flat_map(|cache| cache.memory.iter()) {
            memory.insert(*key, answer);
        }
        Ok(AnswerCache { memory, disk, in_flight: Mutex::default() })
    }

    /// Sets the bound of the cache on disk.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        if let Some(disk) = &self.disk {
            disk.set_max_bytes(max_bytes);
        }
    }

    /// Whether the question `key` was answered before.
    pub(crate) fn contains(&self, key: &CacheKey) -> bool {
        self.memory.contains_key(key) || self.disk.as_ref().is_some_and(|disk| disk.contains(key))
    }

    /// The answer to the question `key`. `ask` is polled only if the cache has none; an answer from disk is
    /// used only if it is `is_valid`.
    pub(crate) async fn get_or_ask(
        &self,
        key: CacheKey,
        is_valid: impl Fn(&JudgeAnswer) -> bool,
        ask: impl Future<Output = (Result<JudgeAnswer, Unmeasured>, Usage)>,
    ) -> Resolved {
        if let Some(answer) = self.memory.get(&key) {
            return Resolved::without_usage(Ok(answer), QuestionOutcome::Cached);
        }
        let pending = self.join(key);
        let mut slot = pending.slot.lock().await;
        if let Some(answer) = &*slot {
            return Resolved::without_usage(answer.clone(), QuestionOutcome::Shared);
        }
        // The question may have been answered between the first lookup and locking the slot.
        if let Some(answer) = self.memory.get(&key) {
            return Resolved::without_usage(Ok(answer), QuestionOutcome::Cached);
        }
        if let Some(answer) = self.on_disk(key).await.filter(|answer| is_valid(answer)) {
            let answer = Arc::new(answer);
            self.memory.insert(key, Arc::clone(&answer));
            *slot = Some(Ok(Arc::clone(&answer)));
            return Resolved::without_usage(Ok(answer), QuestionOutcome::Cached);
        }
        let (answer, usage) = ask.await;
        let answer = answer.map(Arc::new);
        if let Ok(answer) = &answer {
            self.memory.insert(key, Arc::clone(answer));
            if let Some(disk) = &self.disk {
                disk.write_later(key, Arc::clone(answer));
            }
        }
        // Budgets differ by trace: the budget of the next caller may not be spent.
        if answer.as_ref().err() != Some(&Unmeasured::Budget) {
            *slot = Some(answer.clone());
        }
        let outcome = match &answer {
            Ok(_) => QuestionOutcome::Answered,
            Err(Unmeasured::Budget) => QuestionOutcome::Budget,
            Err(Unmeasured::Timeout) => QuestionOutcome::Timeout,
            Err(_) => QuestionOutcome::Failed,
        };
        Resolved { answer, outcome, usage }
    }

    async fn on_disk(&self, key: CacheKey) -> Option<JudgeAnswer> {
        let disk = Arc::clone(self.disk.as_ref().filter(|disk| disk.contains(&key))?);
        tokio::task::spawn_blocking(move || disk.read(&key)).await.ok().flatten()
    }

    /// Returns when all answers so far are on disk; at once without a cache on disk.
    pub(crate) async fn wait_until_written(&self) {
        if let Some(disk) = &self.disk {
            disk.wait_until_written().await;
        }
    }

    fn join(&self, key: CacheKey) -> PendingQuestion<'_> {
        let slot = Arc::clone(lock(&self.in_flight).entry(key).or_default());
        PendingQuestion { cache: self, key, slot }
    }
}

/// Number of bytes of an answer that count as one entry: most answers are shorter.
const BYTES_PER_ENTRY: usize = 2048;

/// The number of entries that an answer counts as. Long answers count as several, which bounds memory if
/// a judge writes too much.
fn weight(_: &CacheKey, answer: &Arc<JudgeAnswer>) -> u32 {
    u32::try_from(answer.value.to_string().len().div_ceil(BYTES_PER_ENTRY)).unwrap_or(u32::MAX)
}

/// A caller that asks a question or waits for its answer. Dropping the last caller of a question removes its slot.
struct PendingQuestion<'a> {
    cache: &'a AnswerCache,
    key: CacheKey,
    slot: Arc<AnswerSlot>,
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.cache.in_flight);
        // One reference of the map and one of this caller; slots are cloned only under this lock.
        if Arc::strong_count(&self.slot) == 2 {
            in_flight.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use serde_json::Value;

    fn answer(text: &str) -> JudgeAnswer {
        JudgeAnswer::new("m/00000000", Value::from(text), None, Usage { tokens: 7, cost_usd: 0.1 })
    }

    fn cache(entries: u64) -> Arc<AnswerCache> {
        let config = CacheConfig { entries, ..CacheConfig::default() };
        Arc::new(AnswerCache::open(&config, None, &Counter::default()).unwrap())
    }

    /// Asks after a second; counts in `asked`.
    async fn ask(
        cache: &AnswerCache,
        asked: &AtomicUsize,
        answer: Result<JudgeAnswer, Unmeasured>,
    ) -> Resolved {
        let asking = async {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            (answer, Usage { tokens: 7, cost_usd: 0.1 })
        };
        cache.get_or_ask([1; 32], |_| true, asking).await
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_equal_questions_are_asked_once_and_share_the_answer() {
        let (cache, asked) = (cache(10), AtomicUsize::new(0));
        let all = futures_util::future::join_all((0..50).map(|_| ask(&cache, &asked, Ok(answer("a"))))).await;
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(all.iter().map(|o| o.usage.tokens).sum::<u64>(), 7);
        assert_eq!(all.iter().filter(|o| o.outcome == QuestionOutcome::Shared).count(), 49);
        assert!(all.iter().all(|o| o.answer.as_ref().unwrap().value == "a"));
        let later = ask(&cache, &asked, Ok(answer("b"))).await;
        assert_eq!((later.outcome, later.usage.tokens), (QuestionOutcome::Cached, 0));
        assert!(lock(&cache.in_flight).is_empty());
    }

    #[test]
    fn an_answer_is_on_disk_once_it_is_written_also_if_the_runtime_ends_then() {
        let folder = tempfile::tempdir().unwrap();
        let config = CacheConfig { directory: Some(folder.path().to_owned()), ..CacheConfig::default() };
        let open = || AnswerCache::open(&config, None, &Counter::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (release, release_receiver) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || release_receiver.recv());
        let cache = open();
        runtime.block_on(async {
            let asked = async { (Ok(answer("a")), Usage::default()) };
            let resolved = cache.get_or_ask([1; 32], |_| true, asked).await;
            assert_eq!(resolved.outcome, QuestionOutcome::Answered, "does not wait for the disk");
            let mut written = Box::pin(cache.wait_until_written());
            assert!(futures_util::poll!(&mut written).is_pending());
            release.send(()).unwrap();
            written.await;
        });
        drop((runtime, cache));
        assert!(open().contains(&[1; 32]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_caller_asks_when_the_first_one_is_dropped() {
        let (cache, asked) = (cache(10), AtomicUsize::new(0));
        let mut first = Box::pin(ask(&cache, &asked, Ok(answer("first"))));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(ask(&cache, &asked, Ok(answer("second"))));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the second waits");
        drop(first);
        let second = second.await;
        assert_eq!((second.outcome, asked.load(Ordering::Relaxed)), (QuestionOutcome::Answered, 2));
        assert!(lock(&cache.in_flight).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_but_not_cached_and_a_spent_budget_is_not_shared() {
        let (cache, asked) = (cache(10), AtomicUsize::new(0));
        let (one, two) = tokio::join!(
            ask(&cache, &asked, Err(Unmeasured::JudgeError)),
            ask(&cache, &asked, Ok(answer("never asked")))
        );
        assert_eq!(one.answer, Err(Unmeasured::JudgeError));
        assert_eq!((two.answer, two.outcome), (Err(Unmeasured::JudgeError), QuestionOutcome::Shared));
        let (poor, rich) = tokio::join!(
            ask(&cache, &asked, Err(Unmeasured::Budget)),
            ask(&cache, &asked, Ok(answer("rich")))
        );
        assert_eq!((poor.answer, poor.outcome), (Err(Unmeasured::Budget), QuestionOutcome::Budget));
        assert_eq!(rich.answer.unwrap().value, "rich");
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn without_entries_nothing_is_cached_but_pending_questions_are_shared() {
        let (cache, asked) = (cache(0), AtomicUsize::new(0));
        let (_, two) =
            tokio::join!(ask(&cache, &asked, Ok(answer("a"))), ask(&cache, &asked, Ok(answer("b"))));
        assert_eq!(two.outcome, QuestionOutcome::Shared);
        cache.memory.run_pending_tasks();
        ask(&cache, &asked, Ok(answer("c"))).await;
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
