//! Past fuzz findings, seeds of the fuzz corpus, and a short run of the checks on arbitrary bytes.

use proptest::prelude::*;

use crate::checks::{self, FuzzCheck};
use crate::fuzz_inputs;

/// `testdata/fuzz/<target>/<finding>`.
#[test]
fn regressions_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

#[test]
fn seeds_pass() {
    for (target, bytes) in seeds() {
        check_of(target)(&bytes);
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        for (_, check) in checks::CHECKS {
            check(&bytes);
        }
    }

    /// A seed with some bytes changed, and truncated.
    #[test]
    fn mutated_seeds_pass(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let seeds = seeds();
        let (target, mut bytes) = which.get(&seeds).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        check_of(target)(&bytes);
    }
}

/// Run by the fuzz part of the tests. Without seeds a fuzzer spends its minute on keywords.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds());
}

fn check_of(target: &str) -> FuzzCheck {
    checks::CHECKS.iter().find(|check| check.0 == target).expect("a target").1
}

/// The received alerts of the documentation, whole and without title and checksums, and silences.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let page = include_str!("../../../../docs/formats/received-alerts.md");
    let file = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let file = file.expect("an example");
    let is_change = |line: &&str| !line.starts_with("checksum") && !line.starts_with("topdeck");
    let lines: Vec<&str> = file.lines().filter(is_change).collect();
    let silence = r#"{"matchers": [{"name": "host", "value": "db1", "isRegex": false},
        {"name": "job", "value": "b|c.*", "isRegex": true, "isEqual": false}],
        "startsAt": "2026-01-05T08:00:00Z", "endsAt": "2026-01-05T10:00:00+01:00",
        "createdBy": "ann", "comment": "disk is replaced", "annotations": {"ticket": "OPS 7"},
        "id": "0b2f3c1e-7d44-4b0e-9a51-3c8f5f0d6a10"}"#;
    let endless = silence.replace("2026-01-05T10:00:00+01:00", "9999-12-01T00:00:00Z");
    [
        ("received_alerts", file.to_owned()),
        ("received_alerts", lines.join("\n")),
        ("alertmanager_silence", silence.to_owned()),
        ("alertmanager_silence", endless),
    ]
    .map(|(target, text)| (target, text.into_bytes()))
    .into()
}
