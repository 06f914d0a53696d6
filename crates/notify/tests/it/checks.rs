//! Properties that hold for any bytes: one check per fuzz target, by its name. `fuzz/` includes
//! this file by path, and `fuzz_regressions` repeats the checks on inputs that once failed.

use model::text_file::checksum_line;
use notify::{OnCallCalendar, SILENCE_FILE_VERSION, decode_silences, encode_silences};

/// Panics on a failure.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 2] =
    [("on_call_calendar", on_call_calendar), ("silences", silences)];

/// An hour, and 2026-01-05 08:00 UTC.
const HOUR_NS: i64 = 3_600_000_000_000;
const MONDAY_NS: i64 = 1_767_600_000_000_000_000;

/// A calendar that is read has one contact on call from each time to the next change; one that is
/// not has problems with lines.
fn on_call_calendar(bytes: &[u8]) {
    let contacts = ["eve", "bob"].map(|name| (name.to_owned(), name.to_owned())).into();
    let calendar = match OnCallCalendar::parse(bytes, &contacts, None) {
        Ok(calendar) => calendar,
        Err(problems) => {
            let lines = bytes.split(|&byte| byte == b'\n').count();
            assert!(!problems.is_empty());
            for problem in problems {
                assert!((1..=lines).contains(&problem.line), "{problem}");
                assert!(!problem.what.is_empty());
            }
            return;
        }
    };
    let after = [0, 1, 8, 24, 170, 24 * 31, 24 * 366].map(|hours| MONDAY_NS + hours * HOUR_NS);
    for at_ns in after.into_iter().chain([i64::MIN, 0, i64::MAX - 1]) {
        let contact = calendar.contact_at(at_ns);
        assert!(contact.is_none_or(|contact| contacts.contains_key(contact)));
        let change_ns = calendar.next_change_ns(at_ns);
        assert!(change_ns > at_ns, "{at_ns}: {change_ns}");
        if change_ns == i64::MAX {
            continue;
        }
        let middle_ns = at_ns.midpoint(change_ns);
        for within_ns in [middle_ns, change_ns - 1] {
            assert_eq!(calendar.contact_at(within_ns), contact, "{at_ns}: {within_ns}");
        }
    }
}

/// A file of silences, or its lines without title and checksum, which a fuzzer does not find.
fn silences(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    silence_file(text);
    let lines = text.trim_end_matches('\n');
    let body = format!("topdeck silences {SILENCE_FILE_VERSION}\n{lines}\n");
    silence_file(&format!("{body}{}", checksum_line(&body)));
}

/// Silences that are read are read again as they are written.
fn silence_file(text: &str) {
    let Ok(silences) = decode_silences(text) else { return };
    let written = encode_silences(&silences);
    let again = decode_silences(&written).expect("silences as written");
    assert_eq!(encode_silences(&again), written);
    let labels = [("alertname", "Down"), ("host", "db1")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    for (silence, again) in silences.iter().zip(&again) {
        assert_eq!(silence.matches(&labels), again.matches(&labels));
        for at_ns in [i64::MIN, 0, MONDAY_NS, i64::MAX] {
            assert_eq!(silence.state(at_ns), again.state(at_ns), "{at_ns}");
        }
    }
}
