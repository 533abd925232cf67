//! What is known of the calls of a trace, for every metric: attempts at the same call, errors, results without content.

pub(crate) mod as_data;
pub(crate) mod attempts;
pub(crate) mod call_index;
pub(crate) mod nothing;
pub(crate) mod signs;
