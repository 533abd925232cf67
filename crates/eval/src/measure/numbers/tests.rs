//! Tests of the numbers in texts.

use proptest::prelude::*;

use super::*;

fn values(text: &str) -> Vec<f64> {
    all(text).iter().map(|n| n.value).collect()
}

#[test]
fn quantities_are_read_with_any_digit_separator() {
    assert_eq!(values("5642 m, 5,642 m, 5'642 m, 5\u{a0}642 m, 5\u{202f}642 m"), vec![5642.0; 5]);
    assert_eq!(values("1,234,567 and 1.234.567"), vec![1_234_567.0; 2]);
    assert_eq!(values("2.1 million, 2.1M, 10k"), vec![2_100_000.0, 2_100_000.0, 10_000.0]);
    assert_eq!(values("3.25 (83.6%)"), vec![3.25, 83.6]);
    assert_eq!(values("5642-4806"), vec![5642.0, 4806.0]);
    assert_eq!(values("2025-03-02"), vec![2025.0, 3.0, 2.0]);
    assert_eq!(values("It is 836."), vec![836.0]);
    assert_eq!(values("[120,95,180,210,130]"), vec![120.0, 95.0, 180.0, 210.0, 130.0]);
    assert_eq!(values("[1.5,250] and (1,250)"), vec![1.5, 250.0, 1250.0]);
}

#[test]
fn numbers_after_json_escapes_are_read() {
    assert_eq!(values(r#"{"stdout": "....\n148 passed,\t2 skipped\r\n7 left"}"#), vec![148.0, 2.0, 7.0]);
    assert_eq!(values(r"\u20ac120.50, \ue0007, \uabcd12 and gr\u00f65"), vec![120.5, 7.0, 12.0, 5.0]);
    assert_eq!(values(r"41\u202f200 \u20ac and 3\u00A0450,5"), vec![41_200.0, 3450.5]);
    assert!(values(r"\u00e9 \n u00e9 \x41 \u00 n7 \user1").is_empty());
}

#[test]
fn indian_groups_and_magnitudes_are_read() {
    assert_eq!(values("₹1,96,000, 12,34,56,789 and 2,48,500.50"), vec![196_000.0, 123_456_789.0, 248_500.5]);
    assert_eq!(values("₹4.445 lakh, 2 Lakhs, 1.5 crore, 3 crores"), vec![444_500.0, 2e5, 1.5e7, 3e7]);
    assert_eq!(values("[1,96,000] and 1,23,45"), vec![1.0, 96.0, 0.0, 1.23, 45.0]);
    assert_eq!(with_spaced_groups("8 760 €, 1 234 567").as_deref(), Some("8'760 €, 1'234'567"));
    assert_eq!(with_spaced_groups("8760 €, 12 34, 1234 567 and 7 1000"), None);
}

#[test]
fn powers_of_ten_thousand_are_read_with_the_digits_behind_them() {
    assert_eq!(values("12万5000円、3億円、4.5万、2万"), vec![125_000.0, 3e8, 45_000.0, 20_000.0]);
    assert!(all("4万8000円").iter().all(|n| !n.in_identifier));
    assert_eq!(all("5万")[0].bare, Some(5.0));
    assert_eq!(values("1万2千元"), vec![12_000.0]);
}

#[test]
fn ambiguous_digits_keep_both_readings() {
    assert_eq!(all("1.234")[0].alternative, Some(1234.0));
    assert_eq!(all("3,5")[0].value, 3.5);
    assert_eq!(all("3,5")[0].alternative, Some(3.0));
    assert_eq!(values("[1, 2, 30]"), vec![1.0, 2.0, 30.0]);
}

#[test]
fn digits_in_identifiers_are_marked() {
    assert!(values("GPT4 x86 call_12 utf8").is_empty());
    for text in ["GPT-4", "v.2", "3rd", "7f3a9", "192.168.0.1", "#42", "1.2.3"] {
        assert!(all(text)[0].in_identifier, "{text}");
    }
    for text in ["5642m", "836 metres", "$40", "-40", "(836)"] {
        assert!(!all(text)[0].in_identifier, "{text}");
    }
}

#[test]
fn tolerance_follows_the_last_digit_shown() {
    assert_eq!(all("836")[0].tolerance, 0.5);
    assert!((all("2.10")[0].tolerance - 0.005).abs() < 1e-12);
    assert_eq!(all("2 million")[0].tolerance, 500_000.0);
}

#[test]
fn numbers_below_1000_are_spelled() {
    assert_eq!(spelled(17.0).as_deref(), Some("seventeen"));
    assert_eq!(spelled(56.0).as_deref(), Some("fifty-six"));
    assert_eq!(spelled(836.0).as_deref(), Some("eight hundred and thirty-six"));
    assert_eq!(spelled(1000.0), None);
    assert_eq!(spelled(0.5), None);
}

proptest! {
    #[test]
    fn any_text_is_scanned_without_panic_and_in_order(text in "\\PC{0,80}") {
        let mut last = 0;
        for n in all(&text) {
            prop_assert!(n.start >= last && n.end > n.start && n.end <= text.len());
            prop_assert!(text.is_char_boundary(n.start) && text.is_char_boundary(n.end));
            prop_assert!(n.value.is_finite());
            last = n.end;
        }
    }

    #[test]
    fn written_integer_is_read_back(n in 0u32..2_000_000_000) {
        prop_assert_eq!(values(&format!("x {n} y")), vec![f64::from(n)]);
    }
}
