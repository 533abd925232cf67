//! Paths: the calls of a run compared with an automaton of the calls that its task allows (002,
//! CORE).
//!
//! In: a task, written by a person or learnt and reviewed, and the calls of an agent. Out: six
//! scores from 0 to 1 on the agent's span, and each harmful call on its span.
//!
//! | file | content | source |
//! |---|---|---|
//! | `load` | task files to tasks, or to located problems | |
//! | `draft`, `check` | automata before and after validation | 2.2, appendix B |
//! | `automaton` | states, edges, golden paths as a graph | 2.2 |
//! | `alphabet`, `argument` | conversion of calls to tokens | 2.1 |
//! | `walk` | classification of calls, one at a time, as progress, loop or harmful | 2.1, 2.2 |
//! | `distance`, `nearest` | NLD; the nearest of all references at once | eq. 3, 4 |
//! | `correctness` | PC | eq. 4 |
//! | `order` | PC-KTC | eq. 5 |
//! | `refinement` | PC+HLR | section 4 |
//! | `score` | prefix criticality, harmful-call rate, efficiency; all scores, weighted mean, dominance | eq. 6 to 8, appendix B |
//! | `limits` | rules on amounts and times: registers in addition to the automaton | |
//! | `task`, `prompt_pattern` | the agents a task applies to, and its failure conditions | |
//! | `matching`, `run_walk` | a task's agents in a trace; their calls as a walk | 2.1 |
//! | `next` | whether a proposed call is allowed at the position of a run | |
//! | `review`, `learn` | compensating and repeated calls; an automaton learnt from good runs | section 1 |
//! | `metric`, `settings` | measurements; configuration | |

pub(crate) mod alphabet;
pub(crate) mod argument;
pub(crate) mod automaton;
pub(crate) mod check;
mod correctness;
mod distance;
pub(crate) mod draft;
pub(crate) mod learn;
pub(crate) mod load;
pub(crate) mod matching;
pub(crate) mod metric;
mod nearest;
pub(crate) mod next;
pub(crate) mod limits;
mod order;
pub(crate) mod prompt_pattern;
mod refinement;
pub(crate) mod review;
pub(crate) mod score;
pub(crate) mod settings;
pub(crate) mod task;
pub(crate) mod run_walk;
pub(crate) mod walk;

#[cfg(test)]
mod tests;

pub(crate) use automaton::Symbol;
