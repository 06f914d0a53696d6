//! Pin of a server's public key: the SHA-256 of the key with its algorithm (SubjectPublicKeyInfo of
//! RFC 5280), written as curl's `--pinnedpubkey` takes it: `sha256//` and Base64. A renewed
//! certificate of the same key has the same pin.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

use crate::certificate::public_key;

const PREFIX: &str = "sha256//";

/// Pin of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKeyPin([u8; 32]);

/// Text that is no pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid pin {0:?}: expected sha256// and the Base64 of 32 bytes, as for curl's --pinnedpubkey"
)]
pub struct PublicKeyPinError(String);

impl PublicKeyPin {
    /// Pin of the key of a certificate (DER); `None` if the certificate is malformed.
    pub fn of_certificate(certificate: &[u8]) -> Option<PublicKeyPin> {
        let digest = digest(&SHA256, public_key(certificate)?);
        Some(PublicKeyPin(digest.as_ref().try_into().expect("BUG: SHA-256 has 32 bytes")))
    }
}

impl fmt::Display for PublicKeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKeyPin {
    type Err = PublicKeyPinError;

    fn from_str(text: &str) -> Result<PublicKeyPin, PublicKeyPinError> {
        let decoded = text.strip_prefix(PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
        let bytes = decoded.and_then(|bytes| bytes.try_into().ok());
        bytes.map(PublicKeyPin).ok_or_else(|| PublicKeyPinError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Made with `openssl x509 -pubkey -noout | openssl pkey -pubin -outform DER | openssl dgst
    /// -sha256 -binary | base64`, as the manual of curl says.
    #[test]
    fn pin_is_that_of_openssl() {
        let pem = include_str!("../../../testdata/public-key-pin/pinned.pem");
        let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let pin = PublicKeyPin::of_certificate(&STANDARD.decode(base64).unwrap()).unwrap();
        assert_eq!(
            pin.to_string(),
            include_str!("../../../testdata/public-key-pin/pinned.pin").trim()
        );
    }

    #[test]
    fn pin_stays_when_the_certificate_is_renewed() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let pin = |key: &KeyPair, name: &str| {
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            PublicKeyPin::of_certificate(params.self_signed(key).unwrap().der()).unwrap()
        };
        assert_eq!(pin(&key, "a"), pin(&key, "b"));
        assert_ne!(pin(&key, "a"), pin(&other, "a"));
        assert_eq!(pin(&key, "a").to_string().parse(), Ok(pin(&key, "a")));
    }

    #[test]
    fn other_texts_are_no_pins() {
        for text in ["", "sha256//", "sha256//AAAA", "md5//AAAA", "sha256//!"] {
            assert!(text.parse::<PublicKeyPin>().is_err(), "{text}");
        }
    }
}
