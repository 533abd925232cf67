//! Tests of the evidence for an answer.

use super::derived::STEPS_PER_OPERAND;
use super::*;

fn evidence<'a>(texts: &'a [Text]) -> Evidence<'a> {
    let mut e = Evidence::default();
    for t in texts {
        e.add(t, TextSource::Tool);
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
    let t = texts(&["Mount Elbrus: 5642 m. Mont Blanc: 4806 m. Last revised 2025-03-02.", "61.7% of 1,250"]);
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
    let t = texts(&["Mount Elbrus: 5642 m. Mont Blanc: 4806 m. Last revised 2025-03-02.", "1. Elbrus 2019"]);
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
    assert_eq!(support(&mut e, "2738"), Support::None, "two of 150 rows differ by this number accidentally");
    e.note_model_text("the rows 1037.37 and 3775.37 matter");
    assert_eq!(support(&mut e, "2738"), Support::Derived);
}

#[test]
fn tainted_number_is_not_evidence_until_a_tool_returns_it() {
    let t = texts(&["the agent reports about 5600 m", "gauge: 5600"]);
    let mut e = Evidence::default();
    e.taint(5600.0);
    e.add(&t[0], TextSource::Conversation);
    assert_eq!(support(&mut e, "5600"), Support::None);
    e.add(&t[1], TextSource::Tool);
    assert_eq!(support(&mut e, "5600"), Support::Present);
}

#[test]
fn repeated_text_is_read_once() {
    let t = texts(&["836"]);
    let mut e = evidence(&t);
    for _ in 0..3 {
        e.add(&t[0], TextSource::Tool);
    }
    assert_eq!(e.texts().len(), 1);
    assert_eq!(support(&mut e, "836"), Support::Present);
    assert_eq!(e.single_numbers().len(), 1);
}

#[test]
fn searches_and_arithmetic_count_as_work() {
    let t =
        texts(&["The Alpine ALMANAC. ".repeat(1_000).as_str(), "Mount Elbrus: 5642 m. Mont Blanc: 4806 m."]);
    let budget = WorkBudget::new(10_000, None);
    let mut e = Evidence::within(&budget);
    t.iter().for_each(|text| e.add(text, TextSource::Tool));
    budget.begin();
    assert_eq!(e.mentions(&["almanac", "john"]), vec![true, false]);
    let spent = 10_000 - budget.left();
    assert_eq!(spent, (t[0].len() + t[1].len()) as u64 / 16 + 2);
    assert_eq!(support(&mut e, "846"), Support::None);
    assert!(budget.left() < 10_000 - spent - 2 * STEPS_PER_OPERAND as u64);
    // A value that cannot be compared is not called unsupported, and the metric is unmeasured.
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

#[test]
fn conversions_between_units_need_a_unit_that_the_answer_names() {
    for (result, answer) in [
        ("21.5 km/h", "11.6 knots"),
        ("21.5 km/h", "13.4 mph"),
        ("62 l", "16.4 gallons"),
        ("2.4 bar", "34.8 psi"),
        ("3.2 ha", "7.91 acres"),
    ] {
        let t = texts(&[result]);
        let mut e = evidence(&t);
        e.restrict_units(Some(answer));
        assert_eq!(support(&mut e, answer), Support::Present, "{answer}");
        e.restrict_units(Some("It is so."));
        assert_eq!(support(&mut e, answer), Support::None, "{answer}");
        e.restrict_units(None);
        assert_eq!(support(&mut e, answer), Support::Present, "{answer}");
    }
}

#[test]
fn amount_with_a_rate_on_top_is_derived() {
    let t = texts(&["fee 840, rate 0.19"]);
    let mut e = evidence(&t);
    assert_eq!(support(&mut e, "999.60 with tax"), Support::Derived);
    assert_eq!(support(&mut e, "680.40 without it"), Support::Derived);
    assert_eq!(support(&mut e, "1020.60"), Support::None);
}
