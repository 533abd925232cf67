//! The search in the list of traces.
//!
//! In: the query of a request. Out: whether a row matches, and which part of the list is requested. Texts are compared
//! without regard to case, and match if they are contained.

use percent_encoding::percent_decode_str;

use super::model::TraceRow;

/// Default number of rows in an answer.
const DEFAULT_LIMIT: usize = 100;
/// Maximum number of rows in an answer.
const MAX_LIMIT: usize = 500;
/// Longest value of a parameter in bytes.
const MAX_VALUE_BYTES: usize = 1_024;

/// The conditions on a row; everything matches by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RowFilter {
    result: Option<String>,
    agent: Option<String>,
    service: Option<String>,
    session: Option<String>,
    user: Option<String>,
    metric: Option<String>,
    category: Option<String>,
    tool: Option<String>,
    signature: Option<String>,
    /// A text that a name, the task or an id contains.
    text: Option<String>,
    /// Only rows with a smaller sequence number.
    pub before: Option<u64>,
    pub limit: usize,
}

impl RowFilter {
    /// The filter of a query string.
    ///
    /// # Errors
    /// A parameter is unknown or has an unusable value; the message names it.
    pub(crate) fn parse(query: &str) -> Result<RowFilter, String> {
        let mut filter = RowFilter { limit: DEFAULT_LIMIT, ..RowFilter::default() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8_lossy().trim().to_lowercase();
            if value.len() > MAX_VALUE_BYTES {
                return Err(format!("{key}: longer than {MAX_VALUE_BYTES} bytes"));
            }
            let number = || value.parse::<u64>().map_err(|_| format!("{key}: expected a number"));
            let field = match key {
                "result" => &mut filter.result,
                "agent" => &mut filter.agent,
                "service" => &mut filter.service,
                "session" => &mut filter.session,
                "user" => &mut filter.user,
                "metric" => &mut filter.metric,
                "category" => &mut filter.category,
                "tool" => &mut filter.tool,
                "signature" => &mut filter.signature,
                "q" => &mut filter.text,
                "before" => {
                    filter.before = Some(number()?);
                    continue;
                }
                "limit" => {
                    filter.limit = usize::try_from(number()?).unwrap_or(MAX_LIMIT).clamp(1, MAX_LIMIT);
                    continue;
                }
                _ => return Err("expected result, agent, service, session, user, metric, category, tool, signature, q, before or limit".to_owned()),
            };
            *field = Some(value).filter(|value| !value.is_empty());
        }
        Ok(filter)
    }

    /// Whether a row matches; `before` is not compared.
    pub(crate) fn matches(&self, row: &TraceRow) -> bool {
        let equals = |condition: &Option<String>, value: &str| {
            condition.as_ref().is_none_or(|condition| value == condition)
        };
        let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
        let agents = || row.agents.iter().map(|usage| usage.name.as_str()).chain(row.agent.as_deref());
        let required_texts = [&row.name, &row.trace_id];
        let optional_texts = [&row.service, &row.session, &row.user, &row.task, &row.signature];
        equals(&self.result, row.result)
            && equals(&self.signature, &or_empty(&row.signature))
            && matches_text(&self.service, &or_empty(&row.service))
            && matches_text(&self.session, &or_empty(&row.session))
            && matches_text(&self.user, &or_empty(&row.user))
            && any_matches(&self.agent, agents())
            && any_matches(&self.metric, row.failed_metrics.iter().map(String::as_str))
            && any_matches(&self.category, row.categories.iter().copied())
            && any_matches(&self.tool, row.tools.iter().map(|usage| usage.name.as_str()))
            && any_matches(
                &self.text,
                required_texts
                    .into_iter()
                    .chain(optional_texts.into_iter().flatten())
                    .map(String::as_str)
                    .chain(agents())
                    .chain(row.failed_metrics.iter().map(String::as_str)),
            )
    }
}

fn matches_text(condition: &Option<String>, value: &str) -> bool {
    condition.as_ref().is_none_or(|condition| value.to_lowercase().contains(condition.as_str()))
}

fn any_matches<'v>(condition: &Option<String>, mut values: impl Iterator<Item = &'v str>) -> bool {
    condition.is_none() || values.any(|value| matches_text(condition, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::model::UsageCount;

    #[test]
    fn every_parameter_restricts_the_list() {
        let usage = |name: &str| vec![UsageCount { name: name.to_owned(), count: 1, failed: 1 }];
        let row = TraceRow {
            trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            result: "fail",
            name: "invoke_agent".to_owned(),
            service: Some("Shop-EU".to_owned()),
            agent: Some("planner".to_owned()),
            session: Some("chat 1".to_owned()),
            user: Some("u-7".to_owned()),
            task: Some("How high?".to_owned()),
            failed_metrics: vec!["tool_abuse".to_owned()],
            categories: vec!["Resource Abuse"],
            signature: Some("00ff".to_owned()),
            agents: usage("browser"),
            tools: usage("visit_page"),
            ..TraceRow::default()
        };
        for query in [
            "",
            "result=fail&limit=1",
            "agent=Brow",
            "agent=planner",
            "service=shop",
            "session=chat+1",
            "session=chat%201",
            "user=U-7",
            "metric=tool_",
            "category=resource%20abuse",
            "tool=visit",
            "signature=00ff",
            "q=HOW+HIGH",
            "q=0af7",
            "q=shop&result=fail",
            "q=",
        ] {
            assert!(RowFilter::parse(query).unwrap().matches(&row), "{query}");
        }
        for query in [
            "result=pass",
            "agent=shop",
            "service=eux",
            "session=chat2",
            "user=u-8",
            "metric=latency",
            "category=timeout",
            "tool=search",
            "signature=00f",
            "q=Mont+Blanc",
            "q=shop&result=pass",
        ] {
            assert!(!RowFilter::parse(query).unwrap().matches(&row), "{query}");
        }
    }

    #[test]
    fn unusable_queries_are_refused() {
        assert_eq!(RowFilter::parse("limit=100000&before=7").unwrap().limit, MAX_LIMIT);
        for bad in ["resutl=fail", "limit=x", "before=-1", &format!("q={}", "x".repeat(2_000)), "<script>"] {
            assert!(RowFilter::parse(bad).is_err(), "{bad}");
        }
        assert!(RowFilter::parse("q=%ff%fe").is_ok());
    }
}
