//! A real broker of Kafka, which `.ci/neighbours kafka` installs: a group whose members come and go under load, TLS and
//! SASL, and a Collector that writes what otel-verdict reads.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use otel_verdict::receive::Offer;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::{ClientConfig, Message as _};
use verdict_otlp::Signal;

use crate::collectors::{Running, Stored, assert_stored, collector, requests, send, serve, verdict};
use crate::frameworks::{hex, spans_of};
use crate::kafka::captures::{Captures, records_of};
use crate::kafka::group::{GroupTest, run_group_test};
use crate::kafka::{LOGS, Member, PARTITIONS, SPANS, consumer, member_with, partition, request, write_keyed};
use crate::kafka_handover::{held_partitions, terminate, until_shared};
use crate::neighbours::free_port;
use crate::support::{Destination, MAX_TIME_WITHOUT_PROGRESS, until, until_none_is_missing};

/// Topics that otel-verdict writes in a test, in addition to those that a Collector writes.
const OWN_SPANS: &str = "own_spans";
const OWN_LOGS: &str = "own_logs";

/// A broker of Kafka in KRaft mode, of the libraries in the folder that `OTEL_VERDICT_KAFKA` names.
struct Broker {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

/// The authentication that the broker requires of clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Security {
    None,
    /// TLS, and SASL as the user `verdict`.
    TlsAndSasl,
}

/// An otel-verdict with this configuration, in addition to that of its listeners.
async fn running(text: &str) -> Running {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let file = folder.path().join("config.yaml");
    let base = format!("admin: {{ endpoint: '127.0.0.1:0' }}\n{text}\n");
    let otlp = format!("otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:{port}' }} }} }}");
    let text = match base.contains("receivers: {") {
        true => base.replace("receivers: {", &format!("receivers: {{ {otlp},")),
        false => format!("{base}receivers: {{ {otlp} }}\n"),
    };
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.arg("run").arg("--config").arg(&file);
    // The file is read before the process listens.
    Running::start(command, port).await
}

const PASSWORD: &str = "secret-of-verdict";

impl Broker {
    fn start(security: Security) -> Broker {
        let libraries =
            std::env::var("OTEL_VERDICT_KAFKA").expect("OTEL_VERDICT_KAFKA must name a folder of jars");
        let folder = tempfile::tempdir().unwrap();
        let free = crate::support::unused_port;
        let (port, controller) = (free(), free());
        let protocol = if security == Security::None { "PLAINTEXT" } else { "SASL_SSL" };
        let properties = folder.path().join("server.properties");
        let mut file = std::fs::File::create(&properties).unwrap();
        write!(
            file,
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             listeners={protocol}://localhost:{port},CONTROLLER://127.0.0.1:{controller}\n\
             inter.broker.listener.name={protocol}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocol}:{protocol}\n\
             controller.listener.names=CONTROLLER\nlog.dirs={}\noffsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\n",
            folder.path().join("data").display()
        )
        .unwrap();
        let mut users = Vec::new();
        if security == Security::TlsAndSasl {
            let certified_key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let (certificate, both) = (folder.path().join("ca.pem"), folder.path().join("broker.pem"));
            std::fs::write(&certificate, certified_key.cert.pem()).unwrap();
            std::fs::write(&both, certified_key.signing_key.serialize_pem() + &certified_key.cert.pem())
                .unwrap();
            let modules = "org.apache.kafka.common.security";
            let (keys, trusted) = (both.display(), certificate.display());
            let prefix = "listener.name.sasl_ssl";
            write!(
                file,
                "ssl.keystore.type=PEM\nssl.keystore.location={keys}\nssl.truststore.type=PEM\n\
                 ssl.truststore.location={trusted}\nsasl.mechanism.inter.broker.protocol=PLAIN\n\
                 sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
                 {prefix}.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required username=\"broker\" \
                 password=\"{PASSWORD}\" user_broker=\"{PASSWORD}\" user_verdict=\"{PASSWORD}\";\n\
                 {prefix}.scram-sha-256.sasl.jaas.config={modules}.scram.ScramLoginModule required;\n\
                 {prefix}.scram-sha-512.sasl.jaas.config={modules}.scram.ScramLoginModule required;\n"
            )
            .unwrap();
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                users.push("--add-scram".to_owned());
                users.push(format!("{mechanism}=[name=verdict,password={PASSWORD}]"));
            }
        }
        let java = |class: &str| {
            let mut command = Command::new("java");
            let log = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.path().join("log"))
                .unwrap();
            command.args(["-Xmx512m", "-cp", &format!("{libraries}/*"), class]).stdin(Stdio::null());
            command.stdout(log.try_clone().unwrap()).stderr(log);
            command
        };
        let id = "MkU3OEVBNTcwNTJENDM2Qg";
        let formatted = java("kafka.tools.StorageTool")
            .args(["format", "--standalone", "-t", id, "-c"])
            .arg(&properties)
            .args(&users)
            .status();
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
        assert!(formatted.unwrap().success(), "{}", log());
        let child = java("kafka.Kafka").arg(&properties).spawn().unwrap();
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(120), "{}", log());
            std::thread::sleep(Duration::from_millis(200));
        }
        Broker { child, port, folder }
    }

    fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Creates topics with so many partitions each, as a client with these settings.
    async fn create_topics(&self, topics: &[&str], partitions: i32, settings: &[(&str, &str)]) {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", self.address());
        for (key, value) in settings {
            client.set(*key, *value);
        }
        let admin: AdminClient<_> = client.create().unwrap();
        let new = topics.iter().map(|topic| NewTopic::new(topic, partitions, TopicReplication::Fixed(1)));
        let topics: Vec<NewTopic<'_>> = new.collect();
        for created in admin.create_topics(&topics, &AdminOptions::new()).await.unwrap() {
            created.unwrap();
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = ".ci/neighbours kafka installs a broker and runs it"]
async fn a_group_that_changes_loses_no_span_with_a_broker() {
    let broker = Broker::start(Security::None);
    broker.create_topics(&[SPANS, LOGS], 2 * PARTITIONS, &[]).await;
    let spans_per_run = Captures::read().spans;
    let test = GroupTest {
        members: 3,
        logs: true,
        runs: u32::try_from(100_000 / spans_per_run + 1).unwrap(),
        rate: 2_000.0,
        kills: 10,
        additions: 20,
        removals: 10,
        // As long as spans are written.
        interval: Duration::from_millis(1_250),
        session: "6s",
        quiet: "3s",
        patience: Duration::from_secs(120),
    };
    let out = run_group_test(&broker.address(), &test).await;
    assert!(out.spans.expected >= 100_000);
    out.assert(0.001);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = ".ci/neighbours kafka installs a broker and runs it"]
async fn a_group_that_receives_spans_alone_loses_none_with_a_broker() {
    let broker = Broker::start(Security::None);
    broker.create_topics(&[SPANS, LOGS], 2 * PARTITIONS, &[]).await;
    let test = GroupTest {
        members: 3,
        logs: false,
        runs: 600,
        // Some 20 s.
        rate: 1_000.0,
        kills: 2,
        additions: 4,
        removals: 2,
        interval: Duration::from_millis(2_000),
        session: "6s",
        quiet: "3s",
        patience: Duration::from_secs(120),
    };
    run_group_test(&broker.address(), &test).await.assert(0.001);
}

/// With `group_instance_id`, which the mock brokers do not know: there a member that restarts is another one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = ".ci/neighbours kafka installs a broker and runs it"]
async fn a_member_with_a_name_that_restarts_within_the_session_keeps_its_partitions() {
    let broker = Broker::start(Security::None);
    broker.create_topics(&[SPANS, LOGS], PARTITIONS, &[]).await;
    for logs in ["", "logs: {}, "] {
        let (destination, folder) = (Destination::default(), tempfile::tempdir().unwrap());
        let port = destination.serve().await;
        let start = |number, name: &str| {
            // Longer than a restart takes.
            let receiver = format!("{logs}group_id: 'named{}', group_instance_id: {name}", logs.len());
            let config =
                member_with(&broker.address(), port, &receiver, "verdict: { close: { quiet: 100ms } }");
            let config = config.replace("session_timeout: 4s", "session_timeout: 20s");
            Member::start(folder.path(), number, &config)
        };
        let (restarts, stays) = (start(1, "pod-0"), start(2, "pod-1"));
        until_shared(&[&restarts, &stays]).await;
        let (before, log_before) = (held_partitions(&restarts.read_log()), stays.read_log());
        let changes = |log: &str| log.matches("Kafka partitions ").count();
        let names: Vec<String> = (0..30).map(|n| format!("{n:02}{logs}")).collect();
        let write = |names: &[String]| {
            let message = |name: &String| (format!("key {name}"), request(&[name], 0, true));
            let partitions: BTreeSet<i32> = names.iter().map(|name| partition(&message(name).0)).collect();
            assert!(before.iter().any(|number| partitions.contains(number)), "{partitions:?}");
            write_keyed(&broker.address(), names.iter().map(message));
        };
        write(&names[..10]);
        terminate(restarts).await;
        write(&names[10..20]);
        let restarted = start(3, "pod-0");
        until("the member has partitions", || !held_partitions(&restarted.read_log()).is_empty()).await;
        assert_eq!(held_partitions(&restarted.read_log()), before);
        write(&names[20..]);
        // A group reads what was written for earlier ones as well.
        let received = || -> BTreeSet<String> {
            destination
                .spans()
                .into_iter()
                .map(|span| span.name)
                .filter(|name| names.contains(name))
                .collect()
        };
        until("all spans arrive", || received().len() == names.len()).await;
        assert_eq!(changes(&stays.read_log()), changes(&log_before), "{}", stays.read_log());
        for member in [restarted, stays] {
            terminate(member).await;
        }
        let spans = destination.spans().into_iter().filter(|span| names.contains(&span.name)).count();
        assert_eq!(spans, names.len(), "each once");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = ".ci/neighbours kafka installs a broker and runs it"]
async fn receiver_and_exporter_use_tls_and_every_mechanism_of_sasl() {
    let broker = Broker::start(Security::TlsAndSasl);
    let authority = broker.folder.path().join("ca.pem").display().to_string();
    let settings = [
        ("security.protocol", "sasl_ssl"),
        ("ssl.ca.location", &*authority),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "verdict"),
        ("sasl.password", PASSWORD),
    ];
    broker.create_topics(&[SPANS, LOGS], PARTITIONS, &settings).await;
    let file = broker.folder.path().join("password");
    std::fs::write(&file, PASSWORD).unwrap();
    let captures = Captures::read();
    for (run, mechanism) in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].into_iter().enumerate() {
        let client = format!(
            "brokers: ['{}'], tls: {{ ca_file: '{authority}' }}, auth: {{ sasl: {{ username: verdict, \
             password: '${{file:{}}}', mechanism: {mechanism} }} }}",
            broker.address(),
            file.display()
        );
        // Some captures have no root.
        let close = "verdict: { close: { quiet: 1s, idle: 2s, remote_idle: 2s } }";
        let writing = running(&format!(
            "exporters: {{ kafka: {{ {client}, traces: {{ topic: {SPANS} }}, logs: {{ topic: {LOGS} }} }} }}\n{close}"
        ))
        .await;
        let store = Destination::default();
        let to = store.serve().await;
        let _reading = running(&format!(
            "receivers: {{ kafka: {{ {client}, group_id: 'g{run}', logs: {{}} }} }}\n\
             exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{to}', tls: {{ insecure: true }} }} }}\n{close}"
        ))
        .await;
        let messages = captures.messages(u32::try_from(run).unwrap());
        let offers: Vec<Offer> =
            messages.into_iter().map(|(signal, _, body)| Offer { signal, body }).collect();
        send(writing.client().await, &offers).await;
        // A group of its own reads what earlier ones wrote as well.
        let ids = || -> BTreeSet<_> {
            store.spans().into_iter().map(|span| (span.trace_id, span.span_id)).collect()
        };
        let expected_spans = captures.spans * (run + 1);
        until_none_is_missing(mechanism, || expected_spans - ids().len()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = ".ci/neighbours kafka and collector install a broker and a Collector"]
async fn collector_and_verdict_meet_in_kafka() {
    let broker = Broker::start(Security::None);
    broker.create_topics(&[SPANS, LOGS, OWN_SPANS, OWN_LOGS], PARTITIONS, &[]).await;
    let expected = Stored::by_one_process(&requests()).await;
    let (store, address) = (Destination::default(), broker.address());
    let kafka = [("KAFKA", &*address)];
    let _behind = verdict("verdict-behind-kafka.yaml", &serve(&store).await, kafka).await;
    let before = collector("agents-to-kafka.yaml", kafka).await;
    send(before.client().await, &requests()).await;
    assert_stored(&store, &expected).await;

    // The records that otel-verdict writes about the same runs, to topics with as many partitions.
    let writing = running(&format!(
        "exporters: {{ kafka: {{ brokers: ['{address}'], signals: [traces, logs], traces: {{ topic: {OWN_SPANS} }}, \
         logs: {{ topic: {OWN_LOGS} }} }} }}\n\
         verdict: {{ close: {{ quiet: 1s, idle: 2s, remote_idle: 2s }} }}"
    ))
    .await;
    send(writing.client().await, &requests()).await;
    let (spans, logs): (BTreeSet<String>, BTreeSet<String>) = {
        let trace_ids = |signal| {
            let offers = requests().into_iter().filter(move |offer| offer.signal == signal);
            // Log records outside of traces have no key.
            offers.flat_map(|offer| traces_of(&offer)).filter(|trace| !trace.is_empty()).collect()
        };
        (trace_ids(Signal::Traces), trace_ids(Signal::Logs))
    };
    assert!(!logs.is_empty() && logs.is_subset(&spans));
    let read = |topic: &'static str, traces: &BTreeSet<String>| {
        let (address, traces) = (address.clone(), traces.clone());
        tokio::task::spawn_blocking(move || partitions(&address, topic, &traces))
    };
    let (theirs, ours) = (read(SPANS, &spans).await.unwrap(), read(OWN_SPANS, &spans).await.unwrap());
    assert_eq!(ours, theirs);
    assert!(theirs.values().collect::<BTreeSet<_>>().len() > 1, "one partition has all traces");
    // The formula with which the exporter is tested where there is no Collector.
    assert!(theirs.iter().all(|(trace, partition)| *partition == crate::kafka::partition(trace)));
    // A trace whose content is hidden has no evaluation events.
    let (theirs, ours) = (read(LOGS, &logs).await.unwrap(), read(OWN_LOGS, &logs).await.unwrap());
    for (trace, partition) in theirs {
        assert_eq!(ours[&trace], partition, "log records of {trace}");
    }
}

/// The traces of the spans or log records of a request.
fn traces_of(offer: &Offer) -> Vec<String> {
    match offer.signal {
        Signal::Traces => {
            spans_of(std::slice::from_ref(&offer.body)).iter().map(|span| hex(&span.trace_id)).collect()
        }
        _ => records_of(&offer.body).iter().map(|record| hex(&record.trace_id)).collect(),
    }
}

/// Reads a topic until it has messages about each of `traces`; the partition of each trace. Every message is about the
/// trace that is its key, and all messages about a trace are in one partition.
fn partitions(brokers: &str, topic: &str, traces: &BTreeSet<String>) -> BTreeMap<String, i32> {
    let consumer = consumer(brokers, &[topic]);
    let (mut found, mut last) = (BTreeMap::new(), Instant::now());
    let is_missing = |found: &BTreeMap<String, i32>| traces.iter().any(|trace| !found.contains_key(trace));
    // Later records are read as well.
    while is_missing(&found) || last.elapsed() < Duration::from_secs(3) {
        assert!(
            last.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
            "{topic}: {} of {} traces",
            found.len(),
            traces.len()
        );
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) else { continue };
        last = Instant::now();
        let Some(key) = message.key() else { continue };
        let key = std::str::from_utf8(key).unwrap().to_owned();
        let body = Bytes::copy_from_slice(message.payload().unwrap());
        let signal = if [SPANS, OWN_SPANS].contains(&topic) { Signal::Traces } else { Signal::Logs };
        let message_traces = traces_of(&Offer { signal, body });
        assert!(
            message_traces.iter().all(|trace| *trace == key),
            "{topic}: {message_traces:?} with the key {key}"
        );
        assert_eq!(*found.entry(key).or_insert(message.partition()), message.partition());
    }
    found
}
