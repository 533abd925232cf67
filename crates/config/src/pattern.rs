//! Patterns for names of services, agents, models and tools: the name itself, or a prefix followed by `*`.

pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Whether an optional pattern matches an optional name. Without a pattern everything matches; with one,
/// nothing matches that has no name.
pub fn admits(wanted: Option<&str>, seen: Option<&str>) -> bool {
    wanted.is_none_or(|pattern| seen.is_some_and(|name| matches(pattern, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_star_matches_any_rest_and_any_other_star_itself() {
        assert!(matches("shop", "shop") && !matches("shop", "shop-2"));
        assert!(matches("shop*", "shop") && matches("shop*", "shop-2") && matches("*", ""));
        assert!(!matches("*shop", "my-shop"));
    }

    #[test]
    fn no_pattern_matches_everything_and_a_pattern_nothing_without_a_name() {
        assert!(admits(None, None) && admits(None, Some("x")) && admits(Some("x*"), Some("xy")));
        assert!(!admits(Some("*"), None) && !admits(Some("x"), Some("y")));
    }
}
