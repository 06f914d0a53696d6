//! Fingerprints of random statements and paths contain no literal.

use proptest::prelude::*;
use protocol::fingerprint::{RouteTemplates, SqlDialect, StatementFingerprint};

const DIALECTS: [&str; 3] = ["postgres", "mysql", "cassandra"];

/// A piece of a statement; `secret` in any form of a literal.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "select",
        " ",
        "\n",
        ",",
        "(",
        ")",
        " in (",
        " values (",
        "array[",
        "]",
        "=",
        "-",
        "+",
        ";",
        "a",
        "t.b",
        "\"q\"",
        "null",
        "$1",
        "?",
        "::int",
        "/* c */",
        "-- c\n",
        "'secret'",
        "'it''s secret'",
        "'secret\n/*'",
        "'-- secret'",
        "4711",
        "-4711.5e3",
        "0x4711",
    ])
}

proptest! {
    #[test]
    fn literals_are_replaced(pieces in prop::collection::vec(piece(), 0..40)) {
        let statement = pieces.join(" ");
        for name in DIALECTS {
            let mut fingerprint = StatementFingerprint::default();
            let dialect = SqlDialect::of_protocol(name);
            let text = fingerprint.write(&statement, dialect).to_owned();
            prop_assert!(!text.contains("secret") && !text.contains("4711"), "{text}");
            prop_assert!(!text.contains("c */") && !text.contains("-- "), "{text}");
            if !text.contains("...") {
                prop_assert_eq!(&fingerprint.write(&text, dialect), &text);
            }
        }
    }

    /// A statement that is cut anywhere shows no part of a literal.
    #[test]
    fn cut_literals_are_replaced(cut in 0..60_usize) {
        let statement = "select 'secret' || $t$secret$t$ || e'\\'secret', u&'secret' from t";
        let mut fingerprint = StatementFingerprint::default();
        let text = fingerprint.write(&statement[..cut.min(statement.len())], SqlDialect::Postgres);
        prop_assert!(!text.contains("sec"), "{text}");
    }

    #[test]
    fn templates_are_stable(path in "(/[a-z0-9@._-]{0,40}){0,6}") {
        let (rules, mut once, mut again) = (RouteTemplates::default(), String::new(), String::new());
        rules.write(&path, &mut once);
        rules.write(&once, &mut again);
        prop_assert_eq!(&again, &once);
    }
}
