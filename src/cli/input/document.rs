//! Splits a stream into JSON documents.
//!
//! In: bytes of one document, of JSON lines, of consecutive pretty-printed documents, or of an array of
//! documents. Out: each top-level object (or object of the top-level array), with the line of its first byte.
//! Only braces and strings are scanned; the content is not parsed.

use std::io::{BufRead, Write as _};

/// Largest document in bytes: receivers refuse smaller requests by default.
pub(super) const MAX_DOCUMENT: usize = 256 << 20;

/// Bytes between documents: white space, the brackets and commas of an array, the byte order mark.
const BETWEEN: &[u8] = b" \t\r\n[],\xef\xbb\xbf";

/// One JSON object.
pub(super) struct Document {
    pub text: Vec<u8>,
    /// Line of its first brace, from 1.
    pub line: usize,
}

pub(super) struct Documents<'r> {
    reader: &'r mut dyn BufRead,
    largest: usize,
    line: usize,
    /// Documents so far.
    read: usize,
}

/// Position of the scan within a document.
#[derive(Default)]
struct State {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl State {
    /// Scans one byte; true if it ends the document.
    fn step(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' => self.depth += 1,
            b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        byte == b'}' && self.depth == 0
    }
}

impl<'r> Documents<'r> {
    pub(super) fn new(reader: &'r mut dyn BufRead, largest: usize) -> Documents<'r> {
        Documents { reader, largest, line: 1, read: 0 }
    }

    /// The next document; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Document>, String> {
        if !self.find_brace()? {
            return Ok(None);
        }
        let mut document = Document { text: Vec::new(), line: self.line };
        let mut state = State::default();
        loop {
            let chunk = self.reader.fill_buf().map_err(|e| e.to_string())?;
            if chunk.is_empty() {
                let why = format!("line {}: the document that starts here is cut off", document.line);
                // The end of a recording whose writer was killed: what comes before it is whole.
                if self.read > 0 {
                    // Standard error may be closed.
                    let _ = writeln!(std::io::stderr(), "warning: {why}, and is left out");
                    return Ok(None);
                }
                return Err(why);
            }
            let mut end = None;
            for (i, &byte) in chunk.iter().enumerate() {
                self.line += usize::from(byte == b'\n');
                if state.step(byte) {
                    end = Some(i + 1);
                    break;
                }
            }
            let used = end.unwrap_or(chunk.len());
            document.text.extend_from_slice(chunk.get(..used).unwrap_or(chunk));
            self.reader.consume(used);
            if document.text.len() > self.largest {
                return Err(format!("line {}: {}", document.line, too_large()));
            }
            if end.is_some() {
                self.read += 1;
                return Ok(Some(document));
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
            let between = chunk.iter().position(|byte| !BETWEEN.contains(byte)).unwrap_or(chunk.len());
            let next = chunk.get(between).copied();
            self.line += chunk.iter().take(between).filter(|&&byte| byte == b'\n').count();
            self.reader.consume(between);
            match next {
                Some(b'{') => return Ok(true),
                Some(_) => return Err(format!("line {}: not a JSON object", self.line)),
                None => {}
            }
        }
    }
}

pub(super) fn too_large() -> String {
    format!("one request of more than {} MiB", MAX_DOCUMENT >> 20)
}
