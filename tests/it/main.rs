//! The integration tests of the crate and its commands, as one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Tests print skipped cases and figures.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod acknowledged;
mod alarms;
mod annotated;
mod attribution;
mod attacks;
mod benchmarks;
mod binary;
mod checklists;
mod code_runner;
mod collectors;
mod commands;
mod consistency;
mod containers;
mod dashboards;
mod docs;
mod evaluators;
mod examples;
mod durable;
mod end_to_end;
mod extensions;
mod explanations;
mod frameworks;
mod judged_outcome;
mod judges;
mod layers;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_broker;
#[cfg(feature = "kafka")]
mod kafka_handover;
mod interrupted;
mod local_model;
mod fuzz;
mod model;
mod neighbours;
mod order;
mod own_telemetry;
mod overload;
mod page;
mod page_browser;
mod plans;
mod paths;
mod processes;
mod recordings;
mod relabelled;
mod reload;
mod scrape;
mod score;
mod small_disk;
mod small_runs;
mod sources;
mod support;
mod trail;
