//! On-call calendar: an iCalendar file (RFC 5545) whose events name who is on call.
//!
//! Of events that overlap, one without a recurrence rule, or a changed occurrence of one with a
//! rule, counts before events that recur, as an override does in PagerDuty; of two such events the
//! one with the later DTSTAMP, then the one further down in the file. An occurrence of a recurring
//! event ends at the local time at which the first one ends, as calendars draw it. What cannot be
//! read is refused with its line.

mod calendar_event;
mod content_line;
mod event_time;
mod recurrence_rule;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::tz::TimeZone;

use calendar_event::{CalendarEvent, EventVersion};
use content_line::{ContentLine, read_lines};
use event_time::read_zone;

/// Maximum number of events.
const EVENTS_MAX: usize = 5_000;
/// Maximum number of events with a recurrence rule.
const RECURRING_MAX: usize = 500;
/// Maximum number of problems that are listed.
const PROBLEMS_MAX: usize = 50;
/// Deepest nesting of components; VALARM in VEVENT in VCALENDAR is 3.
const DEPTH_MAX: usize = 8;
/// Begins and ends of events that are looked at for the end of a shift.
const CHANGES_MAX: usize = 1_000;

/// Who is on call, from an iCalendar file.
#[derive(Clone, Debug)]
pub struct OnCallCalendar {
    /// By time, without overlaps.
    shifts: Vec<CalendarShift>,
    /// The one that counts first.
    recurring: Vec<CalendarEvent>,
    zone: TimeZone,
}

/// Time in which a contact is on call, of events without a recurrence rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CalendarShift {
    from_ns: i64,
    to_ns: i64,
    contact: String,
}

/// Problem of an iCalendar file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarProblem {
    /// Number of the line.
    pub line: usize,
    /// The problem.
    pub what: String,
}

impl fmt::Display for CalendarProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

impl OnCallCalendar {
    /// Reads a file. `contacts` are names that events have, with the names of the contacts. `zone`
    /// is that of times without one; by default it is that of the file (X-WR-TIMEZONE), or UTC.
    pub fn parse(
        bytes: &[u8],
        contacts: &BTreeMap<String, String>,
        zone: Option<TimeZone>,
    ) -> Result<OnCallCalendar, Vec<CalendarProblem>> {
        let (lines, mut problems) = read_lines(bytes);
        let mut components = CalendarComponents::default();
        if let Err(problem) = components.read(&lines) {
            // The last event may be incomplete.
            components.events.clear();
            problems.push(problem);
        }
        let of_file = components.zone(&mut problems);
        let zone = zone.or(of_file).unwrap_or(TimeZone::UTC);
        let mut events = Vec::new();
        for (line, lines) in &components.events {
            match CalendarEvent::read(*line, lines, contacts, &zone) {
                Ok(event) => events.push(event),
                Err(problem) => problems.push(problem),
            }
        }
        let calendar = match problems.is_empty() {
            true => join_events(events, zone).map_err(|problem| vec![problem]),
            false => Err(problems),
        };
        calendar.map_err(|mut problems| {
            model::sort::by_key(&mut problems, |problem| problem.line);
            problems.truncate(PROBLEMS_MAX);
            problems
        })
    }

    /// The contact that is on call at a time, in nanoseconds since the Unix epoch, if there is one.
    pub fn contact_at(&self, at_ns: i64) -> Option<&str> {
        if let Some(shift) = self.shift_at(at_ns) {
            return Some(&shift.contact);
        }
        let active = self.recurring.iter().find(|event| event.state_at(at_ns).is_active);
        active.map(|event| event.contact.as_str())
    }

    /// Time at which another contact, or nobody, is on call; `i64::MAX` if that never happens, or
    /// only after the next 1,000 begins and ends of events.
    pub fn next_change_ns(&self, at_ns: i64) -> i64 {
        let contact = self.contact_at(at_ns);
        let mut change_ns = at_ns;
        for _ in 0..CHANGES_MAX {
            let Some(next_ns) = self.next_bound_ns(change_ns) else { return i64::MAX };
            change_ns = next_ns;
            if self.contact_at(change_ns) != contact {
                return change_ns;
            }
        }
        i64::MAX
    }

    /// All contacts that are ever on call.
    pub(crate) fn contacts(&self) -> impl Iterator<Item = &str> {
        let single = self.shifts.iter().map(|shift| &shift.contact);
        let recurring = self.recurring.iter().map(|event| &event.contact);
        let all: BTreeSet<&str> = single.chain(recurring).map(String::as_str).collect();
        all.into_iter()
    }

    /// Zone of times without one.
    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    fn shift_at(&self, at_ns: i64) -> Option<&CalendarShift> {
        let begun = self.shifts.partition_point(|shift| shift.from_ns <= at_ns);
        let shift = self.shifts.get(begun.checked_sub(1)?)?;
        (at_ns < shift.to_ns).then_some(shift)
    }

    /// The next begin or end of an event that may change who is on call.
    fn next_bound_ns(&self, at_ns: i64) -> Option<i64> {
        if let Some(shift) = self.shift_at(at_ns) {
            return Some(shift.to_ns).filter(|&to_ns| to_ns < i64::MAX);
        }
        let begun = self.shifts.partition_point(|shift| shift.from_ns <= at_ns);
        let single = self.shifts.get(begun).map(|shift| shift.from_ns);
        let recurring = self.recurring.iter().filter_map(|event| event.state_at(at_ns).next_ns);
        recurring.chain(single).min().filter(|&next_ns| next_ns < i64::MAX)
    }
}

/// What a file contains.
#[derive(Default)]
struct CalendarComponents<'a> {
    /// Properties of calendars.
    properties: Vec<&'a ContentLine>,
    /// Line of the BEGIN, and properties.
    events: Vec<(usize, Vec<ContentLine>)>,
}

impl<'a> CalendarComponents<'a> {
    fn read(&mut self, lines: &'a [ContentLine]) -> Result<(), CalendarProblem> {
        let mut open: Vec<(String, usize)> = Vec::new();
        for line in lines {
            let component = line.value.trim().to_ascii_uppercase();
            match line.name.as_str() {
                "BEGIN" if open.len() == DEPTH_MAX => {
                    return Err(line.problem(format!("depth limit ({DEPTH_MAX}) exceeded")));
                }
                "BEGIN" => {
                    if open.is_empty() && component != "VCALENDAR" {
                        return Err(line.problem("expected BEGIN:VCALENDAR"));
                    }
                    if open.len() == 1 && component == "VEVENT" {
                        if self.events.len() == EVENTS_MAX {
                            let what = format!("events limit ({EVENTS_MAX}) exceeded");
                            return Err(line.problem(what));
                        }
                        self.events.push((line.line, Vec::new()));
                    }
                    open.push((component, line.line));
                }
                "END" => match open.pop() {
                    Some((begun, _)) if begun == component => {}
                    Some((begun, at)) => {
                        return Err(line.problem(format!("expected END:{begun} of line {at}")));
                    }
                    None => return Err(line.problem("there is no BEGIN")),
                },
                _ => match (open.len(), open.last()) {
                    (0, _) => return Err(line.problem("expected BEGIN:VCALENDAR")),
                    (1, _) => self.properties.push(line),
                    (2, Some((component, _))) if component == "VEVENT" => {
                        let event = self.events.last_mut();
                        event.into_iter().for_each(|(_, lines)| lines.push(line.clone()));
                    }
                    // Other components, alarms, and definitions of zones.
                    _ => {}
                },
            }
        }
        if let Some((begun, at)) = open.pop() {
            return Err(CalendarProblem { line: at, what: format!("BEGIN:{begun} has no END") });
        }
        if self.events.is_empty() {
            let what = "the file has no event; nobody would be on call".to_owned();
            return Err(CalendarProblem { line: 1, what });
        }
        Ok(())
    }

    /// Zone of the file. Checks what the properties of calendars say of their format.
    fn zone(&self, problems: &mut Vec<CalendarProblem>) -> Option<TimeZone> {
        let mut zone = None;
        for line in &self.properties {
            let value = line.value.trim().to_ascii_uppercase();
            let defect = match line.name.as_str() {
                "VERSION" if value != "2.0" => "only version 2.0 is supported",
                "CALSCALE" if value != "GREGORIAN" => "only GREGORIAN is supported",
                "METHOD" if !matches!(value.as_str(), "PUBLISH" | "REQUEST") => {
                    "only PUBLISH and REQUEST are supported"
                }
                "X-WR-TIMEZONE" => {
                    match read_zone(line, line.value.trim()) {
                        Ok(found) => zone = Some(found),
                        Err(problem) => problems.push(problem),
                    }
                    continue;
                }
                _ => continue,
            };
            problems.push(line.problem(defect));
        }
        zone
    }
}

/// The newest version of each event, and the occurrences that others replace.
fn join_events(
    events: Vec<CalendarEvent>,
    zone: TimeZone,
) -> Result<OnCallCalendar, CalendarProblem> {
    let mut newest: BTreeMap<(String, Option<i64>), CalendarEvent> = BTreeMap::new();
    let mut all = Vec::new();
    for event in events {
        let Some(uid) = event.uid.clone() else {
            all.push(event);
            continue;
        };
        let key = (uid, event.replaced.as_ref().map(|time| time.instant_ns()));
        let known = newest.get(&key).map(|known| known.version);
        if known.is_none_or(|known| known < event.version) {
            newest.insert(key, event);
        }
    }
    let replacing =
        |event: &CalendarEvent| Some((event.uid.clone()?, event.replaced.clone()?, event.line));
    let replacing: Vec<_> = newest.values().filter_map(replacing).collect();
    let mut cancelled: BTreeSet<String> = BTreeSet::new();
    for (uid, replaced, line) in replacing {
        let Some(event) = newest.get_mut(&(uid.clone(), None)) else { continue };
        if !event.has_form_of(&replaced) {
            let what = "RECURRENCE-ID and DTSTART of the event must have the same form".to_owned();
            return Err(CalendarProblem { line, what });
        }
        if event.is_cancelled {
            cancelled.insert(uid);
        }
        event.excluded.insert(replaced.instant_ns());
    }
    let kept = newest.into_iter().filter(|((uid, _), _)| !cancelled.contains(uid));
    all.extend(kept.map(|(_, event)| event));
    all.retain(|event| !event.is_cancelled);
    let (mut recurring, single): (Vec<_>, Vec<_>) =
        all.into_iter().partition(CalendarEvent::is_recurring);
    if let Some(event) = recurring.get(RECURRING_MAX) {
        let what = format!("limit of events with RRULE ({RECURRING_MAX}) exceeded");
        return Err(CalendarProblem { line: event.line, what });
    }
    model::sort::by_key(&mut recurring, |event| Reverse(rank(&event.version)));
    Ok(OnCallCalendar { shifts: join_shifts(single), recurring, zone })
}

/// Of events that overlap the largest one counts.
fn rank(version: &EventVersion) -> (i64, usize) {
    (version.stamp_ns, version.line)
}

/// Shifts of events without a recurrence rule.
fn join_shifts(mut events: Vec<CalendarEvent>) -> Vec<CalendarShift> {
    model::sort::by_key(&mut events, |event| rank(&event.version));
    let mut bounds: Vec<(i64, bool, usize)> = Vec::with_capacity(2 * events.len());
    for (at, event) in events.iter().enumerate() {
        let start_ns = event.start.instant_ns();
        if !event.excluded.contains(&start_ns) {
            bounds.push((start_ns, true, at));
            bounds.push((event.end_ns, false, at));
        }
    }
    model::sort::by(&mut bounds, Ord::cmp);
    let mut shifts: Vec<CalendarShift> = Vec::new();
    let mut active: BTreeSet<usize> = BTreeSet::new();
    let mut from_ns = i64::MIN;
    for (at_ns, is_start, at) in bounds {
        let contact = active.last().map(|&at| &events[at].contact);
        if let Some(contact) = contact.filter(|_| from_ns < at_ns) {
            match shifts.last_mut() {
                Some(last) if last.to_ns == from_ns && last.contact == *contact => {
                    last.to_ns = at_ns;
                }
                _ => {
                    let contact = contact.clone();
                    shifts.push(CalendarShift { from_ns, to_ns: at_ns, contact });
                }
            }
        }
        match is_start {
            true => active.insert(at),
            false => active.remove(&at),
        };
        from_ns = at_ns;
    }
    shifts
}

#[cfg(test)]
mod tests;
