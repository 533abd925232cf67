//! Plans of agents: parsed, checked, scored, compared, improved (004).
//!
//! In: the text of a plan, from a trace or a file; tools; an optional reference plan. Out: seven
//! metrics and a score, a rating against the reference, and offline an improved plan.
//!
//! | file | what |
//! |---|---|
//! | [`schema`], [`parse`], [`lenient_json`] | the data model of a plan, and how text is parsed
//! into it |
//! | [`prose`] | plans in prose: their steps and the issues of these |
//! | [`shape`] | the dependency graph: its issues, hops and width |
//! | [`rules`], [`part`] | metrics by rules, weights, the score |
//! | [`mod@reference`] | step matching, F1 and the seven tiers |
//! | [`tools`] | the tools that a plan may use |
//! | [`judge_questions`] | metrics that a judge answers: questions, and reading of answers |
//! | [`assessment`] | all of that for one plan |
//! | [`learn_weights`], [`rank`] | weights learnt from ranked plans |
//! | [`improve`], [`lineage`] | the evaluator and optimizer loop, and statistics of its results |
//! | [`execution`] | which planned step each call of a run carried out |
//! | [`metric`], [`settings`] | the metrics in traces |
//! | [`compare`] | comparison of responses to one query |

pub mod assignment;
pub mod call;
pub mod compare;
pub mod assessment;
pub mod execution;
pub mod improve;
pub mod judge_questions;
pub mod learn_weights;
pub mod lineage;
pub mod metric;
pub mod part;
pub mod placeholder;
pub mod prompt;
pub mod prose;
pub mod rank;
pub mod parse;
pub mod reference;
pub mod lenient_json;
pub mod rules;
pub mod schema;
pub mod settings;
pub mod shape;
pub mod tools;
pub mod words;

pub use settings::Settings;
