//! Two sites with the same rules and contacts: the standby notifies contacts only while the primary
//! is silent.

use super::alert_receiver::{AlertMessage, AlertReceiver};
use super::client::request_at;
use super::proxy::Proxy;
use super::server_process::{ServerProcess, TestDir, append, wait_until};

/// An alert begins when the time passes the value of its gauge: both sites see that in the same
/// evaluation, unless one of them is late.
const RULES: &str = "groups:\n- name: g\n  interval: 500ms\n  rules:\n  - alert: Due\n    expr: \
                     due < time()\n";

struct TwoSites {
    primary: ServerProcess,
    standby: ServerProcess,
    proxy: Proxy,
    receiver: AlertReceiver,
    /// Rule files have the same path at both sites, as their alerts have the same keys.
    _rules: TestDir,
}

/// Escalation `team`: the second contact hears of an alert after three seconds.
const ESCALATION: &str = "[[escalation]]\nname = \"team\"\nsteps = [{ after = \"0s\", receivers = \
                          [\"hook\"] }, { after = \"3s\", receivers = [\"second\"] }]\n";

impl TwoSites {
    fn start() -> TwoSites {
        TwoSites::start_with("hook", "")
    }

    /// Sites whose route has this receiver; there are two contacts.
    fn start_with(route_receiver: &str, tables: &str) -> TwoSites {
        let (rules, receiver) = (TestDir::new(), AlertReceiver::start());
        let path = rules.path("rules.yaml");
        std::fs::write(&path, RULES).expect("rules are written");
        let contact = |name: &str| {
            let url = format!("http://{}/{name}", receiver.address);
            format!("[[contact]]\nname = \"{name}\"\nkind = \"webhook\"\nurl = \"{url}\"\n")
        };
        let more = format!(
            "{}{}{tables}[route]\nreceiver = \"{route_receiver}\"\ngroup_by = [\"...\"]\n\
             group_wait = \"0s\"\ngroup_interval = \"1s\"\n[alerts]\nrule_files = [{path:?}]\n",
            contact("hook"),
            contact("second"),
        );
        let mut primary = ServerProcess::new("serve", &more);
        let mut standby = ServerProcess::new("serve", &more);
        let proxy = Proxy::new(primary.port);
        let url = format!("http://127.0.0.1:{}", proxy.port);
        let table = format!("[alerts.primary]\nurl = \"{url}\"\nfailover_after = \"4s\"\n");
        append(&standby.settings(), &table);
        primary.start();
        standby.start();
        let sites = TwoSites { primary, standby, proxy, receiver, _rules: rules };
        sites.wait_for_sending(false);
        sites
    }

    /// Status of the standby about the primary.
    fn status(&self) -> serde_json::Value {
        self.standby.get("/v1/status").json()["notifications"]["primary"].clone()
    }

    fn wait_for_sending(&self, is_sending: bool) {
        wait_until("the standby knows whether the primary is silent", || {
            self.status()["is_sending"] == is_sending
        });
    }

    fn wait_for(&self, host: &str, state: &str, count: usize) -> Vec<AlertMessage> {
        let mut found = Vec::new();
        wait_until(&format!("{count} messages: {host} {state}"), || {
            found = self.receiver.of("/hook", host, state);
            found.len() >= count
        });
        found
    }

    /// Who acknowledged the alert of a host at the standby.
    fn acknowledged_by(&self, host: &str) -> Option<String> {
        let alerts = self.standby.get("/v1/alerts").json();
        let alerts = alerts["alerts"].as_array().cloned().unwrap_or_default();
        let alert = alerts.into_iter().find(|alert| alert["labels"]["host"] == host)?;
        Some(alert["acknowledgement"]["by"].as_str()?.to_owned())
    }

    /// Whether both sites saw the alert begin in the same evaluation.
    fn have_same_begin(&self, host: &str) -> bool {
        let begin = |server: &ServerProcess| {
            let alerts = server.get("/v1/alerts").json();
            let alerts = alerts["alerts"].as_array().cloned().unwrap_or_default();
            let alert = alerts.into_iter().find(|alert| alert["labels"]["host"] == host);
            alert.map(|alert| alert["since_ns"].clone())
        };
        begin(&self.primary) == begin(&self.standby)
    }
}

/// Sets the time at which the alert of a host begins.
#[track_caller]
fn set_due(server: &ServerProcess, host: &str, due_s: u64) {
    let body = format!("due,host={host} value={due_s}");
    let sent = request_at(server.address(), "POST", "/api/v2/write", &[], body.as_bytes());
    assert!(sent.expect("it answers").status < 300);
}

fn in_seconds(seconds: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs() + seconds
}

#[test]
fn a_standby_sends_what_a_dead_primary_did_not() {
    let mut sites = TwoSites::start();
    for site in [&sites.primary, &sites.standby] {
        set_due(site, "a", 0);
    }
    sites.wait_for("a", "firing", 1);
    wait_until("the standby knows of it", || sites.status()["settled"] == 1);
    sites.primary.kill();
    set_due(&sites.standby, "b", 0);
    sites.wait_for("b", "firing", 1);
    assert_eq!(sites.status()["is_sending"], true);
    set_due(&sites.standby, "a", in_seconds(3600));
    sites.wait_for("a", "resolved", 1);
    // Nothing is repeated: what the standby sends is in the order of its alerts.
    let states: Vec<(String, String)> = sites
        .receiver
        .messages()
        .into_iter()
        .map(|message| (message.host, message.state))
        .collect();
    let expected = [("a", "firing"), ("b", "firing"), ("a", "resolved")];
    let expected = expected.map(|(host, state)| (host.to_owned(), state.to_owned()));
    assert_eq!(states, expected, "{}", sites.standby.log());
    let log = sites.standby.log();
    assert!(log.contains("has not answered for 4s") && log.contains("this site notifies contacts"));
    // It holds its notifications again.
    sites.primary.start();
    sites.wait_for_sending(false);
    sites.standby.stop();
    sites.primary.stop();
}

/// Acknowledges the alert of a host at a site, or takes that back.
#[track_caller]
fn acknowledge(server: &ServerProcess, route: &str, host: &str, author: &str) {
    assert!(is_acknowledged(server, route, host, author), "{}", server.log());
}

/// Whether the site knows the alert, which is then acknowledged.
#[track_caller]
fn is_acknowledged(server: &ServerProcess, route: &str, host: &str, author: &str) -> bool {
    let body = format!("{{\"matchers\": [\"host={host}\"]{author}}}");
    let path = format!("/v1/alerts/{route}");
    let sent = request_at(server.address(), "POST", &path, &[], body.as_bytes());
    let sent = sent.expect("it answers");
    assert!(sent.status < 300 || sent.status == 404, "{}", sent.text());
    sent.status < 300
}

#[test]
fn an_alert_that_was_acknowledged_at_the_primary_is_not_escalated_by_the_standby() {
    let mut sites = TwoSites::start_with("team", ESCALATION);
    for site in [&sites.primary, &sites.standby] {
        set_due(site, "a", 0);
    }
    sites.wait_for("a", "firing", 1);
    let author = ", \"author\": \"ann\", \"note\": \"on it\"";
    acknowledge(&sites.primary, "acknowledge", "a", author);
    wait_until("the standby knows of it", || sites.acknowledged_by("a").is_some());
    let by = format!("ann at http://127.0.0.1:{}", sites.proxy.port);
    assert_eq!(sites.acknowledged_by("a"), Some(by.clone()));
    acknowledge(&sites.primary, "unacknowledge", "a", "");
    wait_until("it is taken back there, too", || sites.acknowledged_by("a").is_none());
    acknowledge(&sites.primary, "acknowledge", "a", author);
    wait_until("the standby knows of it", || sites.acknowledged_by("a").is_some());
    sites.primary.kill();
    // The machine may have been too slow to acknowledge it within three seconds.
    let escalated = sites.receiver.of("/second", "a", "firing").len();
    sites.standby.kill();
    sites.standby.start();
    assert_eq!(sites.acknowledged_by("a"), Some(by.clone()));
    set_due(&sites.standby, "b", 0);
    // Of an alert that nobody acknowledged the second contact hears, later than it would of the
    // first one.
    wait_until("the standby escalates", || sites.receiver.has("/second", "b", "firing"));
    let found = sites.receiver.of("/second", "a", "firing");
    assert_eq!(found.len(), escalated, "{found:#?}");
    // The primary still has it after a restart, and may take it back.
    sites.primary.start();
    set_due(&sites.primary, "b", 0);
    wait_until("the primary knows the other alert", || {
        is_acknowledged(&sites.primary, "acknowledge", "b", author)
    });
    wait_until("the standby has a list", || sites.acknowledged_by("b").is_some());
    assert_eq!(sites.acknowledged_by("a"), Some(by));
    acknowledge(&sites.primary, "unacknowledge", "a", "");
    wait_until("it is taken back there, too", || sites.acknowledged_by("a").is_none());
    sites.standby.stop();
    sites.primary.stop();
}

#[test]
fn an_acknowledgement_at_the_standby_stays_whatever_the_primary_has() {
    let mut sites = TwoSites::start();
    let (ann, bob) = (", \"author\": \"ann\"", ", \"author\": \"bob\"");
    for host in ["a", "b"] {
        for site in [&sites.primary, &sites.standby] {
            set_due(site, host, 0);
        }
        sites.wait_for(host, "firing", 1);
    }
    wait_until("the standby knows the alert", || {
        is_acknowledged(&sites.standby, "acknowledge", "a", bob)
    });
    let wait_for_other = |sites: &TwoSites, is_acknowledged: bool| {
        wait_until("the standby has a list", || {
            sites.acknowledged_by("b").is_some() == is_acknowledged
        });
        assert_eq!(sites.acknowledged_by("a").as_deref(), Some("bob"));
    };
    for host in ["a", "b"] {
        acknowledge(&sites.primary, "acknowledge", host, ann);
    }
    wait_for_other(&sites, true);
    for host in ["a", "b"] {
        acknowledge(&sites.primary, "unacknowledge", host, "");
    }
    wait_for_other(&sites, false);
    acknowledge(&sites.primary, "acknowledge", "b", ann);
    wait_for_other(&sites, true);
    // Nobody takes back what was acknowledged at a former primary.
    let settings = std::fs::read_to_string(sites.standby.settings()).expect("settings");
    let (without, _) = settings.split_once("[alerts.primary]").expect("a primary");
    std::fs::write(sites.standby.settings(), without).expect("settings are written");
    sites.standby.reload();
    wait_for_other(&sites, false);
    sites.standby.stop();
    sites.primary.stop();
}

/// Clears the alerts of a host at a site.
#[track_caller]
fn clear(server: &ServerProcess, host: &str) {
    let body = format!("{{\"matchers\": [\"host={host}\"], \"author\": \"ann\"}}");
    let sent = request_at(server.address(), "POST", "/v1/alerts/clear", &[], body.as_bytes());
    let sent = sent.expect("it answers");
    assert_eq!(sent.status, 200, "{}", sent.text());
}

/// Names and hosts of the alerts that a site lists, and since when.
fn listed(server: &ServerProcess) -> Vec<(String, i64)> {
    let alerts = server.get("/v1/alerts").json();
    let alerts = alerts["alerts"].as_array().cloned().unwrap_or_default();
    let text = |alert: &serde_json::Value, name: &str| {
        alert["labels"][name].as_str().expect("a text").to_owned()
    };
    let one = |alert: serde_json::Value| {
        let name = format!("{} {}", text(&alert, "alertname"), text(&alert, "host"));
        (name, alert["since_ns"].as_i64().expect("a time"))
    };
    alerts.into_iter().map(one).collect()
}

// slow: both servers are started again, and the standby sends after four seconds of silence.
#[test]
fn an_alert_that_was_cleared_at_the_primary_does_not_fire_again_after_a_failover() {
    let mut sites = TwoSites::start();
    let outside = "[{\"labels\": {\"alertname\": \"Outside\", \"host\": \"a\"}}]";
    for site in [&sites.primary, &sites.standby] {
        let path = "/api/v2/alerts";
        let sent = request_at(site.address(), "POST", path, &[], outside.as_bytes());
        assert_eq!(sent.expect("it answers").status, 200);
        set_due(site, "b", 0);
        wait_until("it knows both alerts", || listed(site).len() == 2);
    }
    sites.wait_for("a", "firing", 1);
    sites.wait_for("b", "firing", 1);
    let since = |site: &ServerProcess| {
        let due = listed(site).into_iter().find(|(name, _)| name == "Due b");
        due.map(|(_, since_ns)| since_ns)
    };
    let before = since(&sites.standby);
    // It hears of a clearance after its restart. The condition holds: the alert begins anew at both
    // sites, once.
    sites.standby.kill();
    clear(&sites.primary, "b");
    sites.standby.start();
    wait_until("it has begun anew", || since(&sites.standby).is_some_and(|at| Some(at) > before));
    let anew = since(&sites.standby);
    let history = sites.standby.get("/v1/alerts/history?event=resolved").json();
    let by = history["history"][0]["by"].as_str().unwrap_or_default().to_owned();
    assert_eq!(by, format!("ann at http://127.0.0.1:{}", sites.proxy.port), "{history:#}");
    // Later lists of the primary have the clearance, too.
    let author = ", \"author\": \"bob\"";
    wait_until("the primary knows it", || {
        is_acknowledged(&sites.primary, "acknowledge", "b", author)
    });
    wait_until("the standby has a later list", || sites.acknowledged_by("b").is_some());
    assert_eq!(since(&sites.standby), anew);
    // The primary knows a clearance after its restart, too.
    sites.standby.kill();
    clear(&sites.primary, "a");
    sites.wait_for("a", "resolved", 1);
    sites.primary.kill();
    sites.primary.start();
    sites.standby.start();
    wait_until("it is cleared there, too", || {
        !listed(&sites.standby).iter().any(|(name, _)| name == "Outside a")
    });
    sites.primary.kill();
    sites.wait_for_sending(true);
    // The standby sends, but not the alert that was cleared.
    set_due(&sites.standby, "c", 0);
    sites.wait_for("c", "firing", 1);
    assert_eq!(sites.receiver.of("/hook", "a", "firing").len(), 1, "{}", sites.standby.log());
    sites.standby.stop();
}

#[test]
fn sites_that_are_cut_from_each_other_send_the_same_keys() {
    let sites = TwoSites::start();
    sites.proxy.disconnect();
    sites.wait_for_sending(true);
    let mut number = 0;
    let host = loop {
        let host = format!("h{number}");
        let due_s = in_seconds(2);
        for site in [&sites.primary, &sites.standby] {
            set_due(site, &host, due_s);
        }
        let messages = sites.wait_for(&host, "firing", 2);
        // A site that was late has seen another begin.
        if sites.have_same_begin(&host) {
            assert_eq!(messages[0].key, messages[1].key, "{messages:#?}");
            break host;
        }
        number += 1;
    };
    sites.proxy.reconnect();
    sites.wait_for_sending(false);
    let settled = sites.status()["settled"].as_u64().expect("a number");
    for site in [&sites.primary, &sites.standby] {
        set_due(site, &host, in_seconds(3600));
    }
    sites.wait_for(&host, "resolved", 1);
    wait_until("the standby knows of it", || {
        sites.status()["settled"].as_u64().expect("a number") > settled
    });
    assert_eq!(sites.receiver.of("/hook", &host, "resolved").len(), 1);
}
