//! **otel-verdict** tells, inside the OpenTelemetry pipeline, whether AI agents did their job.
//!
//! OTLP comes in, spans are gathered into per-trace trees, LLM and tool spans are measured from
//! the leaves up and agents from the top down, verdicts travel from the leaves to the root, and
//! the same spans go out annotated with `verdict.*` attributes. No span is lost and none is changed.
//!
//! # The data path
//!
//! Modules that are verbs are its stages, in this order:
//!
//! ```text
//! receive -> (journal) -> assemble -> recognise -> measure -> propagate -> annotate -> export
//! ```
//!
//! | stage | in | out |
//! |---|---|---|
//! | [`receive`] | connections | requests unpacked under limits; OTLP's own answers |
//! | [`assemble`] | spans of many traces, and what time it is | traces that have closed, and why |
//! | [`recognise`] | a trace's bytes, in any convention | one vocabulary: kinds, messages, calls, agents |
//! | [`measure`] | a [`Scene`](recognise::Scene) | measurements with evidence, or why there are none |
//! | [`propagate`] | measurements | pass or fail for every span and the trace; the causal chain |
//! | [`annotate`] | all of it | the same span bytes with attributes appended; evaluation events |
//! | [`export`] | encoded requests | requests on the wire, and one outcome per span and exporter |
//!
//! [`pipeline`] joins them. Nouns are what they share: [`journal`] (what was acknowledged and has not
//! left, on disk), [`wire`] (OTLP bytes), [`trace`] (the tree,
//! pure data), [`judge`] (who answers the questions of metrics: LLM endpoints), [`outcome`] (the fate
//! of every span), [`redact`] (secrets out of texts), [`telemetry`] (metrics about ourselves),
//! [`config`]. [`score`] holds what was found against what people found; [`cli`] is the command line.
//!
//! # What holds everywhere
//!
//! - **Spans stay bytes.** A span is kept as the bytes that it came in: [`wire::request`] reads a
//!   few fields and validates the rest, and annotation appends encoded attributes, which protobuf
//!   defines as part of the repeated field. Unknown fields survive and the cost stays near a copy.
//!   A request's buffer is not held on to: its spans are copied once, into one allocation a trace.
//! - **Judging does no I/O.** `trace`, `recognise`, `measure`, `propagate` and `annotate` know no
//!   runtime, network, disk or clock; a test enforces it. A metric is a small state machine
//!   ([`measure::Metric`]) that is done at once or asks questions for others to answer.
//! - **Unmeasured is a result.** A metric passes, fails, or says why it could not tell. The last is
//!   never a pass and never a 0.
//! - **Order of arrival never shows** within one closing: spans are sorted by start time and id
//!   before anything looks at them.
//! - **Every span ends in one outcome per exporter.** An [`outcome::Receipt`] travels with it, and
//!   dropping one unresolved counts as a lost span.
//! - **What was acknowledged survives**, where a journal is configured: requests are written before
//!   they are acknowledged and verdicts before they are exported ([`journal`] has the invariants).
//! - **Pressure travels backwards.** Queues are bounded; a full exporter fills its shard's inbox,
//!   and senders are told to come back later. Nothing is dropped on the way.
//! - **Content is hostile.** Depths, lengths and counts are bounded, trees are walked without
//!   recursion, patterns are linear in their input.
//!
//! # Threads and time
//!
//! A request is taken apart on the task that received it. Each of as many shards as there are cores
//! owns the traces whose ids hash to it; one task a shard assembles, judges and hands on, so there
//! are no locks around traces. Large traces are judged on threads of their own. Span metrics of the
//! built-in rules cost microseconds and run when their trace closes, where their neighbours are
//! known and content from logs has come; [`measure::Need`] states for each metric what it must see,
//! so that one that asks a judge can start earlier. Time is a parameter of [`assemble::Assembler`];
//! its tests wait for nothing.
//!
//! # Sources
//!
//! Metrics and propagation follow *Holistic Evaluation and Failure Diagnosis of AI Agents* (tables
//! 1 and 2, section 3.1); categories are those of the TRAIL taxonomy; attributes and events follow
//! OpenTelemetry's GenAI semantic conventions.

// The data path, in order; between `assemble` and `export` the evaluator is `verdict-eval`.
pub mod receive;
pub mod assemble;
pub mod export;

// What joins the stages, and what they share.
pub mod pipeline;
pub mod outcome;
pub mod telemetry;
pub mod admin;
pub mod logging;
pub mod config;

// How right the verdicts are.
pub mod score;

// The command line.
pub mod cli;
