//! What a destination's answer means for the spans, by OTLP's rules, whatever the transport.

use std::time::Duration;

use verdict_otlp::Signal;
use verdict_otlp::{Fields, Payload};

/// No more of an answer is read than this: it holds a count and a sentence.
pub(super) const MAX_ANSWER: usize = 64 << 10;

/// No more of a destination's own words is logged than this.
const MAX_WORDS: usize = 300;

/// An answer, and the word that metrics know it by.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Reply {
    pub status: &'static str,
    pub answer: Answer,
}

impl Reply {
    /// No answer came: nobody knows what became of the request.
    pub fn none(status: &'static str, why: String) -> Reply {
        Reply { status, answer: Answer::Later { after: None, why } }
    }
}

/// A destination's answer.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Answer {
    /// Taken, but for `rejected` items (0 with a message is a warning).
    Taken {
        /// Items that the destination will not take.
        rejected: u64,
        /// Its reason.
        message: String,
    },
    /// Not now: to be sent again, not before `after`.
    Later {
        /// What the destination asks for, if anything.
        after: Option<Duration>,
        /// Its reason.
        why: String,
    },
    /// Larger than it takes (or over a quota): a part of it may pass.
    TooLarge(String),
    /// Something in it is not as it should be: the rest may pass without it.
    Invalid(String),
    /// Never, whatever it holds.
    Refused(String),
    /// It does not have this service.
    Unsupported(String),
}

impl Answer {
    /// Reads a successful answer, an encoded `Export*ServiceResponse`. One that cannot be read is
    /// success all the same: the status said so.
    pub fn taken(response: &[u8]) -> Answer {
        let mut rejected = 0;
        let mut message = String::new();
        for field in Fields::new(response).map_while(Result::ok) {
            if let (1, Payload::Bytes(partial)) = (field.number, field.payload) {
                for field in Fields::new(partial).map_while(Result::ok) {
                    match (field.number, field.payload) {
                        // An int64 that nobody may make negative; if somebody does, nothing is rejected.
                        (1, Payload::Varint(n)) => {
                            rejected = u64::try_from(n.cast_signed()).unwrap_or(0);
                        }
                        (2, Payload::Bytes(text)) => message = words(&String::from_utf8_lossy(text)),
                        _ => {}
                    }
                }
            }
        }
        Answer::Taken { rejected, message }
    }
}

/// A destination's words, fit for one line of a log.
pub(super) fn words(text: &str) -> String {
    let mut clean = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut out: String = clean.clone().take(MAX_WORDS).collect();
    if clean.nth(MAX_WORDS).is_some() {
        out.push('…');
    }
    out
}

/// The gRPC method that takes a signal.
pub(super) fn method(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceResponse,
    };
    use prost::Message;

    use super::*;

    fn response(rejected_spans: i64, error_message: &str) -> Vec<u8> {
        let partial = ExportTracePartialSuccess { rejected_spans, error_message: error_message.into() };
        ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    }

    #[test]
    fn partial_success_is_read_and_nonsense_is_success() {
        let taken = |rejected, message: &str| Answer::Taken { rejected, message: message.into() };
        assert_eq!(Answer::taken(&[]), taken(0, ""));
        assert_eq!(Answer::taken(&response(3, "too\nold")), taken(3, "too old"));
        assert_eq!(Answer::taken(&response(-3, "x")), taken(0, "x"));
        assert_eq!(Answer::taken(b"\xff\xff\xff"), taken(0, ""));
    }

    #[test]
    fn words_of_others_are_cut() {
        assert_eq!(words(&"é".repeat(1000)).chars().count(), MAX_WORDS + 1);
    }
}
