//! The last offset of each trace of a recording, without reading the spans.
//!
//! In: a source that can be read twice. Out: the trace ids in it with their offsets. Nothing is decoded or validated:
//! malformed content is reported when the source is read. An id that is missed here, such as one after a key with
//! escapes, makes later spans of its trace late.

use std::io::BufRead;

use indicatif::ProgressBar;
use verdict_otlp::trace::TraceId;
use verdict_otlp::trace_ids::{self, JSON_WINDOW};

use super::{
    BUFFER_BYTES, ContentForm, InputFile, Signal, detect_form, read_length_prefixed, read_whole, signal,
};

/// Calls `on_trace` with the ids of spans and log records in `input`, each with an offset of the decompressed content
/// that is less than the end of its request. Ends at the first content that cannot be read.
pub(in crate::cli) fn index(
    input: &InputFile,
    progress: &ProgressBar,
    on_trace: &mut dyn FnMut(TraceId, u64),
) {
    // `read` reports the errors of the same source.
    let _ = input.open(progress).and_then(|mut reader| visit_ids(&mut *reader, &input.name(), on_trace));
}

fn visit_ids(
    reader: &mut dyn BufRead,
    file: &str,
    on_trace: &mut dyn FnMut(TraceId, u64),
) -> Result<(), String> {
    match detect_form(reader)? {
        ContentForm::Json => index_text(reader, on_trace),
        ContentForm::LengthPrefixed => read_length_prefixed(reader, &mut |_, body, end| {
            index_request(&body, file, end, on_trace);
            Ok(())
        }),
        ContentForm::SingleRequest => {
            let all = read_whole(reader)?;
            index_request(&all, file, all.len() as u64, on_trace);
            index_text(&mut all.as_slice(), on_trace)
        }
    }
}

fn index_request(body: &[u8], file: &str, end: u64, on_trace: &mut dyn FnMut(TraceId, u64)) {
    let Ok(signal) = signal::from_content(body) else { return };
    let signal = signal.or_else(|| signal::from_file_name(file)).unwrap_or(Signal::Traces);
    trace_ids::visit_request(signal, body, &mut |trace| on_trace(trace, end.saturating_sub(1)));
}

/// Finds the ids in text of any length.
fn index_text(reader: &mut dyn BufRead, on_trace: &mut dyn FnMut(TraceId, u64)) -> Result<(), String> {
    let mut text: Vec<u8> = Vec::with_capacity(BUFFER_BYTES + JSON_WINDOW);
    let mut start = 0;
    loop {
        let chunk = reader.fill_buf().map_err(|e| e.to_string())?;
        let (is_last, read) = (chunk.is_empty(), chunk.len());
        text.extend_from_slice(chunk);
        reader.consume(read);
        // A key near the end may be cut off, and is scanned again together with the next chunk.
        let scan_end = if is_last { text.len() } else { text.len().saturating_sub(JSON_WINDOW) };
        trace_ids::visit_json(&text, &mut |position, trace| {
            if position < scan_end {
                on_trace(trace, start + position as u64);
            }
        });
        if is_last {
            return Ok(());
        }
        text.drain(..scan_end);
        start += scan_end as u64;
    }
}
