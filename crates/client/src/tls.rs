//! TLS of a client, with the Collector's keys, for gRPC and HTTP.
//!
//! In: [`Tls`] settings; the files they name are read once, at start. Out: a `rustls` configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS settings of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// No TLS, unless the endpoint says `https://`. Default false. Spans then travel in the clear.
    /// For HTTP the URL alone decides.
    pub insecure: bool,
    /// PEM file of authorities to trust. Default: the system's. With it, only these are trusted.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client's certificate chain. Default: none; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM file of the client's private key. Default: none; needs `cert_file`.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must carry. Default: the endpoint's host.
    pub server_name_override: Option<String>,
    /// Accept any certificate. Default false. Anybody on the path can then read and change spans.
    pub insecure_skip_verify: bool,
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file cannot be read.
    #[error("cannot read {path}: {why}")]
    File { path: PathBuf, why: String },
    #[error("no certificate authority was found on this system; set tls.ca_file")]
    NoAuthorities,
    #[error("'{0}' is not a host name")]
    Name(String),
    /// Certificate and key do not match, or the authorities are unusable.
    #[error("{0}")]
    Unusable(String),
}

/// A client's configuration for the protocols named in `alpn`.
///
/// # Errors
/// A file cannot be read, or its content is unusable.
pub fn client_config(tls: &Tls, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = if tls.insecure_skip_verify {
        tracing::warn!("the server's certificate is not verified (insecure_skip_verify: true)");
        Arc::new(AcceptAny(Arc::clone(&provider)))
    } else {
        let roots = Arc::new(authorities(tls.ca_file.as_deref())?);
        let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|e| TlsError::Unusable(e.to_string()))?;
        match &tls.server_name_override {
            Some(name) => Arc::new(NameOverride { inner, name: server_name(name)? }),
            None => inner,
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Unusable(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, e))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| TlsError::Unusable(e.to_string()))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    Ok(config)
}

/// For a client with plain HTTP endpoints, where only a proxy may use TLS: trusts the system's
/// authorities, or none if the system has none.
///
/// # Errors
/// The TLS provider does not support the default protocol versions.
pub fn for_proxy() -> Result<ClientConfig, TlsError> {
    client_config(&Tls::default(), &[b"http/1.1"]).or_else(|_| without_authorities())
}

/// For a client that never uses TLS but requires a configuration.
///
/// # Errors
/// As [`for_proxy`].
pub fn without_authorities() -> Result<ClientConfig, TlsError> {
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Unusable(e.to_string()))?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

/// A host as certificates name it; an IPv6 address may be in brackets.
///
/// # Errors
/// `host` is not a host name.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

fn unreadable(path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
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
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(TlsError::NoAuthorities);
            }
        }
    }
    Ok(roots)
}

/// Verifies the certificate for the configured name instead of the endpoint's.
#[derive(Debug)]
struct NameOverride {
    inner: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for NameOverride {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.inner.verify_server_cert(end_entity, intermediates, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// `insecure_skip_verify`: accepts any certificate.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
