//! The errors with which an exporter cannot be started.

use verdict_client::ClientError;

/// An exporter that cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The endpoint, a header or TLS is unusable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file cannot be opened for appending.
    #[error("path: cannot open {path}: {error}")]
    File { path: String, error: std::io::Error },
    /// `service.exporters` names an exporter that `exporters` does not define.
    #[error("there is no exporter '{0}'")]
    Unknown(String),
    /// An exporter of type `scores` names no back end.
    #[error("flavor: required")]
    NoFlavor,
    /// librdkafka refuses the settings, or the binary was built without Kafka.
    #[error("{0}")]
    Kafka(String),
    /// An exporter of type `custom` has no client.
    #[error("no client is registered under this id")]
    Unregistered,
}
