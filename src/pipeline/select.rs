//! The selection of the spans that are evaluated: `verdict.select`.

use verdict_config::matches;
use verdict_otlp::Fields;
use verdict_otlp::attribute_values::{inner, resource_attributes, values};
use verdict_otlp::trace::{Envelope, Span};
use verdict_telemetry::SELF_SCOPE;

use crate::config::Select;

/// `service.name` of a span's resource, if it has one.
pub(super) fn service(envelope: &Envelope) -> Option<&str> {
    resource_attributes(envelope)
        .find(|(key, _)| *key == "service.name")
        .and_then(|(_, value)| value.as_str())
}

/// Whether spans of this envelope are telemetry of this process, or of another otel-verdict.
pub(super) fn is_self_telemetry(envelope: &Envelope) -> bool {
    scope_name(envelope) == Some(SELF_SCOPE)
}

/// Whether a span is selected: every configured key must match.
pub(super) fn selects(select: &Select, span: &Span) -> bool {
    let matches_any = |patterns: &[String], value: Option<&str>| {
        patterns.is_empty()
            || value.is_some_and(|value| patterns.iter().any(|pattern| matches(pattern, value)))
    };
    matches_any(&select.service, service(&span.envelope))
        && matches_any(&select.scope, scope_name(&span.envelope))
        && select
            .attribute
            .iter()
            .all(|(key, pattern)| values(span, key).any(|value| matches(pattern, &value)))
}

/// The name of a span's scope, if it has one.
fn scope_name(envelope: &Envelope) -> Option<&str> {
    let scope = inner(&envelope.scope).last()?;
    Fields::new(scope).contents(1).find_map(|name| simdutf8::basic::from_utf8(name).ok())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use verdict_otlp::trace::{EnvelopeFields, SpanId, Status};
    use verdict_otlp::value::{RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES};
    use verdict_otlp::write;
    use verdict_otlp::write::Scalar;

    fn span() -> Span {
        let mut resource = Vec::new();
        write::attribute(&mut resource, RESOURCE_ATTRIBUTES, "service.name", Scalar::Str("shop-eu"));
        let mut scope = Vec::new();
        write::bytes(&mut scope, 1, b"openinference.langchain");
        let field = |content: &[u8]| {
            let mut out = Vec::new();
            write::bytes(&mut out, 1, content);
            EnvelopeFields::from(out)
        };
        let mut bytes = Vec::new();
        write::attribute(&mut bytes, SPAN_ATTRIBUTES, "tier", Scalar::Int(2));
        Span {
            id: SpanId([1; 8]),
            parent: SpanId::default(),
            start: 1,
            end: 2,
            status: Status::Unset,
            remote_parent: false,
            has_verdict: false,
            forwarded: false,
            skew: 0,
            bytes: Bytes::from(bytes),
            envelope: Envelope { resource: field(&resource), scope: field(&scope) }.into(),
        }
    }

    #[test]
    fn every_configured_key_must_match_and_a_trailing_star_matches_any_rest() {
        let list = |entries: &[&str]| entries.iter().map(|e| (*e).to_owned()).collect::<Vec<_>>();
        let attribute = |k: &str, v: &str| [(k.to_owned(), v.to_owned())].into();
        assert!(selects(&Select::default(), &span()));
        let by_service = Select { service: list(&["bank", "shop-*"]), ..Select::default() };
        assert!(selects(&by_service, &span()));
        let by_scope = Select { scope: list(&["openinference.*"]), ..by_service.clone() };
        assert!(selects(&by_scope, &span()));
        assert!(!selects(&Select { scope: list(&["ai"]), ..by_service }, &span()));
        assert!(selects(&Select { attribute: attribute("tier", "2"), ..Select::default() }, &span()));
        assert!(selects(
            &Select { attribute: attribute("service.name", "shop*"), ..Select::default() },
            &span()
        ));
        assert!(!selects(&Select { attribute: attribute("tier", "3"), ..Select::default() }, &span()));
    }
}
