//! The live page: open and recent traces with their verdicts, for people with a browser.
//!
//! In: evaluated traces, and the state of the pipeline. Out: HTTP on a listener of its own, or the same view as one
//! file.
//!
//! | file | content |
//! |---|---|
//! | `config` | the section `page` |
//! | `model` | a trace as it is shown |
//! | `trace_view`, `texts` | the conversion of an evaluated trace, with bounded and redacted texts |
//! | `history` | recent traces, bounded by number and bytes, and their updates |
//! | `filter`, `overview` | search, and sums over the history |
//! | `server` | the listener |
//! | `file` | the view as one HTML file |
//! | `assets` | HTML, style and script |

mod assets;
pub(crate) mod config;
pub(crate) mod file;
mod filter;
pub(crate) mod history;
pub(crate) mod model;
mod overview;
pub(crate) mod server;
mod texts;
pub(crate) mod trace_view;
