//! Folders with one JSON file per trace, named after the trace.
//!
//! In: a folder. Out: the annotations in each file, by the file's name without `.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cli::command::{CommandFailure, write_file, write_stderr};
use crate::score::trail::Annotations;

/// A folder's annotations by file name.
pub(super) type AnnotationFiles = BTreeMap<String, Annotations>;

/// Reads a folder of annotations. Files without a JSON object are named on standard error and skipped, as
/// the reference script skips them.
///
/// # Errors
/// The folder or a file in it cannot be read.
pub(super) fn read_annotations(folder: &Path) -> Result<AnnotationFiles, CommandFailure> {
    let mut out = BTreeMap::new();
    for (path, bytes) in read_json_files(folder)? {
        match Annotations::read(&bytes) {
            Some(annotations) => drop(out.insert(stem(&path), annotations)),
            None => write_stderr(&format!("{}: contains no JSON object; skipped", path.display())),
        }
    }
    Ok(out)
}

/// The file's name without its extension.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned()
}

/// Reads `path` if it is a file, otherwise the JSON files in it, in order of names.
///
/// # Errors
/// The folder or a file cannot be read.
pub(super) fn read_json_files(path: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, CommandFailure> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let entries = entries.map_err(|e| CommandFailure::file(path, e))?;
        paths = entries.into_iter().map(|entry| entry.path()).collect();
        let is_hidden = |path: &Path| path.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
        paths.retain(|path| !is_hidden(path) && path.extension().is_some_and(|e| e == "json"));
        paths.sort();
    }
    let read = |path: PathBuf| match std::fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(e) => Err(CommandFailure::file(&path, e)),
    };
    paths.into_iter().map(read).collect()
}

/// Writes each prediction as `<name>.json` and creates the folder if it does not exist.
///
/// # Errors
/// The folder or a file cannot be written.
pub(super) fn write_predictions(folder: &Path, predictions: &AnnotationFiles) -> Result<(), CommandFailure> {
    std::fs::create_dir_all(folder).map_err(|e| CommandFailure::Run(format!("{}: {e}", folder.display())))?;
    for (name, prediction) in predictions {
        write_file(&folder.join(format!("{name}.json")), &format!("{:#}\n", prediction.to_json()))?;
    }
    Ok(())
}
