//! The `otel-verdict` binary.

fn main() {}
