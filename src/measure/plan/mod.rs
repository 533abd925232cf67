//! Plans of agents: read, checked, scored, compared, improved (004).
//!
//! In: the text of a plan, from a trace or a file; tools; a reference plan where there is one. Out:
//! seven metrics and a score, a rating beside the reference, and offline a better plan.
//!
//! | file | what |
//! |---|---|
//! | [`schema`], [`read`] | the one shape of a plan, and how any text becomes it |
//! | [`shape`] | the dependency graph: what is wrong with it, hops and width |
//! | [`rules`], [`part`] | metrics by rules, weights, the score |
//! | [`reference`] | step matching, F1 and the seven tiers |
//! | [`tools`] | what is known of the tools |

pub mod assignment;
pub mod call;
pub mod part;
pub mod placeholder;
pub mod read;
pub mod reference;
pub mod relaxed;
pub mod rules;
pub mod schema;
pub mod shape;
pub mod tools;
pub mod words;
