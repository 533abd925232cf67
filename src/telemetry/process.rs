//! The metrics that every Prometheus client library exposes about its process, under their standard names.
//!
//! Read from `/proc` at each scrape; absent on other systems than Linux.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

#[derive(Debug)]
pub(super) struct ProcessMetrics;

/// The figures of `/proc/self`.
struct Process {
    cpu_seconds: f64,
    resident: i64,
    virtual_size: i64,
    descriptors: i64,
}

impl Process {
    fn read() -> Option<Process> {
        let ticks = rustix::param::clock_ticks_per_second();
        let page = i64::try_from(rustix::param::page_size()).ok()?;
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the command, in parentheses, may contain spaces; the fields after it are numbered from 3.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
        let (user, system) = (field(14)?, field(15)?);
        Some(Process {
            cpu_seconds: (user + system) as f64 / ticks as f64,
            virtual_size: field(23)?,
            resident: field(24)?.saturating_mul(page),
            // The directory that is being read is open as well.
            descriptors: i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()? - 1,
        })
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(process) = Process::read() else { return Ok(()) };
        let help = "Processor time that the process has used, in user and system mode.";
        let cpu =
            encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?;
        ConstCounter::new(process.cpu_seconds).encode(cpu)?;
        for (name, help, unit, value) in [
            ("process_resident_memory", "Resident memory.", Some(Unit::Bytes), process.resident),
            ("process_virtual_memory", "Virtual memory.", Some(Unit::Bytes), process.virtual_size),
            ("process_open_fds", "Open file descriptors.", None, process.descriptors),
        ] {
            let gauge = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        Ok(())
    }
}
