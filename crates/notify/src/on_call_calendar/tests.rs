//! Calendars as a user has them, and what is refused.

use jiff::Timestamp;

use super::*;

/// Names of contacts, and of a person.
fn contacts() -> BTreeMap<String, String> {
    let names = ["eve", "bob", "ann"].map(|name| (name.to_owned(), name.to_owned()));
    let people = [("Eve Smith", "eve"), ("bob@example.org", "bob")];
    let people = people.map(|(name, contact)| (name.to_owned(), contact.to_owned()));
    names.into_iter().chain(people).collect()
}

fn calendar_text(events: &[&str]) -> String {
    let events = events.iter().map(|event| format!("BEGIN:VEVENT\n{event}\nEND:VEVENT\n"));
    let events: String = events.collect();
    format!("BEGIN:VCALENDAR\nVERSION:2.0\n{events}END:VCALENDAR\n")
}

#[track_caller]
fn calendar(events: &[&str]) -> OnCallCalendar {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    OnCallCalendar::parse(calendar_text(events).as_bytes(), &contacts(), Some(zone)).unwrap()
}

#[track_caller]
fn problems(text: &str) -> Vec<String> {
    let problems = OnCallCalendar::parse(text.as_bytes(), &contacts(), None).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

/// The problem of one event, whose first property is in line 4.
#[track_caller]
fn problem(event: &str) -> String {
    let mut problems = problems(&calendar_text(&[event]));
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

fn ns(at: &str) -> i64 {
    i64::try_from(at.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap()
}

/// Who is on call at a time, and until when; `""` is nobody, and for ever.
#[track_caller]
fn check(calendar: &OnCallCalendar, at: &str, contact: &str, until: &str) {
    let found = calendar.contact_at(ns(at)).unwrap_or_default();
    let change_ns = calendar.next_change_ns(ns(at));
    let expected_ns = if until.is_empty() { i64::MAX } else { ns(until) };
    let shown = Timestamp::from_nanosecond(change_ns.into()).unwrap();
    assert_eq!((found, change_ns), (contact, expected_ns), "{at}: until {shown}");
}

#[test]
fn an_event_with_a_zone_in_utc_and_of_whole_days_name_who_is_on_call() {
    let calendar = calendar(&[
        "SUMMARY:eve\nDTSTART;TZID=America/New_York:20260105T090000\nDURATION:PT8H",
        "SUMMARY:bob\nDTSTART:20260106T090000Z\nDTEND:20260106T170000Z",
        "SUMMARY:ann\nDTSTART;VALUE=DATE:20260107\nDTEND;VALUE=DATE:20260109",
        "SUMMARY:eve\nDTSTART;VALUE=DATE:20260110",
    ]);
    check(&calendar, "2026-01-05T13:59:59Z", "", "2026-01-05T14:00:00Z");
    check(&calendar, "2026-01-05T14:00:00Z", "eve", "2026-01-05T22:00:00Z");
    check(&calendar, "2026-01-06T09:00:00Z", "bob", "2026-01-06T17:00:00Z");
    // Days begin at midnight in Berlin.
    check(&calendar, "2026-01-06T17:00:00Z", "", "2026-01-06T23:00:00Z");
    check(&calendar, "2026-01-08T12:00:00Z", "ann", "2026-01-08T23:00:00Z");
    check(&calendar, "2026-01-09T23:00:00Z", "eve", "2026-01-10T23:00:00Z");
    check(&calendar, "2026-01-10T23:00:00Z", "", "");
    assert_eq!(calendar.contacts().collect::<Vec<_>>(), ["ann", "bob", "eve"]);
}

/// A week each, from Monday 9:00 on.
const WEEKS: [&str; 2] = [
    "UID:1\nSUMMARY:eve\nDTSTART;TZID=Europe/Berlin:20260323T090000\n\
     DTEND;TZID=Europe/Berlin:20260330T090000\nRRULE:FREQ=WEEKLY;INTERVAL=2",
    "UID:2\nSUMMARY:bob\nDTSTART;TZID=Europe/Berlin:20260330T090000\n\
     DTEND;TZID=Europe/Berlin:20260406T090000\nRRULE:FREQ=WEEKLY;INTERVAL=2",
];

#[test]
fn a_week_on_call_ends_at_9_on_both_sides_of_a_dst_change() {
    let weekly = calendar(&WEEKS);
    check(&weekly, "2026-03-23T07:59:59Z", "", "2026-03-23T08:00:00Z");
    check(&weekly, "2026-03-23T08:00:00Z", "eve", "2026-03-30T07:00:00Z");
    // Summer time begins on March 29: 9:00 is an hour earlier.
    check(&weekly, "2026-03-30T06:59:59Z", "eve", "2026-03-30T07:00:00Z");
    check(&weekly, "2026-03-30T07:00:00Z", "bob", "2026-04-06T07:00:00Z");
    check(&weekly, "2026-10-19T07:00:00Z", "eve", "2026-10-26T08:00:00Z");
    check(&weekly, "2026-10-26T07:59:59Z", "eve", "2026-10-26T08:00:00Z");
    check(&weekly, "2026-10-26T08:00:00Z", "bob", "2026-11-02T08:00:00Z");
}

#[test]
fn handovers_in_the_hours_that_the_clock_skips_and_repeats_leave_nobody_out() {
    let daily = calendar(&[
        "SUMMARY:eve\nDTSTART:20260328T023000\nDTEND:20260329T023000\n\
         RRULE:FREQ=DAILY;INTERVAL=2",
        "SUMMARY:bob\nDTSTART:20260329T023000\nDTEND:20260330T023000\n\
         RRULE:FREQ=DAILY;INTERVAL=2",
    ]);
    // 2:30 does not exist on March 29, and exists twice on October 25.
    check(&daily, "2026-03-29T01:29:59Z", "eve", "2026-03-29T01:30:00Z");
    check(&daily, "2026-03-29T01:30:00Z", "bob", "2026-03-30T00:30:00Z");
    check(&daily, "2026-10-25T00:29:59Z", "eve", "2026-10-25T00:30:00Z");
    check(&daily, "2026-10-25T00:30:00Z", "bob", "2026-10-26T01:30:00Z");
    check(&daily, "2026-10-25T01:10:00Z", "bob", "2026-10-26T01:30:00Z");
}

#[test]
fn a_single_event_counts_before_recurring_ones_and_the_later_stamp_before_the_earlier() {
    let [eve, bob] = WEEKS;
    let calendar = calendar(&[
        "SUMMARY:ann\nDTSTART:20260324T100000Z\nDTEND:20260324T200000Z\nDTSTAMP:20260102T000000Z",
        "SUMMARY:bob\nDTSTART:20260324T120000Z\nDTEND:20260324T140000Z\nDTSTAMP:20260103T000000Z",
        "SUMMARY:eve\nDTSTART:20260324T130000Z\nDTEND:20260324T180000Z\nDTSTAMP:20260101T000000Z",
        eve,
        bob,
        "SUMMARY:ann\nDTSTART:20260406T000000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2",
    ]);
    check(&calendar, "2026-03-24T09:59:59Z", "eve", "2026-03-24T10:00:00Z");
    check(&calendar, "2026-03-24T10:00:00Z", "ann", "2026-03-24T12:00:00Z");
    check(&calendar, "2026-03-24T12:00:00Z", "bob", "2026-03-24T14:00:00Z");
    check(&calendar, "2026-03-24T14:00:00Z", "ann", "2026-03-24T20:00:00Z");
    check(&calendar, "2026-03-24T20:00:00Z", "eve", "2026-03-30T07:00:00Z");
    // Recurring events without a stamp: the one further down.
    check(&calendar, "2026-04-06T00:30:00Z", "ann", "2026-04-06T01:00:00Z");
    check(&calendar, "2026-04-07T00:30:00Z", "ann", "2026-04-07T01:00:00Z");
    check(&calendar, "2026-04-08T00:30:00Z", "eve", "2026-04-13T07:00:00Z");
}

#[test]
fn an_occurrence_is_excluded_moved_given_to_somebody_else_and_cancelled() {
    let calendar = calendar(&[
        "UID:1\nSUMMARY:eve\nDTSTART:20260105T080000\nDURATION:PT8H\n\
         RRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR\nEXDATE:20260106T080000,20260107T080000",
        "UID:1\nRECURRENCE-ID:20260108T080000\nSUMMARY:bob\n\
         DTSTART:20260108T120000\nDURATION:PT4H",
        "UID:1\nRECURRENCE-ID;TZID=Europe/Berlin:20260109T080000\nSTATUS:CANCELLED\n\
         DTSTART:20260109T080000\nDURATION:PT8H",
    ]);
    check(&calendar, "2026-01-05T07:00:00Z", "eve", "2026-01-05T15:00:00Z");
    check(&calendar, "2026-01-05T15:00:00Z", "", "2026-01-08T11:00:00Z");
    check(&calendar, "2026-01-08T11:00:00Z", "bob", "2026-01-08T15:00:00Z");
    check(&calendar, "2026-01-08T15:00:00Z", "", "2026-01-12T07:00:00Z");
}

#[test]
fn the_newest_version_of_an_event_counts_and_a_cancelled_one_not_at_all() {
    let version = |sequence: u32, more: &str, hour: u32| {
        format!(
            "UID:1\nSEQUENCE:{sequence}\nDTSTART:20260105T{hour:02}0000Z\nDURATION:PT1H\n{more}"
        )
    };
    let [first, second] = [version(2, "SUMMARY:eve", 9), version(1, "SUMMARY:bob", 12)];
    let calendar = calendar(&[&first, &second]);
    check(&calendar, "2026-01-05T00:00:00Z", "", "2026-01-05T09:00:00Z");
    check(&calendar, "2026-01-05T09:00:00Z", "eve", "2026-01-05T10:00:00Z");
    check(&calendar, "2026-01-05T10:00:00Z", "", "");
    let cancelled = version(3, "STATUS:CANCELLED", 9);
    let moved = "UID:1\nRECURRENCE-ID:20260105T090000Z\nSUMMARY:ann\nDTSTART:20260106T000000Z\n\
                 DURATION:PT1H";
    let other = "SUMMARY:bob\nDTSTART:20260107T000000Z\nDURATION:PT1H";
    let calendar = self::calendar(&[&first, &cancelled, moved, other]);
    check(&calendar, "2026-01-05T00:00:00Z", "", "2026-01-07T00:00:00Z");
}

#[test]
fn count_and_until_end_a_rule_and_excluded_dates_are_counted() {
    let calendar = calendar(&[
        "SUMMARY:eve\nDTSTART:20260105T080000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3\n\
         EXDATE:20260106T080000Z",
        "SUMMARY:bob\nDTSTART;TZID=Europe/Berlin:20260205T080000\nDURATION:PT1H\n\
         RRULE:FREQ=DAILY;UNTIL=20260206T070000Z",
        "SUMMARY:ann\nDTSTART;VALUE=DATE:20260305\nRRULE:FREQ=DAILY;UNTIL=20260306",
    ]);
    check(&calendar, "2026-01-05T08:00:00Z", "eve", "2026-01-05T09:00:00Z");
    check(&calendar, "2026-01-05T09:00:00Z", "", "2026-01-07T08:00:00Z");
    check(&calendar, "2026-01-07T09:00:00Z", "", "2026-02-05T07:00:00Z");
    check(&calendar, "2026-02-06T07:30:00Z", "bob", "2026-02-06T08:00:00Z");
    check(&calendar, "2026-02-06T08:00:00Z", "", "2026-03-04T23:00:00Z");
    check(&calendar, "2026-03-04T23:00:00Z", "ann", "2026-03-06T23:00:00Z");
    check(&calendar, "2026-03-06T23:00:00Z", "", "");
}

#[test]
fn an_event_names_its_contact_by_its_own_property_its_summary_or_an_attendee() {
    let on_call = |names: &str| {
        let event = format!("{names}\nDTSTART:20260105T080000Z\nDURATION:PT1H");
        calendar(&[&event]).contact_at(ns("2026-01-05T08:00:00Z")).map(str::to_owned)
    };
    let check = |names: &str, contact: &str| assert_eq!(on_call(names).unwrap(), contact);
    check("SUMMARY: Eve Smith ", "eve");
    check("SUMMARY:bob\nX-TOPDECK-CONTACT:ann\nATTENDEE:mailto:eve", "ann");
    check("SUMMARY:On call\nATTENDEE;CN=Eve Smith:mailto:eve@example.org", "eve");
    check("ATTENDEE:MAILTO:bob@example.org\nATTENDEE:mailto:room@example.org", "bob");
    let declined = "ATTENDEE;PARTSTAT=DECLINED;CN=eve:mailto:eve@example.org\nATTENDEE;CN=bob:x";
    check(declined, "bob");
    let time = "DTSTART:20260105T080000Z\nDURATION:PT1H";
    assert_eq!(
        problem(&format!("SUMMARY:On call: evee\n{time}")),
        "4: SUMMARY: unknown contact \"On call: evee\"; known: Eve Smith, ann, bob, \
         bob@example.org, eve"
    );
    assert_eq!(
        problem(&format!("{time}\nX-TOPDECK-CONTACT:evee\nSUMMARY:eve")),
        "6: X-TOPDECK-CONTACT: unknown contact \"evee\"; did you mean \"eve\"?"
    );
    assert_eq!(
        problem(&format!("SUMMARY:x\n{time}\nATTENDEE:mailto:eve\nATTENDEE:mailto:bob")),
        "3: the event names several contacts (bob, eve); add X-TOPDECK-CONTACT with one of them"
    );
    let expected = "3: the event names no contact; add SUMMARY with the name of one";
    assert_eq!(problem(time), expected);
}

#[test]
fn what_is_not_supported_or_invalid_has_its_line() {
    let check = |event: &str, expected: &str| assert_eq!(problem(event), expected, "{event}");
    let eve = |times: &str| format!("SUMMARY:eve\n{times}");
    check("SUMMARY:eve", "3: the event has no DTSTART");
    let start = "DTSTART:20260105T080000Z";
    check(&eve(start), "3: the event has no end; add DTEND or DURATION");
    let both = format!("{start}\nDTEND:20260105T090000Z\nDURATION:PT1H");
    check(&eve(&both), "6: DTEND: DTEND and DURATION exclude each other; keep one");
    let end = |end: &str| eve(&format!("{start}\n{end}"));
    let same = "6: DTEND: DTEND and DTSTART must have the same form";
    check(&end("DTEND;VALUE=DATE:20260106"), same);
    check(&end("DTEND:20260106T080000"), same);
    let order = "6: DTEND: the event does not end after it begins";
    check(&end("DTEND:20260105T080000Z"), order);
    check(&end("DURATION:P400D"), "6: DURATION: the event is longer than 366 days");
    let often = "7: RRULE: an event of a DAILY or WEEKLY rule, or of one with several days of a \
                 month, lasts at most 31 days; add an event for each occurrence";
    check(&end("DURATION:P32D\nRRULE:FREQ=DAILY"), often);
    check(&end("DURATION:P31DT1S\nRRULE:FREQ=WEEKLY;INTERVAL=8"), often);
    check(&end("DURATION:P32D\nRRULE:FREQ=MONTHLY;BYMONTHDAY=5,6"), often);
    check(&end("DURATION:P32D\nRRULE:FREQ=MONTHLY;BYDAY=MO"), often);
    for rule in ["WEEKLY", "MONTHLY", "MONTHLY;BYDAY=1MO", "MONTHLY;BYMONTHDAY=5"] {
        let days = if rule == "WEEKLY" { 31 } else { 32 };
        calendar(&[&end(&format!("DURATION:P{days}D\nRRULE:FREQ={rule}"))]);
    }
    let day = "DTSTART;VALUE=DATE:20260105\nDURATION:PT12H";
    check(&eve(day), "6: DURATION: an event of whole days lasts whole days");
    let rule = |rule: &str| eve(&format!("{start}\nDURATION:PT1H\n{rule}"));
    let unsupported = "this property is not supported; add an event instead";
    check(&rule("RDATE:20260106T080000Z"), &format!("7: RDATE: {unsupported}"));
    check(&rule("EXRULE:FREQ=DAILY"), &format!("7: EXRULE: {unsupported}"));
    check(&rule("RRULE:FREQ=DAILY\nRRULE:FREQ=DAILY"), "8: RRULE: an event has this property once");
    check(&rule("RRULE:FREQ=HOURLY"), "7: RRULE: FREQ=HOURLY: expected DAILY, WEEKLY or MONTHLY");
    let first = "7: RRULE: DTSTART is no date of the rule; move it to the first one";
    check(&rule("RRULE:FREQ=WEEKLY;BYDAY=TU"), first);
    let until = "7: RRULE: UNTIL must be a date if DTSTART is one, without a zone if DTSTART has \
                 none, and else in UTC";
    check(&rule("RRULE:FREQ=DAILY;UNTIL=20260110"), until);
    check(&rule("RRULE:FREQ=DAILY;UNTIL=20260110T080000"), until);
    let form = "7: EXDATE: EXDATE and DTSTART must have the same form";
    check(&rule("EXDATE;VALUE=DATE:20260105"), form);
    let range = "RECURRENCE-ID;RANGE=THISANDFUTURE:20260105T080000Z";
    let what = "7: RECURRENCE-ID: RANGE is not supported; end the rule and add an event";
    check(&rule(range), what);
    let replaced = "RECURRENCE-ID:20260105T080000Z";
    check(&rule(replaced), "3: an event with RECURRENCE-ID needs a UID");
    let what = "9: RRULE: an event with RECURRENCE-ID does not recur";
    check(&rule(&format!("{replaced}\nUID:1\nRRULE:FREQ=DAILY")), what);
    check(&rule("SEQUENCE:x"), "7: SEQUENCE: expected a number");
    let master = "UID:1\nSUMMARY:eve\nDTSTART;VALUE=DATE:20260105\nRRULE:FREQ=DAILY";
    let other = rule(&format!("{replaced}\nUID:1"));
    let what = "9: RECURRENCE-ID and DTSTART of the event must have the same form";
    assert_eq!(problems(&calendar_text(&[master, &other])), [what]);
}

#[test]
fn the_structure_of_the_file_is_checked() {
    let check = |text: &str, expected: &[&str]| assert_eq!(problems(text), expected, "{text}");
    check("", &["1: the file has no event; nobody would be on call"]);
    check("SUMMARY:eve\n", &["1: SUMMARY: expected BEGIN:VCALENDAR"]);
    check("BEGIN:VEVENT\nEND:VEVENT\n", &["1: BEGIN: expected BEGIN:VCALENDAR"]);
    let open = "BEGIN:VCALENDAR\nBEGIN:VEVENT\n";
    check(open, &["2: BEGIN:VEVENT has no END"]);
    check(&format!("{open}END:VCALENDAR\n"), &["3: END: expected END:VEVENT of line 2"]);
    check("END:VCALENDAR\n", &["1: END: there is no BEGIN"]);
    let deep = "BEGIN:VCALENDAR\n".repeat(9);
    check(&deep, &["9: BEGIN: depth limit (8) exceeded"]);
    let event = "BEGIN:VEVENT\nSUMMARY:eve\nDTSTART;VALUE=DATE:20260105\nEND:VEVENT\n";
    let file = |properties: &str| format!("BEGIN:VCALENDAR\n{properties}{event}END:VCALENDAR\n");
    check(&file("VERSION:1.0\n"), &["2: VERSION: only version 2.0 is supported"]);
    check(&file("CALSCALE:JULIAN\n"), &["2: CALSCALE: only GREGORIAN is supported"]);
    check(&file("METHOD:CANCEL\n"), &["2: METHOD: only PUBLISH and REQUEST are supported"]);
    let zone = "2: X-WR-TIMEZONE: unknown time zone \"Berlin\"; expected the IANA name of a time \
                zone such as Europe/Berlin";
    check(
        &file("X-WR-TIMEZONE:Berlin\nSUMMARY\n"),
        &[zone, "3: expected a property such as SUMMARY:eve"],
    );
    let many = file(&event.repeat(EVENTS_MAX));
    check(&many, &["20002: BEGIN: events limit (5000) exceeded"]);
    let recurring = event.replace("END:", "RRULE:FREQ=DAILY\nEND:");
    let many = file(&recurring.repeat(RECURRING_MAX + 1));
    check(&many, &["2502: limit of events with RRULE (500) exceeded"]);
}

#[test]
fn alarms_tasks_and_definitions_of_zones_are_passed_over_and_the_file_may_name_its_zone() {
    let text = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nMETHOD:PUBLISH\r\n\
        X-WR-TIMEZONE:America/New_York\r\n\
        BEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nBEGIN:STANDARD\r\nDTSTART:19701025T030000\r\n\
        RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\n\
        BEGIN:VTODO\r\nSUMMARY:call the plumber\r\nEND:VTODO\r\n\
        BEGIN:VEVENT\r\nSUM\r\n MARY:e\r\n\tve\r\nDTSTART:20260105T080000\r\nDURATION:PT1H\r\n\
        BEGIN:VALARM\r\nSUMMARY:wake up\r\nDURATION:PT5M\r\nEND:VALARM\r\n\
        END:VEVENT\r\nEND:VCALENDAR\r\n";
    let calendar = OnCallCalendar::parse(text.as_bytes(), &contacts(), None).unwrap();
    check(&calendar, "2026-01-05T13:00:00Z", "eve", "2026-01-05T14:00:00Z");
    assert_eq!(calendar.zone().iana_name(), Some("America/New_York"));
}

#[test]
fn the_shifts_of_one_contact_that_follow_each_other_without_end_have_none() {
    let calendar = calendar(&["SUMMARY:eve\nDTSTART;VALUE=DATE:20260105\nRRULE:FREQ=DAILY"]);
    check(&calendar, "2026-01-05T12:00:00Z", "eve", "");
}
