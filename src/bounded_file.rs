//! Reads files of the operator: configurations, credentials, tasks.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a file of at most `limit` bytes. Fails if it cannot be read, is not UTF-8, or is larger.
pub(crate) fn read_bounded(file: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(limit.saturating_add(1)).read_to_string(&mut text)?;
    match text.len() as u64 <= limit {
        true => Ok(text),
        false => Err(io::Error::other(format!("larger than {limit} bytes"))),
    }
}
