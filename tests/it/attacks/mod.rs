//! Attacks and accidents from a review of robustness: one or more tests for each finding, with its bound as
//! counted work, bytes or messages, not as time.
//!
//! [`findings`] lists where they are: in this folder, or next to the code that is tested.

mod bounds;
mod clocks;
mod findings;
mod poison;
mod recovery;

#[test]
fn every_finding_has_its_tests() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (finding, bound, files) in findings::all() {
        assert!(!bound.is_empty() && !files.is_empty(), "{finding}");
        for (file, tests) in *files {
            let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            for test in *tests {
                let attributes = attributes(&source, test).unwrap_or_else(|| panic!("{file}: {test}"));
                let is_test = attributes
                    .iter()
                    .any(|attribute| *attribute == "#[test]" || attribute.starts_with("#[tokio::test"));
                let is_ignored = attributes.iter().any(|attribute| attribute.contains("ignore"));
                assert!(
                    is_test && !is_ignored,
                    "{file}: {test} is not a test, or is not run: {attributes:?}"
                );
            }
        }
    }
}

/// The attributes of a function, which are on lines of their own above it.
fn attributes<'s>(source: &'s str, function: &str) -> Option<Vec<&'s str>> {
    let is_definition =
        |line: &str| line.trim_start().trim_start_matches("async ").starts_with(&format!("fn {function}("));
    let lines: Vec<&str> = source.lines().collect();
    let line_index = lines.iter().position(|line| is_definition(line))?;
    let preceding_lines = lines.get(..line_index)?.iter().rev().map(|line| line.trim());
    Some(
        preceding_lines
            .take_while(|line| line.starts_with("#[") || line.starts_with("///"))
            .filter(|line| line.starts_with("#["))
            .collect(),
    )
}

#[test]
fn ignored_tests_and_comments_are_no_tests() {
    let source = "// a test\nfn one() {}\n\n    #[tokio::test]\n    /// Two.\n    async fn two() {}\n#[test]\n#[ignore]\nfn three() {}\n";
    assert_eq!(attributes(source, "one"), Some(vec![]));
    assert_eq!(attributes(source, "two"), Some(vec!["#[tokio::test]"]));
    assert_eq!(attributes(source, "three"), Some(vec!["#[ignore]", "#[test]"]));
    assert_eq!(attributes(source, "four"), None);
}
