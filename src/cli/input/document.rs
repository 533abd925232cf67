//! Splits a stream into JSON documents.
//!
//! In: bytes of one document, of JSON lines, of consecutive pretty-printed documents, or of an array of
//! documents. Out: each top-level object (or object of the top-level array), with the line of its first byte.
//! Only braces and strings are scanned; the content is not parsed.

use std::io::{BufRead, Write as _};

/// Largest document in bytes: receivers refuse smaller requests by default.
pub(super) const MAX_DOCUMENT_BYTES: usize = 256 << 20;

/// Bytes between documents: white space, the brackets and commas of an array, the byte order mark.
const SEPARATORS: &[u8] = b" \t\r\n[],\xef\xbb\xbf";

/// One JSON object.
#[derive(Default)]
pub(super) struct Document {
    pub text: Vec<u8>,
    /// Line of its first brace, from 1.
    pub line: usize,
    /// Offset of the byte after it.
    pub end: u64,
}

/// Reader of the documents in a stream.
pub(super) struct Documents<'r> {
    reader: &'r mut dyn BufRead,
    max_bytes: usize,
    line: usize,
    offset: u64,
    documents_read: usize,
}

/// Position of the scan within a document.
#[derive(Default)]
struct ScanState {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl ScanState {
    /// Scans a part of a document; returns the offset after the document if it ends there.
    fn scan(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut position = 0;
        if self.escaped && !chunk.is_empty() {
            self.escaped = false;
            position = 1;
        }
        while let Some(rest) = chunk.get(position..) {
            let next = match self.in_string {
                true => memchr::memchr2(b'"', b'\\', rest),
                false => memchr::memchr3(b'"', b'{', b'}', rest),
            };
            let delimiter = position + next?;
            position = delimiter + 1;
            match chunk.get(delimiter) {
                // The escaped byte is skipped; it may be in the next chunk.
                Some(b'\\') if position < chunk.len() => position += 1,
                Some(b'\\') => self.escaped = true,
                Some(b'"') => self.in_string = !self.in_string,
                Some(b'{') => self.depth += 1,
                _ => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(position);
                    }
                }
            }
        }
        None
    }
}

impl<'r> Documents<'r> {
    pub(super) fn new(reader: &'r mut dyn BufRead, max_bytes: usize) -> Documents<'r> {
        Documents { reader, max_bytes, line: 1, offset: 0, documents_read: 0 }
    }

    /// Calls `decode` with the next line, if the line is in memory and may be a document. If `decode`
    /// returns a value, the line is consumed, and its number, the offset after it and the value are returned. Most
    /// recordings have one document per line, which needs no scan for the end of the document.
    pub(super) fn next_line<T>(
        &mut self,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<(usize, u64, T)>, String> {
        if !self.find_brace()? {
            return Ok(None);
        }
        let chunk = self.reader.fill_buf().map_err(|e| e.to_string())?;
        let line = memchr::memchr(b'\n', chunk).and_then(|end| chunk.get(..end)).unwrap_or_default();
        let decoded = if line.trim_ascii_end().ends_with(b"}") { decode(line) } else { None };
        let Some(decoded) = decoded else { return Ok(None) };
        let bytes = line.len();
        self.consume(bytes);
        self.documents_read += 1;
        Ok(Some((self.line, self.offset, decoded)))
    }

    /// Reads the next document into `document`, whose buffer is reused. Returns false at the end.
    pub(super) fn next(&mut self, document: &mut Document) -> Result<bool, String> {
        document.text.clear();
        if !self.find_brace()? {
            return Ok(false);
        }
        document.line = self.line;
        let mut state = ScanState::default();
        loop {
            let chunk = self.reader.fill_buf().map_err(|e| e.to_string())?;
            if chunk.is_empty() {
                let message = format!("line {}: the document that starts here is cut off", document.line);
                // The end of a recording whose writer was killed: what comes before it is whole.
                if self.documents_read > 0 {
                    // Standard error may be closed.
                    let _ = writeln!(std::io::stderr(), "warning: {message}, and is left out");
                    return Ok(false);
                }
                return Err(message);
            }
            let end = state.scan(chunk);
            let part = end.and_then(|end| chunk.get(..end)).unwrap_or(chunk);
            document.text.extend_from_slice(part);
            let used = part.len();
            self.line += memchr::memchr_iter(b'\n', part).count();
            self.consume(used);
            if document.text.len() > self.max_bytes {
                return Err(format!("line {}: {}", document.line, too_large()));
            }
            if end.is_some() {
                self.documents_read += 1;
                document.end = self.offset;
                return Ok(true);
            }
        }
    }

    /// Skips bytes between documents; false at the end.
    fn find_brace(&mut self) -> Result<bool, String> {
        loop {
            let chunk = self.reader.fill_buf().map_err(|e| e.to_string())?;
            if chunk.is_empty() {
                return Ok(false);
            }
            let between = chunk.iter().position(|byte| !SEPARATORS.contains(byte)).unwrap_or(chunk.len());
            let next = chunk.get(between).copied();
            self.line += chunk.iter().take(between).filter(|&&byte| byte == b'\n').count();
            self.consume(between);
            match next {
                Some(b'{') => return Ok(true),
                Some(_) => return Err(format!("line {}: not a JSON object", self.line)),
                None => {}
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.offset += bytes as u64;
    }
}

pub(super) fn too_large() -> String {
    format!("one request of more than {} MiB", MAX_DOCUMENT_BYTES >> 20)
}
