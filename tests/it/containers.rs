//! The image of `deploy/Dockerfile`, the composition `deploy/compose.yaml`, the pod of `deploy/kubernetes.yaml` and the unit
//! `deploy/otel-verdict.service` in Podman, the first two also in Docker: recorded runs are sent to their ports and come out
//! with verdicts, and a stop exports what is buffered.
//!
//! `.ci/neighbours` builds the image and runs these tests, which are ignored otherwise. They use the ports of the shipped
//! files, so one runs after the other.

use std::fs::Permissions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use verdict_otlp::Signal;

use crate::collectors::{Stored, assert_stored, missing_in_output, requests, send, serve, shipped};
use crate::frameworks::hex;
use crate::scrape::{http, request, span};
use crate::support::{Client, Destination, until, until_none_is_missing};

const GRPC: u16 = 4317;
const HTTP: u16 = 4318;
const ADMIN: u16 = 13133;

/// The project under which the composition runs.
const PROJECT: &str = "otel-verdict-test";

/// What a command prints, which must succeed. `variable` has the command's first words.
fn output(variable: &str, arguments: &[&str], input: &str) -> String {
    let words = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} must be a command"));
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    // A second panic would abort the tests.
    assert!(output.status.success() || std::thread::panicking(), "{command:?}\n{stdout}\n{stderr}");
    stdout + &stderr
}

/// Podman or Docker.
fn engine(arguments: &[&str]) -> String {
    output("OTEL_VERDICT_CONTAINERS", arguments, "")
}

fn is_podman() -> bool {
    engine(&["--version"]).starts_with("podman")
}

fn inspect(container: &str, field: &str) -> String {
    engine(&["inspect", "--format", &format!("{{{{{field}}}}}"), container]).trim().to_owned()
}

fn compose(arguments: &[&str]) -> String {
    let file = ["--file", "deploy/compose.yaml", "--project-name", PROJECT];
    output("OTEL_VERDICT_COMPOSE", &[&file, arguments].concat(), "")
}

/// The composition, which is removed when this is dropped.
struct Composition;

impl Composition {
    fn start() -> Composition {
        let composition = Composition;
        compose(&["up", "--detach", "--build"]);
        composition
    }

    /// The container of a service.
    fn container(&self, service: &str) -> String {
        let [project, service] = [("project", PROJECT), ("service", service)]
            .map(|(key, value)| format!("label=com.docker.compose.{key}={value}"));
        let ids = engine(&["ps", "--all", "--quiet", "--filter", &project, "--filter", &service]);
        ids.trim().to_owned()
    }
}

impl Drop for Composition {
    fn drop(&mut self) {
        compose(&["down"]);
    }
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

async fn until_ready() {
    let is_ready = || {
        let mut health = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        health.args(["health", "--endpoint", &local(ADMIN).to_string()]).output().unwrap().status.success()
    };
    until("ready", is_ready).await;
}

/// Sends a span whose trace is open for some seconds; returns the trace id.
async fn open_trace() -> Vec<u8> {
    let open = span(9, 1);
    let answer = http(local(HTTP), "POST /v1/traces", &request(vec![open.clone()])).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    open.trace_id
}

/// Asserts that the process of `container` has no more rights than it needs.
fn assert_confined(container: &str) {
    let process = inspect(container, ".State.Pid");
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
    let status = read("status");
    for line in ["NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"] {
        assert!(status.contains(line), "{line} in\n{status}");
    }
    assert!(!status.contains("Uid:\t0\t"), "{status}");
    let mounts = read("mountinfo");
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    let options = root.split(' ').nth(5).unwrap();
    assert!(options.split(',').any(|option| option == "ro"), "{root}");
}

#[test]
#[ignore = "needs a container engine; .ci/neighbours installs one and builds the image"]
fn image_runs_the_demo_without_network_or_rights() {
    let confined = ["run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL"];
    let printed = engine(&[&confined[..], &["otel-verdict", "demo"]].concat());
    assert!(printed.contains("fail") && printed.contains("pass"), "{printed}");
    assert_eq!(inspect("otel-verdict", ".Config.User"), "10001:10001");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a container engine; .ci/neighbours installs one and builds the image"]
async fn composition_prints_spans_and_verdicts_and_drains() {
    let expected = Stored::by_one_process(&requests()).await;
    let composition = Composition::start();
    until_ready().await;
    let [verdict, collector] = ["otel-verdict", "collector"].map(|service| composition.container(service));
    assert_confined(&verdict);
    if is_podman() {
        // Its timers need systemd, which a machine may not have.
        engine(&["healthcheck", "run", &verdict]);
    }
    until("healthy", || inspect(&verdict, ".State.Health.Status") == "healthy").await;
    let mut client = Client::connect(GRPC).await;
    for (index, offer) in requests().iter().enumerate() {
        if index % 2 == 0 {
            client.send(offer).await;
        } else {
            let path = if offer.signal == Signal::Logs { "POST /v1/logs" } else { "POST /v1/traces" };
            let answer = http(local(HTTP), path, &offer.body).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    let printed = || engine(&["logs", &collector]);
    let missing = || missing_in_output(&expected, &printed());
    until_none_is_missing("spans and verdicts in the output of the Collector", missing).await;

    let open = open_trace().await;
    compose(&["stop", "otel-verdict"]);
    assert_eq!(inspect(&verdict, ".State.ExitCode"), "0");
    until("the open trace", || printed().contains(&hex(&open))).await;
}

/// The pod of the manifest with a Collector in its network; they are removed when this is dropped.
struct Pod {
    manifest: String,
}

impl Pod {
    const COLLECTOR: &str = "otel-collector";
    const CONTAINER: &str = "otel-verdict-pod-0-otel-verdict";

    fn start() -> Pod {
        let manifest = shipped("kubernetes.yaml");
        // Podman asks the probes with a program in the container, of which the image has none.
        let (before, probes) = manifest.split_once("          # Not /readyz").unwrap();
        let (_, after) = probes.split_once("          # Clients learn").unwrap();
        // Kubernetes has a Service instead.
        let ports = [GRPC, HTTP, ADMIN];
        let published =
            ports.iter().fold([before, "          # Clients learn", after].concat(), |text, port| {
                let container = format!("containerPort: {port}");
                text.replace(&container, &format!("{container}, hostPort: {port}"))
            });
        let pod = Pod { manifest: published };
        engine(&["network", "create", PROJECT]);
        let volume =
            concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/collector.yaml:/etc/otelcol/config.yaml:ro");
        let composition: Value = serde_saphyr::from_str(&shipped("compose.yaml")).unwrap();
        let image = composition["services"]["collector"]["image"].as_str().unwrap();
        let options = ["--detach", "--name", Pod::COLLECTOR, "--network", PROJECT, "--volume", volume];
        engine(&[&["run"], &options[..], &[image]].concat());
        pod.kube(&["play", "--network", PROJECT]);
        pod
    }

    fn kube(&self, arguments: &[&str]) {
        output("OTEL_VERDICT_CONTAINERS", &[&["kube"], arguments, &["-"]].concat(), &self.manifest);
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        engine(&["rm", "--force", Pod::COLLECTOR]);
        engine(&["network", "rm", "--force", PROJECT]);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a container engine; .ci/neighbours installs one and builds the image"]
async fn pod_of_the_kubernetes_manifest_evaluates_and_drains() {
    if !is_podman() {
        return println!("skipped: Docker does not read Kubernetes manifests");
    }
    let expected = Stored::by_one_process(&requests()).await;
    let pod = Pod::start();
    until_ready().await;
    assert_confined(Pod::CONTAINER);
    let metrics = http(local(ADMIN), "GET /metrics", b"").await;
    // Half of the limit of the container.
    assert!(metrics.contains("\notel_verdict_memory_budget_bytes 536870912\n"), "{metrics}");
    send(Client::connect(GRPC).await, &requests()).await;
    let printed = || engine(&["logs", Pod::COLLECTOR]);
    until_none_is_missing("spans and verdicts", || missing_in_output(&expected, &printed())).await;
    let open = open_trace().await;
    // Before the pod, which Podman may first separate from its network.
    engine(&["stop", "--time=40", Pod::CONTAINER]);
    assert_eq!(inspect(Pod::CONTAINER, ".State.ExitCode"), "0");
    pod.kube(&["down"]);
    until("the open trace", || printed().contains(&hex(&open))).await;
}

/// A container with systemd and the unit, in the network of the host; it is removed when this is dropped.
struct Systemd {
    container: String,
    _folder: TempDir,
}

impl Systemd {
    fn start(destination: &str) -> Systemd {
        let folder = tempfile::tempdir().unwrap();
        // The user of the unit reads the configuration, and systemd the environment.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("config.yaml"), shipped("otel-verdict.yaml")).unwrap();
        let environment = format!("OTLP_DESTINATION={destination}\n");
        std::fs::write(folder.path().join("environment"), environment).unwrap();
        let volume = format!("{}:/etc/otel-verdict:ro", folder.path().display());
        // The unit has mount namespaces, which containers without privileges have not.
        let options = ["--detach", "--privileged", "--systemd=always", "--network=host", "--volume", &volume];
        let container = engine(&[&["run"], &options[..], &["otel-verdict-systemd"]].concat());
        Systemd { container: container.trim().to_owned(), _folder: folder }
    }

    fn systemctl(&self, arguments: &[&str]) -> String {
        engine(&[&["exec", &self.container, "systemctl"], arguments].concat())
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        engine(&["rm", "--force", &self.container]);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a container engine; .ci/neighbours installs one and builds the image"]
async fn unit_evaluates_reloads_restarts_and_drains_under_systemd() {
    if !is_podman() {
        return println!("skipped: Docker does not set a container up for systemd");
    }
    let expected = Stored::by_one_process(&requests()).await;
    let store = Destination::default();
    let systemd = Systemd::start(&serve(&store).await);
    // It is degraded where another unit than ours failed.
    let state = || engine(&["exec", &systemd.container, "sh", "-c", "systemctl is-system-running || true"]);
    until("systemd has started", || ["running", "degraded"].contains(&state().trim())).await;
    systemd.systemctl(&["start", "otel-verdict"]);
    until_ready().await;
    let metrics = http(local(ADMIN), "GET /metrics", b"").await;
    let budget = metrics.lines().find_map(|line| line.strip_prefix("otel_verdict_memory_budget_bytes "));
    // The unit hides the files with the machine's memory.
    assert!(budget.unwrap().parse::<u64>().unwrap() < 1 << 40, "{budget:?}");
    send(Client::connect(GRPC).await, &requests()).await;
    assert_stored(&store, &expected).await;

    systemd.systemctl(&["reload", "otel-verdict"]);
    systemd.systemctl(&["kill", "--signal=KILL", "otel-verdict"]);
    until("a restart", || {
        systemd.systemctl(&["show", "--property=NRestarts", "otel-verdict"]).contains("=1")
    })
    .await;
    until_ready().await;
    let open = open_trace().await;
    systemd.systemctl(&["stop", "otel-verdict"]);
    let state = systemd.systemctl(&["show", "--property=Result,ActiveState", "otel-verdict"]);
    assert!(state.contains("Result=success") && state.contains("ActiveState=inactive"), "{state}");
    assert!(store.has_received(&open), "the open trace is not exported");
}
