//! Golden files of rendered prompts.

/// Holds `text` against the file of that name under `tests/golden`; with `UPDATE_GOLDEN` set it is
/// written instead.
pub(crate) fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == text, "{} is not what is rendered; see UPDATE_GOLDEN\n{text}", path.display());
}
