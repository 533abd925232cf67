//! The file of the judges' spending, so that their limits apply across restarts.
//!
//! In: [`Spending`]. Out: the same at the next start. A new version replaces the file by a rename, so that a
//! process that is killed leaves the old or the new one. The file contains names of judges, ids of traces, times and
//! amounts.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The spending by the name of the judge.
pub(crate) type Spending = BTreeMap<String, Spent>;

/// The spending of one judge: for the hour and for the day, the number of each slot since the Unix epoch with the
/// tokens and billionths of a USD spent in it; then the same for each trace, which earlier versions did not write.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spent(
    pub Vec<(u64, u64, u64)>,
    pub Vec<(u64, u64, u64)>,
    #[serde(default)] pub Vec<(String, u64, u64)>,
);

/// Maximum number of bytes that are read: more than the file of a hundred judges has.
const MAX_BYTES: u64 = 64 << 20;

/// Reads the file. Empty if there is no file; empty, with a log line, if it cannot be used.
pub(crate) fn read(file: &Path) -> Spending {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    let parsed = read.and_then(|_| serde_json::from_str(&text).map_err(io::Error::from));
    parsed.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            let file = file.display();
            tracing::warn!(%file, %error, "cannot read what judges have spent; their budgets start at zero");
        }
        Spending::new()
    })
}

pub(crate) fn write(file: &Path, spending: &Spending) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut options = OpenOptions::new();
    let mut opened = options.create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    opened.write_all(&serde_json::to_vec(spending)?)?;
    // Without an fsync, the rename could be on the disk before the content.
    opened.sync_data()?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_missing_or_damaged_file_is_read_as_nothing_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("judge-spending");
        assert_eq!(read(&file), Spending::new());
        let trace_amounts = vec![("01".repeat(16), 3, 4)];
        let spent = Spent(vec![(7, 1, 2)], vec![(1, u64::MAX, 0)], trace_amounts);
        let spent: Spending = [("main".to_owned(), spent)].into();
        for damaged in ["", "{", "[]", r#"{"main":[[[1,2]],[]]}"#, r#"{"main":[[[-1,2,3]],[]]}"#] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(read(&file), Spending::new(), "{damaged}");
            write(&file, &spent).unwrap();
            assert_eq!(read(&file), spent);
        }
        fs::write(&file, r#"{"main":[[[7,1,2]],[]]}"#).unwrap();
        assert_eq!(read(&file)["main"], Spent(vec![(7, 1, 2)], vec![], vec![]), "of an earlier version");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
