//! **otel-verdict** evaluates AI agents inside an OpenTelemetry pipeline: OTLP in, the same spans out,
//! annotated with `verdict.*` attributes.
//!
//! This crate is the product around the evaluator, [`verdict_eval`]. `ARCHITECTURE.md` describes the path
//! of the data, the crates and the invariants.
//!
//! | module | in | out |
//! |---|---|---|
//! | [`receive`] | connections | requests, decompressed under limits; OTLP's responses |
//! | [`assemble`] | spans of many traces, and the time | closed traces, each with its close reason |
//! | [`pipeline`] | requests | evaluated traces, handed to the exporters; connects all stages |
//! | [`kafka`] | configuration of brokers, records | clients that receive from and export to Kafka |
//! | [`export`] | encoded requests | requests on the wire, and one outcome per span and exporter |
//! | [`outcome`] | | the outcome of every span, counted |
//! | [`extensions`] | a program that embeds the product | metrics, judge providers and exporters that it adds |
//! | [`config`] | YAML | the configuration, or every problem in it |
//! | [`telemetry`], [`admin`], [`logging`] | | self-metrics, `/livez`, `/readyz`, `/metrics`, logs |
//! | `own_telemetry` | self-metrics, spans about this process | the same as OTLP |
//! | `page` | evaluated traces | the live page, and the same as one file |
//! | `reservation` | | bytes counted in a shared total until they are released |
//! | `rpc` | | messages of google.rpc in responses |
//! | `bounded_file`, `plain_text`, `clock` | files of the operator, texts of traces | bounded texts, texts without control characters; the time |
//! | [`score`] | verdicts and labels | agreement of verdicts with labels |
//! | [`cli`] | arguments | the commands |

#![deny(unreachable_pub)]

// The data path, in order; between `assemble` and `export` the evaluator is `verdict-eval`.
pub mod receive;
pub mod assemble;
pub mod export;

// The connection of the stages, and their shared state.
pub mod extensions;
pub mod pipeline;
pub mod outcome;
mod bounded_file;
mod clock;
mod plain_text;
mod reservation;
mod rpc;
pub mod telemetry;
pub mod admin;
mod own_telemetry;
mod page;
pub mod logging;
pub mod kafka;
pub mod config;

// Comparison of verdicts with labels.
pub mod score;

// The command line.
pub mod cli;
