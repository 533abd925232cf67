//! Exit codes and output of commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.env_remove("OTEL_VERDICT_CASES").env("NO_COLOR", "1");
    command
}

fn run(args: &[&str]) -> Output {
    binary().args(args).stdin(Stdio::null()).output().unwrap()
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn validate_accepts_defaults_and_shipped_configurations() {
    assert_eq!(run(&["validate"]).status.code(), Some(0));
    for shipped in [
        "config/reference.yaml",
        "config/quickstart.yaml",
        "config/benchmarks/trail-000.yaml",
        "config/benchmarks/trail-001.yaml",
    ] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(shipped);
        let output = run(&["validate", "--config", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{shipped}: {}", stderr(&output));
    }
}

/// Configurations of otel-verdict in a folder of `deploy`; the others are of Collectors and of other programs.
fn deployed(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".yaml") && (name.starts_with("otel-verdict") || name.starts_with("verdict"))
    };
    // A Collector's configuration has pipelines.
    files
        .filter(is_ours)
        .filter(|path| !std::fs::read_to_string(path).unwrap().contains("pipelines:"))
        .collect()
}

#[test]
fn validate_accepts_every_configuration_for_deployment() {
    let all = [deployed(""), deployed("collector")].concat();
    let mut names: Vec<&str> = all.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    names.sort_unstable();
    let behind_kafka = "verdict-behind-kafka.yaml";
    assert_eq!(names, ["otel-verdict.yaml", "verdict-behind-agents.yaml", behind_kafka, "verdict.yaml"]);
    for path in all {
        let output = run(&["validate", "--config", path.to_str().unwrap()]);
        let message = stderr(&output);
        if cfg!(not(feature = "kafka")) && path.ends_with(behind_kafka) {
            // A binary without Kafka can use it elsewhere, and says so.
            assert!(message.contains("built without Kafka"), "{message}");
        }
        assert_eq!(output.status.code(), Some(0), "{}: {message}", path.display());
    }
}

/// The configuration in the Kubernetes manifest.
pub fn in_kubernetes() -> String {
    let manifest =
        std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes.yaml"));
    let manifest = manifest.unwrap();
    let (_, text) = manifest.split_once("config.yaml: |\n").unwrap();
    text.split_once("\n---").unwrap().0.to_owned()
}

#[test]
fn the_configuration_in_the_kubernetes_manifest_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(&folder, "config.yaml", &in_kubernetes());
    let output = binary()
        .env("OTLP_DESTINATION", "collector:4317")
        .args(["validate", "--config", config.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn other_kubernetes_manifests_name_its_ports_and_labels() {
    let read =
        |name: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let deployment = read("deploy/kubernetes.yaml");
    for name in ["pod-monitor", "network-policy"] {
        let manifest: serde_json::Value =
            serde_saphyr::from_str(&read(&format!("deploy/kubernetes/{name}.yaml"))).unwrap();
        let spec = &manifest["spec"];
        let selector = if name == "pod-monitor" { &spec["selector"] } else { &spec["podSelector"] };
        assert_eq!(selector["matchLabels"]["app.kubernetes.io/name"], "otel-verdict");
        let ingress = spec["ingress"].as_array().into_iter().flatten();
        let named = ingress.flat_map(|rule| rule["ports"].as_array().unwrap());
        let mut ports = 0;
        for port in named.chain(spec["podMetricsEndpoints"].as_array().into_iter().flatten()) {
            let port = port["port"].as_str().unwrap();
            assert!(deployment.contains(&format!("{{ name: {port}, containerPort:")), "{name}: {port}");
            ports += 1;
        }
        assert!(ports > 0, "{name}");
    }
}

#[test]
fn the_composition_mounts_files_that_exist_and_names_the_tested_collector() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let read = |name: &str| std::fs::read_to_string(deploy.join(name)).unwrap();
    let composition: serde_json::Value = serde_saphyr::from_str(&read("compose.yaml")).unwrap();
    let image = composition["services"]["collector"]["image"].as_str().unwrap();
    let (_, version) = image.rsplit_once(':').unwrap();
    assert!(read("collector/builder.yaml").contains(&format!("/otlpreceiver v{version}\n")), "{image}");
    let build = &composition["services"]["otel-verdict"]["build"];
    assert!(
        deploy.join(build["context"].as_str().unwrap()).join(build["dockerfile"].as_str().unwrap()).is_file()
    );
    for (service, configuration) in
        [("otel-verdict", "/etc/otel-verdict/config.yaml"), ("collector", "/etc/otelcol/config.yaml")]
    {
        let mounted = composition["services"][service]["volumes"][0].as_str().unwrap();
        let [file, path, "ro"] = mounted.split(':').collect::<Vec<_>>()[..] else { panic!("{mounted}") };
        assert!(deploy.join(file).is_file() && path == configuration, "{mounted}");
    }
    assert!(read("Dockerfile").contains("CMD [\"run\", \"--config\", \"/etc/otel-verdict/config.yaml\"]"));
}

#[test]
fn systemd_accepts_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/otel-verdict.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    // Only programs that exist are accepted.
    let unit = unit.replace("/usr/local/bin/otel-verdict", env!("CARGO_BIN_EXE_otel-verdict"));
    let path = file(&folder, "otel-verdict.service", &unit);
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(path).output() else {
        return println!("skipped: systemd-analyze is not installed");
    };
    // Messages about other units of the machine are not about this unit. The check succeeds with unknown keys.
    assert!(
        output.status.success() && !stderr(&output).contains("otel-verdict.service"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn validate_prints_every_fault_of_every_file_and_exits_2() {
    let folder = tempfile::tempdir().unwrap();
    let one =
        file(&folder, "one.yaml", "verdict:\n  mode: anotate\nmemory:\n  budget: ${env:NOT_SET_ANYWHERE}\n");
    let two = file(&folder, "two.yaml", "service: { exporters: [nowhere] }\n");
    let output =
        run(&["validate", "-c", one.to_str().unwrap(), "-c", two.to_str().unwrap(), "-c", "/nowhere.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for part in [
        "one.yaml:2:9: verdict.mode",
        "did you mean 'annotate'",
        "NOT_SET_ANYWHERE is not set",
        "two.yaml:1:",
        "nowhere",
        "/nowhere.yaml",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn print_config_redacts_secrets_and_its_output_is_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(
        &folder,
        "c.yaml",
        "exporters:\n  otlp_http:\n    endpoint: https://me:sesame@collector.test\n    headers: { authorization: \"${env:TOKEN}\" }\nverdict: { close: { quiet: 3s } }\n",
    );
    let output = binary()
        .env("TOKEN", "hunter2")
        .args(["print-config", "-c", config.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("quiet: 3s") && text.contains("[redacted]"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("sesame"), "{text}");
    let printed_config = file(&folder, "again.yaml", text);
    let output = run(&["print-config", "-c", printed_config.to_str().unwrap()]);
    assert_eq!(stdout(&output), text, "{}", stderr(&output));
}

#[test]
fn the_schema_is_json() {
    let output = run(&["print-config", "--schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["properties"]["verdict"].is_object());
}

#[test]
fn wrong_usage_exits_2_and_help_and_completions_0() {
    assert_eq!(run(&["no-such-command"]).status.code(), Some(2));
    assert_eq!(run(&["validate", "--nonsense"]).status.code(), Some(2));
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("print-config"), "{shell}");
    }
}

#[test]
fn a_closed_standard_output_is_no_error() {
    let mut child = binary()
        .args(["print-config", "--schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}
