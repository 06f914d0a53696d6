//! Signatures of forward requests: one journal is bound to one key.
//!
//! An agent creates a key pair once (Ed25519, RFC 8032) and signs each request before compression.
//! The receiver stores the public key of a journal's first signed request, and rejects requests for
//! that journal with another key. The secret key never leaves the agent, so an eavesdropper gains
//! nothing, with or without TLS; a replayed request is a repeat, which is counted once.
//!
//! The signed message is [`CONTEXT`] and the SHA-512 of the request.

use std::fmt::Write as _;

use ring::digest::{SHA512, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// Prefix of the digest, so that the signature is valid for nothing but a forward request (called a
/// parcel in version 1).
const CONTEXT: &[u8] = b"topdeck parcel signature 1\n";
/// Bytes of a secret key's seed and of a public key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// A public key.
pub type PublicKey = [u8; KEY_BYTES];

/// Signs forward requests.
pub struct Signer(Ed25519KeyPair);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", to_hex(&self.public_key()))
    }
}

impl Signer {
    /// Derives the key pair of a seed, which must be random and secret.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Signer {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        Signer(pair.expect("BUG: a seed has 32 bytes"))
    }

    /// Public key that verifies its signatures.
    pub fn public_key(&self) -> PublicKey {
        let key = self.0.public_key().as_ref();
        key.try_into().expect("BUG: a public key has 32 bytes")
    }

    /// Signs a forward request.
    pub fn sign(&self, request: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.0.sign(&message_to_sign(request));
        signature.as_ref().try_into().expect("BUG: a signature has 64 bytes")
    }
}

/// Verifies the signature of a forward request.
pub fn verify_signature(
    request: &[u8],
    key: &PublicKey,
    signature: &[u8; SIGNATURE_BYTES],
) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(&message_to_sign(request), signature).is_ok()
}

fn message_to_sign(request: &[u8]) -> Vec<u8> {
    [CONTEXT, digest(&SHA512, request).as_ref()].concat()
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses exactly `N` bytes of hexadecimal digits.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_covers_request_and_key() {
        let (ours, other) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let signature = ours.sign(b"request");
        assert!(verify_signature(b"request", &ours.public_key(), &signature));
        assert!(!verify_signature(b"Parcel", &ours.public_key(), &signature));
        assert!(!verify_signature(b"request", &other.public_key(), &signature));
        let mut forged = signature;
        forged[63] ^= 1;
        assert!(!verify_signature(b"request", &ours.public_key(), &forged));
    }

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn a_seed_always_has_the_same_key() {
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let key = to_hex(&Signer::from_seed(&from_hex(seed).unwrap()).public_key());
        assert_eq!(key, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    }

    #[test]
    fn hex_round_trips() {
        assert_eq!(from_hex(&to_hex(&[0, 0x7f, 0xff])), Some([0, 0x7f, 0xff]));
        for text in ["", "00", "00ff0", "0g", "+1"] {
            assert_eq!(from_hex::<3>(text), None);
        }
        assert_eq!(from_hex::<1>("+1"), None);
    }
}
