//! Receivers that are down for as many attempts as are made in an hour, and a kill meanwhile:
//! afterwards each contact gets everything once.
//!
//! With the default back-off, the attempts of an hour are 5, 10, 20, … 300 s apart, minus up to a
//! half: about twenty. Here they are 200 ms apart.

use serde_json::Value;

use super::alert_receiver::{AlertReceiver, ReceiverAnswer};
use super::alerts::{alerts, with_rules};
use super::client::request_at;
use super::proxy::Proxy;
use super::server_process::{ServerProcess, wait_until};

const RULES: &str = "  - alert: Deep\n    expr: depth > 5\n    annotations:\n      \
                     topdeck_missing_data: hold\n";
const ATTEMPTS: u64 = 20;
const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const PATHS: [&str; 2] = ["/hook", "/key"];

/// `/hook` refuses requests while it is down, and cannot recognize a repeat. `/key` is not
/// reached.
fn settings(receiver: &AlertReceiver, proxy: &Proxy) -> String {
    let contact = |name: &str, port: u16, is_idempotent: bool| {
        format!(
            "[[contact]]\nname = \"{name}\"\nkind = \"webhook\"\nurl = \
             \"http://127.0.0.1:{port}/{name}\"\nidempotent = {is_idempotent}\nmax_retry_interval \
             = \"200ms\"\n"
        )
    };
    let (hook, key) =
        (contact("hook", receiver.address.port(), false), contact("key", proxy.port, true));
    format!(
        "[alerts]\nrule_files = [\"rules.yaml\"]\n{hook}{key}[route]\nreceiver = \"hook\"\n\
         group_by = [\"...\"]\ngroup_wait = \"0s\"\ngroup_interval = \"1s\"\n[[route.routes]]\n\
         receiver = \"hook\"\ncontinue = true\n[[route.routes]]\nreceiver = \"key\"\n"
    )
}

#[track_caller]
fn set_depth(server: &ServerProcess, host: &str, value: f64) {
    let body = format!("depth,host={host} value={value}");
    let sent = request_at(server.address(), "POST", "/api/v2/write", &[], body.as_bytes());
    assert!(sent.expect("it answers").status < 300);
}

fn pending(server: &ServerProcess) -> Vec<Value> {
    let contacts = server.get("/v1/contacts").json();
    contacts["pending"].as_array().cloned().unwrap_or_default()
}

/// Waits until firing alerts of all hosts were tried this often at both contacts.
#[track_caller]
fn wait_for_attempts(server: &ServerProcess, attempts: u64) {
    wait_until("the receivers were tried often enough", || {
        let tried = |one: &Value| {
            one["state"] == "firing" && one["attempts"].as_u64().is_some_and(|n| n >= attempts)
        };
        pending(server).iter().filter(|one| tried(one)).count() == HOSTS.len() * PATHS.len()
    });
}

#[test]
fn receivers_that_are_down_for_the_attempts_of_an_hour_get_everything_once() {
    let receiver = AlertReceiver::start();
    let proxy = Proxy::new(receiver.address.port());
    receiver.set_answer(ReceiverAnswer::ServerError);
    proxy.disconnect();
    let mut server = ServerProcess::new("serve", &settings(&receiver, &proxy));
    std::fs::write(server.dir.path("rules.yaml"), with_rules(RULES)).expect("rules");
    server.start();
    for host in HOSTS {
        set_depth(&server, host, 9.0);
    }
    wait_for_attempts(&server, ATTEMPTS / 2);
    // One ends in this time; the server is killed in it.
    set_depth(&server, "a", 1.0);
    wait_until("the end is due", || {
        pending(&server).iter().filter(|one| one["state"] == "resolved").count() == PATHS.len()
    });
    server.kill();
    server.start();
    wait_for_attempts(&server, ATTEMPTS);
    assert_eq!(receiver.messages(), []);
    receiver.set_answer(ReceiverAnswer::Accept);
    proxy.reconnect();
    wait_until("everything is delivered", || pending(&server).is_empty());
    for path in PATHS {
        for host in HOSTS {
            let states: Vec<String> = receiver
                .messages()
                .into_iter()
                .filter(|message| message.path == path && message.host == host)
                .map(|message| message.state)
                .collect();
            let expected = if host == "a" { &["firing", "resolved"][..] } else { &["firing"][..] };
            assert_eq!(states, expected, "{path} {host}");
        }
    }
    assert_eq!(alerts(&server)["alerts"].as_array().map(Vec::len), Some(HOSTS.len() - 1));
    server.stop();
}
