//! Alerts of requests: times and checks.

use super::*;

const NOW: i64 = 1_700_000_000_000_000_000;
const MINUTE: i64 = 60 * 1_000_000_000;

fn read(text: &str) -> Result<SubmittedAlert, String> {
    let alert: PostableAlert = serde_json::from_str(text).map_err(|error| error.to_string())?;
    alert.into_submitted(NOW)
}

/// Minutes from now to begin and end, and whether the end is a timeout.
fn times(fields: &str) -> (i64, i64, bool) {
    let alert = read(&format!("{{\"labels\": {{\"a\": \"b\"}}{fields}}}")).unwrap();
    let minutes = |ns: i64| (ns - NOW) / MINUTE;
    (minutes(alert.starts_ns), minutes(alert.ends_ns), alert.is_timeout)
}

#[test]
fn times_that_are_missing_are_those_of_alertmanager() {
    // 2023-11-14T22:13:20Z is now.
    assert_eq!(times(""), (0, 5, true));
    assert_eq!(times(r#", "startsAt": "2023-11-14T22:03:20Z""#), (-10, 5, true));
    assert_eq!(times(r#", "endsAt": "2023-11-14T22:23:20Z""#), (10, 10, false));
    let zero = r#", "startsAt": "2023-11-14T22:03:20Z", "endsAt": "0001-01-01T00:00:00Z""#;
    assert_eq!(times(zero), (-10, 5, true));
    let both = r#", "startsAt": "2023-11-14T22:03:20Z", "endsAt": "2023-11-14T22:17:20.000Z""#;
    assert_eq!(times(both), (-10, 4, false));
}

#[test]
fn alerts_are_checked_as_alertmanager_checks_them() {
    let check = |text: &str, part: &str| {
        let error = read(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    };
    check("{}", "missing field `labels`");
    check(r#"{"labels": {}}"#, "an alert has no labels");
    check(r#"{"labels": {"a": ""}}"#, "an alert has no labels");
    check(r#"{"labels": {"": "a"}}"#, "an empty name");
    check(r#"{"labels": {"a": 1}}"#, "invalid type");
    check(r#"{"labels": {"a": "b"}, "startsAt": "now"}"#, "startsAt: found \"now\", expected");
    let order = r#"{"labels": {"a": "b"}, "startsAt": "2023-11-14T22:23:20Z",
                    "endsAt": "2023-11-14T22:13:20Z"}"#;
    check(order, "startsAt is after endsAt");
    let long = format!(r#"{{"labels": {{"a": "{}"}}}}"#, "x".repeat(70_000));
    check(&long, "limit of 65536 bytes of an alert exceeded (70001)");
    let empty = read(r#"{"labels": {"a": "b", "c": ""}, "new": 1}"#).unwrap();
    assert_eq!(empty.labels, [("a".to_owned(), "b".to_owned())].into());
}
