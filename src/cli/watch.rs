//! Detects changes of configuration files while the process runs.
//!
//! In: file names. Out: a future that resolves when the content of a file has changed and is stable. Files that
//! `${file:PATH}` or an exporter's TLS settings name are included. The files are polled, because file system
//! notifications miss files that are replaced through a symbolic link, as Kubernetes mounts them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Polling interval. Content that is equal in two consecutive reads is stable.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Bytes read of each file; the loader refuses larger files.
const MAX_FILE_BYTES: u64 = 4 << 20;

pub(super) struct Watch {
    files: Vec<PathBuf>,
    certificates: Vec<PathBuf>,
    hasher: RandomState,
    interval: Duration,
    /// Hash of the content that the process uses; `None` if the content could not be read.
    hash_in_use: Option<u64>,
    /// Hash of the content at the last read.
    last_hash: Option<u64>,
}

impl Watch {
    pub(super) fn new(files: Vec<PathBuf>, certificates: Vec<PathBuf>) -> Watch {
        Watch {
            files,
            certificates,
            hasher: RandomState::new(),
            interval: POLL_INTERVAL,
            hash_in_use: None,
            last_hash: None,
        }
    }

    /// A file that can be read only once, such as a pipe.
    pub(super) fn non_regular_file(&self) -> Option<&PathBuf> {
        self.files.iter().find(|file| std::fs::metadata(file).is_ok_and(|metadata| !metadata.is_file()))
    }

    /// Takes the current content as the content in use.
    pub(super) async fn mark_current(&mut self) {
        self.hash_in_use = self.content_hash().await;
        self.last_hash = self.hash_in_use;
    }

    /// Returns when the content differs from the content in use and is stable. Cancel safe.
    pub(super) async fn changed(&mut self) {
        loop {
            sleep(self.interval).await;
            let current_hash = self.content_hash().await;
            let is_stable = std::mem::replace(&mut self.last_hash, current_hash) == current_hash;
            if is_stable && current_hash != self.hash_in_use {
                self.hash_in_use = current_hash;
                return;
            }
        }
    }

    async fn content_hash(&self) -> Option<u64> {
        let (configs, certificates) = (self.files.clone(), self.certificates.clone());
        let hasher = self.hasher.clone();
        spawn_blocking(move || {
            let mut hash_state = hasher.build_hasher();
            let mut files: Vec<(PathBuf, bool)> =
                certificates.into_iter().map(|file| (file, false)).collect();
            files.extend(configs.into_iter().map(|file| (file, true)));
            while let Some((file, is_config)) = files.pop() {
                let mut content = Vec::new();
                // Opening a pipe could block, and its content was consumed by the first read.
                if std::fs::metadata(&file).is_ok_and(|metadata| !metadata.is_file()) {
                    continue;
                }
                let read =
                    std::fs::File::open(file).and_then(|f| f.take(MAX_FILE_BYTES).read_to_end(&mut content));
                hash_state.write_u8(u8::from(read.is_ok()));
                hash_state.write_usize(content.len());
                hash_state.write(&content);
                let text = if is_config { String::from_utf8_lossy(&content) } else { "".into() };
                let expressions = text.split("${file:").skip(1).filter_map(|rest| rest.split('}').next());
                let paths = expressions.filter_map(|inner| inner.split(":-").next());
                files.extend(paths.map(|path| (path.into(), false)));
            }
            hash_state.finish()
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
    async fn a_stable_change_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.yaml");
        std::fs::write(&file, "one").unwrap();
        let mut watch = Watch::new(vec![file.clone()], Vec::new());
        watch.interval = Duration::from_millis(20);
        watch.mark_current().await;
        let quiet = Duration::from_millis(150);
        assert!(timeout(quiet, watch.changed()).await.is_err(), "nothing has changed");
        std::fs::write(&file, "two").unwrap();
        timeout(Duration::from_secs(180), watch.changed()).await.unwrap();
        assert!(timeout(quiet, watch.changed()).await.is_err(), "the change was reported already");
        assert!(watch.non_regular_file().is_none());
        std::fs::remove_file(&file).unwrap();
        timeout(Duration::from_secs(180), watch.changed()).await.unwrap();
        std::fs::write(&file, "two").unwrap();
        timeout(Duration::from_secs(180), watch.changed()).await.unwrap();
    }

    #[tokio::test]
    async fn files_with_secrets_and_certificates_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let [config, token, pem] = ["c.yaml", "token", "ca.pem"].map(|name| folder.path().join(name));
        let text = format!("a: Bearer ${{file:{}:-none}}\nb: ${{file:/no/such/file}}", token.display());
        std::fs::write(&config, text).unwrap();
        std::fs::write(&pem, "one").unwrap();
        let mut watch = Watch::new(vec![config], vec![pem.clone()]);
        watch.interval = Duration::from_millis(20);
        watch.mark_current().await;
        for file in [token, pem] {
            std::fs::write(&file, "two").unwrap();
            timeout(Duration::from_secs(180), watch.changed()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn special_files_are_not_opened() {
        let mut watch = Watch::new(vec![PathBuf::from("/dev/zero")], Vec::new());
        timeout(Duration::from_secs(180), watch.mark_current()).await.unwrap();
        assert!(watch.non_regular_file().is_some());
    }
}
