//! Queries that fail, and their messages.

use expect_test::{Expect, expect};
use query::{Error, Settings};

use super::{answer, answer_of, expand_names, question};
use crate::caql::fixture::CaqlFixture;

#[track_caller]
fn check(text: &str, expected: Expect) {
    let error = answer(text).map(|_| ()).expect_err(text);
    expected.assert_eq(&error.format_with_source(&expand_names(text)));
}

#[test]
fn client_errors() {
    for text in ["1 < 2 < 3", "find(\"a\"", "label", "f(x=1, 2)", "A | delay(60)"] {
        assert!(matches!(answer(text), Err(Error::Parse { .. })), "{text}");
    }
    for text in ["metric(\"not-a-uuid\",\"x\")", "find(\"x\", limit=5000)"] {
        assert!(matches!(answer(text), Err(Error::Parse { .. })), "{text}");
    }
    for text in ["#serial\nfind(\"req\") | top(1)", "find(\"x\", \"host:a\")"] {
        assert!(matches!(answer(text), Err(Error::Parse { .. })), "{text}");
    }
    assert!(answer("find(\"x\", \"not(a:b,c:d)\")").is_err());
    let mut late = question("1");
    late.start = late.end + 1;
    assert!(answer_of(&late).is_err());
}

#[test]
fn at_run_time() {
    check(
        "op:div2{1,2,3}",
        expect![[r#"
            1:1: op:div2 takes exactly two streams, got 3; combine them first, as with stats:sum() or group_by:sum(…)
              op:div2{1,2,3}
              ^^^^^^^"#]],
    );
    check(
        r#"find("req") | vector("%tv{dc}")"#,
        expect![[r#"
            1:15: duplicate vector key "us"; extend the format, as with %cn, or set sloppy=1 to keep the first stream
              find("req") | vector("%tv{dc}")
                            ^^^^^^"#]],
    );
    check(
        r#"find("req") / 2"#,
        expect![[r#"
            1:1: op:div2 takes exactly two streams, got 4; combine them first, as with stats:sum() or group_by:sum(…)
              find("req") / 2
              ^^^^^^^^^^^^^^^"#]],
    );
    check(
        r#"time:tz("Mars/Base","hour")"#,
        expect![[r#"
            1:1: unknown time zone "Mars/Base"; use a name such as "UTC" or "Europe/Berlin"
              time:tz("Mars/Base","hour")
              ^^^^^^^"#]],
    );
    check(
        r#"find("lat") | group_by:merge("host")"#,
        expect![[r#"
            1:1: group_by:merge takes histograms, got numbers; find:histogram(…) reads histograms, histogram() builds them from numbers
              find("lat") | group_by:merge("host")
              ^^^^^^^^^^^"#]],
    );
    check(
        r#"find("req") | stats:select(9)"#,
        expect![[r#"
            1:15: stats:select(9) is out of range: there are 3 streams, numbered from 1
              find("req") | stats:select(9)
                            ^^^^^^^^^^^^"#]],
    );
}

#[test]
fn averages_of_quantiles() {
    check(
        "H | histogram:percentile(99) | stats:mean()",
        expect![[r#"
            1:67: cannot average quantiles over streams: the result is not a quantile; merge the histograms and take the quantile of the result: find:histogram("lat", "and(host:a)") | histogram:merge() | histogram:percentile(99)
              find:histogram("lat", "and(host:a)") | histogram:percentile(99) | stats:mean()
                                                                                ^^^^^^^^^^"#]],
    );
    check(
        r#"find:histogram("lat") | histogram:percentile(99) | label("%n") | group_by:mean("host")"#,
        expect![[r#"
            1:66: cannot average quantiles over streams: the result is not a quantile; merge the histograms and take the quantile of the result: find:histogram("lat") | group_by:merge("host") | histogram:percentile(99)
              find:histogram("lat") | histogram:percentile(99) | label("%n") | group_by:mean("host")
                                                                               ^^^^^^^^^^^^^"#]],
    );
    check(
        "(H | histogram:percentile(99)) / 1000 | window:mean(1h)",
        expect![[r#"
            1:76: cannot average quantiles over time: the result is not a quantile; merge the histograms and take the quantile of the result: find:histogram("lat", "and(host:a)") | window:merge(1h) | histogram:percentile(99)
              (find:histogram("lat", "and(host:a)") | histogram:percentile(99)) / 1000 | window:mean(1h)
                                                                                         ^^^^^^^^^^^"#]],
    );
    check(
        "pass{H | histogram:median(), K | histogram:median()} | stats:mean()",
        expect![[r#"
            1:126: cannot average quantiles over streams: the result is not a quantile; merge the histograms and take the quantile of the result: pass{find:histogram("lat", "and(host:a)"), find:histogram("lat", "and(host:b)")} | histogram:merge() | histogram:median()
              pass{find:histogram("lat", "and(host:a)") | histogram:median(), find:histogram("lat", "and(host:b)") | histogram:median()} | stats:mean()
                                                                                                                                           ^^^^^^^^^^"#]],
    );
    assert!(answer("H | histogram:percentile(99) | window:max(5m)").is_ok());
    assert!(answer("H | histogram:mean() | window:mean(5m)").is_ok());
    let settings = Settings { averaged_quantiles: true, ..Settings::default() };
    let text = expand_names("H | histogram:percentile(99) | stats:mean()");
    CaqlFixture::get(|source| {
        assert!(query::execute(source, &question(&text), &settings, &|| false).is_ok());
    });
}

#[test]
fn promql_errors_point_into_the_query() {
    check(
        "#lang=\"promql\"\nsum(req",
        expect![[r#"
        2:8: unclosed left parenthesis
          sum(req
                 ^"#]],
    );
}

#[test]
fn limits_hold() {
    let limits = query::Limits { samples: 1000, ..query::Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    for text in ["A | window:sum(1000d)", "pass{1} | delay(1m,2m,3m) | rolling:sum(2000m)"] {
        let text = expand_names(text);
        let asked = CaqlFixture::get(|source| {
            query::execute(source, &question(&text), &settings, &|| false).map(|_| ())
        });
        assert!(matches!(asked, Err(Error::Limit { .. })), "{text}: {asked:?}");
    }
}
