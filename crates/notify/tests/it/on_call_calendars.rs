//! Rotations of iCalendar files: settings with their problems, and a notifier whose clock passes
//! handovers and times without anybody on call.

use std::path::{Path, PathBuf};

use notify::{NotifiedState, NotifySettings, OnCallShift};
use toml::de::DeTable;

use crate::alerts::name_templates;
use crate::http_receiver::HttpReceiver;
use crate::notifier::{NotifierBench, delivered, ok, paths, team, wait_for};

/// A file in a directory of its own, which is removed with it.
struct CalendarFile(PathBuf);

impl CalendarFile {
    fn new(name: &str, text: &str) -> CalendarFile {
        let dir = std::env::temp_dir().join(format!("topdeck-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("on-call.ics"), text).unwrap();
        CalendarFile(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.join("on-call.ics")
    }
}

impl Drop for CalendarFile {
    fn drop(&mut self) {
        // A test that failed may have removed it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Eve and Bob, a week each from Monday 9:00 on, and nobody on Sundays.
const CALENDAR: &str = "BEGIN:VCALENDAR\r
VERSION:2.0\r
BEGIN:VEVENT\r
UID:1\r
SUMMARY:Eve Smith\r
DTSTART;TZID=Europe/Berlin:20231016T090000\r
DTEND;TZID=Europe/Berlin:20231022T000000\r
RRULE:FREQ=WEEKLY;INTERVAL=2\r
END:VEVENT\r
BEGIN:VEVENT\r
UID:2\r
SUMMARY:bob\r
DTSTART;TZID=Europe/Berlin:20231023T090000\r
DTEND;TZID=Europe/Berlin:20231029T000000\r
RRULE:FREQ=WEEKLY;INTERVAL=2\r
END:VEVENT\r
END:VCALENDAR\r
";

fn rotation(path: &Path, more: &str) -> String {
    let path = path.display();
    format!(
        "\n[[rotation]]\nname = 'primary'\ncalendar = '{path}'\npeople = {{ 'Eve Smith' = 'eve' \
         }}\n{more}\n"
    )
}

fn read(text: &str, dir: &Path) -> Result<NotifySettings, Vec<String>> {
    let root = DeTable::parse(text).unwrap().into_inner();
    let line = |byte: usize| text[..byte].matches('\n').count() + 1;
    NotifySettings::read(&root, dir).map_err(|problems| {
        problems.iter().map(|found| format!("{}: {}", line(found.position), found.what)).collect()
    })
}

const CONTACTS: &str = "\
[[contact]]
name = 'eve'
kind = 'ntfy'
topic = 'a'

[[contact]]
name = 'bob'
kind = 'ntfy'
topic = 'b'

[route]
receiver = 'primary'
";

fn ns(at: &str) -> i64 {
    i64::try_from(at.parse::<jiff::Timestamp>().unwrap().as_nanosecond()).unwrap()
}

#[test]
fn a_rotation_of_a_calendar_is_read_and_has_gaps_and_overrides() {
    let file = CalendarFile::new("calendar-read", CALENDAR);
    let overrides =
        "overrides = [{ member = 'bob', from = '2023-10-21T00:00', to = '2023-10-22T12:00' }]";
    // The path is relative to the settings file.
    let text = format!("{CONTACTS}{}", rotation(Path::new("on-call.ics"), overrides));
    let text = text + "time_zone = 'Europe/Berlin'\n";
    let settings = read(&text, &file.0).unwrap();
    let shift = |at: &str| settings.rotations[0].shift_at(ns(at));
    let expected = |member: Option<&str>, until: &str| OnCallShift {
        member: member.map(str::to_owned),
        until_ns: ns(until),
    };
    let eve = expected(Some("eve"), "2023-10-20T22:00:00Z");
    assert_eq!(shift("2023-10-16T07:00:00Z"), eve);
    let bob = expected(Some("bob"), "2023-10-22T10:00:00Z");
    assert_eq!(shift("2023-10-20T22:00:00Z"), bob);
    assert_eq!(shift("2023-10-22T10:00:00Z"), expected(None, "2023-10-23T07:00:00Z"));
}

#[test]
fn problems_of_a_calendar_have_the_line_of_the_settings_and_that_of_the_file() {
    let file = CalendarFile::new(
        "calendar-bad",
        &CALENDAR.replace("SUMMARY:bob", "SUMMARY:bbo").replace("INTERVAL=2", "INTERVAL=0"),
    );
    let path = file.path();
    let shown = path.display();
    let before = CONTACTS.matches('\n').count();
    let at = |line: usize, what: &str| format!("{}: {what}", before + line);
    let problems = read(&format!("{CONTACTS}{}", rotation(&path, "")), &file.0).unwrap_err();
    let interval = "RRULE: INTERVAL=0: expected a number from 1 to 10000";
    assert_eq!(
        problems,
        [
            at(4, &format!("{shown}:8: {interval}")),
            at(4, &format!("{shown}:12: SUMMARY: unknown contact \"bbo\"; did you mean \"bob\"?")),
        ]
    );
    let missing = path.with_file_name("missing.ics");
    let problems = read(&format!("{CONTACTS}{}", rotation(&missing, "")), &file.0).unwrap_err();
    let expected = format!("cannot read {}: ", missing.display());
    assert!(problems[0].starts_with(&at(4, &expected)), "{problems:?}");
    let dir = file.0.display();
    let problems = read(&format!("{CONTACTS}{}", rotation(&file.0, "")), &file.0).unwrap_err();
    assert!(problems[0].starts_with(&at(4, &format!("cannot read {dir}: "))), "{problems:?}");
}

#[test]
fn a_calendar_excludes_turns_and_people_need_a_calendar() {
    let file = CalendarFile::new("calendar-keys", CALENDAR);
    let before = CONTACTS.matches('\n').count();
    let check = |text: &str, expected: &[&str]| {
        let problems = read(&format!("{CONTACTS}{text}"), &file.0).unwrap_err();
        let relative = |problem: &String| {
            let (line, what) = problem.split_once(": ").unwrap();
            format!("{}: {what}", line.parse::<usize>().unwrap() - before)
        };
        assert_eq!(problems.iter().map(relative).collect::<Vec<_>>(), expected, "{text}");
    };
    check(
        &rotation(&file.path(), "shift = '1w'"),
        &["4: `calendar` excludes `members`, `start` and `shift`; keep one of both"],
    );
    let name = "\n[[rotation]]\nname = 'primary'\n";
    check(
        &format!("{name}members = ['eve']\n"),
        &["3: a rotation needs `members`, `start` and `shift`, or `calendar`"],
    );
    let turns = "members = ['eve']\nstart = '2026-01-05T09:00'\nshift = '1w'\n";
    check(
        &format!("{name}{turns}people = {{ Eve = 'evve' }}\n"),
        &[
            "3: `people` are names in a calendar; add `calendar`",
            "7: unknown receiver \"evve\"; did you mean \"eve\"?",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_while_nobody_is_on_call_is_told_to_the_next_contact_across_a_dst_change() {
    let file = CalendarFile::new("calendar-gap", CALENDAR);
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let route = "[route]\nreceiver = 'primary'\ngroup_wait = '0s'\ngroup_interval = '5min'\n";
    let settings = format!("{}{route}{}", team(&receiver), rotation(&file.path(), ""));
    // Summer time ends on this Sunday at 1:00 UTC: Bob's week has ended, Eve's begins on Monday at
    // 9:00, which is 8:00 UTC.
    bench.set_time(ns("2023-10-29T00:30:00Z"));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the warning", |status| !status.warnings.is_empty());
    let expected = "rotation \"primary\" of a/1: nobody is on call; the next contact on call is \
                    notified";
    assert_eq!(notifier.status().warnings[0].text, expected);
    // A look in each time, of which one is an hour before the handover in winter time.
    for at in ["2023-10-29T12:00:00Z", "2023-10-30T07:10:00Z", "2023-10-30T07:59:00Z"] {
        bench.set_time(ns(at));
        wait_for(&notifier, "a look", |status| status.next_due_ns > Some(ns(at)));
        assert_eq!(receiver.take_requests().len(), 0, "{at}");
    }
    bench.set_time(ns("2023-10-30T08:04:01Z"));
    wait_for(&notifier, "the next contact", |status| delivered(status, "eve") == 1);
    assert_eq!(notifier.status().warnings.len(), 1);
    bench.advance(600);
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    bench.advance(301);
    wait_for(&notifier, "the end", |status| delivered(status, "eve") == 2);
    assert_eq!(paths(&receiver.take_requests()), ["/eve a/1 firing", "/eve a/2 resolved"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_anybody_on_call_is_skipped_at_once_with_a_warning() {
    let file = CalendarFile::new("calendar-step", CALENDAR);
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let escalation = "[route]\nreceiver = 'pay'\ngroup_wait = '0s'\n\n[[escalation]]\nname = \
                      'pay'\nsteps = [\n  { after = '0s', receivers = ['primary'] },\n  { after = \
                      '10min', receivers = ['boss'] },\n  { after = '1h', receivers = ['primary'] \
                      },\n]\n";
    let settings = format!("{}{escalation}{}", team(&receiver), rotation(&file.path(), ""));
    bench.set_time(ns("2023-10-29T00:30:00Z"));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "step 2", |status| delivered(status, "boss") == 1);
    let warnings = || -> Vec<String> {
        notifier.status().warnings.into_iter().map(|warning| warning.text).collect()
    };
    let first = "escalation \"pay\" of a/1: nobody of step 1 is on call; step 2 is made at once";
    wait_for(&notifier, "the warning", |status| !status.warnings.is_empty());
    assert_eq!(warnings(), [first]);
    bench.advance(3601);
    wait_for(&notifier, "step 3", |status| status.warnings.len() == 2);
    let last = "escalation \"pay\" of a/1: nobody of step 3 is on call, and no step follows";
    assert_eq!(warnings(), [first, last]);
    assert_eq!(paths(&receiver.take_requests()), ["/boss a/1 firing"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_escalation_of_which_nobody_is_on_call_is_told_to_the_next_contact() {
    let file = CalendarFile::new("calendar-escalation", CALENDAR);
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let escalation = "\
        [route]\n\
        receiver = 'pay'\n\
        group_wait = '0s'\n\
        group_interval = '5min'\n\
        repeat_interval = '1w'\n\n\
        [[escalation]]\n\
        name = 'pay'\n\
        steps = [\n\
         { after = '0s', receivers = ['primary'] },\n\
         { after = '10min', receivers = ['primary'] },\n\
        ]\n";
    let settings = format!("{}{escalation}{}", team(&receiver), rotation(&file.path(), ""));
    bench.set_time(ns("2023-10-29T00:30:00Z"));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the warnings", |status| status.warnings.len() == 2);
    let at = "2023-10-30T07:59:00Z";
    bench.set_time(ns(at));
    wait_for(&notifier, "a look", |status| status.next_due_ns > Some(ns(at)));
    assert_eq!(receiver.take_requests().len(), 0);
    bench.set_time(ns("2023-10-30T08:04:01Z"));
    wait_for(&notifier, "the next contact", |status| delivered(status, "eve") == 1);
    // She is not told again at each look.
    let at = "2023-10-30T09:00:00Z";
    bench.set_time(ns(at));
    wait_for(&notifier, "a look", |status| status.next_due_ns > Some(ns(at)));
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    bench.advance(301);
    wait_for(&notifier, "the end", |status| delivered(status, "eve") == 2);
    assert_eq!(paths(&receiver.take_requests()), ["/eve a/1 firing", "/eve a/2 resolved"]);
    assert_eq!(notifier.status().warnings.len(), 2);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_for_somebody_on_call_repeat_nothing_to_others() {
    let file = CalendarFile::new("calendar-reminders", CALENDAR);
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let escalation = "\
        [route]\n\
        receiver = 'pay'\n\
        group_wait = '0s'\n\
        group_interval = '1min'\n\
        repeat_interval = '10min'\n\n\
        [[escalation]]\n\
        name = 'pay'\n\
        steps = [\n\
         { after = '0s', receivers = ['primary'] },\n\
         { after = '1h', receivers = ['boss'] },\n\
        ]\n";
    let settings = format!("{}{escalation}{}", team(&receiver), rotation(&file.path(), ""));
    // Eve's week ends at 22:00 UTC.
    bench.set_time(ns("2023-10-21T20:30:00Z"));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    let told = |eve: u64, boss: u64| {
        wait_for(&notifier, "deliveries", |status| {
            (delivered(status, "eve"), delivered(status, "boss")) == (eve, boss)
        });
    };
    told(1, 0);
    bench.set_time(ns("2023-10-21T21:30:01Z"));
    told(2, 1);
    notifier.submit(bench.firing("b", 1)).unwrap();
    bench.set_time(ns("2023-10-21T21:32:00Z"));
    told(3, 1);
    // Nobody of the step that the second alert reached is on call any more.
    bench.set_time(ns("2023-10-21T22:05:00Z"));
    told(3, 2);
    for at in ["2023-10-21T22:07:00Z", "2023-10-21T22:09:00Z"] {
        bench.set_time(ns(at));
        wait_for(&notifier, "a look", |status| status.next_due_ns > Some(ns(at)));
    }
    bench.set_time(ns("2023-10-21T22:16:00Z"));
    told(3, 3);
    let sent = paths(&receiver.take_requests());
    let of_boss: Vec<&str> = sent.iter().filter_map(|text| text.strip_prefix("/boss ")).collect();
    assert_eq!(of_boss, ["a/1 firing", "a/1/1 firing", "a/1/2 firing"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_reads_the_calendar_again() {
    let file = CalendarFile::new("calendar-reload", CALENDAR);
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let route = "[route]\nreceiver = 'primary'\ngroup_wait = '0s'\ngroup_by = ['...']\n";
    let settings = format!("{}{route}{}", team(&receiver), rotation(&file.path(), ""));
    bench.set_time(ns("2023-10-16T08:00:00Z"));
    let mut notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "Eve", |status| delivered(status, "eve") == 1);
    let swapped = CALENDAR.replace("bob", "Bob").replace("Eve Smith", "bob");
    std::fs::write(file.path(), swapped.replace("Bob", "Eve Smith")).unwrap();
    let settings = read(&settings, Path::new("/")).unwrap();
    notifier.reload(settings, &name_templates(), None).unwrap();
    notifier.submit(bench.firing("b", 1)).unwrap();
    wait_for(&notifier, "Bob", |status| delivered(status, "bob") == 1);
    assert_eq!(paths(&receiver.take_requests()), ["/eve a/1 firing", "/bob b/1 firing"]);
    notifier.stop();
}
