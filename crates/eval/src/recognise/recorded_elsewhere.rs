//! Content that is recorded in another place, which the attributes of a span refer to.
//!
//! In: the attributes of a span. Out: its content is marked as hidden, not as absent.

use super::overrides::Meaning;
use super::scan::SpanScan;
use super::span_view::{Content, SpanView};

/// Marks absent content as hidden if an attribute refers to another place.
pub(super) fn mark_recorded_elsewhere(scan: &SpanScan<'_>, view: &mut SpanView) {
    for (content, means) in [
        (&mut view.input_content, Meaning::InputElsewhere),
        (&mut view.output_content, Meaning::OutputElsewhere),
    ] {
        if *content == Content::Absent && scan.has(means) {
            *content = Content::Redacted;
        }
    }
}
