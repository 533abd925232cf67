//! Plans of agents: parsing, checks, scores, comparison, improvement (004).
//!
//! In: the text of a plan, from a trace or a file; tools; an optional reference plan. Out: seven
//! metrics and a score, a rating against the reference, and offline an improved plan.
//!
//! | module | content |
//! |---|---|
//! | [`schema`], [`parse`], [`lenient_json`] | the data model of a plan, and its parser |
//! | [`call`], [`placeholder`] | the instruction of a step as a call; placeholders for outputs of earlier steps |
//! | [`prose`] | plans in prose: steps and issues |
//! | [`shape`] | the dependency graph: its issues, hops and width |
//! | [`rules`], [`part`] | metrics by rules, weights, the score |
//! | [`intent`], [`mod@reference`] | whether prompts ask for the same; step matching, F1 and the seven tiers |
//! | [`words`], [`assignment`] | similarity of texts by their words; the best one-to-one matching |
//! | [`pair_questions`] | pairs of steps that embeddings or judges decide |
//! | [`tools`] | the tools that a plan may use |
//! | [`prompt`] | common parts of prompts about plans |
//! | [`judge_questions`] | metrics that a judge answers: questions and answers |
//! | [`assessment`] | all measurements of one plan |
//! | [`learn_weights`], [`rank`] | weights learnt from ranked plans |
//! | [`improve`], [`lineage`] | the improvement loop of evaluator and optimizer, and statistics of its results |
//! | [`batch`] | tables over many plans |
//! | [`execution`] | the planned step that each call of a run carried out |
//! | [`metric`], [`settings`] | the metrics in traces |
//! | [`compare`] | comparison of responses to one query |

pub(crate) mod assignment;
pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod compare;
pub(crate) mod assessment;
pub(crate) mod execution;
pub(crate) mod improve;
pub(crate) mod intent;
pub(crate) mod judge_questions;
pub(crate) mod learn_weights;
pub(crate) mod lineage;
pub(crate) mod metric;
pub(crate) mod part;
pub(crate) mod placeholder;
pub(crate) mod prompt;
pub(crate) mod prose;
pub(crate) mod rank;
pub(crate) mod pair_questions;
pub(crate) mod parse;
pub(crate) mod reference;
pub(crate) mod lenient_json;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod settings;
pub(crate) mod shape;
pub(crate) mod tools;
pub(crate) mod words;
