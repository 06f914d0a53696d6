//! `[[rotation]]`: contacts that take turns, or a calendar, and overrides.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;
use toml::Spanned;

use crate::notify_settings::{ReceiverKind, ReceiverNames};
use crate::on_call_calendar::OnCallCalendar;
use crate::rotation::{OnCallOverride, OnCallRotation, OnCallSchedule, OnCallTurns};
use crate::routing::ZoneName;
use crate::setting_values::DurationText;

/// Shortest shift.
const SHIFT_MIN_S: u64 = 60;
/// Larger calendars are not read.
const CALENDAR_BYTES_MAX: u64 = 4 << 20;

/// `[[rotation]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotationTable {
    name: Spanned<String>,
    time_zone: Option<ZoneName>,
    members: Option<Spanned<Vec<Spanned<String>>>>,
    start: Option<LocalTime>,
    shift: Option<Spanned<DurationText>>,
    /// Path of an iCalendar file.
    calendar: Option<Spanned<String>>,
    /// Contacts by the names that its events have.
    #[serde(default)]
    people: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    overrides: Vec<OverrideTable>,
}

/// One of its `overrides`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideTable {
    member: Spanned<String>,
    from: LocalTime,
    to: LocalTime,
}

/// Local time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct LocalTime(DateTime);

impl TryFrom<String> for LocalTime {
    type Error = String;

    fn try_from(text: String) -> Result<LocalTime, String> {
        let expected = "expected a local time such as \"2026-01-05T09:00\"";
        text.parse().map(LocalTime).map_err(|_| format!("{text:?}: {expected}"))
    }
}

impl RotationTable {
    /// The rotation, if it has no problem. A relative path is resolved against `dir`.
    pub(crate) fn build(
        mut self,
        names: &mut ReceiverNames<'_>,
        dir: &Path,
    ) -> Option<OnCallRotation> {
        let before = names.problem_count();
        let members = self.members.iter().flat_map(|members| members.get_ref());
        let of_overrides = self.overrides.iter().map(|one| &one.member);
        for member in members.chain(self.people.values()).chain(of_overrides) {
            names.check(member, &[ReceiverKind::Contact]);
        }
        names.define(&self.name, ReceiverKind::Rotation);
        for one in self.overrides.iter().filter(|one| one.from.0 >= one.to.0) {
            names.add(one.member.span().start, "an override must end after it begins");
        }
        let zone = self.time_zone.take().map(|zone| zone.0);
        let (schedule, zone) = match self.calendar.take() {
            Some(path) => self.calendar_schedule(&path, zone, names, dir)?,
            None => (self.turns(names)?, zone.unwrap_or(TimeZone::UTC)),
        };
        let overrides = self.overrides.into_iter().map(|one| OnCallOverride {
            member: one.member.into_inner(),
            from: one.from.0,
            to: one.to.0,
        });
        let overrides = overrides.collect();
        let name = self.name.into_inner();
        (names.problem_count() == before).then_some(OnCallRotation {
            name,
            schedule,
            zone,
            overrides,
        })
    }

    fn turns(&mut self, names: &mut ReceiverNames<'_>) -> Option<OnCallSchedule> {
        let byte = self.name.span().start;
        if !self.people.is_empty() {
            names.add(byte, "`people` are names in a calendar; add `calendar`");
        }
        let parts = (self.members.take(), self.start, self.shift.take());
        let (Some(members), Some(start), Some(shift)) = parts else {
            names.add(byte, "a rotation needs `members`, `start` and `shift`, or `calendar`");
            return None;
        };
        if members.get_ref().is_empty() {
            names.add(members.span().start, "a rotation needs at least one member");
        }
        if shift.get_ref().0.as_secs() < SHIFT_MIN_S {
            names.add(shift.span().start, "shift must be at least 1min");
        }
        Some(OnCallSchedule::Turns(OnCallTurns {
            members: members.into_inner().into_iter().map(Spanned::into_inner).collect(),
            start: start.0,
            shift: SignedDuration::try_from(shift.into_inner().0).ok()?,
        }))
    }

    /// The calendar, and the zone of local times.
    fn calendar_schedule(
        &self,
        path: &Spanned<String>,
        zone: Option<TimeZone>,
        names: &mut ReceiverNames<'_>,
        dir: &Path,
    ) -> Option<(OnCallSchedule, TimeZone)> {
        let byte = path.span().start;
        if self.members.is_some() || self.start.is_some() || self.shift.is_some() {
            let what = "`calendar` excludes `members`, `start` and `shift`; keep one of both";
            names.add(byte, what);
        }
        let of_people = self.people.iter();
        let of_people = of_people.map(|(name, to)| (name.clone(), to.get_ref().clone()));
        let own =
            names.of_kind(ReceiverKind::Contact).map(|name| (name.to_owned(), name.to_owned()));
        let contacts: BTreeMap<String, String> = model::sort::map(own.chain(of_people));
        match read_calendar(&dir.join(path.get_ref()), &contacts, zone) {
            Ok(calendar) => {
                let zone = calendar.zone().clone();
                Some((OnCallSchedule::Calendar(Arc::new(calendar)), zone))
            }
            Err(problems) => {
                problems.into_iter().for_each(|what| names.add(byte, what));
                None
            }
        }
    }
}

/// Reads a calendar; or all its problems, with the path.
fn read_calendar(
    path: &Path,
    contacts: &BTreeMap<String, String>,
    zone: Option<TimeZone>,
) -> Result<OnCallCalendar, Vec<String>> {
    let shown = path.display();
    let failed = |what: &dyn std::fmt::Display| vec![format!("cannot read {shown}: {what}")];
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    file.take(CALENDAR_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > CALENDAR_BYTES_MAX {
        return Err(failed(&format!("size limit ({} MiB) exceeded", CALENDAR_BYTES_MAX >> 20)));
    }
    OnCallCalendar::parse(&bytes, contacts, zone).map_err(|problems| {
        problems.into_iter().map(|problem| format!("{shown}:{problem}")).collect()
    })
}
