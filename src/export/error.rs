//! Why an exporter cannot be started.

use verdict_client::ClientError;

/// An exporter that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The endpoint, a header or TLS is unusable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file cannot be opened for appending.
    #[error("path: cannot open {path}: {why}")]
    File { path: String, why: std::io::Error },
    /// `service.exporters` names an exporter that `exporters` does not define.
    #[error("there is no exporter '{0}'")]
    Unknown(String),
}
