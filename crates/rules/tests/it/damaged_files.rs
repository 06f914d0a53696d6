//! Damaged rule files and test files are read or rejected: no panic, and every problem has a
//! position in the file.

use proptest::prelude::*;
use proptest::sample::Index;
use rules::{FilePosition, parse_rule_test_file};

use crate::harness::parse;

const FILE: &str = "groups:
- name: g
  interval: 30s
  rules:
  - &base
    alert: Down
    expr: |
      up{job=\"é\"} == 0
    for: 5m
    labels: {severity: page, \"a b\": 'x'}
    annotations:
      summary: >-
        {{ $labels.job }} is
        down
  - <<: *base
    alert: Other
tests:
- start_timestamp: 2024-01-01T00:00:00Z
  input_series:
  - series: up{job=\"a\"}
    values: 0+1x3 _ {{sum:1 count:1 buckets:[1]}}x2
  promql_expr_test:
  - {expr: up, eval_time: 1m, exp_samples: [{labels: up, value: .inf}]}
";

/// Characters with a meaning in YAML, and some without.
const PIECES: &[&str] = &[
    "{", "}", "[", "]", ":", ": ", "-", "- ", "&a ", "*a", "!t ", "!!str ", "|\n", ">", "'", "\"",
    "\\", "%", "@", "`", "#", ",", "?", "? ", "\n", "\n  ", "\t", " ", "~", "<<", "---\n", "...\n",
    "\u{feff}", "\0", "é", "9", "_x9", "e",
];

fn damaged() -> impl Strategy<Value = String> {
    let change = (any::<Index>(), 0usize..8, prop::sample::select(PIECES));
    prop::collection::vec(change, 1..8).prop_map(|changes| {
        let mut chars: Vec<char> = FILE.chars().collect();
        for (at, removed, inserted) in changes {
            let at = at.index(chars.len() + 1);
            let end = (at + removed).min(chars.len());
            chars.splice(at..end, inserted.chars());
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damaged_files_are_read_or_rejected(text in damaged()) {
        let first = FilePosition { line: 1, column: 1 };
        let last = FilePosition { line: text.lines().count() + 1, column: usize::MAX };
        let problems = parse(&text).problems;
        let of_tests = parse_rule_test_file("test.yml", &text).1;
        for problem in problems.iter().chain(&of_tests) {
            let position = problem.position;
            prop_assert!(first <= position && position <= last, "{}", problem);
        }
    }
}
