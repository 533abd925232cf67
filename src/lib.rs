//! **otel-verdict** tells, inside the OpenTelemetry pipeline, whether AI agents did their job.
//!
//! OTLP comes in, spans are gathered into per-trace trees, LLM and tool spans are measured from
//! the leaves up, agents from the top down when their trace closes, and the same spans go out
//! annotated with `verdict.*` attributes. No span is lost and none is changed.
//!
//! The data path is read off the modules that are verbs, in this order:
//!
//! ```text
//! receive -> assemble -> recognise -> measure (spans) -> propagate -> measure (agents) -> annotate -> export
//! ```
//!
//! Nouns are what they share: [`wire`] (OTLP bytes), [`trace`] (the tree, pure data),
//! [`outcome`] (the fate of every span), [`telemetry`] (metrics about ourselves), [`config`].
//! `trace`, `recognise`, `measure`, `propagate` and `annotate` know no runtime, network, disk or
//! clock; a test enforces it.

// The data path, in order.
pub mod annotate;
pub mod assemble;
pub mod export;
pub mod measure;
pub mod propagate;
pub mod receive;
pub mod recognise;

// What the stages share.
pub mod config;
pub mod outcome;
pub mod pipeline;
pub mod telemetry;
pub mod trace;
pub mod wire;

// The command line.
pub mod cli;
