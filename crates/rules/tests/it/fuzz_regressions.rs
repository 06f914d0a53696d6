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

/// Blocks of the user documentation, and stored states.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let pages = [
        ("own_rules", "toml", include_str!("../../../../docs/rules.md")),
        ("prometheus_rules", "yaml", include_str!("../../../../docs/alerts.md")),
        ("openslo", "yaml", include_str!("../../../../docs/slo.md")),
        ("alert_states", "text", include_str!("../../../../docs/formats/alert-states.md")),
    ];
    let mut seeds = Vec::new();
    for (target, language, page) in pages {
        let start = format!("```{language}\n");
        let blocks = page.split(start.as_str()).skip(1);
        let blocks = blocks.filter_map(|block| block.split("```").next());
        seeds.extend(blocks.map(|block| (target, block.as_bytes().to_vec())));
    }
    let test = "rule_files: [a.yaml]\ntests:\n- interval: 1m\n  input_series:\n  - series: a\n    \
                values: '1+1x5 _ stale'\n  alert_rule_test:\n  - eval_time: 5m\n    \
                alertname: A\n    exp_alerts: []\n";
    seeds.push(("rule_tests", test.as_bytes().to_vec()));
    seeds
}
