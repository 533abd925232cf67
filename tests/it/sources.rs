//! The form of the sources: tables of modules, the length of files, the width of comments, and names without a meaning.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use regex::Regex;

/// Maximum number of lines of a file before its tests.
const MAX_LINES: usize = 500;
/// Maximum number of columns of a comment. rustfmt does not wrap comments.
const MAX_COLUMNS: usize = 120;

/// Every source file of the product and its libraries, by its path from the root.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates =
        std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut folders: Vec<PathBuf> = crates.chain([root.join("src")]).collect();
    let mut all = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                all.push((path.strip_prefix(root).unwrap().to_owned(), text));
            }
        }
    }
    all.sort();
    assert!(all.len() > 500, "only {} files were read", all.len());
    all
}

fn is_test(path: &Path) -> bool {
    path.ends_with("testing.rs") || path.ends_with("tests.rs") || path.iter().any(|part| part == "tests")
}

/// The modules that the table at the beginning of a file names in its first column, if there is a table of modules.
fn in_table(text: &str) -> Option<BTreeSet<String>> {
    let header = text.lines().take_while(|line| line.starts_with("//!"));
    let mut rows =
        header.skip_while(|line| !line.starts_with("//! | module |") && !line.starts_with("//! | file |"));
    rows.next()?;
    let name = Regex::new(r"`(?:mod@)?([a-z_0-9]+)`").unwrap();
    let cells = rows.take_while(|line| line.starts_with("//! |")).filter_map(|row| row.split('|').nth(1));
    Some(cells.flat_map(|cell| name.captures_iter(cell).map(|found| found[1].to_owned())).collect())
}

/// The modules in files of their own that a file declares, except those for tests only.
fn declared(text: &str) -> BTreeSet<String> {
    let module = Regex::new(r"^(?:pub(?:\([a-z]+\))? )?mod ([a-z_0-9]+);").unwrap();
    let mut attributes: Vec<&str> = Vec::new();
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if let Some(found) = module.captures(line)
            && !attributes
                .iter()
                .any(|attribute| attribute.starts_with("#[cfg(") && attribute.contains("test"))
        {
            names.insert(found[1].to_owned());
        }
        if line.starts_with("#[") { attributes.push(line) } else { attributes.clear() }
    }
    names
}

#[test]
fn tables_of_modules_name_each_module_of_their_folder() {
    let mut wrong = String::new();
    let mut tables = 0;
    for (path, text) in sources() {
        let declared = declared(&text);
        // Other tables of files are of files on the disk.
        let Some(named) = in_table(&text).filter(|_| !declared.is_empty()) else { continue };
        tables += 1;
        for name in declared.difference(&named) {
            wrong += &format!("{}: no row names `{name}`\n", path.display());
        }
        for name in named.difference(&declared) {
            wrong += &format!("{}: `{name}` is no module\n", path.display());
        }
    }
    assert!(tables >= 15, "only {tables} tables were found");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn files_are_short() {
    let tests = Regex::new(r"(?m)^#\[cfg\(test\)\]\n(?:pub(?:\([a-z]+\))? )?mod [a-z_]+ \{").unwrap();
    let is_handwritten = |(path, text): &(PathBuf, String)| {
        !is_test(path) && !text.lines().next().is_some_and(|first| first.contains("@generated"))
    };
    let long = sources().into_iter().filter(is_handwritten).filter_map(|(path, text)| {
        let end = tests.find(&text).map_or(text.len(), |found| found.start());
        let lines = text[..end].lines().count();
        (lines > MAX_LINES).then(|| format!("{}: {lines} lines", path.display()))
    });
    assert_eq!(
        long.collect::<Vec<_>>(),
        Vec::<String>::new(),
        "files with more than {MAX_LINES} lines before their tests"
    );
}

#[test]
fn comments_are_narrow() {
    // Rows of tables cannot be wrapped, and the comments of settings are texts of the JSON schema.
    let may_be_wide = |path: &Path, line: &str| {
        line.starts_with("//! |") || path.ends_with("config.rs") && line.starts_with("///")
    };
    let wide = sources().into_iter().flat_map(|(path, text)| {
        let lines = text.lines().enumerate().filter(|(_, line)| {
            let line = line.trim_start();
            line.starts_with("//") && !may_be_wide(&path, line)
        });
        let wide = lines.filter(|(_, line)| line.chars().count() > MAX_COLUMNS);
        wide.map(|(n, _)| format!("{}:{}", path.display(), n + 1)).collect::<Vec<_>>()
    });
    assert_eq!(wide.collect::<Vec<_>>(), Vec::<String>::new(), "comments of more than {MAX_COLUMNS} columns");
}

/// Beginnings of sentences without a noun, which leave to the reader what the comment describes.
const HEADLESS: [&str; 4] = ["What ", "Those ", "Such ", "So many "];

#[test]
fn comments_begin_with_a_noun() {
    let comment = Regex::new(r"^\s*//[/!]? (.*)$").unwrap();
    let headless = sources().into_iter().flat_map(|(path, text)| {
        let lines = text.lines().enumerate().filter(|(_, line)| {
            let text = comment.captures(line).map_or("", |found| found.get(1).unwrap().as_str());
            HEADLESS.iter().any(|beginning| text.starts_with(beginning))
        });
        lines.map(|(n, _)| format!("{}:{}", path.display(), n + 1)).collect::<Vec<_>>()
    });
    assert_eq!(headless.collect::<Vec<_>>(), Vec::<String>::new(), "comments that begin with {HEADLESS:?}");
}

/// Words that name nothing by themselves: prepositions, pronouns, adverbs, adjectives, and verbs without an object. As
/// the name of a value or a function they leave to the reader what it is, as does a name that begins with "of".
const EMPTY_NAMES: [&str; 25] = [
    "of", "own", "why", "said", "room", "told", "meant", "most", "what", "here", "there", "beside", "yes",
    "whose", "alike", "is", "was", "made", "again", "got", "squash", "silent", "legal", "special", "settle",
];

/// Adds the identifiers of the tokens that are such words, except in paths to other crates: `TypeId::of`.
fn add_empty_names(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let mut before = [None, None];
    for token in tokens {
        match &token {
            TokenTree::Group(group) => add_empty_names(group.stream(), found),
            TokenTree::Ident(ident) if before != [Some(':'), Some(':')] => {
                let name = ident.to_string();
                let is_empty = EMPTY_NAMES.contains(&name.as_str()) || name.starts_with("of_");
                found.extend(is_empty.then_some(name));
            }
            _ => {}
        }
        let mark = if let TokenTree::Punct(punct) = &token { Some(punct.as_char()) } else { None };
        before = [before[1], mark];
    }
}

#[test]
fn names_say_what_they_name() {
    let mut found = BTreeSet::new();
    add_empty_names("let of_a = TypeId::of::<T>(said);".parse().unwrap(), &mut found);
    assert_eq!(found, ["of_a", "said"].map(str::to_owned).into());
    let mut unclear = Vec::new();
    for (path, text) in sources() {
        let mut names = BTreeSet::new();
        add_empty_names(text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display())), &mut names);
        unclear.extend(names.iter().map(|name| format!("{}: {name}", path.display())));
    }
    assert_eq!(unclear, Vec::<String>::new());
}
