//! The worked example of a role in a node: settings, life cycle, status, route, metric.

use std::time::Duration;

use expect_test::{Expect, expect};
use role::json::integer;
use role::{RouteQuery, RunningRoles};

use crate::{ROLES, node};

const TIMEOUT: Duration = Duration::from_secs(60);

#[track_caller]
fn check(text: &str, expected: Expect) {
    expected.assert_eq(&node::read(ROLES, text).unwrap_err().to_string());
}

#[test]
fn its_settings_are_checked() {
    check(
        "[heartbeat]\nperiod = \"1h\"\n",
        expect![[r#"
            line 2: period is 3600s, must be 1ms to 60s
              | period = "1h"
              | ^"#]],
    );
    check(
        "[heartbeat]\nperoid = \"1s\"\n",
        expect![[r#"
            line 2: unknown key "peroid"; did you mean "period"?
              | peroid = "1s"
              | ^"#]],
    );
    check(
        "[hartbeat]\n",
        expect![[r#"
            line 1: unknown key "hartbeat"; did you mean "heartbeat"?
              | [hartbeat]
              |  ^"#]],
    );
    let settings = node::read(ROLES, "[heartbeat]\nstation = \"mir\"\n").unwrap();
    let error = settings.validate_files(None).unwrap_err().to_string();
    expect!["cannot send heartbeats to mir: no station is reachable; remove `station`"]
        .assert_eq(&error);
    assert_eq!(settings.summary().len(), 1);
}

#[tokio::test]
async fn it_beats_until_it_is_stopped() {
    let (context, _) = node::context();
    let settings = node::read(ROLES, "[heartbeat]\nperiod = \"1ms\"\n").unwrap();
    let mut roles = RunningRoles::start(&settings, &context).unwrap();
    assert_eq!(roles.log_lines(), ["heartbeat period 1ms"]);
    let (status, route) = (roles.status().remove(0), roles.routes().remove(0));
    assert_eq!((status.name, route.spec.path), ("heartbeats", "/v1/heartbeat"));
    let beats = async {
        while status.read() == integer(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, beats).await.expect("it beats");
    assert_ne!((route.handler)(&RouteQuery::default(), &|| false), Ok(integer(0)));
    let measured = context.intake.meter().snapshot();
    assert!(measured.iter().any(|one| one.name == "topdeck_heartbeat_beats_total"));
    assert_eq!(roles.reload(&settings, &context).await.unwrap(), [""; 0]);
    let slow = node::read(ROLES, "").unwrap();
    let lines = roles.reload(&slow, &context).await.unwrap();
    assert_eq!(lines, ["heartbeat period 1s"]);
    assert_eq!(roles.stop().await, [""; 0]);
}
