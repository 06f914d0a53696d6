//! Rules end to end: data over HTTP, an alert, and its message at a contact, once: criteria on a
//! query of CAQL and on texts, and an SLO of OpenSLO. A kill repeats none.

use std::collections::BTreeMap;

use super::alert_receiver::AlertReceiver;
use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};

const RULES: &str = r#"
interval = "1h"

[[rule]]
name = "Deep"
caql = 'find("depth") | stats:max()'
window = "1h"
labels = { host = "caql" }
[[rule.criteria]]
severity = 2
above = 5

[[rule]]
name = "Beta"
select = "version"
window = "1h"
[[rule.criteria]]
severity = 3
text = ".*-beta[0-9]*"
"#;

const OPENSLO: &str = r#"
apiVersion: openslo/v1
kind: SLO
metadata:
  name: checkout
  labels: {host: slo}
spec:
  service: shop
  indicator:
    metadata: {name: latency}
    spec:
      thresholdMetric:
        metricSource:
          type: topdeck
          spec: {selector: request, threshold: 250ms}
  timeWindow:
  - {duration: 28d, isRolling: true}
  budgetingMethod: Occurrences
  objectives:
  - {op: lte, targetPercent: 99}
"#;

fn start(receiver: &AlertReceiver) -> ServerProcess {
    let address = receiver.address;
    let settings = format!(
        "[alerts]\nrule_files = [\"*.rules.toml\"]\nopenslo_files = [\"*.slo.yaml\"]\n\
         evaluation_interval = \"200ms\"\n[[contact]]\nname = \"hook\"\nkind = \"webhook\"\n\
         url = \"http://{address}/hook\"\n[route]\nreceiver = \"hook\"\ngroup_by = [\"...\"]\n\
         group_wait = \"0s\"\ngroup_interval = \"1s\"\n"
    );
    let mut server = ServerProcess::new("serve", &settings);
    std::fs::write(server.dir.path("own.rules.toml"), RULES).expect("rules are written");
    std::fs::write(server.dir.path("shop.slo.yaml"), OPENSLO).expect("the SLO is written");
    server.start();
    server
}

#[track_caller]
fn post(server: &ServerProcess, path: &str, body: &str) {
    let sent = request_at(server.address(), "POST", path, &[], body.as_bytes());
    let sent = sent.expect("it answers");
    assert!(sent.status < 300, "{}", sent.text());
}

#[track_caller]
fn wait_for_idle(server: &ServerProcess) {
    wait_until("nothing is pending", || {
        server.get("/v1/status").json()["notifications"]["pending"] == 0
    });
}

/// Number of messages of each notification.
fn deliveries(receiver: &AlertReceiver) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for message in receiver.messages() {
        *counts.entry(message.key).or_default() += 1;
    }
    counts
}

#[test]
fn alerts_of_caql_of_texts_and_of_openslo_are_delivered_once() {
    let receiver = AlertReceiver::start();
    let mut server = start(&receiver);
    let told = |host: &str, state: &str| receiver.of("/hook", host, state).len();
    post(&server, "/api/v2/write", "depth,host=a value=1\nversion,host=web value=\"2.0\"");
    post(&server, "/v1/record?metric=request&unit=ms", &"100\n".repeat(40));
    // The rules have their data, and none of them holds.
    wait_until("the rules are evaluated", || {
        let rules = server.get("/api/v1/rules").json();
        let groups = rules["data"]["groups"].as_array().cloned().unwrap_or_default();
        let all =
            || groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        all().count() > 2 && all().all(|rule| rule["health"] == "ok")
    });
    assert_eq!(receiver.messages(), []);
    post(&server, "/api/v2/write", "depth,host=a value=70\nversion,host=web value=\"2.1-beta3\"");
    post(&server, "/v1/record?metric=request&unit=ms", &"900\n".repeat(40));
    for (host, what) in [("caql", "CAQL"), ("web", "text"), ("slo", "OpenSLO")] {
        wait_until(&format!("the alert of {what} is told"), || told(host, "firing") > 0);
    }
    // What is under way at a kill may be repeated, marked as a repeat.
    wait_for_idle(&server);
    server.kill();
    server.start();
    post(&server, "/api/v2/write", "version,host=web value=\"2.1-beta3\"");
    // Each window of the SLO has an alert of its own.
    let windows = || {
        let listed = server.get("/v1/alerts").json();
        let alerts = listed["alerts"].as_array().cloned().unwrap_or_default();
        alerts.iter().filter(|alert| alert["labels"]["host"] == "slo").count()
    };
    wait_until("all alerts of the SLO are told", || windows() == told("slo", "firing"));
    wait_for_idle(&server);
    assert_eq!((told("caql", "firing"), told("web", "firing")), (1, 1));
    let twice: Vec<(String, usize)> =
        deliveries(&receiver).into_iter().filter(|(_, count)| *count != 1).collect();
    assert_eq!(twice, [], "{}", server.log());
    assert!(receiver.messages().iter().all(|message| message.state == "firing"));
    server.stop();
}
