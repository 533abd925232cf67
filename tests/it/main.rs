//! The one integration binary: the crate and its commands as their users meet them.

mod commands;
mod frameworks;
mod purity;
