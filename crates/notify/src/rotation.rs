//! On-call rotation: which of several contacts is on call.
//!
//! Shifts are counted in local time: a shift of a week or of 12 h ends at the same time of day
//! before and after a change to daylight saving time. A local time that exists twice is the first
//! one; one that does not exist is as much later as the clock steps.

use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::on_call_calendar::OnCallCalendar;

/// Contacts of which one is on call at a time.
#[derive(Clone, Debug)]
pub struct OnCallRotation {
    /// Unique name among contacts, rotations and escalations.
    pub name: String,
    pub(crate) schedule: OnCallSchedule,
    /// Zone of local times.
    pub(crate) zone: TimeZone,
    pub(crate) overrides: Vec<OnCallOverride>,
}

/// Who is on call without overrides.
#[derive(Clone, Debug)]
pub(crate) enum OnCallSchedule {
    Turns(OnCallTurns),
    Calendar(Arc<OnCallCalendar>),
}

/// Contacts that are on call one after the other.
#[derive(Clone, Debug)]
pub(crate) struct OnCallTurns {
    /// At least one.
    pub(crate) members: Vec<String>,
    /// Local time at which the first member's first shift begins.
    pub(crate) start: DateTime,
    /// At least 1 min.
    pub(crate) shift: SignedDuration,
}

/// A contact that is on call instead.
#[derive(Clone, Debug)]
pub(crate) struct OnCallOverride {
    pub(crate) member: String,
    /// Local times; the end is exclusive.
    pub(crate) from: DateTime,
    pub(crate) to: DateTime,
}

/// The contact that is on call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnCallShift {
    /// Name of the contact; `None` if nobody is on call.
    pub member: Option<String>,
    /// End of the shift, or of the override, in nanoseconds since the Unix epoch; `i64::MAX` if it
    /// has none.
    pub until_ns: i64,
}

impl OnCallRotation {
    /// The contact that is on call at a time, if there is one. Of several overrides the last one
    /// counts.
    pub(crate) fn contact_at(&self, at_ns: i64) -> Option<&str> {
        match (self.override_at(at_ns), &self.schedule) {
            (Some(one), _) => Some(&one.member),
            (None, OnCallSchedule::Calendar(calendar)) => calendar.contact_at(at_ns),
            (None, OnCallSchedule::Turns(turns)) => {
                let number = turns.number_at(&self.zone, at_ns);
                let count = i64::try_from(turns.members.len()).unwrap_or(i64::MAX).max(1);
                let at = usize::try_from(number.rem_euclid(count)).unwrap_or(0);
                turns.members.get(at).map(String::as_str)
            }
        }
    }

    /// The contact that is on call at a time, and until when.
    pub fn shift_at(&self, at_ns: i64) -> OnCallShift {
        let end_ns = match (self.override_at(at_ns), &self.schedule) {
            (Some(one), _) => instant_ns(&self.zone, one.to),
            (None, OnCallSchedule::Calendar(calendar)) => calendar.next_change_ns(at_ns),
            (None, OnCallSchedule::Turns(turns)) => {
                let number = turns.number_at(&self.zone, at_ns);
                turns.begin_ns(&self.zone, number.saturating_add(1))
            }
        };
        let later = self.overrides.iter().map(|one| instant_ns(&self.zone, one.from));
        let until_ns = later.filter(|&from_ns| from_ns > at_ns).fold(end_ns, i64::min);
        OnCallShift { member: self.contact_at(at_ns).map(str::to_owned), until_ns }
    }

    /// All contacts that are ever on call.
    pub(crate) fn all_members(&self) -> impl Iterator<Item = &str> {
        let (turns, calendar) = match &self.schedule {
            OnCallSchedule::Turns(turns) => (Some(turns), None),
            OnCallSchedule::Calendar(calendar) => (None, Some(calendar)),
        };
        let of_turns = turns.into_iter().flat_map(|turns| &turns.members).map(String::as_str);
        let of_calendar = calendar.into_iter().flat_map(|calendar| calendar.contacts());
        let of_overrides = self.overrides.iter().map(|one| one.member.as_str());
        of_turns.chain(of_calendar).chain(of_overrides)
    }

    fn override_at(&self, at_ns: i64) -> Option<&OnCallOverride> {
        let bound_ns = |local| instant_ns(&self.zone, local);
        self.overrides.iter().rfind(|one| (bound_ns(one.from)..bound_ns(one.to)).contains(&at_ns))
    }
}

impl OnCallTurns {
    /// Number of the shift at a time; negative before the start.
    fn number_at(&self, zone: &TimeZone, at_ns: i64) -> i64 {
        let at = Timestamp::from_nanosecond(at_ns.into()).unwrap_or_default();
        let elapsed = zone.to_datetime(at).duration_since(self.start);
        let shift_ns = self.shift.as_nanos().max(1);
        let mut number =
            i64::try_from(elapsed.as_nanos().div_euclid(shift_ns)).unwrap_or(i64::MAX / 2);
        // Local time steps: the instants decide.
        while self.begin_ns(zone, number) > at_ns {
            number -= 1;
        }
        while self.begin_ns(zone, number + 1) <= at_ns {
            number += 1;
        }
        number
    }

    fn begin_ns(&self, zone: &TimeZone, number: i64) -> i64 {
        let elapsed = self.shift.as_nanos().saturating_mul(number.into());
        let elapsed = i64::try_from(elapsed).map(SignedDuration::from_nanos);
        let local = elapsed.ok().and_then(|elapsed| self.start.checked_add(elapsed).ok());
        let far = if number < 0 { i64::MIN } else { i64::MAX };
        local.map_or(far, |local| instant_ns(zone, local))
    }
}

/// Instant of a local time, in nanoseconds since the Unix epoch; the nearest one for times that
/// these nanoseconds cannot express.
pub(crate) fn instant_ns(zone: &TimeZone, local: DateTime) -> i64 {
    let far = if local.year() < 1970 { i64::MIN } else { i64::MAX };
    let instant = zone.to_ambiguous_timestamp(local).compatible();
    instant.map_or(far, |instant| i64::try_from(instant.as_nanosecond()).unwrap_or(far))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(start: &str, shift_hours: i64) -> OnCallRotation {
        let turns = OnCallTurns {
            members: ["eve", "bob", "ann"].map(str::to_owned).into(),
            start: start.parse().unwrap(),
            shift: SignedDuration::from_hours(shift_hours),
        };
        OnCallRotation {
            name: "primary".to_owned(),
            schedule: OnCallSchedule::Turns(turns),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
            overrides: Vec::new(),
        }
    }

    fn ns(at: &str) -> i64 {
        let at: Timestamp = at.parse().unwrap();
        i64::try_from(at.as_nanosecond()).unwrap()
    }

    #[track_caller]
    fn check(rotation: &OnCallRotation, at: &str, member: &str, until: &str) {
        let expected = OnCallShift { member: Some(member.to_owned()), until_ns: ns(until) };
        assert_eq!(rotation.shift_at(ns(at)), expected, "{at}");
    }

    #[test]
    fn a_week_on_call_ends_at_9_on_both_sides_of_a_dst_change() {
        let weekly = rotation("2026-03-23T09:00", 7 * 24);
        check(&weekly, "2026-03-23T08:00:00Z", "eve", "2026-03-30T07:00:00Z");
        // Summer time begins on March 29: 9:00 is an hour earlier.
        check(&weekly, "2026-03-30T06:59:59Z", "eve", "2026-03-30T07:00:00Z");
        check(&weekly, "2026-03-30T07:00:00Z", "bob", "2026-04-06T07:00:00Z");
        check(&weekly, "2026-10-19T07:00:00Z", "eve", "2026-10-26T08:00:00Z");
        check(&weekly, "2026-10-26T07:59:59Z", "eve", "2026-10-26T08:00:00Z");
        check(&weekly, "2026-10-26T08:00:00Z", "bob", "2026-11-02T08:00:00Z");
        // Before the start.
        check(&weekly, "2026-03-22T12:00:00Z", "ann", "2026-03-23T08:00:00Z");
    }

    #[test]
    fn nobody_is_on_call_twice_in_the_hour_that_the_clock_repeats() {
        // 2:30 exists twice on October 25.
        let daily = rotation("2026-10-24T02:30", 24);
        check(&daily, "2026-10-25T00:29:59Z", "eve", "2026-10-25T00:30:00Z");
        check(&daily, "2026-10-25T00:30:00Z", "bob", "2026-10-26T01:30:00Z");
        check(&daily, "2026-10-25T01:10:00Z", "bob", "2026-10-26T01:30:00Z");
        check(&daily, "2026-10-26T01:30:00Z", "ann", "2026-10-27T01:30:00Z");
    }

    #[test]
    fn a_handover_in_the_hour_that_the_clock_skips_is_an_hour_later() {
        // 2:30 does not exist on March 29.
        let daily = rotation("2026-03-28T02:30", 24);
        check(&daily, "2026-03-29T01:29:59Z", "eve", "2026-03-29T01:30:00Z");
        check(&daily, "2026-03-29T01:30:00Z", "bob", "2026-03-30T00:30:00Z");
    }

    #[test]
    fn somebody_is_on_call_at_every_time_and_until_the_time_that_is_named() {
        for shift_hours in [1, 12, 24, 7 * 24] {
            let rotation = rotation("2026-03-20T02:30", shift_hours);
            let mut at_ns = ns("2026-03-27T00:00:00Z");
            while at_ns < ns("2026-04-01T00:00:00Z") {
                let shift = rotation.shift_at(at_ns);
                assert!(shift.until_ns > at_ns);
                assert_eq!(rotation.shift_at(shift.until_ns - 1).member, shift.member);
                at_ns = shift.until_ns;
            }
        }
    }

    #[test]
    fn an_override_replaces_the_contact_on_call() {
        let mut weekly = rotation("2026-03-23T09:00", 7 * 24);
        weekly.overrides.push(OnCallOverride {
            member: "zoe".to_owned(),
            from: "2026-03-25T18:00".parse().unwrap(),
            to: "2026-03-26T08:00".parse().unwrap(),
        });
        check(&weekly, "2026-03-25T16:59:59Z", "eve", "2026-03-25T17:00:00Z");
        check(&weekly, "2026-03-25T17:00:00Z", "zoe", "2026-03-26T07:00:00Z");
        check(&weekly, "2026-03-26T07:00:00Z", "eve", "2026-03-30T07:00:00Z");
    }
    /// The rotation of three as events that recur every three weeks.
    fn calendar(start: &str) -> OnCallCalendar {
        let start: DateTime = start.parse().unwrap();
        let time = |weeks: i64| {
            let local = start.checked_add(SignedDuration::from_hours(168 * weeks)).unwrap();
            local.strftime(";TZID=Europe/Berlin:%Y%m%dT%H%M%S").to_string()
        };
        let event = |(at, name): (i64, &str)| {
            let (from, to) = (time(at), time(at + 1));
            let rule = "FREQ=WEEKLY;INTERVAL=3";
            format!(
                "BEGIN:VEVENT\nSUMMARY:{name}\nDTSTART{from}\nDTEND{to}\nRRULE:{rule}\n\
                 END:VEVENT\n"
            )
        };
        let names = ["eve", "bob", "ann"];
        let events: String = (0..).zip(names).map(event).collect();
        let text = format!("BEGIN:VCALENDAR\n{events}END:VCALENDAR\n");
        let contacts = names.map(|name| (name.to_owned(), name.to_owned())).into();
        OnCallCalendar::parse(text.as_bytes(), &contacts, None).unwrap()
    }

    #[test]
    fn a_calendar_of_the_same_weeks_has_the_same_handovers_for_two_years() {
        // Monday 9:00, and Sunday 2:30, which the clock skips once and repeats once a year.
        for start in ["2026-01-05T09:00", "2026-01-04T02:30"] {
            let turns = rotation(start, 7 * 24);
            let schedule = OnCallSchedule::Calendar(Arc::new(calendar(start)));
            let of_calendar = OnCallRotation { schedule, ..turns.clone() };
            let mut at_ns = instant_ns(&turns.zone, start.parse().unwrap());
            for _ in 0..104 {
                let shift = turns.shift_at(at_ns);
                assert_eq!(of_calendar.shift_at(at_ns), shift);
                assert_eq!(of_calendar.shift_at(shift.until_ns - 1), shift);
                at_ns = shift.until_ns;
            }
            let members: Vec<&str> = of_calendar.all_members().collect();
            assert_eq!(members, ["ann", "bob", "eve"]);
        }
    }

    #[test]
    fn an_override_replaces_the_calendar_where_nobody_is_on_call_too() {
        let mut rotation = rotation("2026-01-05T09:00", 7 * 24);
        rotation.schedule = OnCallSchedule::Calendar(Arc::new(calendar("2026-01-05T09:00")));
        rotation.overrides.push(OnCallOverride {
            member: "zoe".to_owned(),
            from: "2026-01-01T00:00".parse().unwrap(),
            to: "2026-01-06T00:00".parse().unwrap(),
        });
        let nobody = OnCallShift { member: None, until_ns: ns("2025-12-31T23:00:00Z") };
        assert_eq!(rotation.shift_at(ns("2025-06-01T00:00:00Z")), nobody);
        check(&rotation, "2026-01-02T00:00:00Z", "zoe", "2026-01-05T23:00:00Z");
        check(&rotation, "2026-01-06T00:00:00Z", "eve", "2026-01-12T08:00:00Z");
    }
}
