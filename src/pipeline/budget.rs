//! The memory budget: the limit on buffered bytes, and the bytes that are buffered.
//!
//! The following is charged: the allocations that spans of open traces share, each completely, with their resources
//! and scopes and an overhead per span; log records that belong to these spans; both while they wait in a shard's inbox
//! or are evaluated; and questions that judges have not answered. Above nine tenths of the budget the largest idle
//! traces are closed early, and no trace waits for judges. When the charged bytes and the queues of required exporters
//! together reach the budget, requests are refused before they are read. Full queues close no trace early, since that
//! would only add to them.
//!
//! Requests being read are not charged, but limited to a quarter of the budget. Each queue of an exporter that is not
//! required is limited to an eighth: such a queue may stay full without slowing other exporters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use verdict_config::MemoryBudget;
use verdict_otlp::trace::ClosedTrace;

use crate::assemble::SPAN_OVERHEAD;
use crate::reservation::{ByteLimit, Reservation};
use crate::telemetry::TraceMetrics;

/// The share of the budget above which idle traces are closed early.
const HIGH_SHARE: f64 = 0.9;
/// The share of the budget to which early closing frees memory, so that it is not repeated for every request.
const LOW_SHARE: f64 = 0.8;
/// The default budget is the memory of the machine or container divided by this: uncharged memory,
/// evaluation and the allocator need the rest.
const DEFAULT_DIVISOR: u64 = 2;
/// Requests being read take at most the budget divided by this, in addition: they are read in
/// milliseconds, and each is in memory twice while it is split.
const READING_DIVISOR: u64 = 4;
/// The queue of an exporter that is not required takes at most the budget divided by this, in addition.
const BEST_EFFORT_DIVISOR: u64 = 8;
/// The memory that is charged for a trace, as a multiple of its size, while its recognised form is in memory together
/// with its spans: while it waits for judges, or to be added to the live page. The recognised form is mostly text.
pub(super) const JUDGED_FACTOR: usize = 2;
/// The memory that is charged for a trace, as a multiple of its size, while it is read on a blocking thread, closed or
/// open: parsed arguments take up to 2.4 times its size, and recognised texts as much as they have bytes.
pub(super) const EVALUATED_FACTOR: usize = 4;
/// The memory that is assumed if no limit can be read.
const FALLBACK_MEMORY: u64 = 1 << 30;

/// The limit on buffered bytes, and the bytes buffered now.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// Bytes of open traces.
    open: AtomicU64,
    /// Bytes of spans and log records that wait for a shard.
    in_transit: ByteLimit,
    /// Bytes of closed traces that are not delivered yet.
    closed: ByteLimit,
}

impl Budget {
    /// Bytes in transit and of closed traces are counted in the self-metrics of `traces`; bytes of open traces are
    /// counted there already.
    pub(super) fn new(configured: MemoryBudget, traces: &TraceMetrics) -> Arc<Budget> {
        let limit = match configured {
            MemoryBudget::Bytes(size) => size.0,
            MemoryBudget::Auto => available_memory().map_or(FALLBACK_MEMORY, |bytes| bytes / DEFAULT_DIVISOR),
        };
        let counted_limit = |total: &Gauge| ByteLimit::new(limit).counted_in(total);
        let (in_transit, closed) =
            (counted_limit(&traces.in_transit_bytes), counted_limit(&traces.closed_bytes));
        Arc::new(Budget { limit, open: AtomicU64::new(0), in_transit, closed })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// The limit on bytes of requests being read.
    pub(super) fn for_reading(&self) -> u64 {
        self.limit / READING_DIVISOR
    }

    /// The limit on bytes queued for an exporter that is not required.
    pub(super) fn for_best_effort(&self) -> u64 {
        self.limit / BEST_EFFORT_DIVISOR
    }

    /// All charged bytes.
    pub(super) fn reserved(&self) -> u64 {
        self.open.load(Ordering::Relaxed) + self.in_transit.reserved() + self.closed.reserved()
    }

    /// Charges bytes that wait for a shard.
    pub(super) fn reserve(&self, bytes: usize) -> Reservation {
        self.in_transit.reserve(bytes)
    }

    /// Charges bytes of a closed trace.
    pub(super) fn reserve_closed(&self, bytes: usize) -> Reservation {
        self.closed.reserve(bytes)
    }

    /// Charges a closed trace, or a snapshot of an open one, by [`charge`].
    pub(super) fn reserve_trace(&self, trace: &ClosedTrace, factor: usize) -> Reservation {
        self.reserve_closed(charge(trace, factor))
    }

    /// Updates the bytes of one shard's open traces.
    pub(super) fn update_open(&self, before: usize, now: usize) {
        match now.checked_sub(before) {
            Some(added) => self.open.fetch_add(added as u64, Ordering::Relaxed),
            None => self.open.fetch_sub((before - now) as u64, Ordering::Relaxed),
        };
    }

    /// Whether requests are refused while `queued` bytes wait for required exporters.
    pub(super) fn is_full(&self, queued: u64) -> bool {
        self.reserved().saturating_add(queued) >= self.limit
    }

    /// Whether memory should be freed: the charged bytes exceed `HIGH_SHARE` of the budget.
    pub(super) fn is_scarce(&self) -> bool {
        self.reserved() as f64 >= self.limit as f64 * HIGH_SHARE
    }

    /// The bytes that a shard whose open traces take `shard_bytes` should free; 0 while memory is not scarce. Closed
    /// traces do not count: they are freed without closing further ones, which a slow disk or destination would only
    /// add to them.
    ///
    /// Each shard frees its share of the excess, so that several shards do not free the same bytes twice. Each begins
    /// with its largest trace. That is close to beginning with the largest of all: if a few traces take most of the
    /// bytes, the share of their shard is as large, and many traces are spread evenly by the hash.
    pub(super) fn excess(&self, shard_bytes: usize) -> usize {
        if !self.is_scarce() {
            return 0;
        }
        let shard_bytes = shard_bytes as f64;
        // Other shards may have freed bytes since `shard_bytes` was added.
        let open_bytes = (self.open.load(Ordering::Relaxed) as f64).max(shard_bytes);
        let not_closed = self.reserved().saturating_sub(self.closed.reserved());
        let overrun = (not_closed as f64 - self.limit as f64 * LOW_SHARE).max(0.0);
        if open_bytes == 0.0 { 0 } else { (overrun * shard_bytes / open_bytes).ceil() as usize }
    }
}

/// `factor` times the bytes that are charged for a trace while it is open.
pub(super) fn charge(trace: &ClosedTrace, factor: usize) -> usize {
    (trace.bytes + trace.spans.len() * SPAN_OVERHEAD).saturating_mul(factor)
}

/// The memory that this process may use: the lowest limit of its control groups, or the memory of the machine if that
/// is less; `None` if neither can be read.
fn available_memory() -> Option<u64> {
    let read_file = |path: &str| std::fs::read_to_string(path).ok();
    let groups = read_file("/proc/self/cgroup").map(|text| limit_files(&text)).unwrap_or_default();
    let limits = groups.iter().filter_map(|path| read_file(path)?.trim().parse::<u64>().ok());
    // Control groups of version 1 report a number close to 2^63 if there is no limit.
    limits.chain(machine_memory()).min()
}

/// The files with the memory limits of this process's control groups, of version 1 and 2, and of their ancestors.
/// `groups` is the content of `/proc/self/cgroup`.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => ("/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        // Up to "/", which in a container is its own group.
        for group in std::path::Path::new(path).ancestors() {
            let group = group.display().to_string();
            files.push(format!("/sys/fs/cgroup{root}{}/{file}", group.trim_end_matches('/')));
        }
    }
    files
}

/// The memory of the machine. Not of `/proc/meminfo`, which systemd hides with `ProcSubset=pid`.
fn machine_memory() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let info = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "on 32-bit machines it has 32 bits")]
        let units = u64::from(info.totalram);
        units.checked_mul(info.mem_unit.into()).filter(|bytes| *bytes > 0)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;
    use verdict_config::Size;

    #[test]
    fn dropped_reservation_is_released_and_excess_leads_below_the_low_mark() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)), &Telemetry::new().traces);
        let reservation = budget.reserve(850);
        assert_eq!((budget.excess(0), budget.is_full(0)), (0, false));
        budget.update_open(0, 100);
        assert_eq!((budget.excess(100), budget.is_full(0)), (150, false));
        budget.update_open(100, 150);
        assert!(budget.is_full(0));
        drop(reservation);
        budget.update_open(150, 0);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn shards_together_free_the_excess_once() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)), &Telemetry::new().traces);
        let reservation = budget.reserve(200);
        let shards = [500, 100, 99, 1, 0];
        shards.iter().for_each(|&bytes| budget.update_open(0, bytes));
        // All compute their share before any has freed bytes. The largest shard frees most.
        assert_eq!(shards.map(|bytes| budget.excess(bytes)), [72, 15, 15, 1, 0]);
        // A shard without traces frees nothing, and still reports scarce memory.
        budget.update_open(700, 0);
        let judged = budget.reserve_closed(700);
        assert_eq!((budget.excess(0), budget.is_scarce()), (0, true));
        drop((reservation, judged));
        assert!(!budget.is_scarce());
    }

    #[test]
    fn closed_traces_that_are_not_delivered_cause_no_others_to_close() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)), &Telemetry::new().traces);
        budget.update_open(0, 950);
        let (mut open, mut closed) = (950, Vec::new());
        // The destination accepts nothing, and each trace is charged twice while judges are asked.
        for _ in 0..100 {
            let excess = budget.excess(open);
            budget.update_open(open, open - excess);
            closed.push(budget.reserve_closed(2 * excess));
            open -= excess;
        }
        assert_eq!((open, budget.is_scarce(), budget.is_full(0)), (800, true, true));
        closed.clear();
        assert_eq!((budget.reserved(), budget.is_scarce()), (800, false));
    }

    #[test]
    fn full_queues_refuse_requests_and_close_no_trace() {
        let budget = Budget::new(MemoryBudget::Bytes(Size(1000)), &Telemetry::new().traces);
        budget.update_open(0, 500);
        assert_eq!((budget.is_full(499), budget.is_full(500), budget.is_full(u64::MAX)), (false, true, true));
        assert_eq!((budget.excess(500), budget.is_scarce()), (0, false));
    }

    #[test]
    fn limits_of_all_ancestor_control_groups_are_read() {
        let files = limit_files(
            "9:name=systemd:/x\n4:cpu,memory:/docker/a:b\n1:cpu:/y\n0::/system.slice/otel-verdict.service\n",
        );
        let files: Vec<&str> = files.iter().map(|file| file.trim_start_matches("/sys/fs/cgroup")).collect();
        let first = [
            "/memory/docker/a:b/memory.limit_in_bytes",
            "/memory/docker/memory.limit_in_bytes",
            "/memory/memory.limit_in_bytes",
        ];
        let second =
            ["/system.slice/otel-verdict.service/memory.max", "/system.slice/memory.max", "/memory.max"];
        assert_eq!(files, [first, second].concat());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn available_memory_is_at_most_that_of_the_machine() {
        let machine = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let total: u64 = total.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
        assert_eq!(machine_memory(), Some(total * 1024));
        assert!(available_memory() <= machine_memory());
    }
}
