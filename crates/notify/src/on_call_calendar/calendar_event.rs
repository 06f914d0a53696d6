//! Event of a calendar (VEVENT): whom it names, and when it takes place.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::CalendarProblem;
use super::content_line::ContentLine;
use super::event_time::{EventDuration, EventTime, EventTimeFormat};
use super::recurrence_rule::{RecurrenceRule, add_days, is_until_format_valid};
use crate::nearest_name::unknown_name;
use crate::rotation::instant_ns;

/// Property that names a contact and nothing else.
const CONTACT_PROPERTY: &str = "X-TOPDECK-CONTACT";
/// Properties that an event has once at most.
const SINGLE: [&str; 11] = [
    CONTACT_PROPERTY,
    "DTEND",
    "DTSTAMP",
    "DTSTART",
    "DURATION",
    "RECURRENCE-ID",
    "RRULE",
    "SEQUENCE",
    "STATUS",
    "SUMMARY",
    "UID",
];

/// An event, or a changed occurrence of one.
#[derive(Clone, Debug)]
pub(super) struct CalendarEvent {
    /// Line of its BEGIN.
    pub(super) line: usize,
    pub(super) uid: Option<String>,
    /// The occurrence that it replaces.
    pub(super) replaced: Option<EventTime>,
    /// Of two versions of an event the larger one counts; of two events that overlap, too.
    pub(super) version: EventVersion,
    pub(super) is_cancelled: bool,
    /// Empty if it is cancelled.
    pub(super) contact: String,
    pub(super) start: EventTime,
    /// End of an event that does not recur.
    pub(super) end_ns: i64,
    length: EventDuration,
    rule: Option<RecurrenceRule>,
    /// Start of the last occurrence.
    last_ns: i64,
    /// Starts of occurrences that do not take place, or are replaced.
    pub(super) excluded: BTreeSet<i64>,
}

/// SEQUENCE counts the versions of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventVersion {
    pub(super) sequence: u32,
    /// DTSTAMP.
    pub(super) stamp_ns: i64,
    pub(super) line: usize,
}

/// Whether a recurring event takes place at a time, and when that may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventState {
    pub(super) is_active: bool,
    /// The next begin or end of an occurrence.
    pub(super) next_ns: Option<i64>,
}

/// Properties of an event by name.
struct EventProperties<'a> {
    line: usize,
    lines: &'a [ContentLine],
}

impl<'a> EventProperties<'a> {
    fn get(&self, name: &'static str) -> Option<&'a ContentLine> {
        self.lines.iter().find(|line| line.name == name)
    }

    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a ContentLine> {
        self.lines.iter().filter(move |line| line.name == name)
    }

    fn problem(&self, what: &str) -> CalendarProblem {
        CalendarProblem { line: self.line, what: what.to_owned() }
    }

    fn check(&self) -> Result<(), CalendarProblem> {
        for name in SINGLE {
            if let Some(second) = self.all(name).nth(1) {
                return Err(second.problem("an event has this property once"));
            }
        }
        for name in ["RDATE", "EXRULE"] {
            if let Some(line) = self.get(name) {
                return Err(line.problem("this property is not supported; add an event instead"));
            }
        }
        Ok(())
    }

    /// The contact that the event names: by [`CONTACT_PROPERTY`], else SUMMARY, else an ATTENDEE
    /// who did not decline.
    fn contact(&self, contacts: &BTreeMap<String, String>) -> Result<String, CalendarProblem> {
        let of_name = |name: &str| contacts.get(name.trim()).cloned();
        let unknown = |line: &ContentLine, name: &str| {
            let known = contacts.keys().map(String::as_str);
            line.problem(unknown_name("contact", name.trim(), known))
        };
        if let Some(line) = self.get(CONTACT_PROPERTY) {
            let name = line.text()?;
            return of_name(&name).ok_or_else(|| unknown(line, &name));
        }
        let summary = match self.get("SUMMARY") {
            Some(line) => Some((line, line.text()?)),
            None => None,
        };
        if let Some(contact) = summary.as_ref().and_then(|(_, name)| of_name(name)) {
            return Ok(contact);
        }
        let mut attending = BTreeSet::new();
        for line in self.all("ATTENDEE") {
            if line.parameter("PARTSTAT").is_some_and(|of| of.eq_ignore_ascii_case("DECLINED")) {
                continue;
            }
            let scheme = line.value.get(..7).filter(|of| of.eq_ignore_ascii_case("mailto:"));
            let address = scheme.map_or(line.value.as_str(), |scheme| &line.value[scheme.len()..]);
            attending.extend(line.parameter("CN").and_then(of_name).or_else(|| of_name(address)));
        }
        match (attending.len(), summary) {
            (1, _) => Ok(attending.pop_first().unwrap_or_default()),
            (0, Some((line, name))) => Err(unknown(line, &name)),
            (0, None) => {
                Err(self.problem("the event names no contact; add SUMMARY with the name of one"))
            }
            _ => {
                let names: Vec<String> = attending.into_iter().collect();
                let what = format!("the event names several contacts ({})", names.join(", "));
                Err(self.problem(&format!("{what}; add {CONTACT_PROPERTY} with one of them")))
            }
        }
    }

    fn version(&self) -> Result<EventVersion, CalendarProblem> {
        let mut version = EventVersion { sequence: 0, stamp_ns: i64::MIN, line: self.line };
        if let Some(line) = self.get("SEQUENCE") {
            let number = line.value.parse();
            version.sequence = number.map_err(|_| line.problem("expected a number"))?;
        }
        if let Some(line) = self.get("DTSTAMP") {
            version.stamp_ns = EventTime::read(line, &TimeZone::UTC)?.instant_ns();
        }
        Ok(version)
    }

    /// Length, and end of the first occurrence.
    fn length(
        &self,
        start: &EventTime,
        zone: &TimeZone,
    ) -> Result<(EventDuration, i64), CalendarProblem> {
        let is_date = start.form == EventTimeFormat::Date;
        let (line, length, end_ns) = match (self.get("DTEND"), self.get("DURATION")) {
            (Some(line), Some(_)) => {
                return Err(line.problem("DTEND and DURATION exclude each other; keep one"));
            }
            (Some(line), None) => {
                let end = EventTime::read(line, zone)?;
                let is_floating = |time: &EventTime| time.form == EventTimeFormat::Floating;
                if (end.form == EventTimeFormat::Date) != is_date
                    || is_floating(&end) != is_floating(start)
                {
                    return Err(line.problem("DTEND and DTSTART must have the same form"));
                }
                let end_ns = end.instant_ns();
                let local = match end.zone == start.zone {
                    true => end.local,
                    false => local_time(&start.zone, end_ns).unwrap_or(end.local),
                };
                let length = EventDuration::of_local(local.duration_since(start.local));
                (Some(line), length, end_ns)
            }
            (None, Some(line)) => {
                let length = EventDuration::read(line)?;
                if is_date && !length.exact.is_zero() {
                    return Err(line.problem("an event of whole days lasts whole days"));
                }
                (Some(line), length, length.end_ns(&start.zone, start.local))
            }
            (None, None) if is_date => {
                let length = EventDuration::of_local(jiff::SignedDuration::from_hours(24));
                (None, length, length.end_ns(&start.zone, start.local))
            }
            (None, None) => {
                return Err(self.problem("the event has no end; add DTEND or DURATION"));
            }
        };
        if let (Some(line), Some(defect)) = (line, length.defect()) {
            return Err(line.problem(defect));
        }
        if end_ns <= start.instant_ns() {
            return Err(self.problem("the event does not end after it begins"));
        }
        Ok((length, end_ns))
    }
}

impl CalendarEvent {
    /// Reads the properties of an event. `contacts` are known names and their contacts, `zone` is
    /// that of times without one.
    pub(super) fn read(
        line: usize,
        lines: &[ContentLine],
        contacts: &BTreeMap<String, String>,
        zone: &TimeZone,
    ) -> Result<CalendarEvent, CalendarProblem> {
        let properties = EventProperties { line, lines };
        properties.check()?;
        let Some(start) = properties.get("DTSTART") else {
            return Err(properties.problem("the event has no DTSTART"));
        };
        let start = EventTime::read(start, zone)?;
        let (length, end_ns) = properties.length(&start, zone)?;
        let replaced = properties.get("RECURRENCE-ID");
        if let Some(range) = replaced.filter(|line| line.parameter("RANGE").is_some()) {
            return Err(range.problem("RANGE is not supported; end the rule and add an event"));
        }
        let status = properties.get("STATUS");
        let is_cancelled = status.is_some_and(|of| of.value.eq_ignore_ascii_case("CANCELLED"));
        let mut event = CalendarEvent {
            line,
            uid: properties.get("UID").map(|line| line.value.clone()),
            replaced: replaced.map(|line| EventTime::read(line, zone)).transpose()?,
            version: properties.version()?,
            is_cancelled,
            contact: match is_cancelled {
                true => String::new(),
                false => properties.contact(contacts)?,
            },
            start,
            end_ns,
            length,
            rule: None,
            last_ns: i64::MAX,
            excluded: BTreeSet::new(),
        };
        if event.replaced.is_some() && event.uid.is_none() {
            return Err(properties.problem("an event with RECURRENCE-ID needs a UID"));
        }
        for line in properties.all("EXDATE") {
            for time in EventTime::read_list(line, zone)? {
                if !event.has_form_of(&time) {
                    return Err(line.problem("EXDATE and DTSTART must have the same form"));
                }
                event.excluded.insert(time.instant_ns());
            }
        }
        if let Some(line) = properties.get("RRULE") {
            event.set_rule(line, zone)?;
        }
        Ok(event)
    }

    fn set_rule(&mut self, line: &ContentLine, zone: &TimeZone) -> Result<(), CalendarProblem> {
        if self.replaced.is_some() {
            return Err(line.problem("an event with RECURRENCE-ID does not recur"));
        }
        let rule = RecurrenceRule::read(line, zone)?;
        if rule.recurs_within_month()
            && let Some(defect) = self.length.defect_of_often()
        {
            return Err(line.problem(defect));
        }
        let first = self.first_date();
        if rule.dates_of(first, 0).is_none_or(|dates| !dates.contains(&first)) {
            let what = "DTSTART is no date of the rule; move it to the first one";
            return Err(line.problem(what));
        }
        if let Some(until) = &rule.until {
            if !is_until_format_valid(self.start.form, until.form) {
                let what = "UNTIL must be a date if DTSTART is one, without a zone if DTSTART has \
                            none, and else in UTC";
                return Err(line.problem(what));
            }
            self.last_ns = until.instant_ns();
        }
        if let Some(count) = rule.count {
            let last = dates(&rule, first, 0).nth(count as usize - 1);
            let last = last.map(|date| self.start_on(date).0);
            self.last_ns = last.unwrap_or(i64::MAX);
        }
        self.rule = Some(rule);
        Ok(())
    }

    /// Whether another time is a date if the start is one, and only then.
    pub(super) fn has_form_of(&self, other: &EventTime) -> bool {
        (self.start.form == EventTimeFormat::Date) == (other.form == EventTimeFormat::Date)
    }

    pub(super) fn is_recurring(&self) -> bool {
        self.rule.is_some()
    }

    /// State of a recurring event.
    pub(super) fn state_at(&self, at_ns: i64) -> EventState {
        let (mut is_active, mut next_ns) = (false, i64::MAX);
        for (start_ns, end_ns) in self.occurrences_after(at_ns) {
            if start_ns > at_ns {
                next_ns = next_ns.min(start_ns);
                break;
            }
            is_active = true;
            next_ns = next_ns.min(end_ns);
        }
        EventState { is_active, next_ns: Some(next_ns).filter(|&next_ns| next_ns < i64::MAX) }
    }

    /// Start and end of the occurrences that end after a time, in their order.
    fn occurrences_after(&self, at_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let rule = self.rule.as_ref();
        let first = self.first_date();
        let dates = rule.into_iter().flat_map(move |rule| {
            let at = local_time(&self.start.zone, at_ns).map_or(first, DateTime::date);
            // An occurrence that still lasts began before; a day more for steps of the clock.
            let earliest = add_days(at, -self.length.days() - 1).unwrap_or(first);
            dates(rule, first, rule.period_of(first, earliest).max(0))
        });
        let occurrences = dates.map(|date| self.start_on(date));
        let occurrences = occurrences
            .take_while(|&(start_ns, _)| start_ns <= self.last_ns && start_ns < i64::MAX);
        occurrences
            .filter(move |(start_ns, end_ns)| *end_ns > at_ns && !self.excluded.contains(start_ns))
    }

    fn first_date(&self) -> Date {
        self.start.local.date()
    }

    /// Start and end of the occurrence of a date.
    fn start_on(&self, date: Date) -> (i64, i64) {
        let EventTime { zone, local, .. } = &self.start;
        let start = date.to_datetime(local.time());
        (instant_ns(zone, start), self.length.end_ns(zone, start))
    }
}

/// Dates of a rule from a period on, not before the first one.
fn dates(rule: &RecurrenceRule, first: Date, period: i64) -> impl Iterator<Item = Date> {
    let periods = (period..).map_while(move |period| rule.dates_of(first, period));
    periods.flatten().filter(move |date| *date >= first)
}

/// `None` for times that the calendar does not have.
fn local_time(zone: &TimeZone, at_ns: i64) -> Option<DateTime> {
    Timestamp::from_nanosecond(at_ns.into()).ok().map(|at| zone.to_datetime(at))
}
