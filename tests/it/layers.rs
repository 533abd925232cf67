//! Imports point down: the files of each crate form a directed acyclic graph.
//!
//! Every path in the sources (`use` trees, paths in code, paths in macro arguments) is resolved through
//! the module tree and its re-exports to the file that defines the item. A file depends on
//! each file that defines something it uses. Declaring a module and re-exporting an item are no dependencies.
//! A macro of the crate counts as its body, in each module that invokes it. Test modules are left out.
//! The modules of one folder form such a graph too, each with all files below it; `mod.rs` and `lib.rs`, which
//! belong to the folder itself, are left out there.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMacro, UseTree, Visibility};

/// Longest chain of re-exports that is followed; longer ones do not occur, and the limit ends cycles.
const MAX_HOPS: usize = 12;

type Names = Vec<String>;

/// From each file or module to those that it uses, with the names of what it uses.
type Dependencies<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<String>>>;

/// A name that a `use` brings into a module.
#[derive(Debug)]
struct Import {
    path: Names,
    /// `None` for a glob.
    name: Option<String>,
    is_public: bool,
}

#[derive(Default, Debug)]
struct Module {
    file: PathBuf,
    children: BTreeMap<String, usize>,
    parent: Option<usize>,
    defined: HashSet<String>,
    imports: Vec<Import>,
    /// Paths in code.
    paths: BTreeSet<Names>,
    /// Names of the macros that are invoked, and the names in their arguments: either may be a macro.
    invoked: BTreeSet<String>,
}

/// The module tree of one crate.
#[derive(Default)]
struct Sources {
    modules: Vec<Module>,
    /// Bodies of `macro_rules!`, by name.
    macros: BTreeMap<String, TokenStream>,
}

impl Sources {
    fn read(lib: &Path) -> Sources {
        let mut sources = Sources::default();
        sources.file(lib, lib.parent().unwrap(), None);
        for module in &mut sources.modules {
            for body in module.invoked.iter().filter_map(|name| sources.macros.get(name)) {
                for token in body.clone() {
                    if let TokenTree::Group(arm) = token {
                        module.defined.extend(declared(arm.stream()));
                    }
                }
                let mut body_paths = Paths::default();
                body_paths.tokens(body.clone());
                module.paths.append(&mut body_paths.0);
            }
        }
        sources
    }

    /// Reads a file as a module; `folder` holds its children.
    fn file(&mut self, file: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.module(file, folder, parent, &parsed.items)
    }

    fn module(&mut self, file: &Path, folder: &Path, parent: Option<usize>, items: &[Item]) -> usize {
        let index = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let child = match &inner.content {
                        Some((_, items)) => self.module(file, &folder.join(&name), Some(index), items),
                        None => {
                            let flat = folder.join(format!("{name}.rs"));
                            let nested = folder.join(&name).join("mod.rs");
                            let path = if flat.exists() { flat } else { nested };
                            self.file(&path, &folder.join(&name), Some(index))
                        }
                    };
                    self.modules[index].children.insert(name, child);
                }
                Item::Use(item) => {
                    let is_public = !matches!(item.vis, Visibility::Inherited);
                    collect_imports(&item.tree, &mut Vec::new(), is_public, &mut self.modules[index].imports);
                }
                Item::Macro(ItemMacro { ident: Some(name), mac, .. }) => {
                    self.modules[index].defined.insert(name.to_string());
                    self.macros.insert(name.to_string(), mac.tokens.clone());
                }
                other => {
                    let current = &mut self.modules[index];
                    match other {
                        Item::Macro(item) => current.defined.extend(declared(item.mac.tokens.clone())),
                        other => current.defined.extend(name_of(other)),
                    }
                    let mut found = Paths::default();
                    found.visit_item(other);
                    current.paths.append(&mut found.0);
                    current.invoked.append(&mut found.1);
                }
            }
        }
        index
    }

    /// The module that defines the item at the end of `path`, as seen from module `from`.
    fn definition(&self, from: usize, path: &[String], hops: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            _ if hops == 0 => None,
            "crate" => self.definition_in(0, rest, hops),
            "self" => self.definition_in(from, rest, hops),
            "super" => self.definition(self.modules[from].parent?, &with_self(rest), hops),
            _ => self.definition_in(from, path, hops),
        }
    }

    fn definition_in(&self, module: usize, path: &[String], hops: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let current = &self.modules[module];
        if first == "super" {
            return self.definition_in(current.parent?, rest, hops);
        }
        if current.defined.contains(first) {
            return Some(module);
        }
        if let (Some(&child), false) = (current.children.get(first), rest.is_empty()) {
            return self.definition_in(child, rest, hops);
        }
        let named = current.imports.iter().find(|import| import.name.as_ref() == Some(first));
        if let Some(import) = named {
            let whole: Names = import.path.iter().chain(rest).cloned().collect();
            return self.definition(module, &whole, hops - 1);
        }
        let globs = current.imports.iter().filter(|import| import.name.is_none());
        globs.map(|import| import.path.iter().chain(path).cloned().collect::<Names>()).find_map(|whole| {
            match whole.first().map(String::as_str) {
                Some("crate" | "self" | "super") => self.definition(module, &whole, hops.saturating_sub(1)),
                _ => None,
            }
        })
    }

    /// From each file to the files that define what it uses, with the names.
    fn dependencies(&self) -> Dependencies<'_> {
        let mut dependencies = Dependencies::new();
        for (at, module) in self.modules.iter().enumerate() {
            let private = module.imports.iter().filter(|import| !import.is_public && import.name.is_some());
            for path in private.map(|import| &import.path).chain(&module.paths) {
                let Some(target) = self.definition(at, path, MAX_HOPS) else { continue };
                let file = &self.modules[target].file;
                if *file != module.file {
                    dependencies
                        .entry(&module.file)
                        .or_default()
                        .entry(file)
                        .or_default()
                        .insert(path.join("::"));
                }
            }
        }
        dependencies
    }
}

fn with_self(rest: &[String]) -> Names {
    std::iter::once("self".to_owned()).chain(rest.iter().cloned()).collect()
}

/// Paths of at least one segment anywhere in code; and the names at the top level of macro invocations.
#[derive(Default)]
struct Paths(BTreeSet<Names>, BTreeSet<String>);

impl<'a> Visit<'a> for Paths {
    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0.insert(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, found: &'a syn::Macro) {
        visit::visit_macro(self, found);
        self.1.extend(found.path.segments.last().map(|name| name.ident.to_string()));
        self.1.extend(found.tokens.clone().into_iter().filter_map(|token| match token {
            TokenTree::Ident(name) => Some(name.to_string()),
            _ => None,
        }));
        self.tokens(found.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'a Attribute) {}
}

impl Paths {
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Names = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Ident(ident) if colons == 2 => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.0.insert(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.0.insert(path);
    }
}

fn collect_imports(tree: &UseTree, before: &mut Names, is_public: bool, out: &mut Vec<Import>) {
    let path = |last: &syn::Ident| -> Names { before.iter().cloned().chain([last.to_string()]).collect() };
    match tree {
        UseTree::Path(inner) => {
            before.push(inner.ident.to_string());
            collect_imports(&inner.tree, before, is_public, out);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            out.push(Import { path: before.clone(), name: before.last().cloned(), is_public });
        }
        UseTree::Name(name) => {
            out.push(Import { path: path(&name.ident), name: Some(name.ident.to_string()), is_public });
        }
        UseTree::Rename(renamed) => {
            let path = if renamed.ident == "self" { before.clone() } else { path(&renamed.ident) };
            out.push(Import { path, name: Some(renamed.rename.to_string()), is_public });
        }
        UseTree::Glob(_) => out.push(Import { path: before.clone(), name: None, is_public }),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| collect_imports(tree, before, is_public, out))
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, and what tests of other crates are given by a feature.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|a| a.path().is_ident("cfg")).any(|a| match &a.meta {
        syn::Meta::List(list) => {
            let tokens = list.tokens.to_string();
            tokens == "test" || tokens.starts_with("any (test") || tokens.contains("feature = \"testing\"")
        }
        _ => false,
    })
}

fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(i) => i.ident.to_string(),
        Item::Enum(i) => i.ident.to_string(),
        Item::Fn(i) => i.sig.ident.to_string(),
        Item::Static(i) => i.ident.to_string(),
        Item::Struct(i) => i.ident.to_string(),
        Item::Trait(i) => i.ident.to_string(),
        Item::Type(i) => i.ident.to_string(),
        Item::Union(i) => i.ident.to_string(),
        _ => return None,
    })
}

/// The names of items among the tokens of a macro: the first, as in `regex!(NAME, ..)`, and each after
/// a word that begins an item.
fn declared(tokens: TokenStream) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut begins = true;
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                let is_item_keyword =
                    ["struct", "enum", "static", "const", "fn", "type", "trait"].contains(&word.as_str());
                if begins && !is_item_keyword {
                    names.insert(word);
                }
                begins = is_item_keyword;
            }
            _ => begins = false,
        }
    }
    names
}

/// The module of `folder` that contains `file`.
fn module_of<'a>(folder: &Path, file: &'a Path) -> Option<&'a Path> {
    let first = file.strip_prefix(folder).ok()?.components().next()?;
    let name = Path::new(Path::new(first.as_os_str()).file_stem()?);
    (name != Path::new("mod") && name != Path::new("lib")).then_some(name)
}

/// The dependencies between the modules of `folder`, from those between files.
fn between_modules<'a>(folder: &Path, files: &Dependencies<'a>) -> Dependencies<'a> {
    let mut dependencies = Dependencies::new();
    for (from, to, names) in files.iter().flat_map(|(from, to)| to.iter().map(move |(to, n)| (from, to, n))) {
        if let (Some(user), Some(used)) = (module_of(folder, from), module_of(folder, to))
            && user != used
        {
            dependencies.entry(user).or_default().entry(used).or_default().extend(names.iter().cloned());
        }
    }
    dependencies
}

/// A description of each cycle.
fn report(root: &Path, title: &str, dependencies: &Dependencies<'_>) -> String {
    let mut report = String::new();
    for cycle in cycles(dependencies) {
        let short = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        report.push_str(&format!("\n{title}, cycle of {}:\n", cycle.len()));
        for &from in &cycle {
            for (&to, names) in dependencies[from].iter().filter(|(to, _)| cycle.contains(to)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                report.push_str(&format!("  {} -> {}: {}\n", short(from), short(to), names.join(", ")));
            }
        }
    }
    report
}

/// Groups of files or modules that can be reached from one another.
fn cycles<'a>(dependencies: &Dependencies<'a>) -> Vec<Vec<&'a Path>> {
    let reach = |from: &'a Path| {
        let mut seen: BTreeSet<&Path> = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            let next = dependencies.get(file).into_iter().flat_map(BTreeMap::keys);
            open.extend(next.copied().filter(|file| seen.insert(file)));
        }
        seen
    };
    let all: BTreeMap<&Path, BTreeSet<&Path>> =
        dependencies.keys().map(|&file| (file, reach(file))).collect();
    let mut out: Vec<Vec<&Path>> = Vec::new();
    for (&file, reached) in &all {
        if !reached.contains(file) || out.iter().any(|cycle| cycle.contains(&file)) {
            continue;
        }
        let reaches_file = |other: &&&Path| all.get(**other).is_some_and(|reached| reached.contains(file));
        out.push(reached.iter().filter(reaches_file).copied().collect());
    }
    out
}

#[test]
fn files_of_each_crate_and_modules_of_each_folder_form_directed_acyclic_graphs() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let crates =
        std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut found = String::new();
    let (mut files, mut folders) = (0, 0);
    for source in crates.chain([root.join("src")]) {
        let sources = Sources::read(&source.join("lib.rs"));
        let dependencies = sources.dependencies();
        files += dependencies.len();
        found.push_str(&report(&root, "files", &dependencies));
        let all: BTreeSet<&Path> = dependencies.keys().flat_map(|file| file.ancestors().skip(1)).collect();
        for folder in all.into_iter().filter(|folder| folder.starts_with(&source)) {
            folders += 1;
            let title = format!("modules of {}", folder.display());
            found.push_str(&report(&root, &title, &between_modules(folder, &dependencies)));
        }
    }
    assert!(files > 200 && folders > 40, "only {files} files in {folders} folders were read");
    assert!(found.is_empty(), "imports form cycles:\n{found}");
}

#[test]
fn a_cycle_between_two_folders_is_found_where_their_files_form_none() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    ["a", "b"].iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).unwrap());
    write("lib.rs", "mod a;\nmod b;\n");
    write("a/mod.rs", "pub mod low;\npub mod top;\n");
    write("a/low.rs", "pub struct Low;\n");
    write("a/top.rs", "use crate::b::Middle;\n");
    write("b/mod.rs", "use crate::a::low::Low;\npub struct Middle(Low);\n");
    let sources = Sources::read(&folder.path().join("lib.rs"));
    let dependencies = sources.dependencies();
    assert_eq!(cycles(&dependencies).len(), 0);
    assert_eq!(cycles(&between_modules(folder.path(), &dependencies)), [[Path::new("a"), Path::new("b")]]);
}

#[test]
fn macros_of_the_crate_count_as_their_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "#[macro_use]\nmod table;\nmod top;\nmod low;\n");
    write("table.rs", "macro_rules! table { ($then:ident) => { $then! { x: low::Metric; } } }\n");
    write(
        "top.rs",
        "use crate::low;\nmacro_rules! rows { ($($t:tt)*) => { pub struct Settings; } }\ntable!(rows);\n",
    );
    write("low.rs", "pub struct Metric(crate::top::Settings);\n");
    let sources = Sources::read(&folder.path().join("lib.rs"));
    assert_eq!(cycles(&sources.dependencies()).len(), 1);
}

#[test]
fn a_cycle_between_two_files_is_found_through_re_exports_and_macro_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use b::Thing;\n");
    write("a.rs", "pub struct First;\nfn f() { println!(\"{}\", crate::Thing::new()); }\n");
    write("b.rs", "use super::c::*;\npub struct Thing;\nfn g(_: First) {}\n");
    write("c.rs", "pub use super::a::First;\n#[cfg(test)]\nmod tests { use crate::Thing; }\n");
    let sources = Sources::read(&folder.path().join("lib.rs"));
    let dependencies = sources.dependencies();
    let found = cycles(&dependencies);
    let names = |cycle: &[&Path]| -> Vec<String> {
        cycle.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(found.iter().map(|cycle| names(cycle)).collect::<Vec<_>>(), [["a.rs", "b.rs"]]);
}
