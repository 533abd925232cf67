//! The memory budget: how many bytes may be buffered, and how many are.
//!
//! Charged are the allocations that spans of open traces share, each whole, with their resources and scopes
//! and an overhead per span; log records that belong to them; the same while they wait in a shard's inbox or
//! are evaluated; and questions that judges have not answered. When nine tenths are used the largest idle
//! traces are closed early, and none waits for judges any longer. When these and the queues of required
//! exporters together use all, requests are refused before they are read; the queues close no trace early,
//! since that would only fill them.
//!
//! Not charged are requests being read, limited to a quarter of the budget, and each queue of an exporter
//! that is not required, limited to an eighth: such a queue may stay full for good without slowing others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verdict_config::MemoryBudget;

/// Bytes that a buffered span costs in addition to its own: its entries in the trace and in the index of
/// ids. Rounded up from what `tests/bench` measures.
pub(super) const SPAN_OVERHEAD: usize = 256;
/// Above this share of the budget idle traces are closed early, ...
const HIGH: f64 = 0.9;
/// ... down to this one, so that it is not done again for every request.
const LOW: f64 = 0.8;
/// Share of the machine's (or container's) memory that the default budget takes: what is not charged,
/// evaluation and the allocator need the rest.
const DEFAULT_SHARE: u64 = 2;
/// Share of the budget that requests being read take at most, in addition: they are read in
/// milliseconds, and each is in memory twice while it is split.
const READING_SHARE: u64 = 4;
/// Share of the budget that the queue of an exporter that is not required takes at most, in addition.
const BEST_EFFORT_SHARE: u64 = 8;
/// Limit assumed where none can be read.
const FALLBACK: u64 = 1 << 30;

/// The bytes that may be buffered, and those that are.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// By open traces, ...
    open: AtomicU64,
    /// ... and by what waits for a shard, or has closed.
    passing: AtomicU64,
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    bytes: u64,
    budget: Arc<Budget>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.passing.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Budget {
    pub fn new(configured: MemoryBudget) -> Arc<Budget> {
        let limit = match configured {
            MemoryBudget::Bytes(size) => size.0,
            MemoryBudget::Auto => machine().map_or(FALLBACK, |all| all / DEFAULT_SHARE),
        };
        Arc::new(Budget { limit, open: AtomicU64::new(0), passing: AtomicU64::new(0) })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes of requests that may be read at once.
    pub fn for_reading(&self) -> u64 {
        self.limit / READING_SHARE
    }

    /// Bytes that may wait for an exporter that is not required.
    pub fn for_best_effort(&self) -> u64 {
        self.limit / BEST_EFFORT_SHARE
    }

    pub fn held(&self) -> u64 {
        self.open.load(Ordering::Relaxed) + self.passing.load(Ordering::Relaxed)
    }

    pub fn hold(self: &Arc<Budget>, bytes: usize) -> Held {
        let bytes = bytes as u64;
        self.passing.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, budget: Arc::clone(self) }
    }

    /// The bytes of one shard's open traces have changed.
    pub fn shift(&self, before: usize, now: usize) {
        match now.checked_sub(before) {
            Some(more) => self.open.fetch_add(more as u64, Ordering::Relaxed),
            None => self.open.fetch_sub((before - now) as u64, Ordering::Relaxed),
        };
    }

    /// Nothing more can be taken while `queued` bytes wait for required exporters.
    pub fn is_full(&self, queued: u64) -> bool {
        self.held().saturating_add(queued) >= self.limit
    }

    /// Whether memory should be freed.
    pub fn is_scarce(&self) -> bool {
        self.held() as f64 >= self.limit as f64 * HIGH
    }

    /// How much of what is too much a shard should free whose open traces hold `mine`; 0 while there
    /// is room.
    ///
    /// Each shard frees its share, so that several that look at once do not free the same bytes again.
    /// Each begins with its largest trace, which is near to the largest of all: a few traces that hold
    /// most of the bytes make the share of their shard as large, and many are spread evenly by the hash.
    pub fn excess(&self, mine: usize) -> usize {
        if !self.is_scarce() {
            return 0;
        }
        let mine = mine as f64;
        // Others may have freed theirs since `mine` was added.
        let all = (self.open.load(Ordering::Relaxed) as f64).max(mine);
        let over = self.held() as f64 - self.limit as f64 * LOW;
        if all == 0.0 { 0 } else { (over * mine / all).ceil() as usize }
    }
}

/// The memory that this process may use: the container's limit, else the machine's.
fn machine() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let groups = read("/proc/self/cgroup").map(|text| limit_files(&text)).unwrap_or_default();
    let container = groups.iter().filter_map(|path| read(path)?.trim().parse::<u64>().ok()).min();
    let machine = read("/proc/meminfo").and_then(|text| mem_total(&text));
    // Without a limit the first version of cgroups says a number close to 2^63.
    container.into_iter().chain(machine).min()
}

/// Where the limits of this process's control groups are written, from `/proc/self/cgroup`: its
/// own group's and those of the groups around it.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = vec!["/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned()];
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    for group in std::path::Path::new(own).ancestors() {
        files.push(format!("/sys/fs/cgroup{}/memory.max", group.display().to_string().trim_end_matches('/')));
    }
    files
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_config::Size;

    #[test]
    fn what_is_held_is_let_go_and_excess_leads_below_the_mark() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)));
        let held = budget.hold(850);
        assert_eq!((budget.excess(0), budget.is_full(0)), (0, false));
        budget.shift(0, 100);
        assert_eq!((budget.excess(100), budget.is_full(0)), (150, false));
        budget.shift(100, 150);
        assert!(budget.is_full(0));
        drop(held);
        budget.shift(150, 0);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn what_is_too_much_is_freed_once_by_all_shards_together() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)));
        let held = budget.hold(200);
        let shards = [500, 100, 99, 1, 0];
        shards.iter().for_each(|&mine| budget.shift(0, mine));
        // All look before any has freed something. The shard that holds most frees most.
        assert_eq!(shards.map(|mine| budget.excess(mine)), [72, 15, 15, 1, 0]);
        // A shard that holds nothing frees nothing, and still sees that memory is scarce.
        budget.shift(700, 0);
        let judged = budget.hold(700);
        assert_eq!((budget.excess(0), budget.is_scarce()), (0, true));
        drop((held, judged));
        assert!(!budget.is_scarce());
    }

    #[test]
    fn queues_refuse_requests_and_close_no_trace() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)));
        budget.shift(0, 500);
        assert_eq!((budget.is_full(499), budget.is_full(500), budget.is_full(u64::MAX)), (false, true, true));
        assert_eq!((budget.excess(500), budget.is_scarce()), (0, false));
    }

    #[test]
    fn every_control_group_around_the_process_may_limit_it() {
        let files = limit_files("1:name=systemd:/x\n0::/system.slice/otel-verdict.service\n");
        let last: Vec<&str> = files.iter().skip(1).map(|f| f.trim_start_matches("/sys/fs/cgroup")).collect();
        let service = "/system.slice/otel-verdict.service/memory.max";
        assert_eq!(last, [service, "/system.slice/memory.max", "/memory.max"]);
    }

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(mem_total("MemFree: 1 kB\nMemTotal:       24 kB\n"), Some(24 * 1024));
        assert_eq!(mem_total("nothing of the kind"), None);
    }
}
