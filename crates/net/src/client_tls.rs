//! Whom a dialler trusts, and what it shows of itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// TLS as a client has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Certificates (PEM) that are trusted; without them, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The own certificate with its chain, and its key (both PEM), for a server that asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A file that is none, or settings that do not fit each other.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {what}: {why}")]
pub struct ClientTlsError {
    /// The file, or what it was about.
    pub what: String,
    /// What is wrong.
    pub why: String,
}

fn wrong(what: impl std::fmt::Display, why: impl std::fmt::Display) -> ClientTlsError {
    ClientTlsError { what: what.to_string(), why: why.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(|all| all.collect::<Result<Vec<_>, _>>())
        .map_err(|error| wrong(path.display(), error))?;
    match found.is_empty() {
        true => Err(wrong(path.display(), "no certificate in it")),
        false => Ok(found),
    }
}

impl ClientTls {
    /// What rustls goes by; `alpn` are the protocols to offer, the best first.
    pub fn config(&self, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, ClientTlsError> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| wrong(path.display(), error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("versions", error))?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| wrong(key.display(), error))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| wrong(certificate.display(), error))?
            }
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}
