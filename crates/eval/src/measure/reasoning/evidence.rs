//! What a model may rest an answer on: everything that it was told or that tools returned.
//!
//! In: texts in time order, each with its source, the same interned text at no cost when it comes
//! again. Out: whether a number is among them, is a rounding or conversion of one, or follows from
//! them by simple arithmetic; and which of some phrases they contain.

use foldhash::HashSet;
use memchr::memmem::Finder;

use super::numbers::{self, Number};
use crate::recognise::Text;

/// Past this many distinct numbers the index is full: nothing more is called unsupported.
const MAX_VALUES: usize = 50_000;
/// Most numbers among which any two may be combined.
const PAIRS_AMONG: usize = 400;
/// Of n numbers there are about n² sums and differences: among many, almost any number is one of
/// them, and that it is proves nothing. So many chance hits are put up with; past them only the
/// numbers in play count: those that the model itself used, and results that stand alone.
const CHANCE: f64 = 2.0;
/// Numbers that the model itself used, kept at most, the latest.
const MAX_MODEL_NUMBERS: usize = 400;
/// Up to this many numbers, sums and differences of any three are looked for.
const TRIPLES_AMONG: usize = 40;
/// Bytes that phrase searches may read per trace, in all: evidence can be large, answers many.
const SEARCH_BYTES: usize = 256 << 20;
/// Phrases whose searches count as one against it: a search runs at several bytes a cycle.
const AT_ONCE: usize = 16;
/// Conversions between units of one quantity: decimal prefixes, time, length, mass, dozens.
const FACTORS: [f64; 18] = [
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
];

/// A number shown this finely (three digits) is not met by chance as a ratio of two others.
const PRECISE: f64 = 1e-3;

/// How many of [`FACTORS`] are decimal prefixes.
const PREFIXES: usize = 5;
/// Up to this many numbers, other conversions are looked for too.
const CONVERTED_AMONG: usize = 60;

/// Where a text comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A leaf tool's result, a retrieved document: the world's word.
    Tool,
    /// The user's or caller's word, or a message whose origin is not known better.
    Conversation,
    /// Instructions: they may name a number, but their examples are no operands.
    Instructions,
}

/// How an answer's number follows from the evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Support {
    /// It is there, as digits, rounded, converted or in words.
    Present,
    /// Simple arithmetic on what is there gives it.
    Derived,
    /// The evidence was too large to say.
    Unknown,
    /// Nothing gives it.
    None,
}

/// The evidence of a trace up to some moment.
#[derive(Default)]
pub(crate) struct Evidence<'a> {
    known_texts: HashSet<(usize, usize)>,
    texts: Vec<&'a str>,
    /// The first of `texts`, in lower case.
    lowered: Vec<String>,
    /// Sorted once asked for; what came since waits in `new_values`.
    values: Vec<f64>,
    operands: Vec<f64>,
    new_values: Vec<(f64, bool)>,
    /// Numbers that only an unsupported answer brought into the run.
    tainted: Vec<f64>,
    /// Numbers that the model used in what it said and asked for.
    model_numbers: Vec<f64>,
    /// Results that stand alone ("836"): the outcome of one computation.
    single_numbers: Vec<(f64, &'a str)>,
    searched: usize,
    full: bool,
}

impl<'a> Evidence<'a> {
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
                let secondhand = source != Source::Tool && tainted.iter().any(|t| near(*t, value, 1e-9));
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

    /// Notes the numbers of what the model itself said or asked for: no evidence, but where they
    /// stand in the evidence too, it was reckoning with them.
    pub(crate) fn note_model_text(&mut self, text: &str) {
        let model_numbers = &mut self.model_numbers;
        numbers::scan(text, |n| model_numbers.push(n.value));
        if model_numbers.len() > 2 * MAX_MODEL_NUMBERS {
            model_numbers.drain(..model_numbers.len() - MAX_MODEL_NUMBERS);
        }
    }

    /// Marks a number as brought in by an answer that nothing supported: passing it on as an
    /// agent's report does not make it evidence.
    pub(crate) fn taint(&mut self, value: f64) {
        if self.tainted.len() < MAX_VALUES {
            self.tainted.push(value);
        }
    }

    /// The latest results that are a number and nothing else, newest last.
    pub(crate) fn lone_numbers(&self) -> &[(f64, &'a str)] {
        &self.single_numbers
    }

    fn merge_new_values(&mut self) {
        if self.new_values.is_empty() {
            return;
        }
        for (value, operand) in self.new_values.drain(..) {
            self.values.push(value);
            if operand {
                self.operands.push(value);
            }
        }
        for list in [&mut self.values, &mut self.operands] {
            list.sort_unstable_by(f64::total_cmp);
            list.dedup();
        }
        self.full |= self.values.len() > MAX_VALUES;
    }

    /// How `n` follows from the evidence, together with the numbers `in_play` beside it (operands
    /// that the answer itself shows and that were found supported). `hedged` allows a rounding to
    /// the number's leading digits ("about 800" for 836).
    pub(crate) fn supports(&mut self, n: &Number, hedged: bool, in_play: &[f64]) -> Support {
        self.merge_new_values();
        for value in n.possible_values() {
            let tolerance = tolerance_of(n, value, hedged);
            if self.contains(value, tolerance) || in_play.iter().any(|v| near(*v, value, tolerance)) {
                return Support::Present;
            }
            // A hedge widens what counts as a rounding, not what counts as a conversion.
            if self.converts(value, tolerance_of(n, value, false)) {
                return Support::Present;
            }
        }
        if let Some(words) = numbers::spelled(n.value)
            && n.value <= 999.0
            && self.mentions(&[words.as_str()]).first() == Some(&true)
        {
            return Support::Present;
        }
        if self.full {
            return Support::Unknown;
        }
        for value in n.possible_values() {
            // A hedge widens what counts as a rounding, not what counts as arithmetic.
            if self.derives(value, tolerance_of(n, value, false), in_play) {
                return Support::Derived;
            }
        }
        Support::None
    }

    fn contains(&self, value: f64, tolerance: f64) -> bool {
        within(&self.values, value - tolerance, value + tolerance)
    }

    fn converts(&self, value: f64, tolerance: f64) -> bool {
        let rough = tolerance.max(value * 5e-4);
        // The first factors are decimal prefixes; the others meet something by chance among many.
        let many = self.operands.len() > CONVERTED_AMONG;
        let factors = if many { FACTORS.get(..PREFIXES).unwrap_or_default() } else { &FACTORS };
        factors.iter().any(|f| {
            within(&self.operands, (value - rough) / f, (value + rough) / f)
                || within(&self.operands, (value - rough) * f, (value + rough) * f)
        }) || (!many
            && (within(&self.operands, (value - rough - 32.0) / 1.8, (value + rough - 32.0) / 1.8)
                || within(&self.operands, (value - rough) * 1.8 + 32.0, (value + rough) * 1.8 + 32.0)))
    }

    fn derives(&self, value: f64, tolerance: f64, in_play: &[f64]) -> bool {
        let n = self.operands.len();
        let chance = (n * n) as f64 * 2.0 * tolerance / value.max(1.0);
        let mut pool: Vec<f64> = in_play.to_vec();
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
        // Ratios shown coarsely prove something among few numbers only: of n numbers there are n²
        // ratios, and some is near any two-digit number. Between the answer's own numbers always.
        let precise =
            tolerance / value <= PRECISE || (pool.len() * pool.len()) as f64 * tolerance / value <= 0.5;
        if pool.iter().any(|a| pair_gives(pool, *a, value, tolerance, precise)) {
            return true;
        }
        let mut own = in_play.to_vec();
        own.sort_by(f64::total_cmp);
        if own.iter().any(|a| pair_gives(&own, *a, value, tolerance, true)) {
            return true;
        }
        let sum: f64 = in_play.iter().sum();
        if in_play.len() > 2
            && (near(sum, value, tolerance) || near(sum / in_play.len() as f64, value, tolerance))
        {
            return true;
        }
        let pool: Vec<f64> = pool.iter().copied().filter(|v| *v >= 10.0 || v.fract() != 0.0).collect();
        pool.len() <= TRIPLES_AMONG && triple_gives(&pool, value, tolerance)
    }

    /// For each phrase (lower case) whether any text holds it, whatever its case; all true when
    /// the trace's search budget is spent.
    pub(crate) fn mentions(&mut self, phrases: &[&str]) -> Vec<bool> {
        let bytes: usize = self.texts.iter().map(|t| t.len()).sum();
        self.searched = self.searched.saturating_add(bytes.saturating_mul(1 + phrases.len() / AT_ONCE));
        if self.searched > SEARCH_BYTES {
            return vec![true; phrases.len()];
        }
        // Lowered once a trace; then a search goes at the speed of memory.
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
    let shown = if n.bare == Some(value) {
        n.tolerance * value / n.value.max(f64::MIN_POSITIVE)
    } else {
        n.tolerance
    };
    if n.fractional || value == 0.0 || value.fract() != 0.0 {
        return shown;
    }
    // Trailing zeros: 2,100,000 may stand for 2,102,650.
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

/// Whether `a` and another of `pool` give `value` by one operation.
fn pair_gives(pool: &[f64], a: f64, value: f64, tolerance: f64, ratios: bool) -> bool {
    let (low, high) = (value - tolerance, value + tolerance);
    if within(pool, low - a, high - a) || within(pool, a - high, a - low) || within(pool, a + low, a + high) {
        return true;
    }
    if a == 0.0 || value == 0.0 || !ratios {
        return false;
    }
    // Products of, and divisions by, 0 and 1 prove nothing.
    (a > 1.0 && within(pool, low / a, high / a) && value / a > 1.0)
        || within(pool, low * a, high * a)
        || within(pool, a / high, a / low)
        || [100.0].iter().any(|p| {
            // a/b and (a-b)/b as percentages.
            within(pool, a * p / high, a * p / low)
                || within(pool, a / (1.0 + high / p), a / (1.0 + low / p))
                || (value < *p && within(pool, a / (1.0 - low / p), a / (1.0 - high / p)))
                || near(p - a, value, tolerance)
        })
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

/// A text that is one number, with at most a unit, a label or brackets around it.
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
        assert_eq!(support(&mut e, "2738"), Support::None, "two of 150 rows lie so far apart by chance");
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
        assert_eq!(e.lone_numbers().len(), 1);
    }

    #[test]
    fn phrases_are_found_ignoring_case() {
        let t = texts(&["The Alpine ALMANAC", "by Jane Roe"]);
        let mut e = evidence(&t);
        assert_eq!(e.mentions(&["almanac", "jane roe", "john"]), vec![true, true, false]);
    }
}
