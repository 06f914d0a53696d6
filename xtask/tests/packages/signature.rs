//! The signature of the checksums, verified by openssl and minisign.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::package_fixture::{PackageFixture, output_of};

/// DER of a public key of Ed25519 (RFC 8410), before its 32 bytes.
const PUBLIC_KEY: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

fn line_bytes(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap();
    STANDARD.decode(text.lines().nth(1).unwrap()).unwrap()
}

/// Whether openssl accepts the signature of `message`; `None` without openssl.
fn openssl_accepts(dir: &Path, message: &[u8]) -> Option<bool> {
    let packages = dir.join("packages");
    let signature = &line_bytes(&packages.join("SHA256SUMS.minisig"))[10..];
    let public = [&PUBLIC_KEY[..], &line_bytes(&packages.join("topdeck.pub"))[10..]].concat();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut command = Command::new("openssl");
    command.args(["pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER"]);
    command.args(["-inkey", &file("public.der", &public), "-in", &file("message", message)]);
    match command.args(["-sigfile", &file("signature", signature)]).output() {
        Ok(output) => Some(output.status.success()),
        Err(error) => {
            println!("skipped: cannot start openssl: {error}");
            None
        }
    }
}

#[test]
fn openssl_verifies_the_signature() {
    let fixture = PackageFixture::new();
    fixture.make("umask 000", &[]);
    let sums = fs::read(fixture.package("SHA256SUMS")).unwrap();
    let Some(is_accepted) = openssl_accepts(&fixture.dir, &sums) else { return };
    assert!(is_accepted);
    let changed = [&sums[1..], b"x"].concat();
    assert_eq!(openssl_accepts(&fixture.dir, &changed), Some(false));
}

#[test]
fn minisign_verifies_the_signature() {
    let dir = PackageFixture::shared().package("");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (sums, key) = (path("SHA256SUMS"), path("topdeck.pub"));
    let arguments = ["-V", "-p", &key, "-m", &sums];
    let Some(text) = output_of("minisign", &arguments) else { return };
    assert!(text.contains("timestamp:1767323045\tfile:SHA256SUMS"), "{text}");
}

#[test]
fn key_is_made_once_and_readable_for_its_owner_only() {
    let fixture = PackageFixture::new();
    fixture.make("umask 000", &[]);
    let path = fixture.key_dir.join("signing.pem");
    let key = fs::read(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fixture.make("umask 022", &[]);
    assert!(fs::read(&path).unwrap() == key);
    let out = path.to_str().unwrap();
    if let Some(text) = output_of("openssl", &["pkey", "-in", out, "-noout", "-text_pub"]) {
        assert!(text.contains("ED25519 Public-Key"), "{text}");
    }
}
