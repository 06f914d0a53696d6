//! Contacts of a running server: `/v1/contacts`, and rotations of a calendar across reloads.

use serde_json::Value;

use super::alert_receiver::{AlertReceiver, ReceiverAnswer};
use super::alerts::{DEEP, light, send, start_with, with_rules};
use super::client::request_at;
use super::mail_server::MailServer;
use super::server_process::{ServerProcess, wait_until};

const SETTINGS: &str = "[alerts]\nrule_files = [\"rules*.yaml\"]\n";

fn hook(name: &str, receiver: &AlertReceiver, more: &str) -> String {
    let address = receiver.address;
    format!(
        "[[contact]]\nname = \"{name}\"\nkind = \"webhook\"\nurl = \
         \"http://{address}/{name}?key=hidden\"\n{more}\n"
    )
}

fn contacts(server: &ServerProcess) -> Value {
    server.get("/v1/contacts").json()
}

fn contact(server: &ServerProcess, at: usize) -> Value {
    contacts(server)["contacts"][at].clone()
}

#[test]
fn a_contact_says_whether_it_is_reached_what_it_got_and_that_its_failover_stepped_in() {
    let (pager, spare) = (AlertReceiver::start(), AlertReceiver::start());
    pager.set_answer(ReceiverAnswer::ServerError);
    let settings = [
        SETTINGS.to_owned(),
        hook("pager", &pager, "failover = \"spare\"\nfailover_after = \"1s\""),
        hook("spare", &spare, ""),
        "[route]\nreceiver = \"pager\"\ngroup_wait = \"0s\"\ngroup_interval = \"1s\"\n".to_owned(),
    ];
    let mut server = start_with(&settings.concat(), &with_rules(DEEP));
    let unused = contact(&server, 0);
    assert_eq!(
        (&unused["name"], &unused["kind"], &unused["state"], &unused["failover"]),
        (&"pager".into(), &"webhook".into(), &"unused".into(), &"spare".into())
    );
    assert_eq!(unused["host"], pager.address.to_string());
    assert_eq!(unused["deliveries"], Value::Array(Vec::new()));
    send(&server, 7.5);
    wait_until("the failover hears of it", || contact(&server, 1)["state"] == "ok");
    let all = contacts(&server);
    assert!(!all.to_string().contains("hidden"), "{all:#}");
    let failing = &all["contacts"][0];
    assert_eq!(failing["state"], "failing", "{failing:#}");
    assert!(failing["failing_since_ns"].as_i64().is_some(), "{failing:#}");
    let newest = &failing["deliveries"][0];
    assert_eq!((&newest["alert"], &newest["state"]), (&"Deep".into(), &"firing".into()));
    assert_eq!(newest["outcome"], "retry", "{newest:#}");
    assert!(newest["note"].to_string().contains("500"), "{newest:#}");
    assert!(newest["latency_ns"].as_i64().is_some_and(|latency_ns| latency_ns >= 0));
    let waiting = &all["pending"][0];
    assert_eq!((&waiting["contact"], &waiting["alert"]), (&"pager".into(), &"Deep".into()));
    assert_eq!(waiting["has_failed_over"], true, "{waiting:#}");
    assert!(waiting["attempts"].as_u64() >= Some(1), "{waiting:#}");
    pager.set_answer(ReceiverAnswer::Accept);
    wait_until("it recovers", || contact(&server, 0)["state"] == "ok");
    assert_eq!(contact(&server, 0)["failing_since_ns"], Value::Null);
    assert_eq!(contacts(&server)["pending"], Value::Array(Vec::new()));
    // What was delivered is known after a restart, too.
    server.stop();
    server.start();
    let known = contact(&server, 0);
    assert_eq!(known["state"], "ok", "{known:#}");
    assert_eq!(known["deliveries"][0]["alert"], "Deep", "{known:#}");
    assert_eq!(known["deliveries"][0]["latency_ns"], Value::Null, "{known:#}");
}

const CALENDAR: &str = "BEGIN:VCALENDAR\nVERSION:2.0\nBEGIN:VEVENT\nSUMMARY:eve\n\
    DTSTART;VALUE=DATE:20200101\nRRULE:FREQ=DAILY\nEND:VEVENT\nEND:VCALENDAR\n";

#[test]
fn a_calendar_that_a_reload_cannot_read_leaves_the_former_one_in_force() {
    let receiver = AlertReceiver::start();
    let settings = [
        SETTINGS.to_owned(),
        hook("eve", &receiver, ""),
        hook("bob", &receiver, ""),
        "[route]\nreceiver = \"primary\"\ngroup_by = [\"...\"]\ngroup_wait = \"0s\"\n".to_owned(),
        "[[rotation]]\nname = \"primary\"\ncalendar = \"on-call.ics\"\n".to_owned(),
    ];
    let mut server = ServerProcess::new("serve", &settings.concat());
    let write = |name: &str, text: &str| {
        std::fs::write(server.dir.path(name), text).expect("a file is written");
    };
    write("rules.yaml", &with_rules(DEEP));
    write("on-call.ics", &CALENDAR.replace("DAILY", "YEARLY"));
    let (status, said) = server.start_another(&[]);
    assert_eq!(status, Some(1), "{said}");
    let expected = "on-call.ics:6: RRULE: FREQ=YEARLY: expected DAILY, WEEKLY or MONTHLY";
    assert!(said.contains(expected), "{said}");
    write("on-call.ics", CALENDAR);
    server.start();
    let write = |text: &str| {
        std::fs::write(server.dir.path("on-call.ics"), text).expect("a file is written");
    };
    write(&CALENDAR.replace("eve", "evee"));
    server.reload();
    let expected = "on-call.ics:4: SUMMARY: unknown contact \"evee\"; did you mean \"eve\"?";
    wait_until("it says so", || server.log().contains(expected));
    assert!(server.log().contains("keeping the previous ones"), "{}", server.log());
    send(&server, 7.5);
    wait_until("Eve is told", || receiver.has("/eve?key=hidden", "a", "firing"));
    send(&server, 1.0);
    wait_until("it ended", || light(&server) == "green");
    write(&CALENDAR.replace("eve", "bob"));
    server.reload();
    wait_until("it is used", || server.log().contains("2 rules loaded"));
    send(&server, 8.0);
    wait_until("Bob is told", || receiver.has("/bob?key=hidden", "a", "firing"));
    assert_eq!(receiver.of("/eve?key=hidden", "a", "firing").len(), 1);
    server.stop();
}

/// A rule on requests, and one on something else.
const OWN_RULES: &str = "[[rule]]\nname = 'Slow'\nselect = 'latency'\nby = ['host']\n\
    window = '1h'\n[[rule.criteria]]\nseverity = 1\ncount_above = '250ms'\nat_least = 3\n\
    [[rule]]\nname = 'Deep'\nselect = 'depth'\n[[rule.criteria]]\nseverity = 2\nabove = 5\n";

#[test]
fn a_message_says_how_many_requests_and_users_an_alert_affected() {
    let receiver = AlertReceiver::start();
    let settings = [
        "[alerts]\nrule_files = [\"*.rules.toml\"]\nexternal_url = \"http://deck/\"\n".to_owned(),
        hook("pager", &receiver, ""),
        "[route]\nreceiver = \"pager\"\ngroup_by = [\"...\"]\ngroup_wait = \"0s\"\n".to_owned(),
    ];
    let mut server = ServerProcess::new("serve", &settings.concat());
    let rules = server.dir.path("own.rules.toml");
    std::fs::write(rules, OWN_RULES).expect("rules are written");
    server.start();
    let record = |host: &str, session: &str, latencies: &str| {
        let labels = format!("label.host={host}&label.session={session}");
        let path = format!("/v1/record?metric=latency&unit=ms&{labels}");
        let sent = request_at(server.address(), "POST", &path, &[], latencies.as_bytes());
        assert!(sent.expect("it answers").status < 300);
    };
    send(&server, 7.5);
    let affected = |host: &str| {
        let messages = receiver.of("/pager?key=hidden", host, "firing");
        messages.first().map(|message| message.affected)
    };
    wait_until("the alert of numbers is told", || affected("a").is_some());
    assert_eq!(affected("a"), Some((None, None)));
    // A gauge without a unit has a view, and no threshold in it.
    let link = |host: &str| receiver.of("/pager?key=hidden", host, "firing")[0].link.clone();
    let (path, settings) =
        link("a").split_once("?").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("settings");
    assert_eq!(path, "http://deck/#/explore");
    let names: Vec<&str> =
        settings.split('&').map(|setting| setting.split('=').next().unwrap_or_default()).collect();
    assert_eq!(names, ["from", "selector", "to", "v"], "{settings}");
    assert!(settings.contains("selector=depth&"), "{settings}");
    // Numbers that a busy machine does not read in time are unknown.
    let is_known = (0..20).map(|number| format!("web{number}")).any(|host| {
        for (session, latencies) in [("s1", "10\n900"), ("s2", "900\n900"), ("s3", "10")] {
            record(&host, session, latencies);
        }
        wait_until("the alert of requests is told", || affected(&host).is_some());
        let affected = affected(&host).expect("it is told");
        assert!([(Some(3), Some(2)), (None, None)].contains(&affected), "{affected:?}");
        assert!(link(&host).contains("&threshold=250ms&"), "{}", link(&host));
        affected.0.is_some()
    });
    assert!(is_known);
    server.stop();
}

#[test]
fn a_mail_has_the_heatmap_of_the_alert_and_a_webhook_its_link() {
    let (receiver, mail) = (AlertReceiver::start(), MailServer::start());
    let contact = format!(
        "[[contact]]\nname = \"mail\"\nkind = \"email\"\nserver = \"{}\"\nsecurity = \"none\"\n\
         from = \"topdeck@example.org\"\nto = [\"eve@example.org\"]\n",
        mail.address
    );
    let settings = [
        "[alerts]\nrule_files = [\"*.rules.toml\"]\nexternal_url = \"http://deck/\"\n".to_owned(),
        hook("pager", &receiver, ""),
        contact,
        "[[escalation]]\nname = \"both\"\n\
         steps = [{ after = \"0s\", receivers = [\"pager\", \"mail\"] }]\n\
         [route]\nreceiver = \"both\"\ngroup_by = [\"...\"]\ngroup_wait = \"0s\"\n"
            .to_owned(),
    ];
    let mut server = ServerProcess::new("serve", &settings.concat());
    let rules = server.dir.path("own.rules.toml");
    std::fs::write(rules, OWN_RULES).expect("rules are written");
    server.start();
    let told = |name: &str| mail.messages().into_iter().find(|text| text.contains(name));
    // A gauge has no distribution: a mail without a picture is a mail.
    send(&server, 7.5);
    wait_until("the alert of numbers is told", || told("Deep").is_some());
    let without = told("Deep").expect("it is told");
    assert!(!without.contains("image/png"), "{without}");
    // A picture that a busy machine does not draw in time is left out.
    let is_drawn = (0..20).any(|number| {
        let host = format!("web{number}");
        let path = format!("/v1/record?metric=latency&unit=ms&label.host={host}");
        let latencies = b"10\n900\n900\n900";
        let sent = request_at(server.address(), "POST", &path, &[], latencies);
        assert!(sent.expect("it answers").status < 300);
        let count = || mail.messages().iter().filter(|text| text.contains("] Slow\n")).count();
        wait_until("the alert of requests is mailed", || count() > number);
        wait_until("it is sent", || receiver.has("/pager?key=hidden", &host, "firing"));
        mail.messages().last().is_some_and(|text| {
            // The signature of a PNG file.
            let parts = ["Content-Type: image/png", "Content-ID: <picture>", "\niVBORw0KGgo"];
            parts.iter().all(|part| text.contains(part))
        })
    });
    assert!(is_drawn);
    let link = receiver.of("/pager?key=hidden", "web0", "firing")[0].link.clone();
    assert!(link.starts_with("http://deck/#/explore"), "{link}");
    server.stop();
}

/// A rule with two severities, evaluated on arrival.
const TWO_SEVERITIES: &str = "[[rule]]\nname = 'Deep'\nselect = 'depth'\nwindow = '1h'\n\
    [[rule.criteria]]\nseverity = 1\nabove = 100\n[[rule.criteria]]\nseverity = 3\nabove = 5\n";

#[test]
fn the_severity_of_a_criterion_selects_routes_and_silences_and_a_worse_one_goes_at_once() {
    let receiver = AlertReceiver::start();
    let settings = [
        "[alerts]\nrule_files = [\"*.rules.toml\"]\nexternal_url = \"http://deck/\"\n".to_owned(),
        hook("mail", &receiver, ""),
        hook("pager", &receiver, ""),
        "[route]\nreceiver = \"mail\"\ngroup_wait = \"0s\"\ngroup_interval = \"1h\"\n\
         [[route.routes]]\nmatchers = ['severity=1']\nreceiver = \"pager\"\n"
            .to_owned(),
    ];
    let mut server = ServerProcess::new("serve", &settings.concat());
    let rules = server.dir.path("own.rules.toml");
    std::fs::write(rules, TWO_SEVERITIES).expect("rules are written");
    server.start();
    send(&server, 7.5);
    let told = |path: &str| receiver.of(path, "a", "firing").len();
    wait_until("the lesser contact is told", || told("/mail?key=hidden") == 1);
    assert_eq!(told("/pager?key=hidden"), 0);
    let silence = "{\"matchers\": [\"severity=3\"], \"for\": \"1h\", \
        \"author\": \"ann\", \"comment\": \"upgrade\"}";
    let made = request_at(server.address(), "POST", "/v1/silences", &[], silence.as_bytes());
    let made = made.expect("it answers");
    assert!(made.status < 300, "{}", made.text());
    let silenced_by = || server.get("/v1/alerts").json()["alerts"][0]["silenced_by"].clone();
    assert_eq!(silenced_by().as_array().map(Vec::len), Some(1));
    // Neither the silence nor the interval of an hour holds the greater severity back.
    send(&server, 700.0);
    wait_until("the pager is told", || told("/pager?key=hidden") == 1);
    wait_until("who knows the alert is told", || told("/mail?key=hidden") == 2);
    // The list has the new severity a moment after its notification.
    let is_silenced = || silenced_by().as_array().is_none_or(|ids| !ids.is_empty());
    wait_until("the silence of the lesser severity ends", || !is_silenced());
    let found = server.get("/api/v2/alerts?filter=severity%3D1").json();
    assert_eq!(found[0]["labels"]["severity"], "1", "{found:#}");
    let listed = server.get("/v1/alerts").json();
    assert_eq!(found[0]["fingerprint"], listed["alerts"][0]["fingerprint"]);
    server.stop();
}
