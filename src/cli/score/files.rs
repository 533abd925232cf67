//! Folders of one JSON file a trace, named after it.
//!
//! In: a folder. Out: what each file says, by the file's name without `.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cli::failure::Failure;
use crate::cli::terminal::write_stderr;
use crate::score::trail::Annotations;

/// A folder's annotations by file name.
pub(super) type Folder = BTreeMap<String, Annotations>;

/// Reads a folder of annotations. Files that hold no JSON object are told of and left out, as
/// the reference script leaves them out.
///
/// # Errors
/// The folder or a file in it cannot be read.
pub(super) fn read(folder: &Path) -> Result<Folder, Failure> {
    let mut out = BTreeMap::new();
    for (path, bytes) in json(folder)? {
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        match Annotations::read(&bytes) {
            Some(annotations) => drop(out.insert(stem.to_owned(), annotations)),
            None => write_stderr(&format!("{}: no JSON object in it; left out", path.display())),
        }
    }
    Ok(out)
}

/// The JSON file that `path` is, or those in the folder that it is, in order of names.
///
/// # Errors
/// It, or a file in it, cannot be read.
pub(super) fn json(path: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, Failure> {
    let fault = |path: &Path, e: std::io::Error| Failure::Usage(format!("{}: {e}", path.display()));
    let mut paths = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|e| fault(path, e))? {
            let found = entry.map_err(|e| fault(path, e))?.path();
            let hidden = found.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && found.extension().is_some_and(|e| e == "json") {
                paths.push(found);
            }
        }
        paths.sort();
    } else {
        paths.push(path.to_owned());
    }
    paths
        .into_iter()
        .map(|p| std::fs::read(&p).map(|bytes| (p.clone(), bytes)).map_err(|e| fault(&p, e)))
        .collect()
}

/// Writes each prediction as `<name>.json`, making the folder where it is missing.
///
/// # Errors
/// The folder or a file cannot be written.
pub(super) fn write(folder: &Path, predictions: &Folder) -> Result<(), Failure> {
    let fault = |path: &Path, e: std::io::Error| Failure::Run(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(folder).map_err(|e| fault(folder, e))?;
    for (name, prediction) in predictions {
        let path = folder.join(format!("{name}.json"));
        let text = format!("{:#}\n", prediction.to_json());
        std::fs::write(&path, text).map_err(|e| fault(&path, e))?;
    }
    Ok(())
}
