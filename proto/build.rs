//! The binary's build script: turns proto/ into Rust (being written).
fn main() {}
