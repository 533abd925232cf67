//! Configuration files that change while the process runs.
//!
//! In: their names. Out: the moment at which their content is another and has come to rest. They
//! are read rather than watched: that also sees files that are exchanged by a link or mounted from
//! elsewhere, as Kubernetes does it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often the files are read. Content that is the same twice in a row is at rest.
const EVERY: Duration = Duration::from_secs(2);

/// More of a file is not looked at; the loader refuses larger ones.
const MAX_FILE: u64 = 4 << 20;

pub(super) struct Watch {
    files: Vec<PathBuf>,
    hasher: RandomState,
    every: Duration,
    /// What they held when they were last taken.
    taken: Option<u64>,
    /// What they held when they were last looked at.
    last: Option<u64>,
}

impl Watch {
    pub(super) fn new(files: Vec<PathBuf>) -> Watch {
        Watch { files, hasher: RandomState::new(), every: EVERY, taken: None, last: None }
    }

    /// A file that can be read only once, such as a pipe.
    pub(super) fn gone(&self) -> Option<&PathBuf> {
        self.files.iter().find(|file| std::fs::metadata(file).is_ok_and(|about| !about.is_file()))
    }

    /// What the files hold now is known.
    pub(super) async fn settle(&mut self) {
        self.taken = self.look().await;
        self.last = self.taken;
    }

    /// Returns once they hold something else, and have stopped changing. May be dropped at any
    /// time and called again.
    pub(super) async fn changed(&mut self) {
        loop {
            sleep(self.every).await;
            let now = self.look().await;
            let at_rest = std::mem::replace(&mut self.last, now) == now;
            if at_rest && now != self.taken {
                self.taken = now;
                return;
            }
        }
    }

    async fn look(&self) -> Option<u64> {
        let (files, hasher) = (self.files.clone(), self.hasher.clone());
        spawn_blocking(move || {
            let mut state = hasher.build_hasher();
            for file in files {
                let mut content = Vec::new();
                // Opening a pipe could wait for ever, and what it held is gone.
                if std::fs::metadata(&file).is_ok_and(|about| !about.is_file()) {
                    continue;
                }
                let read = std::fs::File::open(file).and_then(|f| f.take(MAX_FILE).read_to_end(&mut content));
                state.write_u8(u8::from(read.is_ok()));
                state.write_usize(content.len());
                state.write(&content);
            }
            state.finish()
        })
        .await
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_change_is_told_once_and_only_when_it_has_come_to_rest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.yaml");
        std::fs::write(&file, "one").unwrap();
        let mut watch = Watch::new(vec![file.clone()]);
        watch.every = Duration::from_millis(20);
        watch.settle().await;
        let quiet = Duration::from_millis(150);
        assert!(timeout(quiet, watch.changed()).await.is_err(), "nothing has changed");
        std::fs::write(&file, "two").unwrap();
        timeout(Duration::from_secs(5), watch.changed()).await.unwrap();
        assert!(timeout(quiet, watch.changed()).await.is_err(), "it was told already");
        assert!(watch.gone().is_none());
        std::fs::remove_file(&file).unwrap();
        timeout(Duration::from_secs(5), watch.changed()).await.unwrap();
        std::fs::write(&file, "two").unwrap();
        timeout(Duration::from_secs(5), watch.changed()).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_opened_again() {
        let mut watch = Watch::new(vec![PathBuf::from("/dev/zero")]);
        timeout(Duration::from_secs(5), watch.settle()).await.unwrap();
        assert!(watch.gone().is_some());
    }
}
