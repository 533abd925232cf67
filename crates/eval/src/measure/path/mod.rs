//! Paths: the calls of a run held against an automaton of those that its task allows (002, CORE).
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
//! | `criticality` | prefix criticality | eq. 6 |
//! | `harm` | harmful-call rate | eq. 7 |
//! | `efficiency` | efficiency | eq. 8 |
//! | `refinement` | PC+HLR | section 4 |
//! | `score` | all of them, one weighted number, dominance | appendix B |
//! | `task` | who a task judges and what fails it | |
//! | `matching`, `trail` | a task's agents in a trace; their calls as a walk | 2.1 |
//! | `review`, `learn` | what undoes what; an automaton from good runs, for review | section 1 |
//! | `metric`, `settings` | measurements; what is configured | |

mod alphabet;
mod argument;
mod automaton;
mod check;
mod correctness;
mod criticality;
mod distance;
mod draft;
mod efficiency;
mod harm;
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

pub use alphabet::{Alphabet, Argument, Definition, Key, Seen};
pub use argument::{Captured, Pattern};
pub use automaton::{Automaton, Move, StateId, Symbol};
pub use check::{Checked, check};
pub use correctness::path_correctness;
pub use criticality::prefix_criticality;
pub use draft::{Draft, DraftEdge, DraftState, Fault};
pub use efficiency::efficiency;
pub use harm::harmful_call_rate;
pub use order::ordered_correctness;
pub use refinement::refined_correctness;
pub use score::{Parameters, Scores, Weights};
pub use settings::Settings;
pub use task::{FailedCalls, Gate, Matching, Prompt, Scope, Task, Thresholds};
pub use walk::{Kept, Token, Walk};
