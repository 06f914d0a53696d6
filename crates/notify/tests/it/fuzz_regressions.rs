//! Past fuzz findings, seeds of the fuzz corpus, and a short run of the checks on arbitrary bytes.

use proptest::prelude::*;

use crate::checks::{self, FuzzCheck};
use crate::fuzz_inputs;

/// `testdata/fuzz/<target>/<finding>`.
#[test]
fn regressions_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

#[test]
fn seeds_pass() {
    for (target, bytes) in seeds() {
        check_of(target)(&bytes);
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        for (_, check) in checks::CHECKS {
            check(&bytes);
        }
    }

    /// A seed with some bytes changed, and truncated.
    #[test]
    fn mutated_seeds_pass(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let seeds = seeds();
        let (target, mut bytes) = which.get(&seeds).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        check_of(target)(&bytes);
    }

    /// Events with rules whose parts are in any combination.
    #[test]
    fn any_rule_passes(
        frequency in prop::sample::select(vec!["DAILY", "WEEKLY", "MONTHLY"]),
        interval in prop::sample::select(vec!["", ";INTERVAL=2", ";INTERVAL=12"]),
        days in prop::sample::select(vec![
            "", ";BYDAY=MO", ";BYDAY=MO,WE,SU", ";BYDAY=1MO,-1MO", ";BYMONTHDAY=5,31,-1",
        ]),
        end in prop::sample::select(vec!["", ";COUNT=3", ";UNTIL=20260301T000000Z"]),
        length in prop::sample::select(vec!["PT1H", "P1D", "P3W"]),
    ) {
        let event = |name: &str, more: &str| {
            format!(
                "BEGIN:VEVENT\nSUMMARY:{name}\nDTSTART:20260105T080000Z\nDURATION:{length}\n{more}\
                 \nEND:VEVENT\n"
            )
        };
        let rule = format!("RRULE:FREQ={frequency}{interval}{days}{end}");
        let events = event("eve", &rule) + &event("bob", "DTSTAMP:20260101T000000Z");
        let text = format!("BEGIN:VCALENDAR\n{events}END:VCALENDAR\n");
        check_of("on_call_calendar")(text.as_bytes());
    }
}

/// Run by the fuzz part of the tests. Without seeds a fuzzer spends its minute on keywords.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds());
}

fn check_of(target: &str) -> FuzzCheck {
    checks::CHECKS.iter().find(|check| check.0 == target).expect("a target").1
}

/// The calendar and the silences of the documentation, and their parts.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let page = include_str!("../../../../docs/contacts.md");
    let block = page.split("```ics\n").nth(1).and_then(|rest| rest.split("```").next());
    let example = block.expect("an example");
    let exception = "UID:1\nRECURRENCE-ID;TZID=Europe/Berlin:20260119T090000\nSUMMARY:bob\n\
                     DTSTART;TZID=Europe/Berlin:20260120T090000\nDURATION:P1DT2H\n";
    let whole = "SUMMARY:eve\nDTSTART;VALUE=DATE:20260105\nDTEND;VALUE=DATE:20260107\n\
                 RRULE:FREQ=MONTHLY;BYDAY=1MO,-1FR;COUNT=5\nEXDATE;VALUE=DATE:20260130\n";
    let event = |text: &str| {
        format!("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n{text}END:VEVENT\r\nEND:VCALENDAR\r\n")
    };
    let calendars = [example.to_owned(), event(exception), event(whole)];
    let page = include_str!("../../../../docs/formats/silences.md");
    let file = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let file = file.expect("an example");
    let lines: Vec<&str> = file.lines().collect();
    // Without title and checksum.
    let silences = [file.to_owned(), lines[1..lines.len() - 1].join("\n")];
    let of = |target, text: String| (target, text.into_bytes());
    let calendars = calendars.map(|text| of("on_call_calendar", text));
    calendars.into_iter().chain(silences.map(|text| of("silences", text))).collect()
}
