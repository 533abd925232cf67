//! The evidence for an answer: everything that the model was told or that tools returned.
//!
//! In: texts in time order, each with its source; a repeated interned text costs nothing. Out:
//! whether a number is among them, is a rounding or conversion of one, or follows from them by simple
//! arithmetic; and which phrases they contain.

use foldhash::HashSet;
use memchr::memmem::Finder;

use super::numbers::{self, Number};
use crate::measure::work_budget::{BYTES_PER_STEP, WorkBudget};
use crate::recognise::Text;

/// Most distinct numbers. Beyond them the index is full, and no number is called unsupported.
const MAX_VALUES: usize = 50_000;
/// Most numbers of which any two are combined.
const PAIRS_AMONG: usize = 400;
/// Most accidental matches among sums and differences. There are about n² of n numbers, so among many
/// numbers a match proves nothing. Beyond this limit only numbers that the model itself used and
/// results that are a single number are combined.
const CHANCE: f64 = 2.0;
/// Most numbers used by the model that are kept, the latest ones.
const MAX_MODEL_NUMBERS: usize = 400;
/// Most numbers of which any three are added and subtracted.
const TRIPLES_AMONG: usize = 40;
/// Phrases whose searches count as one in the work budget: a search is fast.
const AT_ONCE: usize = 16;
/// Steps of one number that is combined with the others: a dozen binary searches.
const STEPS_PER_OPERAND: usize = 12;
/// Conversions between units of one quantity: decimal and binary prefixes, time, length, mass, speed, volume,
/// dozens.
const FACTORS: [f64; 25] = [
    10.0,
    100.0,
    1e3,
    1e6,
    1e9,
    60.0,
    3600.0,
    24.0,
    86_400.0,
    7.0,
    12.0,
    52.0,
    365.0,
    365.25,
    0.3048,
    1.609_344,
    2.54,
    0.453_592_37,
    28.349_523,
    3.6,
    0.514_444,
    3.785_412,
    1024.0,
    1_048_576.0,
    1_073_741_824.0,
];

/// A number with this relative precision (three digits) is no accidental ratio of two others.
const PRECISE: f64 = 1e-3;
/// The number of decimal prefixes at the start of [`FACTORS`].
const PREFIXES: usize = 5;
/// Most numbers to which other conversions are applied: among many they match accidentally.
const CONVERTED_AMONG: usize = 60;
const PERCENT: f64 = 100.0;

/// The origin of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The result of a tool that is no agent, or a retrieved document.
    Tool,
    /// A message of the user or the caller, or one of unknown origin.
    Conversation,
    /// Instructions: their numbers support an answer, but are no operands.
    Instructions,
}

/// How an answer's number follows from the evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Support {
    /// The evidence contains it, as digits, rounded, converted or in words.
    Present,
    /// It follows by simple arithmetic.
    Derived,
    /// The evidence was too large to decide.
    Unknown,
    /// It does not follow.
    None,
}

/// The evidence of a trace up to a moment. Every answer may search all of it, so searches count as work.
#[derive(Default)]
pub(crate) struct Evidence<'a> {
    /// The trace's work budget.
    budget: Option<&'a WorkBudget>,
    known_texts: HashSet<(usize, usize)>,
    texts: Vec<&'a str>,
    /// The `texts` in lower case, converted when phrases are first searched.
    lowered: Vec<String>,
    /// All numbers, sorted.
    values: Vec<f64>,
    /// The numbers that arithmetic may use, sorted.
    operands: Vec<f64>,
    /// Numbers that are not in `values` yet, and whether they are operands.
    new_values: Vec<(f64, bool)>,
    /// Numbers whose only origin is an unsupported answer, sorted.
    tainted: Vec<f64>,
    /// Numbers in the model's outputs and calls.
    model_numbers: Vec<f64>,
    /// Results that are a single number ("836"), with their texts.
    single_numbers: Vec<(f64, &'a str)>,
    full: bool,
}

impl<'a> Evidence<'a> {
    pub(crate) fn within(budget: &'a WorkBudget) -> Evidence<'a> {
        Evidence { budget: Some(budget), ..Evidence::default() }
    }

    /// Counts steps; false if the work budget is exceeded.
    fn spend(&self, steps: usize) -> bool {
        self.budget.is_none_or(|budget| budget.spend(steps))
    }

    /// Adds a text once.
    pub(crate) fn add(&mut self, text: &'a Text, source: Source) {
        if !self.known_texts.insert((text.as_ptr() as usize, text.len())) || text.is_empty() {
            return;
        }
        self.texts.push(text);
        if self.values.len() + self.new_values.len() > MAX_VALUES {
            self.full = true;
            return;
        }
        let (new_values, tainted) = (&mut self.new_values, &self.tainted);
        let mut first = None;
        numbers::scan(text, |n| {
            first.get_or_insert(n);
            for value in n.possible_values() {
                let secondhand = source != Source::Tool && within(tainted, value - 1e-9, value + 1e-9);
                if !secondhand {
                    new_values.push((value, source != Source::Instructions));
                }
            }
        });
        if let (Source::Tool, Some(n)) = (source, first)
            && is_single_number(text, &n)
        {
            self.single_numbers.push((n.value, text));
        }
    }

    /// Adds sums and means of a result's columns. They support an answer, but are no operands.
    pub(crate) fn add_aggregates(&mut self, aggregates: &[f64]) {
        if self.values.len() + self.new_values.len() <= MAX_VALUES {
            self.new_values.extend(aggregates.iter().map(|value| (value.abs(), false)));
        }
    }

    /// Notes the numbers of the model's own outputs and calls. They are no evidence; those that the
    /// evidence contains are the operands of the model's arithmetic.
    pub(crate) fn note_model_text(&mut self, text: &str) {
        let model_numbers = &mut self.model_numbers;
        numbers::scan(text, |n| model_numbers.push(n.value));
        if model_numbers.len() > 2 * MAX_MODEL_NUMBERS {
            model_numbers.drain(..model_numbers.len() - MAX_MODEL_NUMBERS);
        }
    }

    /// Marks a number whose origin is an unsupported answer: an agent's report that repeats it is no
    /// evidence.
    pub(crate) fn taint(&mut self, value: f64) {
        if self.tainted.len() < MAX_VALUES && self.spend(1 + self.tainted.len() / BYTES_PER_STEP) {
            let at = self.tainted.partition_point(|known| *known < value);
            self.tainted.insert(at, value);
        }
    }

    /// Results that are a single number, newest last.
    pub(crate) fn single_numbers(&self) -> &[(f64, &'a str)] {
        &self.single_numbers
    }

    fn merge_new_values(&mut self) {
        if self.new_values.is_empty() || !self.spend(self.values.len() + self.new_values.len()) {
            return;
        }
        self.values.extend(self.new_values.iter().map(|(value, _)| *value));
        self.operands.extend(self.new_values.drain(..).filter(|(_, is_operand)| *is_operand).map(|(v, _)| v));
        for list in [&mut self.values, &mut self.operands] {
            list.sort_unstable_by(f64::total_cmp);
            list.dedup();
        }
        self.full |= self.values.len() > MAX_VALUES;
    }

    /// How `n` follows from the evidence and from the numbers `stated`, which the answer states and
    /// which are supported. `hedged` allows a rounding to the leading digits ("about 800" for 836).
    pub(crate) fn supports(&mut self, n: &Number, hedged: bool, stated: &[f64]) -> Support {
        self.merge_new_values();
        let is_present = |value: f64| {
            let tolerance = tolerance_of(n, value, hedged);
            self.contains(value, tolerance)
                || stated.iter().any(|v| near(*v, value, tolerance))
                // A hedge widens the tolerance of roundings only.
                || self.converts(value, tolerance_of(n, value, false))
        };
        if n.possible_values().any(is_present) {
            return Support::Present;
        }
        let spelled = numbers::spelled(n.value);
        if spelled.is_some_and(|words| self.mentions(&[words.as_str()]).first() == Some(&true)) {
            return Support::Present;
        }
        let is_derived = |value: f64| self.derives(value, tolerance_of(n, value, false), stated);
        match self.full {
            true => Support::Unknown,
            false if n.possible_values().any(is_derived) => Support::Derived,
            false if self.budget.is_some_and(WorkBudget::is_exceeded) => Support::Unknown,
            false => Support::None,
        }
    }

    fn contains(&self, value: f64, tolerance: f64) -> bool {
        within(&self.values, value - tolerance, value + tolerance)
    }

    fn converts(&self, value: f64, tolerance: f64) -> bool {
        let rough = tolerance.max(value * 5e-4);
        let (low, high) = (value - rough, value + rough);
        let has = |low: f64, high: f64| within(&self.operands, low, high);
        let many = self.operands.len() > CONVERTED_AMONG;
        let factors = if many { FACTORS.get(..PREFIXES).unwrap_or_default() } else { &FACTORS };
        factors.iter().any(|f| has(low / f, high / f) || has(low * f, high * f))
            || !many
                && (has((low - 32.0) / 1.8, (high - 32.0) / 1.8) || has(low * 1.8 + 32.0, high * 1.8 + 32.0))
    }

    fn derives(&self, value: f64, tolerance: f64, stated: &[f64]) -> bool {
        let n = self.operands.len();
        let chance = (n * n) as f64 * 2.0 * tolerance / value.max(1.0);
        let mut pool: Vec<f64> = stated.to_vec();
        if n <= PAIRS_AMONG && chance <= CHANCE {
            pool.extend_from_slice(&self.operands);
        } else {
            pool.extend(self.single_numbers.iter().rev().take(PAIRS_AMONG).map(|(v, _)| *v));
            pool.extend(
                self.model_numbers.iter().rev().take(MAX_MODEL_NUMBERS).filter(|v| self.contains(**v, 0.0)),
            );
        }
        pool.sort_by(f64::total_cmp);
        pool.dedup();
        let pool = pool.as_slice();
        if !self.spend(STEPS_PER_OPERAND * (pool.len() + stated.len())) {
            return false;
        }
        // A coarse ratio is evidence only among few numbers: of n numbers there are n² ratios, and one of
        // them is near any two-digit number. Ratios of the answer's own numbers always count.
        let precise =
            tolerance / value <= PRECISE || (pool.len() * pool.len()) as f64 * tolerance / value <= 0.5;
        if pool.iter().any(|a| pair_gives(pool, *a, value, tolerance, precise)) {
            return true;
        }
        let mut own = stated.to_vec();
        own.sort_by(f64::total_cmp);
        if own.iter().any(|a| pair_gives(&own, *a, value, tolerance, true)) {
            return true;
        }
        let sum: f64 = stated.iter().sum();
        let totals = [sum, sum / stated.len() as f64];
        if stated.len() > 2 && totals.iter().any(|total| near(*total, value, tolerance)) {
            return true;
        }
        let pool: Vec<f64> = pool.iter().copied().filter(|v| *v >= 10.0 || v.fract() != 0.0).collect();
        pool.len() <= TRIPLES_AMONG
            && self.spend(2 * pool.len() * pool.len())
            && triple_gives(&pool, value, tolerance)
    }

    /// For each lower-case phrase whether some text contains it, ignoring case; true for all when the
    /// work budget is exceeded.
    pub(crate) fn mentions(&mut self, phrases: &[&str]) -> Vec<bool> {
        let bytes: usize = self.texts.iter().map(|t| t.len()).sum();
        let steps = (bytes / BYTES_PER_STEP + self.texts.len()).saturating_mul(1 + phrases.len() / AT_ONCE);
        if !self.spend(steps) {
            return vec![true; phrases.len()];
        }
        // Converted once per trace, so that searches need not ignore case.
        let new = self.texts.iter().skip(self.lowered.len());
        self.lowered.extend(new.map(|text| text.to_ascii_lowercase()));
        let mentioned = |phrase: &&str| {
            let finder = Finder::new(phrase.as_bytes());
            self.lowered.iter().any(|text| finder.find(text.as_bytes()).is_some())
        };
        phrases.iter().map(mentioned).collect()
    }

    /// The texts so far, newest last.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> &[&'a str] {
        &self.texts
    }
}

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * (1.0 + 1e-9) + a.abs().max(b.abs()) * 1e-12
}

/// Half a unit of the last significant digit; with a hedge, of the leading digits.
fn tolerance_of(n: &Number, value: f64, hedged: bool) -> f64 {
    let is_bare = n.bare == Some(value);
    let shown = if is_bare { n.tolerance * value / n.value.max(f64::MIN_POSITIVE) } else { n.tolerance };
    if n.fractional || value == 0.0 || value.fract() != 0.0 {
        return shown;
    }
    // Trailing zeros: 2,100,000 may be a rounding of 2,102,650.
    let mut unit = 1.0;
    while value % (unit * 10.0) == 0.0 && unit < value {
        unit *= 10.0;
    }
    let most = if hedged { 0.1 } else { 0.005 };
    shown.max((unit / 2.0).min(value * most))
}

fn within(sorted: &[f64], low: f64, high: f64) -> bool {
    let slack = high.abs() * 1e-12;
    let from = sorted.partition_point(|v| *v < low - slack);
    sorted.get(from).is_some_and(|v| *v <= high + slack)
}

/// Whether `a` and another number of `pool` give `value` by one operation.
fn pair_gives(pool: &[f64], a: f64, value: f64, tolerance: f64, ratios: bool) -> bool {
    let (low, high) = (value - tolerance, value + tolerance);
    let has = |low: f64, high: f64| within(pool, low, high);
    if has(low - a, high - a) || has(a - high, a - low) || has(a + low, a + high) {
        return true;
    }
    if a == 0.0 || value == 0.0 || !ratios {
        return false;
    }
    // Products with, and divisions by, 0 and 1 prove nothing.
    let is_product = a > 1.0 && has(low / a, high / a) && value / a > 1.0;
    let is_quotient = has(low * a, high * a) || has(a / high, a / low);
    // a/b and (a-b)/b as percentages.
    let is_percentage = has(a * PERCENT / high, a * PERCENT / low)
        || has(a / (1.0 + high / PERCENT), a / (1.0 + low / PERCENT))
        || (value < PERCENT && has(a / (1.0 - low / PERCENT), a / (1.0 - high / PERCENT)))
        || near(PERCENT - a, value, tolerance);
    is_product || is_quotient || is_percentage
}

/// Whether three of `pool` give `value` by adding and subtracting.
fn triple_gives(pool: &[f64], value: f64, tolerance: f64) -> bool {
    pool.iter().enumerate().any(|(i, a)| {
        pool.iter().skip(i).any(|b| {
            let hit = |rest: f64| within(pool, rest - tolerance, rest + tolerance);
            hit(value - a - b) || hit(a + b - value) || hit(value + a - b) || hit(value - a + b)
        })
    })
}

/// Whether the text is a single number, with at most a unit, a label or brackets.
fn is_single_number(text: &str, n: &Number) -> bool {
    text.len() <= 48 && numbers::all(text).len() == 1 && !n.in_identifier
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence<'a>(texts: &'a [Text]) -> Evidence<'a> {
        let mut e = Evidence::default();
        for t in texts {
            e.add(t, Source::Tool);
        }
        e
    }

    fn texts(list: &[&str]) -> Vec<Text> {
        list.iter().map(|t| Text::from(*t)).collect()
    }

    fn support(evidence: &mut Evidence<'_>, answer: &str) -> Support {
        let n = numbers::all(answer)[0];
        evidence.supports(&n, false, &[])
    }

    #[test]
    fn recorded_and_derivable_numbers_are_supported() {
        let t =
            texts(&["Mount Elbrus: 5642 m. Mont Blanc: 4806 m. Last revised 2025-03-02.", "61.7% of 1,250"]);
        let mut e = evidence(&t);
        for known_texts in ["5,642", "4806 m", "5.642 km", "61.7", "0.617 as a share", "1250", "2025"] {
            assert_eq!(support(&mut e, known_texts), Support::Present, "{known_texts}");
        }
        for derived in ["836 metres", "10448", "38.3 %", "85.18 %", "1.1739"] {
            assert_ne!(support(&mut e, derived), Support::None, "{derived}");
        }
    }

    #[test]
    fn underivable_numbers_are_unsupported() {
        let t =
            texts(&["Mount Elbrus: 5642 m. Mont Blanc: 4806 m. Last revised 2025-03-02.", "1. Elbrus 2019"]);
        let mut e = evidence(&t);
        for none in ["846", "6012", "1206", "863.5", "5624"] {
            assert_eq!(support(&mut e, none), Support::None, "{none}");
        }
    }

    #[test]
    fn rounded_numbers_are_supported_and_a_hedge_widens_the_tolerance() {
        let t = texts(&["population 2,102,650; height 836 m; seventeen or fifty-six"]);
        let mut e = evidence(&t);
        assert_eq!(support(&mut e, "2.1 million"), Support::Present);
        assert_eq!(support(&mut e, "2,100,000"), Support::Present);
        assert_eq!(support(&mut e, "56"), Support::Present);
        let n = numbers::all("800 m")[0];
        assert_eq!(e.supports(&n, true, &[]), Support::Present);
        assert_eq!(e.supports(&n, false, &[]), Support::None);
    }

    #[test]
    fn among_many_numbers_only_those_the_model_used_are_operands() {
        let page: String = (0..150).map(|i| format!("row {}.37 ", 1000 + i * 37)).collect();
        let t = texts(&[&page]);
        let mut e = evidence(&t);
        assert_eq!(
            support(&mut e, "2738"),
            Support::None,
            "two of 150 rows differ by this number accidentally"
        );
        e.note_model_text("the rows 1037.37 and 3775.37 matter");
        assert_eq!(support(&mut e, "2738"), Support::Derived);
    }

    #[test]
    fn tainted_number_is_not_evidence_until_a_tool_returns_it() {
        let t = texts(&["the agent reports about 5600 m", "gauge: 5600"]);
        let mut e = Evidence::default();
        e.taint(5600.0);
        e.add(&t[0], Source::Conversation);
        assert_eq!(support(&mut e, "5600"), Support::None);
        e.add(&t[1], Source::Tool);
        assert_eq!(support(&mut e, "5600"), Support::Present);
    }

    #[test]
    fn repeated_text_is_read_once() {
        let t = texts(&["836"]);
        let mut e = evidence(&t);
        for _ in 0..3 {
            e.add(&t[0], Source::Tool);
        }
        assert_eq!(e.texts().len(), 1);
        assert_eq!(e.single_numbers().len(), 1);
    }

    #[test]
    fn searches_and_arithmetic_count_as_work() {
        let t = texts(&[
            "The Alpine ALMANAC. ".repeat(1_000).as_str(),
            "Mount Elbrus: 5642 m. Mont Blanc: 4806 m.",
        ]);
        let budget = WorkBudget::new(10_000, None);
        let mut e = Evidence::within(&budget);
        t.iter().for_each(|text| e.add(text, Source::Tool));
        budget.begin();
        assert_eq!(e.mentions(&["almanac", "john"]), vec![true, false]);
        let spent = 10_000 - budget.left();
        assert_eq!(spent, (t[0].len() + t[1].len()) as u64 / 16 + 2);
        assert_eq!(support(&mut e, "846"), Support::None);
        assert!(budget.left() < 10_000 - spent - 2 * STEPS_PER_OPERAND as u64);
        // What cannot be compared is not called unsupported, and the metric is unmeasured.
        while !budget.is_exceeded() {
            e.mentions(&["almanac"]);
        }
        assert_eq!(e.mentions(&["john"]), [true]);
        assert_ne!(support(&mut e, "846"), Support::None);
    }

    #[test]
    fn phrases_are_found_ignoring_case() {
        let t = texts(&["The Alpine ALMANAC", "by Jane Roe"]);
        let mut e = evidence(&t);
        assert_eq!(e.mentions(&["almanac", "jane roe", "john"]), vec![true, true, false]);
    }
}
