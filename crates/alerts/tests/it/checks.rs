//! Properties that hold for any bytes: one check per fuzz target, by its name. `fuzz/` includes
//! this file by path, and `fuzz_regressions` repeats the checks on inputs that once failed.

use std::sync::Arc;

use alerts::{ReceivedAlert, decode_received, encode_received, parse_alertmanager_silence};
use model::text_file::checksum_line;
use notify::{SilenceState, decode_silences, encode_silences};

/// Panics on a failure.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 2] =
    [("received_alerts", received_alerts), ("alertmanager_silence", alertmanager_silence)];

const NOW_NS: i64 = 1_767_600_000_000_000_000;

/// A file of received alerts, or its lines without title and checksum, which a fuzzer does not
/// find.
fn received_alerts(bytes: &[u8]) {
    received_file(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for version in [2, 3] {
        let lines = text.trim_end_matches('\n');
        let body = format!("topdeck received alerts {version}\n{lines}\n");
        received_file(format!("{body}{}", checksum_line(&body)).as_bytes());
    }
}

/// Alerts that are read are read again as they are written.
fn received_file(bytes: &[u8]) {
    let Ok(decoded) = decode_received(bytes) else { return };
    let alerts: Vec<Arc<ReceivedAlert>> = decoded.alerts.into_values().map(Arc::new).collect();
    let again = decode_received(encode_received(&alerts).as_bytes()).expect("alerts as written");
    assert!(!again.is_cut);
    assert!(again.alerts.values().eq(alerts.iter().map(|alert| &**alert)), "{again:?}");
}

/// A silence that is accepted is not over, and is read as it is stored.
fn alertmanager_silence(bytes: &[u8]) {
    let Ok(silence) = parse_alertmanager_silence(bytes, NOW_NS) else { return };
    if silence.check(NOW_NS).is_err() {
        return;
    }
    assert_ne!(silence.state(NOW_NS), SilenceState::Expired);
    let written = encode_silences(&[silence]);
    let again = decode_silences(&written).expect("a silence as written");
    assert_eq!(encode_silences(&again), written);
}
