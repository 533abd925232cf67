//! Folders of one JSON file a trace, named after it.
//!
//! In: a folder. Out: what each file says, by the file's name without `.json`.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::{Failure, tell};
use crate::score::trail::Annotations;

/// Reads a folder of annotations. Files that hold no JSON object are told of and left out, as
/// the reference script leaves them out.
///
/// # Errors
/// The folder or a file in it cannot be read.
pub(super) fn read(folder: &Path) -> Result<BTreeMap<String, Annotations>, Failure> {
    let fault = |e: std::io::Error| Failure::Usage(format!("{}: {e}", folder.display()));
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let json = path.extension().is_some_and(|e| e == "json");
        if !json || stem.starts_with('.') {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))?;
        match Annotations::read(&bytes) {
            Some(annotations) => drop(out.insert(stem.to_owned(), annotations)),
            None => tell(&format!("{}: no JSON object in it; left out", path.display())),
        }
    }
    Ok(out)
}

/// Writes each prediction as `<name>.json`, making the folder where it is missing.
///
/// # Errors
/// The folder or a file cannot be written.
pub(super) fn write(folder: &Path, predictions: &BTreeMap<String, Annotations>) -> Result<(), Failure> {
    let fault = |path: &Path, e: std::io::Error| Failure::Run(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(folder).map_err(|e| fault(folder, e))?;
    for (name, prediction) in predictions {
        let path = folder.join(format!("{name}.json"));
        let text = format!("{:#}\n", prediction.to_json());
        std::fs::write(&path, text).map_err(|e| fault(&path, e))?;
    }
    Ok(())
}
