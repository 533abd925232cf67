//! Paths: the calls of a run compared with an automaton of the calls that its task allows (002,
//! CORE).
//!
//! In: a task, written by a person or learnt and reviewed, and the calls of an agent. Out: six
//! scores from 0 to 1 on the agent's span, and each harmful call on the span that made it.
//!
//! | file | what it does | source |
//! |---|---|---|
//! | `load` | task files to tasks, or to located faults | |
//! | `draft`, `check` | automata as written; what makes one sound | 2.2, appendix B |
//! | `automaton` | states, edges, golden paths as a graph | 2.2 |
//! | `alphabet`, `argument` | calls to tokens | 2.1 |
//! | `walk` | calls to progress, loops and harm, as they come | 2.1, 2.2 |
//! | `distance`, `nearest` | NLD; the nearest of all references at once | eq. 3, 4 |
//! | `correctness` | PC | eq. 4 |
//! | `order` | PC-KTC | eq. 5 |
//! | `refinement` | PC+HLR | section 4 |
//! | `score` | prefix criticality, harmful-call rate, efficiency; all scores, weighted mean, dominance | eq. 6 to 8, appendix B |
//! | `task` | which agents a task applies to, and what fails it | |
//! | `matching`, `trail` | a task's agents in a trace; their calls as a walk | 2.1 |
//! | `review`, `learn` | compensating and repeated calls; an automaton learnt from good runs |
//! section 1 |
//! | `metric`, `settings` | measurements; what is configured | |

mod alphabet;
mod argument;
mod automaton;
mod check;
mod correctness;
mod distance;
mod draft;
pub mod learn;
pub mod load;
pub mod matching;
pub mod metric;
mod nearest;
mod order;
mod refinement;
pub mod review;
mod score;
pub mod settings;
mod task;
pub mod trail;
mod walk;

#[cfg(test)]
mod tests;

pub use alphabet::{Alphabet, ArgumentKey, ArgumentPattern, ObservedCall, SymbolDefinition};
pub use argument::{PromptCaptures, ValuePattern};
pub use automaton::{Automaton, StateId, Symbol, Transition};
pub use check::{CheckedAutomaton, check};
pub use correctness::path_correctness;
pub use draft::{Draft, DraftEdge, DraftState, TaskFault};
pub use order::ordered_correctness;
pub use refinement::refined_correctness;
pub use score::{Parameters, PathScores, Weights, efficiency, harmful_call_rate, prefix_criticality};
pub use settings::Settings;
pub use task::{FailedCalls, Gate, Matching, PromptPattern, Scope, Task, Thresholds};
pub use walk::{CondensedStep, Token, Walk};
