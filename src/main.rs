//! The `otel-verdict` binary; everything is in [`otel_verdict::cli`].

/// Traces come and go in any order and size: the system's allocators keep what closed traces leave
/// between open ones, and take twice the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    otel_verdict::cli::main()
}
