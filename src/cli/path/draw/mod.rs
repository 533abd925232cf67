//! A picture as text: DOT for Graphviz, SVG for everything else.

pub(super) mod dot;
pub(super) mod svg;

/// Maximum number of names in one label; the others are counted.
const MAX_NAMES: usize = 6;
/// Characters of one name.
const MAX_NAME_CHARS: usize = 36;

/// The names in one line, shortened to [`MAX_NAMES`] and [`MAX_NAME_CHARS`].
fn join_names(names: &[String]) -> String {
    let short = |name: &String| match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.clone(),
    };
    let mut text = names.iter().take(MAX_NAMES).map(short).collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES {
        text.push_str(&format!(", and {} more", names.len() - MAX_NAMES));
    }
    text
}
