//! Patterns for names of services, agents, models and tools: the name itself, or a prefix followed by `*`.

/// Whether `name` matches `pattern`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Whether an optional name matches an optional pattern. An absent pattern matches everything; an absent
/// name matches no pattern.
pub fn admits(pattern: Option<&str>, name: Option<&str>) -> bool {
    pattern.is_none_or(|pattern| name.is_some_and(|name| matches(pattern, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_star_matches_any_rest_and_other_stars_match_literally() {
        assert!(matches("shop", "shop") && !matches("shop", "shop-2"));
        assert!(matches("shop*", "shop") && matches("shop*", "shop-2") && matches("*", ""));
        assert!(!matches("*shop", "my-shop"));
    }

    #[test]
    fn an_absent_pattern_matches_everything_and_an_absent_name_matches_no_pattern() {
        assert!(admits(None, None) && admits(None, Some("x")) && admits(Some("x*"), Some("xy")));
        assert!(!admits(Some("*"), None) && !admits(Some("x"), Some("y")));
    }
}
