//! Reads recorded requests from files, folders and standard input.
//!
//! In: paths. Out: [`Offer`]s in the order of the paths (folders by name, recursively), or the
//! first unreadable location. The format is detected from the content:
//!
//! | starts with | is read as |
//! |---|---|
//! | `{` or `[` | OTLP/JSON: one document, JSON lines, or an array of documents; a document may also be a trace of the TRAIL benchmark as published |
//! | a zero byte | the Collector's file exporter, `format: proto`: length (4 bytes), message, ... |
//! | the magic number of gzip or zstd | the decompressed content |
//! | anything else | one OTLP protobuf request |
//!
//! One document is in memory at a time.

mod document;
mod index;
mod signal;
mod trail;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use document::{Document, Documents, MAX_DOCUMENT_BYTES, too_large};
pub(super) use index::index;
use indicatif::ProgressBar;
use verdict_otlp::Signal;

use crate::receive::Offer;

/// Largest depth of nested folders; a deeper one is a cycle of links.
const MAX_FOLDER_DEPTH: usize = 32;
/// Bytes of one read: several requests of usual size, since a line of JSON that is in memory is not copied.
const BUFFER_BYTES: usize = 2 << 20;
/// Maximum number of bytes that are allocated for a message before any of it has been read.
const MAX_PREALLOCATED_BYTES: usize = 4 << 20;
/// Extensions of the files that are read in folders; a file that the user names may have any extension.
const EXTENSIONS: [&str; 9] = ["pb", "bin", "proto", "otlp", "json", "jsonl", "ndjson", "gz", "zst"];

/// A file that cannot be read, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {reason}")]
pub(super) struct Unreadable {
    file: String,
    reason: String,
}

/// One recorded request and its location.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    pub offer: Offer,
    /// File and line, for messages.
    pub location: String,
    /// Offset of the byte after it in the decompressed content.
    pub end: u64,
}

/// A file of requests, or standard input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InputFile {
    /// `None` is standard input.
    path: Option<PathBuf>,
    /// The file is from a folder: it is skipped if it contains no telemetry.
    from_folder: bool,
}

impl InputFile {
    pub(super) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard input".to_owned(), |path| path.display().to_string())
    }

    /// Whether it can be read twice: not standard input, a pipe or a device.
    pub(super) fn is_regular(&self) -> bool {
        self.path
            .as_ref()
            .is_some_and(|path| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()))
    }

    /// The content, decompressed. `progress` counts the bytes of the file.
    fn open(&self, progress: &ProgressBar) -> Result<Box<dyn BufRead>, String> {
        let raw: Box<dyn Read> = match &self.path {
            None => Box::new(std::io::stdin().lock()),
            Some(path) => Box::new(File::open(path).map_err(|e| e.to_string())?),
        };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, progress.wrap_read(raw));
        let head = reader.fill_buf().map_err(|e| e.to_string())?;
        if head.starts_with(&[0x1f, 0x8b]) {
            let decoder = flate2::bufread::MultiGzDecoder::new(reader);
            return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)));
        }
        if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            let decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(|e| e.to_string())?;
            return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)));
        }
        Ok(Box::new(reader))
    }

    /// Size in bytes; 0 if it is unknown.
    pub(super) fn size(&self) -> u64 {
        self.path.as_ref().and_then(|path| std::fs::metadata(path).ok()).map_or(0, |m| m.len())
    }
}

/// The files that `paths` name. Folders are searched recursively, in order of names.
///
/// # Errors
/// A path does not exist, or a folder contains no file to read.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<InputFile>, Unreadable> {
    let mut inputs = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let stdin = InputFile { path: None, from_folder: false };
            if !inputs.contains(&stdin) {
                inputs.push(stdin);
            }
        } else if path.is_dir() {
            let before = inputs.len();
            search_folder(path, 0, &mut inputs)?;
            if inputs.len() == before {
                let extensions = EXTENSIONS.join(", .");
                return Err(unreadable(path, format!("no file here ends in .{extensions}")));
            }
        } else {
            std::fs::metadata(path).map_err(|e| unreadable(path, e.to_string()))?;
            inputs.push(InputFile { path: Some(path.clone()), from_folder: false });
        }
    }
    Ok(inputs)
}

fn search_folder(folder: &Path, depth: usize, inputs: &mut Vec<InputFile>) -> Result<(), Unreadable> {
    if depth > MAX_FOLDER_DEPTH {
        return Err(unreadable(folder, "folders nest too deep".to_owned()));
    }
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let mut paths: Vec<PathBuf> =
        entries.map_err(|e| unreadable(folder, e.to_string()))?.into_iter().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let has_known_extension =
            path.extension().and_then(|e| e.to_str()).is_some_and(|e| EXTENSIONS.contains(&e));
        if is_hidden {
            continue;
        }
        if path.is_dir() {
            search_folder(&path, depth + 1, inputs)?;
        } else if has_known_extension {
            inputs.push(InputFile { path: Some(path), from_folder: true });
        }
    }
    Ok(())
}

fn unreadable(path: &Path, reason: String) -> Unreadable {
    Unreadable { file: path.display().to_string(), reason }
}

/// Calls `on_request` with every request in `input`. False if the file is from a folder and contains no telemetry.
///
/// # Errors
/// The first location that cannot be read, or that `on_request` refuses; `on_request` was called with the requests
/// before it.
pub(super) fn read(
    input: &InputFile,
    progress: &ProgressBar,
    on_request: &mut dyn FnMut(RecordedRequest) -> Result<(), String>,
) -> Result<bool, Unreadable> {
    let file = input.name();
    let (mut requests, mut other_json) = (0, 0);
    let outcome = input.open(progress).and_then(|mut reader| {
        read_requests(&mut *reader, &file, &mut |request| {
            *if request.is_some() { &mut requests } else { &mut other_json } += 1;
            request.map_or(Ok(()), &mut *on_request)
        })
    });
    let from_folder = input.from_folder;
    match outcome {
        Ok(()) if requests > 0 && (other_json == 0 || from_folder) => Ok(true),
        // Folders often contain other JSON together with telemetry.
        Ok(()) if from_folder => Ok(false),
        Ok(()) if other_json > 0 => Err(Unreadable { file, reason: NOT_OTLP.to_owned() }),
        Ok(()) => Ok(true),
        Err(_) if from_folder && requests == 0 && other_json > 0 => Ok(false),
        Err(reason) => Err(Unreadable { file, reason }),
    }
}

const NOT_OTLP: &str = "JSON, but not OTLP: expected an object with resourceSpans, resourceLogs or \
    resourceMetrics, or a trace of the TRAIL benchmark with trace_id and spans";

/// Receives every request of a file, and `None` for each JSON document that is not telemetry.
type RequestSink<'a> = &'a mut dyn FnMut(Option<RecordedRequest>) -> Result<(), String>;

/// The form of a file's content, by its first bytes.
enum ContentForm {
    Json,
    LengthPrefixed,
    /// One request, or JSON after white space: a protobuf request begins with a newline (tag of field 1).
    SingleRequest,
}

fn detect_form(reader: &mut dyn BufRead) -> Result<ContentForm, String> {
    let head = reader.fill_buf().map_err(|e| e.to_string())?;
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    match text.first() {
        None => Err("empty".to_owned()),
        Some(b'{' | b'[') => Ok(ContentForm::Json),
        Some(0) => Ok(ContentForm::LengthPrefixed),
        Some(_) => Ok(ContentForm::SingleRequest),
    }
}

fn read_requests(reader: &mut dyn BufRead, file: &str, on_request: RequestSink<'_>) -> Result<(), String> {
    match detect_form(reader)? {
        ContentForm::Json => read_json(reader, file, on_request),
        ContentForm::LengthPrefixed => read_length_prefixed(reader, &mut |number, body, end| {
            read_protobuf(body, file, end, on_request).map_err(|e| format!("message {number}: {e}"))
        }),
        ContentForm::SingleRequest => {
            let content = read_whole(reader)?;
            let end = content.len() as u64;
            // Both forms may start with white space: the content is protobuf if it can be parsed.
            let looks_like_json = matches!(content.trim_ascii_start().first(), Some(b'{' | b'['));
            if looks_like_json && signal::from_content(&content).is_err() {
                read_json(&mut content.as_slice(), file, on_request)
            } else {
                read_protobuf(content, file, end, on_request)
            }
        }
    }
}

fn read_whole(reader: &mut dyn BufRead) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    let limit = MAX_DOCUMENT_BYTES as u64 + 1;
    reader.take(limit).read_to_end(&mut all).map_err(|e| e.to_string())?;
    if all.len() > MAX_DOCUMENT_BYTES {
        return Err(too_large());
    }
    Ok(all)
}

fn read_protobuf(body: Vec<u8>, file: &str, end: u64, on_request: RequestSink<'_>) -> Result<(), String> {
    let content_signal = signal::from_content(&body).map_err(|e| format!("not an OTLP request: {e}"))?;
    let signal = content_signal.or_else(|| signal::from_file_name(file)).unwrap_or(Signal::Traces);
    on_request(Some(RecordedRequest {
        offer: Offer { signal, body: Bytes::from(body) },
        location: file.to_owned(),
        end,
    }))
}

/// Reads the format of the Collector's file exporter with `format: proto`: big-endian length, message, and
/// so on. `on_message` gets the number of the message, from 1, its content, and the offset of the byte after it.
fn read_length_prefixed(
    reader: &mut dyn BufRead,
    on_message: &mut dyn FnMut(usize, Vec<u8>, u64) -> Result<(), String>,
) -> Result<(), String> {
    let mut end = 0;
    for number in 1.. {
        if reader.fill_buf().map_err(|e| e.to_string())?.is_empty() {
            break;
        }
        let cut_off = |e: std::io::Error| format!("message {number} is cut off: {e}");
        let mut length = [0; 4];
        reader.read_exact(&mut length).map_err(cut_off)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_DOCUMENT_BYTES {
            return Err(format!("message {number}: {}", too_large()));
        }
        // The length may be wrong: more is allocated when it has been read.
        let mut body = Vec::with_capacity(length.min(MAX_PREALLOCATED_BYTES));
        reader.take(length as u64).read_to_end(&mut body).map_err(cut_off)?;
        if body.len() < length {
            return Err(format!("message {number} is cut off"));
        }
        end += 4 + length as u64;
        on_message(number, body, end)?;
    }
    Ok(())
}

fn read_json(reader: &mut dyn BufRead, file: &str, on_request: RequestSink<'_>) -> Result<(), String> {
    let mut documents = Documents::new(reader, MAX_DOCUMENT_BYTES);
    let mut document = Document::default();
    loop {
        if let Some((line, end, body)) = documents.next_line(signal::decode_spans)? {
            let offer = Offer { signal: Signal::Traces, body };
            let recorded = RecordedRequest { offer, location: format!("{file}:{line}"), end };
            on_request(Some(recorded)).map_err(|e| format!("line {line}: {e}"))?;
            continue;
        }
        if !documents.next(&mut document)? {
            return Ok(());
        }
        let Document { text, line, end } = &document;
        let with_line = |e: String| format!("line {line}: {e}");
        let mut requests = signal::decode_json(text).map_err(with_line)?;
        if requests.is_empty() {
            let trace = trail::decode(text).map_err(with_line)?;
            requests.extend(trace.map(|body| (Signal::Traces, body)));
        }
        if requests.is_empty() {
            on_request(None)?;
        }
        // Only the last request of a document ends it: logs belong to the spans before them.
        for (remaining, (signal, body)) in (0..requests.len()).rev().zip(requests) {
            let end = if remaining == 0 { *end } else { end - text.len() as u64 };
            let recorded =
                RecordedRequest { offer: Offer { signal, body }, location: format!("{file}:{line}"), end };
            on_request(Some(recorded)).map_err(with_line)?;
        }
    }
}

#[cfg(test)]
mod tests;
