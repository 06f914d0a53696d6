//! Dashboards of an earlier version, and queries that only look like one.

use serde_json::Value;

use super::{MigrationScope, QueryLanguage, RENAMES, migrate, migrate_query};

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
        ("a{__kind=\"cumulative-count\"}", "a{__kind=\"cumulative-counter\"}"),
        ("a{__kind=~\"histogram|gauge\"}", "a{__kind=~\"delta-histogram|gauge\"}"),
        ("and(a:b,__kind:cumulative-count)", "and(a:b,__kind:cumulative-counter)"),
        ("and(__kind:histogram,x:y)", "and(__kind:delta-histogram,x:y)"),
        ("and(__kind:*histogram,x:y)", "and(__kind:*histogram,x:y)"),
        ("and(__kind:delta-counter,kind:count)", "and(__kind:delta-counter,kind:count)"),
        ("{__kind=\"", "{__kind=\""),
        ("__kind:counter-", "__kind:cumulative-counter-"),
        ("check_up { a = \"ä|ö\" }", "probe_success { a = \"ä|ö\" }"),
        ("topdeck_uptime_seconds", "(time() - process_start_time_seconds)"),
        ("topdeck_uptime_seconds {a=\"b\"", "process_start_time_seconds {a=\"b\""),
    ] {
        let migrated = migrate_query(text, QueryLanguage::Promql, MigrationScope::AllNames);
        assert_eq!(migrated, expected, "{text}");
    }
    let caql = |text| migrate_query(text, QueryLanguage::Other, MigrationScope::AllNames);
    assert_eq!(caql("topdeck_uptime_seconds"), "process_start_time_seconds");
    let expected = "find('a','and(__kind:delta-counter)')";
    assert_eq!(caql("find('a','and(__kind:count)')"), expected);
}

#[test]
fn only_kinds_of_a_dashboard_of_schema_2_are_migrated() {
    check(
        r#"{"schema":2,"panels":[
            {"language":"promql","text":"check_up{site='a',__kind='counter'}"},
            {"language":"metric","text":"and(__name:check_up,__kind:histogram)"},
            {"language":"caql","text":"find('host_load','and(__kind:count)') | top(1)"},
            {"language":"promql","text":"topdeck_uptime_seconds + sum by (site) (host_load)"}]}"#,
        r#"{"schema":2,"panels":[
            {"language":"promql","text":"check_up{site='a',__kind='cumulative-counter'}"},
            {"language":"metric","text":"and(__name:check_up,__kind:delta-histogram)"},
            {"language":"caql","text":"find('host_load','and(__kind:delta-counter)') | top(1)"},
            {"language":"promql","text":"topdeck_uptime_seconds + sum by (site) (host_load)"}]}"#,
    );
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
