//! TLS 1.2 and 1.3 of servers and clients: certificates and keys in PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme, WantsVerifier,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::public_key_pin::PublicKeyPin;

/// TLS configuration of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// CA of client certificates. A client certificate is optional; if sent, it is verified.
    pub client_ca: Option<PathBuf>,
}

/// TLS configuration of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// CA of servers; by default the system's CAs.
    pub ca: Option<PathBuf>,
    /// Client certificate, for servers that request one. Requires `key`.
    pub certificate: Option<PathBuf>,
    /// Private key of `certificate`.
    pub key: Option<PathBuf>,
    /// Public keys of the server. If there are any, the server needs one of them, and neither CA
    /// nor name are verified.
    pub pins: Vec<PublicKeyPin>,
}

/// TLS configuration error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is unusable.
    #[error("{purpose} {}: {reason}", path.display())]
    File {
        /// Purpose of the file.
        purpose: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// Invalid configuration: files that do not match or are missing, or no usable protocol.
    #[error("{0}")]
    Settings(String),
}

/// Protocols offered by servers, by preference.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

impl ServerTls {
    /// Pin of the public key of the server's certificate.
    pub fn public_key_pin(&self) -> Result<PublicKeyPin, TlsError> {
        let certificate = read_certificates(&self.certificate)?.swap_remove(0);
        PublicKeyPin::of_certificate(&certificate)
            .ok_or_else(|| file_error("certificate", &self.certificate, &"malformed certificate"))
    }

    /// Reads the files. After a file changed, call it again and use the result for new connections.
    pub fn config(&self) -> Result<ServerConfig, TlsError> {
        let provider = crypto_provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Settings(error.to_string()))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(read_roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| file_error("client CA", path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (certificates, key) = (read_certificates(&self.certificate)?, read_key(&self.key)?);
        let mut config = builder
            .with_single_cert(certificates, key)
            .map_err(|error| mismatch_error(&self.certificate, &self.key, &error))?;
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        Ok(config)
    }
}

impl ClientTls {
    /// Whether it uses files, which may change.
    pub fn has_files(&self) -> bool {
        *self != ClientTls::default()
    }

    /// Reads the files. The caller sets the protocols (ALPN).
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        if !self.pins.is_empty() {
            let pinned = PinnedKeyVerification {
                pins: self.pins.clone(),
                signatures: NoCertVerification(crypto_provider()),
            };
            return self.with_client_certificate(
                client_builder()?.dangerous().with_custom_certificate_verifier(Arc::new(pinned)),
            );
        }
        let roots = match &self.ca {
            Some(path) => read_roots(path)?,
            None => read_system_roots()?,
        };
        self.with_client_certificate(client_builder()?.with_root_certificates(roots))
    }

    /// Configuration of a client that accepts any certificate: traffic is encrypted, but the server
    /// is not authenticated. `ca` is ignored.
    pub fn unverified_config(&self) -> Result<ClientConfig, TlsError> {
        let no_verification = Arc::new(NoCertVerification(crypto_provider()));
        self.with_client_certificate(
            client_builder()?.dangerous().with_custom_certificate_verifier(no_verification),
        )
    }

    fn with_client_certificate(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, TlsError> {
        match (&self.certificate, &self.key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(certificate), Some(key_path)) => builder
                .with_client_auth_cert(read_certificates(certificate)?, read_key(key_path)?)
                .map_err(|error| mismatch_error(certificate, key_path, &error)),
            (Some(path), None) => Err(TlsError::Settings(format!(
                "certificate {} has no key; set the key file",
                path.display()
            ))),
            (None, Some(path)) => Err(TlsError::Settings(format!(
                "key {} has no certificate; set the certificate file",
                path.display()
            ))),
        }
    }
}

fn client_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TlsError> {
    ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Settings(error.to_string()))
}

/// Accepts any certificate; the handshake signature is still verified.
#[derive(Debug)]
struct NoCertVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoCertVerification {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts certificates with pinned keys.
#[derive(Debug)]
struct PinnedKeyVerification {
    pins: Vec<PublicKeyPin>,
    signatures: NoCertVerification,
}

impl ServerCertVerifier for PinnedKeyVerification {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = PublicKeyPin::of_certificate(certificate);
        if found.is_some_and(|found| self.pins.contains(&found)) {
            return Ok(ServerCertVerified::assertion());
        }
        let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
        let pins: Vec<String> = self.pins.iter().map(ToString::to_string).collect();
        Err(rustls::Error::General(format!(
            "the server's public key is {found}, expected {}; if the server has a new key, pin \
             that one",
            pins.join(" or ")
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn file_error(what: &'static str, path: &Path, cause: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { purpose: what, path: path.to_owned(), reason: cause.to_string() }
}

fn mismatch_error(certificate: &Path, key: &Path, cause: &rustls::Error) -> TlsError {
    TlsError::Settings(format!(
        "certificate {} and key {} do not match: {cause}",
        certificate.display(),
        key.display()
    ))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| file_error("certificate", path, &error))?;
    if found.is_empty() {
        return Err(file_error("certificate", path, &"no PEM CERTIFICATE found"));
    }
    Ok(found)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| file_error("private key", path, &error))
}

fn read_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| file_error("CA file", path, &error))?;
    }
    Ok(roots)
}

fn read_system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some systems have invalid certificates in their store; one valid certificate is enough.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason =
            found.errors.first().map_or("no certificates found".to_owned(), ToString::to_string);
        return Err(TlsError::Settings(format!(
            "cannot read the system's CA certificates: {reason}; set a CA file"
        )));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    struct TestFiles {
        dir: PathBuf,
    }

    impl TestFiles {
        fn new(name: &str) -> TestFiles {
            // A process ID repeats, and with it the name of a file that a killed process left.
            let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), name);
            let dir = std::env::temp_dir().join(format!("topdeck-net-{name}-{number:x}"));
            std::fs::create_dir(&dir).unwrap();
            for name in ["a", "b"] {
                let key = KeyPair::generate().unwrap();
                let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
                let pem = params.self_signed(&key).unwrap().pem();
                std::fs::write(dir.join(name).with_extension("crt"), pem).unwrap();
                std::fs::write(dir.join(name).with_extension("key"), key.serialize_pem()).unwrap();
            }
            TestFiles { dir }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.join(name)
        }
    }

    impl Drop for TestFiles {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    #[track_caller]
    fn check(name: &str, certificate: &str, key: &str, client_ca: Option<&str>, part: &str) {
        let files = TestFiles::new(name);
        let [certificate, key] = [certificate, key].map(|name| files.path(name));
        let client_ca = client_ca.map(|name| files.path(name));
        let found = ServerTls { certificate, key, client_ca }.config();
        match found {
            Ok(config) => assert_eq!((config.alpn_protocols.len(), part), (2, "")),
            Err(error) => assert!(!part.is_empty() && error.to_string().contains(part), "{error}"),
        }
    }

    #[test]
    fn errors_name_the_file() {
        check("good", "a.crt", "a.key", Some("b.crt"), "");
        check("other", "a.crt", "b.key", None, "do not match");
        check("missing", "c.crt", "a.key", None, "c.crt: ");
        check("swapped", "a.key", "a.key", None, "a.key: no PEM CERTIFICATE found");
        check("no-key", "a.crt", "a.crt", None, "private key ");
        check("no-ca", "a.crt", "a.key", Some("x"), "x: ");
    }

    #[test]
    fn clients_show_a_certificate_with_its_key_or_none() {
        let files = TestFiles::new("client");
        let tls = |certificate: Option<&str>, key: Option<&str>| {
            let [certificate, key] =
                [certificate, key].map(|name| name.map(|name| files.path(name)));
            let ca = Some(files.path("a.crt"));
            ClientTls { ca, certificate, key, pins: Vec::new() }.config().map(drop)
        };
        assert!(tls(None, None).is_ok());
        assert!(tls(Some("b.crt"), Some("b.key")).is_ok());
        assert!(tls(Some("b.crt"), None).unwrap_err().to_string().contains("has no key"));
        assert!(tls(None, Some("b.key")).unwrap_err().to_string().contains("has no certificate"));
    }

    #[test]
    fn only_the_pinned_key_is_accepted() {
        let files = TestFiles::new("pinned");
        let pin = |name: &str| {
            let (certificate, key) = (files.path(name), files.path("a.key"));
            ServerTls { certificate, key, client_ca: None }.public_key_pin().unwrap()
        };
        let verify = |pins: Vec<PublicKeyPin>| {
            let signatures = NoCertVerification(crypto_provider());
            let pinned = PinnedKeyVerification { pins, signatures };
            let certificate = read_certificates(&files.path("a.crt")).unwrap().remove(0);
            // Its name is localhost.
            let name = ServerName::try_from("10.0.0.1").unwrap();
            pinned.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).map(drop)
        };
        assert_eq!(verify(vec![pin("b.crt"), pin("a.crt")]), Ok(()));
        let error = verify(vec![pin("b.crt")]).unwrap_err().to_string();
        assert!(error.contains(&pin("a.crt").to_string()), "{error}");
        assert!(error.contains(&format!("expected {}", pin("b.crt"))), "{error}");
        let tls = ClientTls { pins: vec![pin("a.crt")], ..ClientTls::default() };
        assert!(tls.has_files() && tls.config().is_ok());
    }
}
