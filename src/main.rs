//! The `otel-verdict` binary; everything is in [`otel_verdict::cli`].

/// Traces are allocated and freed in any order and size; system allocators fragment under this pattern and
/// take twice the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    otel_verdict::cli::main()
}
