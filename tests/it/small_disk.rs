//! A journal on a full disk: a file system of a few MiB, mounted in a mount namespace of the test. That needs
//! root or unprivileged user namespaces. Skipped with a message where neither is available.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsServiceServer;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio_stream::wrappers::TcpListenerStream;

use crate::durable::{Processor, expected_attributes, requests, send_until_acknowledged, verdict_attributes};
use crate::support::{Destination, until, until_none_is_missing};

/// A mount that exists until the value is dropped.
struct SmallDisk {
    holder: Child,
    /// Options of `nsenter` that enter the namespace.
    entry: &'static [&'static str],
}

/// Options of `unshare` and of `nsenter`: as root of a user namespace, and as root.
const NAMESPACE_OPTIONS: [(&[&str], &[&str]); 2] = [
    (&["--map-root-user", "--mount"], &["--user", "--preserve-credentials", "--mount"]),
    (&["--mount"], &["--mount"]),
];

impl SmallDisk {
    /// Mounts a file system; `None`, with a message, where that is not possible.
    fn mount(at: &Path, size: &str) -> Option<SmallDisk> {
        std::fs::create_dir(at).unwrap();
        let disk = NAMESPACE_OPTIONS
            .iter()
            .find_map(|(unshare_options, entry)| SmallDisk::try_mount(unshare_options, entry, at, size));
        if disk.is_none() {
            // Standard error: println output of a passing test is captured.
            let _ = writeln!(std::io::stderr(), "skipped: no file system can be mounted here");
        }
        disk
    }

    fn try_mount(
        unshare_options: &[&str],
        entry: &'static [&'static str],
        at: &Path,
        size: &str,
    ) -> Option<SmallDisk> {
        let script = "mount -t tmpfs -o size=$1 tmpfs \"$0\" && echo mounted && exec sleep 600";
        let mut holder = Command::new("unshare")
            .args(unshare_options)
            .args(["sh", "-c", script, at.to_str()?, size])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let read_result = BufReader::new(holder.stdout.take()?).read_line(&mut line);
        let disk = SmallDisk { holder, entry };
        (read_result.is_ok() && line.trim() == "mounted" && disk.is_usable()).then_some(disk)
    }

    /// A command that executes another one in the namespace.
    fn command_prefix(&self) -> Vec<String> {
        let id = self.holder.id().to_string();
        ["nsenter"].iter().chain(self.entry).chain(&["--target", &id]).map(|&word| word.to_owned()).collect()
    }

    /// The path by which processes outside of the namespace access `path`.
    fn seen_outside(&self, path: &Path) -> PathBuf {
        Path::new("/proc")
            .join(self.holder.id().to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap())
    }

    fn is_usable(&self) -> bool {
        let command_prefix = self.command_prefix();
        Command::new(&command_prefix[0])
            .args(&command_prefix[1..])
            .arg("true")
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// With these settings a trace without its root stays open, however long a slow process takes to accept the root.
const CLOSE: &str = "verdict: { close: { quiet: 200ms } }";
/// After the restart, no root follows, so traces close after a time without spans.
const AFTER_RESTART: &str = "verdict: { close: { idle: 5s } }";

/// A configuration with its journal on the disk.
fn journal_at(folder: &Path) -> String {
    format!(
        "{CLOSE}\nstorage: {{ directory: '{}', segment_bytes: 64KiB, max_bytes: 1GiB }}",
        folder.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_senders_and_loses_nothing_acknowledged_also_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("disk");
    let Some(disk) = SmallDisk::mount(&mount, "2m") else { return };
    let expected = expected_attributes(CLOSE).await;
    // The destination is unreachable at first.
    let port = crate::support::unused_port();
    let more = journal_at(&mount.join("journal"));
    let mut processor = Processor::start_through(disk.command_prefix(), folder.path(), port, &more);
    // Waits until the process listens.
    send_until_acknowledged(&mut processor.client(), &requests(0)[0]).await;
    let mut acknowledged: Vec<(u64, usize)> = vec![(0, 0)];
    let mut refused = None;
    let mut client = processor.client();
    'full: for trace in 1..20_000 {
        for (n, request) in requests(trace).into_iter().enumerate() {
            let mut answer = client.export(request.clone()).await;
            // The client's timeout; the request may have been accepted.
            while answer.as_ref().is_err_and(|status| status.code() == tonic::Code::Cancelled) {
                answer = client.export(request.clone()).await;
            }
            match answer {
                Ok(_) => acknowledged.push((trace, n)),
                Err(status) => {
                    refused = Some(status);
                    break 'full;
                }
            }
        }
    }
    let refused = refused.expect("the disk is small");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    assert!(acknowledged.len() > 300, "{} requests fitted", acknowledged.len());

    // After a kill the process starts on the full disk.
    processor.kill();
    std::fs::write(folder.path().join("override.yaml"), AFTER_RESTART).unwrap();
    processor.restart();
    let destination = Destination::default();
    destination.serve_on(port).await;
    until_all_are_exported(&acknowledged, || destination.spans()).await;
    assert_unchanged(&acknowledged, &destination.spans(), &expected);
    // The disk has room again, and requests are accepted.
    send_until_acknowledged(&mut processor.client(), &requests(30_000)[0]).await;
    assert_eq!(processor.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_without_room_for_a_dead_letter_is_sent_after_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("disk");
    let Some(disk) = SmallDisk::mount(&mount, "2m") else { return };
    let expected = expected_attributes(CLOSE).await;
    // A server without a service for traces refuses them for good.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let refusing =
        tonic::transport::Server::builder().add_service(LogsServiceServer::new(Destination::default()));
    tokio::spawn(refusing.serve_with_incoming(TcpListenerStream::new(listener)));
    let journal = mount.join("journal");
    let mut processor =
        Processor::start_through(disk.command_prefix(), folder.path(), port, &journal_at(&journal));
    for request in &requests(0) {
        send_until_acknowledged(&mut processor.client(), request).await;
    }
    // Without a refusal so far, on a busy machine, the journal alone could fill the disk.
    let outside = disk.seen_outside(&journal);
    until("a dead letter", || !letter_files(&outside).is_empty()).await;
    // Dead letters fill the disk. Requests accepted after that are still accounted for.
    let mut acknowledged: Vec<(u64, usize)> = vec![(0, 0), (0, 1)];
    let mut client = processor.client();
    let mut refused = 0;
    for trace in 1..20_000 {
        if refused > 100 {
            break;
        }
        for (n, request) in requests(trace).into_iter().enumerate() {
            match client.export(request).await {
                Ok(_) => acknowledged.push((trace, n)),
                Err(_) => {
                    refused += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
    assert!(refused > 100, "the disk is small");

    processor.kill();
    let destination = Destination::default();
    let endpoint = format!("127.0.0.1:{}", destination.serve().await);
    let override_text = format!(
        "exporters: {{ otlp_grpc: {{ endpoint: '{endpoint}', tls: {{ insecure: true }} }} }}\n{AFTER_RESTART}"
    );
    std::fs::write(folder.path().join("override.yaml"), override_text).unwrap();
    let letters = letters(&outside);
    assert!(!letters.is_empty());
    processor.restart();
    let all = || [destination.spans(), letters.clone()].concat();
    until_all_are_exported(&acknowledged, all).await;
    assert_unchanged(&acknowledged, &all(), &expected);
    let span_ids = |spans: &[Span]| spans.iter().map(|span| span.span_id.clone()).collect::<BTreeSet<_>>();
    let dead_lettered = span_ids(&letters);
    assert!(
        span_ids(&destination.spans()).difference(&dead_lettered).count() > 0,
        "no dead letter was refused"
    );
    processor.kill();
}

/// The files of dead letters in a directory.
fn letter_files(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_of_letters =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("dead-letter-traces-");
    paths.filter(is_of_letters).collect()
}

/// The spans in the dead letters of a directory, which must be complete.
fn letters(folder: &Path) -> Vec<Span> {
    let mut spans = Vec::new();
    for path in letter_files(folder) {
        let bytes = std::fs::read(&path).unwrap();
        let mut remaining = &bytes[..];
        while !remaining.is_empty() {
            let (length, after) = remaining.split_first_chunk::<4>().expect("a complete length");
            let (letter, following) =
                after.split_at_checked(u32::from_be_bytes(*length) as usize).expect("a complete request");
            let request = ExportTraceServiceRequest::decode(letter).unwrap();
            let groups = request.resource_spans.into_iter().flat_map(|group| group.scope_spans);
            spans.extend(groups.flat_map(|group| group.spans));
            remaining = following;
        }
    }
    spans
}

/// The spans of the `n`th request of a trace.
fn sent(trace: u64, n: usize) -> Vec<Span> {
    requests(trace)[n].resource_spans[0].scope_spans[0].spans.clone()
}

/// Waits until every acknowledged span is exported.
async fn until_all_are_exported(acknowledged: &[(u64, usize)], spans: impl Fn() -> Vec<Span>) {
    let wanted: BTreeSet<Vec<u8>> =
        acknowledged.iter().flat_map(|&(trace, n)| sent(trace, n)).map(|span| span.span_id).collect();
    let missing = || {
        let exported: BTreeSet<Vec<u8>> = spans().into_iter().map(|span| span.span_id).collect();
        wanted.difference(&exported).count()
    };
    until_none_is_missing("acknowledged spans", missing).await;
}

/// Asserts that every copy of every acknowledged span is unchanged and has verdict attributes. If all requests of
/// its trace were acknowledged, the attributes are those of a run without a full disk.
fn assert_unchanged(
    acknowledged: &[(u64, usize)],
    spans: &[Span],
    expected: &BTreeMap<String, BTreeSet<String>>,
) {
    let mut copies: BTreeMap<&[u8], Vec<&Span>> = BTreeMap::new();
    spans.iter().for_each(|span| copies.entry(&span.span_id).or_default().push(span));
    let mut whole = 0;
    for &(trace, n) in acknowledged {
        let is_whole = (0..2).all(|n| acknowledged.contains(&(trace, n)));
        whole += u64::from(is_whole && n == 0);
        for sent in sent(trace, n) {
            for &out in &copies[&sent.span_id[..]] {
                let marks = verdict_attributes(out);
                assert!(!marks.is_empty(), "{trace}: {} has no verdict attributes", sent.name);
                if is_whole {
                    assert_eq!(marks, expected[&sent.name], "{trace}: {}", sent.name);
                }
                let mut plain = out.clone();
                plain.attributes.retain(|kv| !kv.key.starts_with("verdict."));
                assert_eq!(plain, sent);
            }
        }
    }
    assert!(whole > 20, "{whole} traces were acknowledged whole");
}
