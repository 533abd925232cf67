//! A journal on a real disk that is full: a file system of a few MiB, mounted where only the
//! processes of the test see it. Skipped, with a message, where that is not allowed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::durable::{Processor, deliver, requests};
use crate::support::Destination;

/// Holds the mount for as long as it lives.
struct SmallDisk(Child);

impl SmallDisk {
    /// `None` where nothing can be mounted.
    fn mount(at: &Path, size: &str) -> Option<SmallDisk> {
        let script = "mount -t tmpfs -o size=$1 tmpfs \"$0\" && echo mounted && exec sleep 600";
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, at.to_str()?, size])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let said = BufReader::new(child.stdout.take()?).read_line(&mut line);
        let disk = SmallDisk(child);
        (said.is_ok() && line.trim() == "mounted" && disk.works()).then_some(disk)
    }

    /// What starts a command that sees it.
    fn through(&self) -> Vec<String> {
        ["nsenter", "--mount", "--target", &self.0.id().to_string()].map(str::to_owned).to_vec()
    }

    fn works(&self) -> bool {
        let through = self.through();
        Command::new(&through[0]).args(&through[1..]).arg("true").status().is_ok_and(|s| s.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_senders_are_refused_and_nothing_acknowledged_is_lost_killed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("disk");
    std::fs::create_dir(&mount).unwrap();
    let Some(disk) = SmallDisk::mount(&mount, "2m") else {
        return println!("skipped: no file system can be mounted here");
    };
    // Away until it is wanted.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let more = format!(
        "verdict: {{ close: {{ quiet: 200ms, idle: 1s }} }}\n\
         storage: {{ directory: '{}', segment_bytes: 64KiB, max_bytes: 1GiB }}",
        mount.join("journal").display()
    );
    let mut processor = Processor::start_through(disk.through(), folder.path(), port, &more);
    // It listens.
    deliver(&mut processor.client(), &requests(0)[0]).await;
    let mut kept: BTreeSet<Vec<u8>> = ids(0, 0);
    let mut refused = None;
    let mut client = processor.client();
    'full: for trace in 1..20_000 {
        for (n, request) in requests(trace).into_iter().enumerate() {
            match client.export(request).await {
                Ok(_) => kept.extend(ids(trace, n)),
                Err(status) => {
                    refused = Some(status);
                    break 'full;
                }
            }
        }
    }
    let refused = refused.expect("the disk is small");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    assert!(kept.len() > 500, "{} spans fitted", kept.len());

    // Killed, it starts on the full disk all the same.
    processor.kill();
    processor.restart();
    let destination = Destination::default();
    destination.serve_on(port).await;
    let missing = || {
        let there: BTreeSet<Vec<u8>> = destination.spans().into_iter().map(|span| span.span_id).collect();
        kept.difference(&there).count()
    };
    for _ in 0..1500 {
        if missing() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(missing(), 0, "of {} acknowledged spans", kept.len());
    // There is room again, and it goes on.
    deliver(&mut processor.client(), &requests(30_000)[0]).await;
    assert_eq!(processor.terminate(), Some(0));
}

/// Ids of the spans in the `n`th request of a trace.
fn ids(trace: u64, n: usize) -> BTreeSet<Vec<u8>> {
    let spans = &requests(trace)[n].resource_spans[0].scope_spans[0].spans;
    spans.iter().map(|span| span.span_id.clone()).collect()
}
