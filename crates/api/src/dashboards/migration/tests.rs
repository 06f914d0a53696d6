//! Dashboards of an earlier version, and queries that only look like one.

use serde_json::Value;

use super::{RENAMES, migrate, migrate_query};

#[track_caller]
fn check(stored: &str, expected: &str) {
    let migrated: Value = serde_json::from_str(&migrate(stored.to_owned())).unwrap();
    let expected: Value = serde_json::from_str(expected).unwrap();
    assert_eq!(format!("{migrated:#}"), format!("{expected:#}"));
    let again = migrate(migrated.to_string());
    assert_eq!(again, migrated.to_string(), "once is enough");
}

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../../../testdata/dashboards/", $name))
    };
}

#[test]
fn dashboards_of_schema_1_are_migrated() {
    check(fixture!("host-1.json"), fixture!("host-2.json"));
    check(fixture!("topdeck-1.json"), fixture!("topdeck-2.json"));
}

#[test]
fn other_dashboards_stay_as_they_are_written() {
    for text in [
        r#"{ "schema": 2, "panels": [{"language": "metric", "text": "check_up"}] }"#,
        r#"{ "schema": 1, "panels": [{"language": "sql", "text": "check_up"}] }"#,
        r#"{ "panels": [{"language": "metric", "text": "latency"}, 7, null, {}] }"#,
        r#"{ "panels": 7 }"#,
        "[]",
        "no JSON",
    ] {
        assert_eq!(migrate(text.to_owned()), text);
    }
    let missing = migrate(r#"{"panels":[{"language":"metric","text":"check_up"}]}"#.to_owned());
    let expected = r#"{"panels":[{"language":"metric","text":"probe_success"}],"schema":2}"#;
    assert_eq!(missing, expected, "no schema means 1");
}

#[test]
fn unfinished_and_odd_queries_are_migrated_without_loss() {
    for (text, expected) in [
        ("", ""),
        ("check_up{", "probe_success{"),
        ("check_up{a=\"", "probe_success{a=\""),
        ("sum by (why", "sum by (why"),
        ("by", "by"),
        ("by (a) ) on", "by (a) ) on"),
        ("{\"check_up\", a='b\\'c'}", "{\"probe_success\", a='b\\'c'}"),
        ("{\"topdeck_forward_lag\",site=\"a\"}", "{\"topdeck_forward_lag_records\",remote=\"a\"}"),
        ("{site=\"a\"}", "{site=\"a\"}"),
        ("{}", "{}"),
        ("a{__kind=\"cumulative-count\"}", "a{__kind=\"counter\"}"),
        ("check_up { a = \"ä|ö\" }", "probe_success { a = \"ä|ö\" }"),
        ("topdeck_uptime_seconds", "(time() - process_start_time_seconds)"),
        ("topdeck_uptime_seconds {a=\"b\"", "process_start_time_seconds {a=\"b\""),
    ] {
        assert_eq!(migrate_query(text, true), expected, "{text}");
    }
    assert_eq!(migrate_query("topdeck_uptime_seconds", false), "process_start_time_seconds");
}

#[test]
fn no_new_name_is_an_old_one() {
    let names = RENAMES["names"].as_object().unwrap();
    for new in names.values() {
        assert!(!names.contains_key(new.as_str().unwrap()), "{new}");
    }
    for of in RENAMES["labels"].as_array().unwrap() {
        let values = of["values"].as_object().into_iter().flatten();
        let known = |new: &Value| !of["values"][new.as_str().unwrap()].is_null();
        values.for_each(|(old, new)| assert!(!known(new), "{old} {new}"));
    }
}
