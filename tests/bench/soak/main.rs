//! The processor under half of its load for a long time: `cargo bench --bench soak -- kills 50`.
//!
//! Arguments: a mode, the minutes of this part, and a directory (by default `target/soak/<mode>`). Parts of a
//! mode follow one another: the directory keeps the journal and one line of figures per part, and the figures
//! of all parts are printed at the end of each.
//!
//! - `kills`: with a journal, the process is killed once a minute, the destination refuses every request for
//!   ten seconds of each minute, and every hundredth trace is hostile. The part fails if a span that was
//!   acknowledged is not exported.
//! - `level`: without kills and without a journal. The memory of each minute is compared with that of the
//!   tenth: growth shows as a ratio above 1.
//!
//! The load is half of the acknowledged requests of the first seconds, in which the senders do not pause. Linux
//! only: memory is read from `/proc`.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod destination;
mod hostile;
mod load;
mod process;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use destination::Destination;
use load::Load;
use process::Processor;

/// Time in which the senders do not pause, to measure the full rate.
const CALIBRATION_TIME: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);
/// The part of each minute in which the destination refuses requests.
const REFUSAL_TIME: Duration = Duration::from_secs(10);
/// Time in which the remaining traces must arrive: longer than every retry delay and than a recovery.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// The minute with whose peak memory the last minute is compared.
const BASELINE_MINUTE: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Kills,
    Level,
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let (mode_name, mode) = match arguments.first().map(String::as_str) {
        Some("kills") => ("kills", Mode::Kills),
        Some("level") => ("level", Mode::Level),
        _ => return println!("usage: cargo bench --bench soak -- kills|level [minutes] [directory]"),
    };
    if !cfg!(target_os = "linux") {
        return println!("skipped: memory is read from /proc, which this system does not have");
    }
    let minutes: u64 = arguments.get(1).map_or(50, |text| text.parse().expect("a number of minutes"));
    let directory = arguments.get(2).map_or_else(|| default_directory(mode_name), PathBuf::from);
    std::fs::create_dir_all(&directory).expect("the directory can be created");
    let part = run(mode, minutes, &directory).await;
    let figures = directory.join("figures.txt");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&figures).unwrap();
    writeln!(file, "{part}").unwrap();
    print!("\n{}", std::fs::read_to_string(&figures).unwrap());
}

fn default_directory(mode: &str) -> PathBuf {
    let target =
        Path::new(env!("CARGO_BIN_EXE_otel-verdict")).ancestors().nth(2).expect("a target directory");
    target.join("soak").join(mode)
}

/// Runs one part; returns its figures. Fails if an acknowledged span was lost.
async fn run(mode: Mode, minutes: u64, directory: &Path) -> String {
    let destination = Destination::default();
    let port = destination.serve().await;
    let mut processor = Processor::start(directory, port, mode == Mode::Kills);
    let load = Arc::new(Load::default());
    let senders = load.start_senders(processor.endpoint());
    tokio::time::sleep(CALIBRATION_TIME).await;
    let rate = load.halve_rate(CALIBRATION_TIME);
    println!("half load: {rate:.0} traces a second");

    let (start, mut kills, mut memory) = (Instant::now(), 0, Vec::new());
    for minute in 0..minutes {
        let end = start + MINUTE * (minute as u32 + 1);
        destination.set_refusing(mode == Mode::Kills);
        tokio::time::sleep(REFUSAL_TIME).await;
        destination.set_refusing(false);
        let mut peak = 0;
        while Instant::now() < end {
            peak = peak.max(processor.anonymous_bytes());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        memory.push(peak);
        if mode == Mode::Kills {
            processor.kill();
            processor.restart();
            kills += 1;
        }
        println!("minute {}: {} MiB, {}", minute + 1, peak >> 20, load.figures());
    }
    load.stop.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.expect("a sender does not panic");
    }

    let drain_start = Instant::now();
    while load.count_missing(&destination) > 0 && drain_start.elapsed() < DRAIN_TIMEOUT {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let exited_cleanly = processor.terminate();
    let (missing, baseline) = (load.count_missing(&destination), memory.get(BASELINE_MINUTE - 1));
    let last = memory.last().copied().unwrap_or(0);
    let growth = baseline.map_or("-".to_owned(), |&baseline| format!("{:.2}", last as f64 / baseline as f64));
    let part = format!(
        "{minutes} min, {kills} kills, {:.0} traces/s, {}, {missing} acknowledged traces lost, memory {} to {} MiB, last to minute {BASELINE_MINUTE}: {growth}",
        rate,
        load.figures(),
        memory.iter().min().unwrap_or(&0) >> 20,
        memory.iter().max().unwrap_or(&0) >> 20,
    );
    assert_eq!(missing, 0, "{part}");
    assert!(exited_cleanly, "the processor did not exit with 0 after SIGTERM: {part}");
    part
}
