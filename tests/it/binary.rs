//! The program `otel-verdict` as a process of its own: its start, its output, and files for its arguments.

use std::process::{Command, Output, Stdio};

/// `otel-verdict` without colours, in the root of the repository.
pub fn otel_verdict() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.env("NO_COLOR", "1").current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Runs `otel-verdict` with these arguments, without input.
pub fn run(args: &[&str]) -> Output {
    otel_verdict().args(args).stdin(Stdio::null()).output().unwrap()
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn stderr(output: &Output) -> String {
    text(&output.stderr)
}

/// Writes a file into a folder; returns its path.
pub fn write_file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}
