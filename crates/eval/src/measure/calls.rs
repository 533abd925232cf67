//! Facts about the calls of a trace, for every metric: attempts at the same call, errors, results without content.

pub(crate) mod errors_as_data;
pub(crate) mod attempts;
pub(crate) mod call_index;
pub(crate) mod empty_result;
pub(crate) mod error_signs;
pub(crate) mod failed_ending;
