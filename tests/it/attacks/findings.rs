//! The findings of the reviews, each with its tests: in this folder, or next to the code that is tested.

mod bounds;
mod content;
mod operation;

// Without a test: advisories on dependencies. Their database would have to be fetched, and `.ci/run` checks bans,
// licences and sources only; `cargo deny check advisories` is run where there is a network (deny.toml).

/// A finding, its bound, and its tests by file.
pub type Finding = (&'static str, &'static str, &'static [(&'static str, &'static [&'static str])]);

/// All findings.
pub fn all() -> impl Iterator<Item = &'static Finding> {
    [bounds::FINDINGS, content::FINDINGS, operation::FINDINGS].into_iter().flatten()
}
