//! The `otel-verdict` binary; everything is in [`otel_verdict::cli`].

fn main() -> std::process::ExitCode {
    otel_verdict::cli::main()
}
