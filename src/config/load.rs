//! From files to a [`Config`], or to every problem in them.
//!
//! In: YAML files in order, and the environment. Out: a configuration that has been checked as far as text
//! allows: no socket or folder is opened, and no file but those that `${file:PATH}` names, if the
//! configuration is to be used. Each file is parsed and its variables are substituted; the files are merged;
//! each section is read; then the checks across sections run.

use std::collections::BTreeMap;
use std::path::Path;

use verdict_config::{Invalid, Issue, Mark, Node, Problem, Source, Step, dotted, nearest, parse, undotted};
use verdict_eval::config::Emit;
use verdict_judge::{EVALUATOR, JudgeExtensions};

use super::env::{Completeness, ExternalValues, substitute};
use super::root::Config;
use super::sections::{Sections, key};
use crate::bounded_file::read_bounded;
use crate::export::config::{ExporterConfig, Template};
use crate::extensions::Extensions;
use crate::page::config::PageConfig;
use crate::receive::kafka::config::KafkaReceiver;

/// Looks up an environment variable.
pub type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The key of Kafka's password in its section.
const SASL_PASSWORD: &str = "auth.sasl.password";

/// Largest configuration file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Reads `files`; values of later files replace values of earlier files. Without files the defaults apply.
///
/// # Errors
/// Every problem of every file.
pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Config, Invalid> {
    load_with(files, &Extensions::default())
}

/// Like [`load`], for a program that adds judges: the files may name dialects and judges of `extensions`.
///
/// # Errors
/// Every problem of every file.
pub fn load_with<P: AsRef<Path>>(files: &[P], extensions: &Extensions) -> Result<Config, Invalid> {
    read_all(files, true, extensions)
}

/// Like [`load`], only to find problems: files that `${file:PATH}` names are not opened and are assumed to
/// exist. A value from such a file remains unsubstituted.
///
/// # Errors
/// Every problem of every file.
pub fn check<P: AsRef<Path>>(files: &[P]) -> Result<Config, Invalid> {
    read_all(files, false, &Extensions::default())
}

fn read_all<P: AsRef<Path>>(
    files: &[P],
    open_files: bool,
    extensions: &Extensions,
) -> Result<Config, Invalid> {
    let mut sources = Vec::new();
    let mut invalid: Vec<Invalid> = Vec::new();
    for file in files {
        let name = file.as_ref().display().to_string();
        match read_bounded(file.as_ref(), MAX_FILE_BYTES) {
            Ok(text) => sources.push(Source { name, text }),
            Err(error) => invalid.push(Invalid::unreadable(&name, &error.to_string())),
        }
    }
    let external = ExternalValues { env: &|name| std::env::var(name).ok(), open_files };
    let loaded = from_texts(&sources, &external, extensions);
    match invalid.into_iter().reduce(Invalid::and) {
        None => loaded,
        Some(unreadable) => Err(loaded.err().into_iter().fold(unreadable, Invalid::and)),
    }
}

/// Like [`check`], from texts.
///
/// # Errors
/// Every problem of every text.
pub fn from_sources(sources: &[Source], lookup: EnvironmentLookup<'_>) -> Result<Config, Invalid> {
    from_texts(sources, &ExternalValues { env: lookup, open_files: false }, &Extensions::default())
}

fn from_texts(
    sources: &[Source],
    external: &ExternalValues<'_>,
    extensions: &Extensions,
) -> Result<Config, Invalid> {
    let mut issues = Vec::new();
    let mut root = Node::empty(Mark::default());
    let mut unopened = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        match parse(file, &source.text) {
            Ok(mut node) => {
                substitute_all(&mut node, external, &mut issues, &mut unopened);
                root.merge(node);
            }
            Err(issue) => issues.push(issue),
        }
    }
    // A value whose variable is missing cannot be valid: one problem, not two. A value from a file that was
    // not opened may be valid, so it causes no problem.
    let reported: Vec<Mark> = issues.iter().map(|issue| issue.at).collect();
    unopened.retain(|(at, path)| root.node_at(path).is_some_and(|node| node.at == *at));
    let is_consequence = |issue: &Issue| {
        let concerns_unopened = |(at, path): &(Mark, Vec<Step>)| issue.at == *at || issue.key == dotted(path);
        reported.contains(&issue.at) || unopened.iter().any(concerns_unopened)
    };
    let text_issue_count = issues.len();
    let mut sections = Sections::new(root, issues);
    let config = read_sections(&mut sections, extensions);
    let mut issues = sections.finish();
    let section_issues = issues.split_off(text_issue_count);
    issues.extend(section_issues.into_iter().filter(|issue| !is_consequence(issue)));
    if issues.is_empty() {
        return Ok(config);
    }
    let names: Vec<String> = sources.iter().map(|s| s.name.clone()).collect();
    Err(Invalid::new(&names, issues))
}

fn substitute_all(
    node: &mut Node,
    external: &ExternalValues<'_>,
    issues: &mut Vec<Issue>,
    unopened: &mut Vec<(Mark, Vec<Step>)>,
) {
    node.visit_scalars(
        &mut Vec::new(),
        &mut |text, style, at, path| match substitute(text, style, external) {
            Ok(Completeness::Whole) => {}
            Ok(Completeness::Unopened) => unopened.push((at, path.to_vec())),
            Err(problems) => issues.extend(problems.into_iter().map(|p| Issue::new(at, dotted(path), p))),
        },
    );
}

fn read_sections(sections: &mut Sections, extensions: &Extensions) -> Config {
    let default = Config::default();
    let mut config = Config {
        receivers: sections.section("receivers"),
        verdict: sections.verdict(),
        judges: sections.section("judges"),
        judging: sections.section("judging"),
        storage: sections.section("storage"),
        memory: sections.section("memory"),
        exporters: sections.section_or("exporters", default.exporters),
        admin: sections.section("admin"),
        page: sections.section("page"),
        service: sections.section("service"),
    };
    if config.service.exporters.is_empty() {
        config.service.exporters = config.exporters.0.keys().cloned().collect();
    }
    sections.problems("receivers.otlp", config.receivers.otlp.problems());
    let kafka = config.receivers.kafka.iter().flat_map(KafkaReceiver::problems);
    sections.problems("receivers.kafka", kafka.collect());
    sections.problems("verdict", config.verdict.problems());
    sections.problems("page", config.page.iter().flat_map(PageConfig::problems).collect());
    sections.problems("storage", config.storage.problems());
    sections.problems("service", config.service.problems());
    sections.problems("exporters", config.exporters.problems());
    let (judge_problems, judging_problems) =
        verdict_judge::problems(&config.judges, &config.judging, &extensions.judges);
    sections.problems("judges", judge_problems);
    sections.problems("judging", judging_problems);
    check_secrets(&config, sections);
    check_exporters_are_defined(&config, sections);
    check_events_and_spans_of_scores(&config, sections);
    check_kafka_loop(&config, sections);
    check_judges_are_defined(&config, &extensions.judges, sections);
    check_dialects_of_evaluators(&config, &extensions.judges, sections);
    check_judges_are_asked_once(&config, sections);
    check_folders_differ(&config, sections);
    config
}

/// Reports a folder that the cache and the journal would share. Without this check, the second of them to open the
/// folder would report that another process uses it.
fn check_folders_differ(config: &Config, sections: &mut Sections) {
    let (cache, storage) = (&config.judging.cache.directory, &config.storage.directory);
    if cache.as_ref().is_some_and(|cache| Some(cache) == storage.as_ref()) {
        let problem = Problem::new("cache.directory", "name another folder than storage.directory");
        sections.problems("judging", vec![problem]);
    }
}

fn check_secrets(config: &Config, sections: &mut Sections) {
    for protocol in config.receivers.otlp.protocols.with_auth().map(|(protocol, _)| protocol) {
        for secret in ["bearer_token", "basic.password"] {
            let key = format!("receivers.otlp.protocols.{protocol}.auth.{secret}");
            sections.must_come_from_outside(&undotted(&key));
        }
    }
    let paths_api = config.verdict.paths_api.as_ref().and_then(|api| api.auth.as_ref());
    let page = config.page.as_ref().and_then(|page| page.auth.as_ref());
    for (section, auth) in [("verdict.paths_api", paths_api), ("page", page)] {
        for secret in ["bearer_token", "basic.password"].iter().filter(|_| auth.is_some()) {
            sections.must_come_from_outside(&undotted(&format!("{section}.auth.{secret}")));
        }
    }
    for (name, judge) in &config.judges {
        let judge_path = [key("judges"), key(name)];
        sections.must_come_from_outside(&[&judge_path[..], &[key("api_key")]].concat());
        sections.headers_come_from_outside(&judge_path, judge.headers.keys());
    }
    if let Some(telemetry) = &config.service.telemetry {
        sections.headers_come_from_outside(&[key("service"), key("telemetry")], telemetry.headers.keys());
    }
    for (id, exporter) in &config.exporters.0 {
        let exporter_path = [key("exporters"), key(id)];
        sections.headers_come_from_outside(&exporter_path, exporter.headers());
        if let ExporterConfig::Scores(_) = exporter {
            sections.must_come_from_outside(&[&exporter_path[..], &[key("api_key")]].concat());
        }
        if let ExporterConfig::Webhook(webhook) = exporter {
            sections.must_come_from_outside(&[&exporter_path[..], &[key("secret")]].concat());
            if webhook.template == Template::Slack {
                sections.must_come_from_outside(&[&exporter_path[..], &[key("endpoint")]].concat());
            }
        }
        if let ExporterConfig::Kafka(_) = exporter {
            sections.must_come_from_outside(&[&exporter_path[..], &undotted(SASL_PASSWORD)].concat());
        }
    }
    if config.receivers.kafka.is_some() {
        sections.must_come_from_outside(&undotted(&format!("receivers.kafka.{SASL_PASSWORD}")));
    }
}

/// Reports exporters that write to a topic from which this process reads.
fn check_kafka_loop(config: &Config, sections: &mut Sections) {
    let Some(receiver) = &config.receivers.kafka else { return };
    for (id, exporter) in &config.exporters.0 {
        let ExporterConfig::Kafka(exporter) = exporter else { continue };
        if !exporter.brokers.iter().any(|broker| receiver.brokers.contains(broker)) {
            continue;
        }
        let sent_topics =
            exporter.topics().into_iter().filter(|(signal, ..)| exporter.signals.contains(signal));
        for (_, name, topic) in
            sent_topics.filter(|(.., topic)| receiver.topics().any(|received| received == *topic))
        {
            let path = [&[key("exporters"), key(id)][..], &undotted(name)].concat();
            let message = format!("receivers.kafka reads '{topic}': spans would be received again and again");
            sections.problem(&path, message, None);
        }
    }
}

fn check_judges_are_defined(config: &Config, judge_extensions: &JudgeExtensions, sections: &mut Sections) {
    for (metric_key, name) in config.verdict.evaluation.named_judges() {
        let path = undotted(&format!("verdict.{metric_key}"));
        let is_broken_already = sections.is_broken(&[key("judges"), key(name)]) || sections.is_broken(&path);
        if !config.has_judge(name) && !judge_extensions.provides(name) && !is_broken_already {
            let hint = nearest(name, config.judge_names());
            sections.problem(&path, format!("'{name}' is not defined under judges"), hint);
        }
    }
}

/// Reports a judge that is named in addition to a cascade of which it is a member: it would be asked twice.
fn check_judges_are_asked_once(config: &Config, sections: &mut Sections) {
    let mut lists: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (metric_key, name) in config.verdict.evaluation.named_judges() {
        lists.entry(metric_key).or_default().push(name);
    }
    for (metric_key, names) in lists {
        let cascades = names.iter().filter(|name| config.judging.cascades.contains_key(**name));
        for cascade in cascades {
            let others = names.iter().filter(|name| *name != cascade);
            let others: Vec<&str> = others.flat_map(|name| config.judging.members(name)).collect();
            let members = config.judging.members(cascade);
            if let Some(twice) = members.into_iter().find(|member| others.contains(member)) {
                let message = format!("asks '{twice}' twice: it is in cascade '{cascade}'");
                sections.problem(&undotted(&format!("verdict.{metric_key}")), message, None);
                break;
            }
        }
    }
}

/// Reports exporters of type `scores` and `webhook` without the evaluation events that they send, and exporters of type
/// `scores` without an exporter of the spans that their scores are about.
fn check_events_and_spans_of_scores(config: &Config, sections: &mut Sections) {
    let used = &config.service.exporters;
    for id in used {
        let Some(ExporterConfig::Scores(_) | ExporterConfig::Webhook(_)) = config.exporters.0.get(id) else {
            continue;
        };
        if !config.verdict.evaluation.emit.contains(&Emit::LogEvents) {
            let message = format!("must contain log_events, which exporter '{id}' sends");
            sections.problem(&[key("verdict"), key("emit")], message, None);
        }
        if let Err(problem) = config.exporters.followed_exporter(id, used) {
            sections.problem(&[key("exporters"), key(id), key(&problem.key)], problem.message, None);
        }
    }
}

/// Reports judges of the wrong dialect: metrics of `verdict.evaluators` send other requests than metrics that judges
/// answer by a rubric.
fn check_dialects_of_evaluators(
    config: &Config,
    judge_extensions: &JudgeExtensions,
    sections: &mut Sections,
) {
    let evaluation = &config.verdict.evaluation;
    for (metric_key, name) in evaluation.named_judges() {
        let is_remote = metric_key.starts_with("evaluators.") || metric_key == "metrics.checklist.run_code";
        if is_remote && config.judging.cascades.contains_key(name) {
            let message = format!("'{name}' is a cascade; a judge of dialect '{EVALUATOR}' is needed");
            sections.problem(&undotted(&format!("verdict.{metric_key}")), message, None);
        }
        // A provider takes any question.
        let Some(judge) = config.judges.get(name).filter(|_| !judge_extensions.provides(name)) else {
            continue;
        };
        let path = undotted(&format!("verdict.{metric_key}"));
        let (needs_evaluator, is_evaluator) = (is_remote, judge.dialect == EVALUATOR);
        if needs_evaluator != is_evaluator {
            let message = match needs_evaluator {
                true => {
                    format!("'{name}' is a judge of dialect '{}'; '{EVALUATOR}' is needed", judge.dialect)
                }
                false => {
                    format!(
                        "'{name}' is of dialect '{EVALUATOR}', which answers only verdict.evaluators and \
                         checklist.run_code"
                    )
                }
            };
            sections.problem(&path, message, None);
        }
    }
    for (metric, name) in evaluation.evaluator_judges() {
        let (Some(evaluator), Some(judge)) = (evaluation.evaluators.get(metric), config.judges.get(name))
        else {
            continue;
        };
        if !judge.accepts(evaluator.max_bytes.0) {
            let path = undotted(&format!("verdict.evaluators.{metric}.max_bytes"));
            let message = format!(
                "judges.{name}.max_prompt_tokens ({}) is too small for requests of this size: four bytes count as a \
                 token, and max_tokens are kept free for the answer",
                judge.max_prompt_tokens
            );
            sections.problem(&path, message, None);
        }
    }
}

fn check_exporters_are_defined(config: &Config, sections: &mut Sections) {
    let (used, defined) = (&config.service.exporters, &config.exporters.0);
    if used.is_empty() {
        let message = "no exporter is defined, so that telemetry would go nowhere".to_owned();
        sections.problem(&[key("exporters")], message, None);
    }
    for (i, id) in used.iter().enumerate() {
        let path = [key("service"), key("exporters"), Step::Item(i)];
        if !defined.contains_key(id) && !sections.is_broken(&[key("exporters"), key(id)]) {
            let message = format!("'{id}' is not defined under exporters");
            sections.problem(&path, message, nearest(id, defined.keys().map(String::as_str)));
        } else if used.iter().take(i).any(|before| before == id) {
            sections.problem(&path, format!("'{id}' is named twice"), None);
        }
    }
}
