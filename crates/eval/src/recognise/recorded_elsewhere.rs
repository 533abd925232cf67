//! Content that is recorded in another place, which the attributes of a span refer to.
//!
//! In: the attributes of a span. Out: its content is hidden from here, which is not empty.

use super::overrides::Meaning;
use super::scan::SpanScan;
use super::span_view::{Content, SpanView};

pub(super) fn recorded_elsewhere(scan: &SpanScan<'_>, view: &mut SpanView) {
    for (content, means) in [
        (&mut view.input_content, Meaning::InputElsewhere),
        (&mut view.output_content, Meaning::OutputElsewhere),
    ] {
        if *content == Content::Absent && scan.has(means) {
            *content = Content::Redacted;
        }
    }
}
