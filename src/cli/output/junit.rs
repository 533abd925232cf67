//! JUnit XML: a test case per trace, for CI servers that read it.
//!
//! A failing trace is a failed test case with its findings, an unmeasured one a skipped test case. The class name
//! is `service.agent`, and a property holds the trace id.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::entry::ReportEntry;
use crate::telemetry::ResultLabel;

/// The document.
pub(super) fn document(entries: &[ReportEntry]) -> String {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    // Writing into memory does not fail.
    let _ = write(&mut writer, entries);
    let mut text = String::from_utf8_lossy(&writer.into_inner()).into_owned();
    text.push('\n');
    text
}

fn write(writer: &mut Writer<Vec<u8>>, entries: &[ReportEntry]) -> io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let count = |result| entries.iter().filter(|entry| entry.result == result).count().to_string();
    let time: f64 = entries.iter().map(ReportEntry::seconds).sum();
    let totals = [
        ("name", "otel-verdict".to_owned()),
        ("tests", entries.len().to_string()),
        ("failures", count(ResultLabel::Fail)),
        ("errors", "0".to_owned()),
        ("skipped", count(ResultLabel::Unmeasured)),
        ("time", format!("{time:.3}")),
    ];
    let totals = || totals.iter().map(|(key, value)| (*key, value.as_str()));
    writer.create_element("testsuites").with_attributes(totals()).write_inner_content(|writer| {
        writer.create_element("testsuite").with_attributes(totals()).write_inner_content(|writer| {
            entries.iter().try_for_each(|entry| write_test_case(writer, entry))
        })?;
        Ok(())
    })?;
    Ok(())
}

fn write_test_case(writer: &mut Writer<Vec<u8>>, entry: &ReportEntry) -> io::Result<()> {
    let class = [&entry.header.service, &entry.header.agent];
    let class: Vec<&str> = class.into_iter().filter_map(|name| name.as_deref()).collect();
    let class = allowed_text(if class.is_empty() { "trace".to_owned() } else { class.join(".") });
    let (name, time) = (allowed_text(entry.title().to_owned()), format!("{:.3}", entry.seconds()));
    let attributes = [("classname", class.as_str()), ("name", &name), ("time", &time)];
    writer.create_element("testcase").with_attributes(attributes).write_inner_content(|writer| {
        writer.create_element("properties").write_inner_content(|writer| {
            let property = [("name", "trace_id"), ("value", entry.trace_id.as_str())];
            writer.create_element("property").with_attributes(property).write_empty()?;
            Ok(())
        })?;
        match entry.result {
            ResultLabel::Pass => {}
            ResultLabel::Fail => {
                let message = format!("failed: {}", entry.failed_metrics.join(", "));
                let mut lines: Vec<String> = entry
                    .failures
                    .iter()
                    .map(|failed| format!("{}: {}", failed.span, failed.text()))
                    .collect();
                if entry.omitted_failures > 0 {
                    lines.push(format!("and {} more", entry.omitted_failures));
                }
                writer
                    .create_element("failure")
                    .with_attributes([("message", allowed_text(message).as_str()), ("type", "verdict")])
                    .write_text_content(BytesText::new(&allowed_text(lines.join("\n"))))?;
            }
            ResultLabel::Unmeasured => {
                let message = entry.unmeasured.unwrap_or("nothing was measured");
                writer.create_element("skipped").with_attribute(("message", message)).write_empty()?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// The text without the characters that XML 1.0 does not allow, also not as references.
fn allowed_text(mut text: String) -> String {
    text.retain(
        |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..),
    );
    text
}

#[cfg(test)]
pub(super) mod tests {
    use quick_xml::Reader;
    use quick_xml::events::Event;
    use verdict_eval::annotation::TraceHeader;

    use super::*;
    use crate::cli::output::entry::FailureEntry;

    pub(in crate::cli::output) fn entry(result: ResultLabel, task: &str) -> ReportEntry {
        let failed = FailureEntry {
            span: "search".to_owned(),
            metric: "tool_abuse",
            category: Some("Tool-related"),
            severity: Some("high"),
            rationale: task.to_owned(),
        };
        ReportEntry {
            trace_id: "ab".repeat(16),
            result,
            header: TraceHeader {
                service: Some("shop".to_owned()),
                agent: Some("clerk".to_owned()),
                task: Some(task.to_owned()),
                duration: Some(1_500_000_000),
                ..TraceHeader::default()
            },
            failed_metrics: vec!["tool_abuse".to_owned()],
            failures: if result == ResultLabel::Fail { vec![failed] } else { Vec::new() },
            omitted_failures: 0,
            unmeasured: None,
        }
    }

    #[test]
    fn traces_are_test_cases() {
        let entries = [
            entry(ResultLabel::Pass, "Refund order 7"),
            entry(ResultLabel::Fail, "a < b"),
            entry(ResultLabel::Unmeasured, "-"),
        ];
        insta::assert_snapshot!(document(&entries), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="otel-verdict" tests="3" failures="1" errors="0" skipped="1" time="4.500">
          <testsuite name="otel-verdict" tests="3" failures="1" errors="0" skipped="1" time="4.500">
            <testcase classname="shop.clerk" name="Refund order 7" time="1.500">
              <properties>
                <property name="trace_id" value="abababababababababababababababab"/>
              </properties>
            </testcase>
            <testcase classname="shop.clerk" name="a &lt; b" time="1.500">
              <properties>
                <property name="trace_id" value="abababababababababababababababab"/>
              </properties>
              <failure message="failed: tool_abuse" type="verdict">search: tool_abuse (Tool-related, high): a &lt; b</failure>
            </testcase>
            <testcase classname="shop.clerk" name="-" time="1.500">
              <properties>
                <property name="trace_id" value="abababababababababababababababab"/>
              </properties>
              <skipped message="nothing was measured"/>
            </testcase>
          </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn hostile_text_leaves_the_document_well_formed() {
        let hostile = "]]></failure><script>\u{0}\u{1b}[31m\u{fffe}\" ' & \u{10ffff}";
        let text = document(&[entry(ResultLabel::Fail, hostile)]);
        let mut reader = Reader::from_str(&text);
        reader.config_mut().check_end_names = true;
        let mut failures = 0;
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => break,
                Event::Start(start) => {
                    assert_ne!(start.name().as_ref(), b"script");
                    failures += usize::from(start.name().as_ref() == b"failure");
                }
                _ => {}
            }
        }
        assert_eq!(failures, 1, "{text}");
        assert!(!text.contains(['\u{0}', '\u{1b}', '\u{fffe}']), "{text:?}");
    }
}
