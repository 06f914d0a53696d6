//! Secrets of TLS sessions that an end of the connections has written (`SSLKEYLOGFILE`, RFC 9850),
//! and counts of what was decrypted with them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Secrets by label; those of handshakes and of application data are of the client and the server.
const LABELS: [&str; 5] = [
    "CLIENT_RANDOM",
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
];
pub(crate) const MASTER_SECRET: usize = 0;
/// Of the client; that of the server is the next one.
pub(crate) const HANDSHAKE_SECRETS: usize = 1;
pub(crate) const TRAFFIC_SECRETS: usize = 3;

/// Why a session, or the rest of it, was not decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecryptionFailure {
    NoKeys,
    Version,
    Cipher,
    Gap,
    Midstream,
    StartTls,
    EarlyData,
    Renegotiation,
    Damaged,
}

const FAILURES: [&str; 9] = [
    "no_keys",
    "version",
    "cipher",
    "gap",
    "midstream",
    "start_tls",
    "early_data",
    "renegotiation",
    "damaged",
];

/// Secrets of sessions, and counts of what was decrypted with them.
pub struct KeyLog {
    /// By random of the client and index of the label.
    secrets: HashMap<([u8; 32], usize), Vec<u8>>,
    sessions: AtomicU64,
    bytes: AtomicU64,
    failures: [AtomicU64; FAILURES.len()],
}

/// What was decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLogCounts {
    /// Sessions with plaintext.
    pub sessions: u64,
    /// Plaintext.
    pub bytes: u64,
    /// Sessions that were not decrypted to their end, by reason.
    pub failures: [(&'static str, u64); FAILURES.len()],
}

impl KeyLog {
    /// Reads the lines of a key log. Unknown labels are passed over.
    pub fn parse(text: &str) -> Result<KeyLog, String> {
        let mut secrets = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let label = words.next().and_then(|word| LABELS.iter().position(|of| *of == word));
            let Some(label) = label else { continue };
            let random = words.next().and_then(parse_hex).and_then(|of| of.try_into().ok());
            let secret = words.next().and_then(parse_hex);
            let (Some(random), Some(secret)) = (random, secret) else {
                return Err(format!(
                    "line {}: expected a label and two hexadecimal numbers",
                    at + 1
                ));
            };
            secrets.insert((random, label), secret);
        }
        if secrets.is_empty() {
            return Err("it has no secrets; set SSLKEYLOGFILE for a program that writes it".into());
        }
        Ok(KeyLog {
            secrets,
            sessions: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: Default::default(),
        })
    }

    /// Counts since the start.
    pub fn counts(&self) -> KeyLogCounts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let mut failures = FAILURES.map(|reason| (reason, 0));
        failures.iter_mut().zip(&self.failures).for_each(|(into, from)| into.1 = count(from));
        KeyLogCounts { sessions: count(&self.sessions), bytes: count(&self.bytes), failures }
    }

    pub(crate) fn count_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_failure(&self, failure: DecryptionFailure) {
        self.failures[failure as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn secret(&self, random: [u8; 32], label: usize) -> Option<&[u8]> {
        self.secrets.get(&(random, label)).map(Vec::as_slice)
    }
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |of: u8| char::from(of).to_digit(16);
    let byte = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}
