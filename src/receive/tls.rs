//! TLS of a listener, with the Collector's keys: a certificate, and for mTLS the authorities of client
//! certificates.
//!
//! In: [`ServerTls`] and the PEM files it names, which are reloaded while the process runs. Out: a
//! `rustls` configuration for each new connection; existing connections keep theirs.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Period;

/// Largest PEM file in bytes: chains have some KiB, bundles of authorities some hundred.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// `tls` of a protocol, which is then served over TLS only.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// PEM file with the certificate and its intermediate certificates.
    pub cert_file: PathBuf,
    /// PEM file with the private key of the certificate.
    pub key_file: PathBuf,
    /// Default none. PEM file with certificate authorities. Clients must then present a certificate that one
    /// of them signed (mTLS), or the handshake fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<PathBuf>,
    /// Default `1.2`. Lowest version of TLS, `1.2` or `1.3`. `1.3` excludes senders from before 2018.
    #[serde(default)]
    pub min_version: TlsVersion,
    /// Default 1m. Interval at which the files are read again, for new connections. Unusable files are
    /// logged, and the current certificates stay in use. 0 reads the files at start only.
    #[serde(default = "one_minute")]
    pub reload_interval: Period,
}

fn one_minute() -> Period {
    Period::secs(60)
}

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V13,
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerTlsError {
    #[error("tls: cannot read {path}: {reason}")]
    File { path: PathBuf, reason: String },
    #[error("tls: {0}")]
    Unusable(String),
}

/// Contents of the PEM files.
#[derive(Hash)]
struct PemFiles {
    cert: Vec<u8>,
    key: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

/// The TLS configuration of a listener, reloadable.
#[derive(Debug)]
pub(crate) struct Identity {
    settings: ServerTls,
    alpn: Vec<Vec<u8>>,
    current: ArcSwap<ServerConfig>,
    hasher: RandomState,
    /// Hash of the files' contents at the last read, usable or not.
    last_hash: AtomicU64,
}

impl Identity {
    /// Reads the files; `alpn` names the protocols over TLS.
    pub(crate) fn load(settings: &ServerTls, alpn: &[&[u8]]) -> Result<Identity, ServerTlsError> {
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|name| name.to_vec()).collect();
        let files = PemFiles::read(settings)?;
        let hasher = RandomState::new();
        let last_hash = AtomicU64::new(hasher.hash_one(&files));
        let current = ArcSwap::from_pointee(files.server_config(settings, &alpn)?);
        Ok(Identity { settings: settings.clone(), alpn, current, hasher, last_hash })
    }

    /// The configuration for a new connection.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Whether clients must present a certificate.
    pub(crate) fn is_mutual(&self) -> bool {
        self.settings.client_ca_file.is_some()
    }

    /// The interval of [`Identity::reload`]; `None` if the files are read at start only.
    pub(crate) fn reload_interval(&self) -> Option<Duration> {
        Some(self.settings.reload_interval.0).filter(|interval| !interval.is_zero())
    }

    /// Reads the files again; returns whether they have changed. On an error, returned once for each
    /// change, the current configuration stays in use.
    pub(crate) fn reload(&self) -> Result<bool, ServerTlsError> {
        let files = PemFiles::read(&self.settings);
        let hash = files.as_ref().map_or(0, |files| self.hasher.hash_one(files));
        if self.last_hash.swap(hash, Ordering::Relaxed) == hash {
            return Ok(false);
        }
        self.current.store(Arc::new(files?.server_config(&self.settings, &self.alpn)?));
        Ok(true)
    }
}

impl PemFiles {
    fn read(settings: &ServerTls) -> Result<PemFiles, ServerTlsError> {
        let authorities = settings.client_ca_file.as_deref().map(read_file).transpose()?;
        Ok(PemFiles {
            cert: read_file(&settings.cert_file)?,
            key: read_file(&settings.key_file)?,
            authorities,
        })
    }

    fn server_config(&self, settings: &ServerTls, alpn: &[Vec<u8>]) -> Result<ServerConfig, ServerTlsError> {
        let unusable = |e: &dyn std::fmt::Display| ServerTlsError::Unusable(e.to_string());
        let provider = Arc::new(ring::default_provider());
        let versions: &[&SupportedProtocolVersion] = match settings.min_version {
            TlsVersion::V12 => &[&TLS13, &TLS12],
            TlsVersion::V13 => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|e| unusable(&e))?;
        let builder = match (&self.authorities, &settings.client_ca_file) {
            (Some(pem), Some(path)) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path, pem)? {
                    roots.add(authority).map_err(|e| unreadable(path, e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|e| unusable(&e))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let chain = certificates(&settings.cert_file, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|e| unreadable(&settings.key_file, e))?;
        // Also checks that key and certificate match.
        let mut config = builder.with_single_cert(chain, key).map_err(|e| unusable(&e))?;
        config.alpn_protocols = alpn.to_vec();
        Ok(config)
    }
}

fn unreadable(path: &Path, reason: impl std::fmt::Display) -> ServerTlsError {
    ServerTlsError::File { path: path.to_owned(), reason: reason.to_string() }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ServerTlsError> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(|e| unreadable(path, e))?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(|e| unreadable(path, e))?;
    match content.len() as u64 <= MAX_FILE_BYTES {
        true => Ok(content),
        false => Err(unreadable(path, format_args!("it is larger than {MAX_FILE_BYTES} bytes"))),
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServerTlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| unreadable(path, e))?;
    if all.is_empty() { Err(unreadable(path, "it contains no certificate")) } else { Ok(all) }
}
