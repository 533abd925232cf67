//! Why a value does not fit: a short list, in words.
//!
//! In: a node and a value that does not fit it. Out: at most [`MAX_PROBLEMS`] problems in
//! [`Checker::found`]. Of several alternatives the one is explained that the value is nearest to:
//! what a constant tells apart is told apart by it.

use serde_json::Value;

use super::check::{Checker, Fit, OTHER_TYPE, Part};
use super::compile::{Extent, Rule};
use super::{MAX_PROBLEMS, Problem, shown};
use crate::measure::defects::{QUOTE_BYTES, clip};

/// Alternatives named in one problem, and references followed to name one.
const MAX_NAMED: usize = 8;

impl<'s, 'v> Checker<'s, 'v> {
    pub(super) fn explain(&mut self, index: u32, value: &'v Value) {
        let Some(node) = self.schema.nodes.get(index as usize) else { return };
        let new = !node.shared || self.explained.insert((index, std::ptr::from_ref(value) as usize));
        if !new || !self.room() {
            return;
        }
        for rule in &node.rules {
            if self.room() && self.rule(rule, value).is_invalid() {
                self.deeper(|checker| checker.explain_rule(rule, value));
                if matches!(rule, Rule::Type(_)) {
                    return;
                }
            }
        }
    }

    fn room(&mut self) -> bool {
        self.found.len() < MAX_PROBLEMS && self.charge(1)
    }

    fn explain_rule(&mut self, rule: &'s Rule, value: &'v Value) {
        match rule {
            Rule::Any(branches) | Rule::One(branches) => self.explain_choice(branches, value),
            Rule::All(_)
            | Rule::If(..)
            | Rule::Required(_)
            | Rule::Dependent(_)
            | Rule::Members(_)
            | Rule::Items { .. } => self.each(rule, value, &mut |checker, part| {
                match part {
                    Part::Fit(place, schema, value) => {
                        if checker.fit(schema, value).is_invalid() {
                            checker.path.push(place);
                            checker.explain(schema, value);
                            checker.path.pop();
                        }
                    }
                    Part::Missing(name) => checker.tell(Problem::missing(&checker.path, name)),
                    Part::Unknown(name, value) => checker.tell(Problem::unknown(&checker.path, name, value)),
                }
                checker.room()
            }),
            simple => self.tell(Problem::ill_typed(&self.path, &words(simple), value)),
        }
    }

    /// What several parts of a schema say is told once.
    fn tell(&mut self, problem: Problem) {
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    fn explain_choice(&mut self, branches: &'s [u32], value: &'v Value) {
        let fits: Vec<Fit> = branches.iter().map(|branch| self.fit(*branch, value)).collect();
        if fits.contains(&Fit::Valid) {
            let wanted = "valid by only one of the alternatives in the tool's schema";
            return self.tell(Problem::ill_typed(&self.path, wanted, value));
        }
        let weight = |fit: &Fit| if let Fit::Invalid(by) = fit { *by } else { OTHER_TYPE };
        let least = fits.iter().map(weight).min().unwrap_or(OTHER_TYPE);
        let mut nearest = branches.iter().zip(&fits).filter(|(_, fit)| weight(fit) == least);
        if let (Some((branch, _)), None) = (nearest.next(), nearest.next())
            && least < OTHER_TYPE
        {
            return self.explain(*branch, value);
        }
        let mut named: Vec<String> = Vec::new();
        for branch in branches {
            let name = self.type_of(*branch);
            if named.len() < MAX_NAMED && !named.contains(&name) {
                named.push(name);
            }
        }
        self.tell(Problem::ill_typed(&self.path, &named.join(" or "), value));
    }

    fn type_of(&mut self, mut index: u32) -> String {
        self.charge(1);
        for _ in 0..MAX_NAMED {
            match self.schema.nodes.get(index as usize).map(|node| node.rules.as_slice()) {
                Some([Rule::Type(names), ..]) => return names.join(" or "),
                Some([Rule::All(schemas), ..]) if schemas.len() == 1 => index = schemas[0],
                _ => break,
            }
        }
        "another shape".to_owned()
    }
}

/// What was expected of a value, to follow "expected to be".
fn words(rule: &Rule) -> String {
    match rule {
        Rule::Never => "absent".to_owned(),
        Rule::Type(names) => names.join(" or "),
        Rule::Choice(options) => {
            let most = QUOTE_BYTES / 2;
            let listed: Vec<String> = options.iter().take(most).map(|o| super::written(o, most)).collect();
            format!("one of {}", clip(&format!("[{}]", listed.join(",")), most))
        }
        Rule::Names(_) => "an object whose names are as the tool's schema says".to_owned(),
        Rule::Contains { least, most: None, .. } => {
            format!("a list with at least {least} items as the tool's schema says")
        }
        Rule::Contains { least, most: Some(most), .. } => {
            format!("a list with {least} to {most} items as the tool's schema says")
        }
        Rule::Unique => "a list without equal items".to_owned(),
        Rule::Size { of, most, limit } => {
            let bound = if *most { "at most" } else { "at least" };
            match of {
                Extent::Text => format!("{bound} {limit} characters long"),
                Extent::Items => format!("a list of {bound} {limit} items"),
                Extent::Members => format!("an object of {bound} {limit} properties"),
            }
        }
        Rule::Range { limit, most, exclusive } => {
            let bound = match (most, exclusive) {
                (false, false) => "at least",
                (false, true) => "more than",
                (true, false) => "at most",
                (true, true) => "less than",
            };
            format!("{bound} {}", shown(limit))
        }
        Rule::Multiple(step) => format!("a multiple of {step}"),
        Rule::Pattern(pattern) => format!("text that matches '{}'", clip(&pattern.text, QUOTE_BYTES)),
        _ => "other than what 'not' in the tool's schema describes".to_owned(),
    }
}
