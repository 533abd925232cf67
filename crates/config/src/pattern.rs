//! The one pattern of the configuration for names of services, agents, models, tools: the name
//! itself, or with a `*` at the end whatever begins so.

/// Whether a pattern is for a name.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Whether a key that may be left out is for what was seen: left out, it is for everything; given,
/// for nothing that has no name.
pub fn admits(wanted: Option<&str>, seen: Option<&str>) -> bool {
    wanted.is_none_or(|pattern| seen.is_some_and(|name| matches(pattern, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_stands_for_any_rest_and_elsewhere_for_itself() {
        assert!(matches("shop", "shop") && !matches("shop", "shop-2"));
        assert!(matches("shop*", "shop") && matches("shop*", "shop-2") && matches("*", ""));
        assert!(!matches("*shop", "my-shop"));
    }

    #[test]
    fn a_key_that_is_left_out_admits_all_and_one_that_is_given_no_nameless() {
        assert!(admits(None, None) && admits(None, Some("x")) && admits(Some("x*"), Some("xy")));
        assert!(!admits(Some("*"), None) && !admits(Some("x"), Some("y")));
    }
}
