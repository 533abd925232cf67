//! How much may be buffered, how much is, and what gives way first.
//!
//! Charged are the allocations that spans of open traces share, each whole, with what a span costs
//! beside its bytes; log records joined to them; and the same while it waits in a shard's inbox or
//! is judged. Exporters' queues and requests being read have bounds of their own. When nine tenths
//! are used the largest idle traces are closed early; when all is used, requests are refused before
//! they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::MemoryBudget;

/// Bytes that a buffered span costs beside its own: its place in the trace and in the index of ids.
/// Rounded up from what `tests/bench` measures.
pub(super) const SPAN_OVERHEAD: usize = 256;
/// Above this share of the budget idle traces are closed early, ...
const HIGH: f64 = 0.9;
/// ... down to this one, so that it is not done again for every request.
const LOW: f64 = 0.8;
/// Share of the machine's (or container's) memory that the default budget takes: judging, queues
/// and the allocator need the rest.
const DEFAULT_SHARE: u64 = 2;
/// Where no limit can be read.
const FALLBACK: u64 = 1 << 30;

/// The bytes that may be buffered, and those that are.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    held: AtomicU64,
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    bytes: u64,
    budget: Arc<Budget>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Budget {
    pub fn new(configured: MemoryBudget) -> Arc<Budget> {
        let limit = match configured {
            MemoryBudget::Bytes(size) => size.0,
            MemoryBudget::Auto => machine().map_or(FALLBACK, |all| all / DEFAULT_SHARE),
        };
        Arc::new(Budget { limit, held: AtomicU64::new(0) })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn hold(self: &Arc<Budget>, bytes: usize) -> Held {
        let bytes = bytes as u64;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, budget: Arc::clone(self) }
    }

    /// What one holder holds has changed.
    pub fn shift(&self, before: usize, now: usize) {
        match now.checked_sub(before) {
            Some(more) => self.held.fetch_add(more as u64, Ordering::Relaxed),
            None => self.held.fetch_sub((before - now) as u64, Ordering::Relaxed),
        };
    }

    /// Nothing more can be taken.
    pub fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.limit
    }

    /// How much should be freed now; 0 while there is room.
    pub fn excess(&self) -> usize {
        let held = self.held.load(Ordering::Relaxed) as f64;
        let limit = self.limit as f64;
        if held < limit * HIGH { 0 } else { (held - limit * LOW) as usize }
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
    use crate::config::Size;

    #[test]
    fn what_is_held_is_let_go_and_excess_leads_below_the_mark() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)));
        let held = budget.hold(850);
        assert_eq!((budget.excess(), budget.is_full()), (0, false));
        budget.shift(0, 100);
        assert_eq!((budget.excess(), budget.is_full()), (150, false));
        budget.shift(100, 150);
        assert!(budget.is_full());
        drop(held);
        budget.shift(150, 0);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
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
