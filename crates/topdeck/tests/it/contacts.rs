//! `topdeck contacts`: contacts of a settings file, and a test message to a receiver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::Value;

use crate::test_dir::TestDir;
use crate::{TextRun, topdeck};

fn run(dir: &TestDir, settings: &str, arguments: &[&str]) -> TextRun {
    let path = dir.path().join("topdeck.toml");
    std::fs::write(&path, settings).unwrap();
    let config = ["--config", path.to_str().unwrap()];
    topdeck(&[&["contacts"], arguments, &config].concat(), b"")
}

/// Takes one request, answers with a status, and returns the body.
fn receive(listener: TcpListener, status: &'static str) -> JoinHandle<Value> {
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        serde_json::from_slice(&body).unwrap()
    })
}

const ROUTE: &str = "[route]\nreceiver = 'hook'\n";

#[test]
fn a_test_message_says_that_it_is_one_and_the_answer_is_shown() {
    for (status, code, shown) in [
        ("200 OK", 0, "hook: the receiver accepted the message\n"),
        ("403 Forbidden", 1, "topdeck: cannot send to \"hook\": 127.0.0.1:"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let settings = format!(
            "[[contact]]\nname = 'hook'\nkind = 'webhook'\nurl = 'http://{address}/'\n{ROUTE}"
        );
        let receiver = receive(listener, status);
        let run = run(&TestDir::new(), &settings, &["test", "hook"]);
        let text = format!("{}{}", run.stdout, run.stderr);
        assert!(text.starts_with(shown), "{text}");
        assert_eq!(run.status, code);
        let body = receiver.join().unwrap();
        assert_eq!(body["commonLabels"]["alertname"], "Test of contact hook");
        assert_eq!(body["topdeck"]["criterion"], "this is a test: no alert fires");
    }
}

const SETTINGS: &str = "\
[[contact]]
name = 'hook'
kind = 'webhook'
url = 'http://127.0.0.1:1/'
failover = 'phone'

[[contact]]
name = 'phone'
kind = 'ntfy'
topic = 'alerts'

[route]
receiver = 'shop'

[[rotation]]
name = 'primary'
members = ['phone']
start = '2026-01-05T09:00'
shift = '1w'

[[escalation]]
name = 'shop'
steps = [
  { after = '0s', receivers = ['primary'] },
  { after = '10min', receivers = ['hook', 'phone'] },
]
";

#[test]
fn contacts_rotations_and_escalations_are_listed() {
    let run = run(&TestDir::new(), SETTINGS, &["list"]);
    assert_eq!((run.stderr.as_str(), run.status), ("", 0));
    let lines: Vec<Vec<&str>> =
        run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["hook", "webhook", "failover", "phone", "after", "5", "min"]);
    assert_eq!(lines[2], ["phone", "ntfy"]);
    assert_eq!(lines[3][..5], ["primary", "rotation", "phone", "on", "call"]);
    let expected = "shop escalation at once: primary; after 10 min: hook, phone";
    assert_eq!(lines[4].join(" "), expected);
}

#[test]
fn a_message_is_printed_without_being_sent() {
    // Nothing listens at the contact's address.
    let run = run(&TestDir::new(), SETTINGS, &["test", "hook", "--print"]);
    assert_eq!((run.stderr.as_str(), run.status), ("", 0));
    assert!(run.stdout.starts_with("[Severity 5] Test of contact hook\n"), "{}", run.stdout);
    assert!(run.stdout.contains("this is a test: no alert fires\n"), "{}", run.stdout);
}

#[test]
fn a_test_message_has_a_link_to_the_page_if_the_settings_say_where_that_is() {
    let link = |settings: &str| {
        let run = run(&TestDir::new(), settings, &["test", "hook", "--print"]);
        assert_eq!((run.stderr.as_str(), run.status), ("", 0));
        run.stdout.lines().find_map(|line| line.strip_prefix("View: ").map(str::to_owned))
    };
    assert_eq!(link(SETTINGS), None);
    let settings = format!("{SETTINGS}[alerts]\nexternal_url = 'https://deck.example/'\n");
    assert_eq!(link(&settings).as_deref(), Some("https://deck.example/#/alerts"));
}

#[test]
fn mistakes_have_their_line_and_the_nearest_name() {
    let dir = TestDir::new();
    let run = run(&dir, SETTINGS, &["test", "hok"]);
    let expected = "topdeck: there is no contact \"hok\"; known: hook, phone\n";
    assert_eq!((run.stderr.as_str(), run.status), (expected, 1));
    let run = self::run(&dir, &SETTINGS.replace("failover =", "failovr ="), &["list"]);
    let path = dir.path().join("topdeck.toml");
    let line = format!("{}:5: unknown key \"failovr\"; did you mean \"failover\"?", path.display());
    assert!(run.stderr.contains(&line), "{}", run.stderr);
    assert_eq!(run.status, 1);
}

const CALENDAR: &str = "\
BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VEVENT
SUMMARY:Eve
DTSTART;VALUE=DATE:20200101
DTEND;VALUE=DATE:20200102
RRULE:FREQ=DAILY
END:VEVENT
END:VCALENDAR
";

/// Settings whose rotation is a calendar.
fn calendar_settings() -> String {
    let turns = "members = ['phone']\nstart = '2026-01-05T09:00'\nshift = '1w'\n";
    SETTINGS.replace(turns, "calendar = 'on-call.ics'\npeople = { Eve = 'phone' }\n")
}

#[test]
fn the_rotation_of_a_calendar_says_who_is_on_call_or_that_nobody_is() {
    let dir = TestDir::new();
    std::fs::write(dir.path().join("on-call.ics"), CALENDAR).unwrap();
    let on_call = |dir: &TestDir| {
        let run = run(dir, &calendar_settings(), &["list"]);
        assert_eq!((run.stderr.as_str(), run.status), ("", 0));
        let line = run.stdout.lines().nth(3).unwrap_or_default().to_owned();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // A shift of a day follows the other without end.
    assert_eq!(on_call(&dir), "primary rotation phone on call");
    let past = CALENDAR.replace("RRULE:FREQ=DAILY\n", "");
    std::fs::write(dir.path().join("on-call.ics"), past).unwrap();
    assert_eq!(on_call(&dir), "primary rotation nobody on call");
}

#[test]
fn a_bad_or_missing_calendar_is_an_error_of_check_config_with_its_line() {
    let dir = TestDir::new();
    let settings = dir.path().join("topdeck.toml");
    let text = format!("data_dir = 'data'\n{}", calendar_settings());
    std::fs::write(&settings, text).unwrap();
    let check = || topdeck(&["check-config", settings.to_str().unwrap()], b"");
    let (settings, file) = (settings.display(), dir.path().join("on-call.ics"));
    let missing = check();
    let expected = format!("{settings}:18: cannot read {}: No such file", file.display());
    assert!(missing.stderr.contains(&expected), "{}", missing.stderr);
    assert_eq!(missing.status, 1);
    std::fs::write(&file, CALENDAR.replace("DAILY", "YEARLY")).unwrap();
    let bad = check();
    let rule = "RRULE: FREQ=YEARLY: expected DAILY, WEEKLY or MONTHLY";
    let expected = format!("{settings}:18: {}:7: {rule}", file.display());
    assert!(bad.stderr.contains(&expected), "{}", bad.stderr);
    assert_eq!(bad.status, 1);
    std::fs::write(&file, CALENDAR).unwrap();
    let good = check();
    assert_eq!((good.stderr.as_str(), good.status), ("", 0));
}

#[test]
fn the_templates_of_a_contact_are_shown_and_a_broken_one_has_its_line() {
    let settings = |text: &str| {
        format!(
            "[alerts]\nexternal_url = 'http://deck'\n[[contact]]\nname = 'hook'\nkind = 'webhook'\n\
             url = 'http://127.0.0.1:1/'\ntitle = '{{{{ .Severity }}}} {{{{ .State }}}}'\n\
             text = '{text}'\n{ROUTE}"
        )
    };
    let print = ["test", "hook", "--print"];
    let dir = TestDir::new();
    let shown = run(&dir, &settings("{{ $labels.contact | toUpper }} {{ $externalURL }}"), &print);
    assert_eq!((shown.stdout.as_str(), shown.status), ("5 firing\nHOOK http://deck\n", 0));
    let failing = run(&dir, &settings("{{ query \"up\" }}"), &print);
    assert!(failing.stdout.starts_with("5 firing\nthis is a test"), "{}", failing.stdout);
    assert!(failing.stderr.contains("messages cannot query"), "{}", failing.stderr);
    assert_eq!(failing.status, 1);
    let broken = settings("{{ if }}");
    let refused = run(&dir, &broken, &print);
    assert!(refused.stderr.contains("topdeck.toml:8: text: error parsing"), "{}", refused.stderr);
    let path = dir.path().join("topdeck.toml");
    let checked = topdeck(&["check-config", path.to_str().unwrap()], b"");
    assert!(checked.stderr.contains("topdeck.toml:8: text: error parsing"), "{}", checked.stderr);
    assert_eq!((refused.status, checked.status), (1, 1));
}
