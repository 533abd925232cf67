//! One opinion, read: what a judge decided, and which of its findings hold.
//!
//! In: an answer that should fit its form, and the pages that were shown. Out: grade, rationale and
//! findings with a quotation that is where it is said to be. Nothing is taken on trust: a judge may
//! be any server, and what it read was written by strangers.

use std::collections::HashMap;

use serde_json::Value;

use super::form::{FINDINGS, LABEL, RATIONALE, SCORE};
use super::prompt_page::Sheet;
use super::quote::Quotable;
use crate::measure::defects::{MAX_FINDINGS, clip};
use crate::measure::table::{MetricSpec, Scale};
use crate::measure::{Category, Opinion, Severity};
use verdict_otlp::trace::{Idx, SpanId};

/// What a judge decided.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Grade {
    /// On the topic's scale; weighted where the server tells probabilities.
    Score(f64),
    /// Index into the topic's labels.
    Label(usize),
}

/// A finding whose quotation holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The span that it is about.
    pub at: Idx,
    /// Its id.
    pub id: SpanId,
    /// What is wrong.
    pub problem: String,
    /// The evidence, verbatim.
    pub quote: String,
    /// Where one fits.
    pub category: Option<Category>,
    /// How bad.
    pub severity: Severity,
}

/// An opinion, read.
#[derive(Clone, PartialEq, Debug)]
pub struct Said {
    /// What it decided.
    pub grade: Grade,
    /// Why.
    pub rationale: String,
    /// What it found, and where.
    pub found: Vec<Found>,
    /// Findings that did not hold.
    pub dropped: usize,
}

/// Bytes kept of a rationale and of a problem: an explanation is cut at 1 KiB altogether.
const MOST_RATIONALE: usize = 600;
const MOST_PROBLEM: usize = 400;
/// Bytes kept of a quotation.
const MOST_QUOTE: usize = crate::measure::defects::QUOTE_BYTES;
/// Findings read of one answer.
const MOST_READ: usize = 200;

/// What was shown, to hold findings against.
pub struct Shown {
    spans: HashMap<String, (Idx, SpanId)>,
    content: HashMap<Idx, Quotable>,
    binding: Quotable,
}

impl Shown {
    /// Of the pages that the opinion is about.
    pub fn of(sheet: &Sheet) -> Shown {
        let spans = sheet.spans().into_iter().map(|(at, id)| (id.to_string(), (at, id))).collect();
        let mut texts: HashMap<Idx, Vec<&str>> = HashMap::new();
        for block in &sheet.blocks {
            if let Some((at, _)) = block.of {
                texts.entry(at).or_default().push(&block.text);
            }
        }
        let content = texts.into_iter().map(|(at, texts)| (at, Quotable::of(texts))).collect();
        let binding = Quotable::of(sheet.blocks.iter().filter(|b| b.binds).map(|b| b.text.as_str()));
        Shown { spans, content, binding }
    }

    fn finding(&self, value: &Value) -> Option<Found> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().trim();
        let (at, id) = *self.spans.get(&text("span_id").to_ascii_lowercase())?;
        let quote = text("quote");
        let there = self.content.get(&at).is_some_and(|content| content.holds(quote));
        if !there && !self.binding.holds(quote) {
            return None;
        }
        let category = text("category");
        let problem = clip(text("problem"), MOST_PROBLEM);
        Some(Found {
            at,
            id,
            problem: if problem.is_empty() { "unexplained".to_owned() } else { problem.to_owned() },
            quote: clip(quote, MOST_QUOTE).to_owned(),
            category: Category::ALL.into_iter().find(|c| c.as_str() == category),
            severity: match text("severity") {
                "high" => Severity::High,
                "low" => Severity::Low,
                _ => Severity::Medium,
            },
        })
    }
}

/// Reads an opinion; nothing where it holds no grade of the topic's.
pub fn read(topic: &MetricSpec, shown: &Shown, opinion: &Opinion) -> Option<Said> {
    let value = &opinion.value;
    let grade = match topic.scale {
        Scale::Labels(labels) => {
            let label = value.get(LABEL)?.as_str()?;
            Grade::Label(labels.iter().position(|known| *known == label)?)
        }
        scale => {
            let values = scale.scores();
            let said = u8::try_from(value.get(SCORE)?.as_u64()?).ok()?;
            let (least, most) = (*values.first()?, *values.last()?);
            let within = |weighted: &f64| (f64::from(least)..=f64::from(most)).contains(weighted);
            values.contains(&said).then_some(())?;
            Grade::Score(opinion.weighted.filter(within).unwrap_or(f64::from(said)))
        }
    };
    let listed = value.get(FINDINGS).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut found: Vec<Found> = Vec::new();
    let mut dropped = 0;
    for finding in listed.iter().take(MOST_READ) {
        match shown.finding(finding) {
            Some(good) if found.iter().any(|f| f.at == good.at && f.quote == good.quote) => {}
            Some(good) if found.len() < MAX_FINDINGS => found.push(good),
            Some(_) => {}
            None => dropped += 1,
        }
    }
    let rationale = value.get(RATIONALE).and_then(Value::as_str).unwrap_or_default();
    Some(Said { grade, rationale: clip(rationale.trim(), MOST_RATIONALE).to_owned(), found, dropped })
}
