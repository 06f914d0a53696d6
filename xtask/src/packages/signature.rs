//! `SHA256SUMS.minisig`: a signature of the checksums, which cover all packages.
//!
//! Format: minisign without prehashing (algorithm `Ed`): the Ed25519 signature of the file, in
//! base64 after the algorithm and the number of the key, then a trusted comment, and the signature
//! of both. It is verified by minisign, or with less by signify of OpenBSD.
//!
//! The secret key is PKCS #8 in PEM, as `openssl genpkey -algorithm ed25519` writes it. It is made
//! at the first use, outside of the repository, readable for its owner only. Source of the formats:
//! minisign(1); RFC 8410.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::PackageDir;
use super::checksums;
use crate::command_line::root;

const ALGORITHM: &[u8] = b"Ed";
pub(super) const FILE: &str = "SHA256SUMS.minisig";
/// Public key, as minisign reads it. It is written beside the packages.
pub(super) const PUBLIC_KEY: &str = "topdeck.pub";
/// DER of a PKCS #8 key of Ed25519 (RFC 8410), before the 32 bytes of the seed.
const PKCS_8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// Signs the checksums with the key in the file `path`, which is made if it is missing.
pub(super) fn write(files: &mut PackageDir, path: &Path, time_s: u64) -> Result<()> {
    let key = SigningKey::open(path)?;
    let name = checksums::FILE;
    let sums = files.dir.join(name);
    let sums = fs::read(&sums).with_context(|| format!("cannot read {}", sums.display()))?;
    let comment = format!("timestamp:{time_s}\tfile:{name}");
    files.write(FILE, key.sign(&sums, &comment).as_bytes())?;
    files.write(PUBLIC_KEY, key.public_key().as_bytes())
}

/// Default path of the key: the directory of settings of the user.
pub(super) fn default_key() -> Result<PathBuf> {
    let named = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let settings = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
    let dir = settings.context("cannot find the signing key: HOME is not set; use --key FILE")?;
    Ok(dir.join("topdeck/signing-key.pem"))
}

struct SigningKey {
    pair: Ed25519KeyPair,
    /// Distinguishes keys; not secret.
    number: [u8; 8],
}

impl SigningKey {
    fn open(path: &Path) -> Result<SigningKey> {
        let cannot = |verb: &str| format!("cannot {verb} the signing key {}", path.display());
        let absolute = std::path::absolute(path).with_context(|| cannot("find"))?;
        ensure!(
            !absolute.starts_with(root()),
            "cannot use the signing key {}: it is in the repository; choose another path",
            path.display()
        );
        if !path.exists() {
            make_key(path).with_context(|| cannot("make"))?;
        }
        let text = fs::read_to_string(path).with_context(|| cannot("read"))?;
        SigningKey::parse(&text).with_context(|| cannot("parse"))
    }

    fn parse(pem: &str) -> Result<SigningKey> {
        let body = pem.trim().strip_prefix(PEM_BEGIN).and_then(|rest| rest.strip_suffix(PEM_END));
        let body: String = body
            .with_context(|| format!("found no line {PEM_BEGIN:?}, expected PEM"))?
            .split_whitespace()
            .collect();
        let key = STANDARD.decode(body).context("the PEM is not base64")?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key);
        let pair = pair.map_err(|error| anyhow::anyhow!("it is not an Ed25519 key: {error}"))?;
        let digest = digest::digest(&digest::SHA256, pair.public_key().as_ref());
        let number = digest.as_ref()[..8].try_into().expect("BUG: it has 32 bytes");
        Ok(SigningKey { pair, number })
    }

    fn sign(&self, bytes: &[u8], trusted_comment: &str) -> String {
        let signature = self.pair.sign(bytes);
        let line = [ALGORITHM, &self.number, signature.as_ref()].concat();
        let both = [signature.as_ref(), trusted_comment.as_bytes()].concat();
        format!(
            "untrusted comment: signature of topdeck\n{}\ntrusted comment: {trusted_comment}\n{}\n",
            STANDARD.encode(line),
            STANDARD.encode(self.pair.sign(&both))
        )
    }

    fn public_key(&self) -> String {
        let key = [ALGORITHM, &self.number, self.pair.public_key().as_ref()].concat();
        format!("untrusted comment: public key of topdeck\n{}\n", STANDARD.encode(key))
    }
}

/// Writes a new key, for its owner only; fails if the file exists.
fn make_key(path: &Path) -> Result<()> {
    let mut seed = [0; 32];
    let random = SystemRandom::new().fill(&mut seed);
    random.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    let key = STANDARD.encode([&PKCS_8[..], &seed].concat());
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    write!(file, "{PEM_BEGIN}\n{key}\n{PEM_END}\n")?;
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 2: seed, public key, and signature of the byte 0x72.
    const SEED: &str = "TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs=";
    const PUBLIC: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    const SIGNATURE: &str = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";

    fn key() -> SigningKey {
        let seed = STANDARD.decode(SEED).unwrap();
        let pem = STANDARD.encode([&PKCS_8[..], &seed].concat());
        SigningKey::parse(&format!("{PEM_BEGIN}\n{pem}\n{PEM_END}\n")).unwrap()
    }

    #[test]
    fn signature_is_that_of_rfc_8032() {
        let text = key().sign(b"\x72", "c");
        let line = STANDARD.decode(text.lines().nth(1).unwrap()).unwrap();
        assert_eq!((&line[..2], line.len()), (&b"Ed"[..], 74));
        assert_eq!(checksums::hex(&line[10..]), SIGNATURE);
        let public = key().public_key();
        let public = STANDARD.decode(public.lines().nth(1).unwrap()).unwrap();
        assert_eq!(checksums::hex(&public[10..]), PUBLIC);
        assert_eq!(public[..10], line[..10]);
    }

    #[test]
    fn a_key_in_the_repository_is_refused() {
        let error = SigningKey::open(&root().join("key.pem")).map(drop).unwrap_err().to_string();
        assert!(error.contains("it is in the repository"), "{error}");
    }

    #[test]
    fn what_is_no_key_is_an_error() {
        assert!(SigningKey::parse("").is_err());
        assert!(SigningKey::parse(&format!("{PEM_BEGIN}\nAAAA\n{PEM_END}")).is_err());
    }
}
