//! (wip)
pub mod evidence;
pub mod numbers;
