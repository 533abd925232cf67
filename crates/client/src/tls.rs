//! TLS of gRPC and HTTP clients, configured by the Collector's key names.
//!
//! In: [`Tls`] settings, whose files are read once, at start. Out: a `rustls` configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS settings of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Default false. No TLS, unless the endpoint begins with `https://`: content is sent unencrypted.
    /// Ignored for HTTP, where the scheme of the URL decides.
    pub insecure: bool,
    /// Default: the system's certificate authorities. PEM file of the only certificate authorities to
    /// trust.
    pub ca_file: Option<PathBuf>,
    /// Default none. PEM file of the client's certificate chain; requires `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Default none. PEM file of the client's private key; requires `cert_file`.
    pub key_file: Option<PathBuf>,
    /// Default: the endpoint's host. The name that the server's certificate must be valid for.
    pub server_name_override: Option<String>,
    /// Default false. Accept any certificate: an attacker between client and server can then read and
    /// change what is sent.
    pub insecure_skip_verify: bool,
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM file cannot be read.
    #[error("cannot read {path}: {reason}")]
    File { path: PathBuf, reason: String },
    #[error("no certificate authority was found on this system; set tls.ca_file")]
    NoAuthorities,
    #[error("'{0}' is not a host name")]
    Name(String),
    #[error(transparent)]
    Authorities(#[from] VerifierBuilderError),
    /// For example, certificate and key do not match.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// A client's configuration for the protocols named in `alpn`.
///
/// # Errors
/// A file cannot be read, or its content is unusable.
pub fn client_config(tls: &Tls, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let inner = if tls.insecure_skip_verify {
        tracing::warn!("the server's certificate is not verified (insecure_skip_verify: true)");
        None
    } else {
        let roots = Arc::new(authorities(tls.ca_file.as_deref())?);
        Some(WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?)
    };
    let name = tls.server_name_override.as_deref().filter(|_| inner.is_some());
    let name = name.map(server_name).transpose()?;
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { inner, name, algorithms }));
    let mut config = match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, e))?;
            builder.with_client_auth_cert(chain, key)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    Ok(config)
}

/// The configuration of a client whose endpoints use plain HTTP, so that only a proxy may use TLS: trusts the
/// system's certificate authorities, or none if the system has none.
///
/// # Errors
/// The TLS provider does not support the default protocol versions.
pub(crate) fn for_proxy() -> Result<ClientConfig, TlsError> {
    client_config(&Tls::default(), &[b"http/1.1"]).or_else(|_| without_authorities())
}

/// The configuration of a client that never uses TLS but requires a configuration.
///
/// # Errors
/// Like [`for_proxy`].
pub(crate) fn without_authorities() -> Result<ClientConfig, TlsError> {
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

/// A host name or address as certificates contain it; an IPv6 address may be in brackets.
///
/// # Errors
/// `host` is not a host name.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

fn unreadable(path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), reason: reason.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|e| unreadable(path, e))?.collect();
    let all = all.map_err(|e| unreadable(path, e))?;
    if all.is_empty() { Err(unreadable(path, "it contains no certificate")) } else { Ok(all) }
}

fn authorities(ca_file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|e| unreadable(path, e))?;
            }
        }
        None => {
            let native = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(native.certs);
            if roots.is_empty() {
                return Err(TlsError::NoAuthorities);
            }
        }
    }
    Ok(roots)
}

/// Verifies certificates as [`WebPkiServerVerifier`] does, but with the settings of [`Tls`].
#[derive(Debug)]
struct Verifier {
    /// `None` accepts any certificate (`insecure_skip_verify`). Signatures are verified in any case.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// The name that certificates must be valid for instead of the endpoint's host (`server_name_override`).
    name: Option<ServerName<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let name = self.name.as_ref().unwrap_or(host);
        match &self.inner {
            Some(inner) => inner.verify_server_cert(end_entity, intermediates, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
