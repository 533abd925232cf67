//! Plans of agents: read, checked, scored, compared, improved (004).
//!
//! In: the text of a plan, from a trace or a file; tools; a reference plan where there is one. Out:
//! seven metrics and a score, a rating beside the reference, and offline a better plan.
//!
//! | file | what |
//! |---|---|
//! | [`schema`], [`read`] | the one shape of a plan, and how any text becomes it |
//! | [`prose`] | plans in words: their steps, and what can be told of them |
//! | [`shape`] | the dependency graph: what is wrong with it, hops and width |
//! | [`rules`], [`part`] | metrics by rules, weights, the score |
//! | [`mod@reference`] | step matching, F1 and the seven tiers |
//! | [`tools`] | what is known of the tools |
//! | [`judged`] | metrics that a judge answers: questions, and what answers mean |
//! | [`examine`] | all of that for one plan |
//! | [`learn`], [`rank`] | weights from plans in order |
//! | [`improve`], [`lineage`] | the evaluator and optimizer loop, and statistics of its results |
//! | [`execution`] | which planned step each call of a run carried out |
//! | [`metric`], [`settings`] | the metrics in traces |
//! | [`compare`] | responses to one query beside each other |

pub mod assignment;
pub mod call;
pub mod compare;
pub mod examine;
pub mod execution;
pub mod improve;
pub mod judged;
pub mod learn;
pub mod lineage;
pub mod metric;
pub mod part;
pub mod placeholder;
pub mod prompt;
pub mod prose;
pub mod rank;
pub mod read;
pub mod reference;
pub mod relaxed;
pub mod rules;
pub mod schema;
pub mod settings;
pub mod shape;
pub mod tools;
pub mod words;

pub use settings::Settings;
