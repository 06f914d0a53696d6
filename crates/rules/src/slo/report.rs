//! Answers about an SLO: how much of the budget is left, since when, and who was affected.
//!
//! Events of the current period are read exactly. The history is made of slots of an hour,
//! or of a day where the range is long: a window begins and ends with a slot.

use std::ops::Range;

use hist::Bracket;
use model::Gap;
use query::burn_rate::{BurnRule, WindowEvents};
use store::{DAY, HOUR};

use super::budget::{AttainedCurve, BudgetStatus};
use super::event_reader::{EventReader, SlotRead};
use super::events::{EventSlot, EventTotals, SlotEvents};
use super::period::day_around;
use super::{BurnWindow, Period, Slo, SloError};

/// Without events for this time, the state of a budget is unknown.
const CURRENT: i64 = HOUR;
/// Maximum number of hours that are read as hours.
const HOURS_MAX: i64 = 3_000;
/// The same in a zone other than UTC, whose days are no multiple of rollups.
const ZONED_HOURS_MAX: i64 = 20_000;
/// Maximum number of points of a history.
const POINTS_MAX: usize = 400;

/// Budget of the current period.
#[derive(Clone, Debug)]
pub struct SloSummary {
    /// Period until now.
    pub period: Range<i64>,
    /// Events that count.
    pub events: EventTotals,
    /// Events of the whole period, with those that corrections take out.
    pub uncorrected: EventTotals,
    /// Events that corrections take out.
    pub corrected: EventTotals,
    /// Time that corrections take out, in nanoseconds.
    pub corrected_ns: i64,
    /// Share of good events.
    pub attained: Option<Bracket>,
    /// Share of the budget that is left.
    pub remaining: Option<Bracket>,
    /// The same without corrections.
    pub remaining_uncorrected: Option<Bracket>,
    /// State.
    pub state: BudgetStatus,
    /// Events of the last hour.
    pub recent: EventTotals,
    /// Time of known gaps in nanoseconds.
    pub missing_ns: i64,
    /// Unit of the values.
    pub unit: Option<String>,
    /// Threshold in the unit of the values; infinite for counts.
    pub limit: f64,
    /// Known gaps.
    pub gaps: Vec<Gap>,
    /// What was read, for the curve.
    pub(super) values: SlotEvents,
}

/// Range of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRange {
    /// Start of the history.
    pub from_ns: i64,
    /// End of the history, and time of the budget.
    pub to_ns: i64,
}

/// Budget at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SloPoint {
    /// Time.
    pub time_ns: i64,
    /// Share that was left; `None` without events.
    pub remaining: Option<Bracket>,
    /// Events since the point before.
    pub events: EventTotals,
    /// Whether data is known to be missing since the point before.
    pub has_gap: bool,
}

/// Events of a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DayReport {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Events that count.
    pub events: EventTotals,
    /// Time of known gaps in nanoseconds.
    pub missing_ns: i64,
    /// Time that corrections take out, in nanoseconds.
    pub corrected_ns: i64,
}

/// State of the windows of an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct BurnState {
    /// Window.
    pub window: BurnWindow,
    /// Burn rate above which the alert fires.
    pub factor: f64,
    /// How the factor is computed.
    pub formula: String,
    /// Burn rate of the long window; `None` without events.
    pub long: Option<Bracket>,
    /// Burn rate of the short window.
    pub short: Option<Bracket>,
    /// Whether the condition of the alert holds; `None` without events in a window.
    pub is_burning: Option<bool>,
}

/// Users of a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeopleReport {
    /// Users with a bad event.
    pub affected: Bracket,
    /// All users.
    pub total: f64,
    /// Whether they were counted; otherwise it is the share of bad events of the stated number.
    pub is_counted: bool,
}

/// Budget with its history.
#[derive(Clone, Debug)]
pub struct SloReport {
    /// Current period.
    pub summary: SloSummary,
    /// History.
    pub points: Vec<SloPoint>,
    /// Days of the range.
    pub days: Vec<DayReport>,
    /// Other thresholds in the current period.
    pub curve: AttainedCurve,
    /// Windows of alerts.
    pub burn: Vec<BurnState>,
    /// Users, if the SLO says how many there are.
    pub people: Option<PeopleReport>,
}

impl EventReader<'_> {
    /// Budget of the period until a time.
    pub fn summary(&self, slo: &Slo, now_ns: i64) -> Result<SloSummary, SloError> {
        let period = slo.period.until(now_ns);
        let mut values = SlotEvents::Empty;
        let (mut unit, mut gaps) = (None, Vec::new());
        let mut take = |read: SlotRead, all: &mut SlotEvents| -> Result<(), SloError> {
            unit = unit.take().or(read.unit);
            gaps.extend(read.gaps);
            read.slots.iter().try_for_each(|slot| all.add(&slot.events))
        };
        for range in slo.kept(&period) {
            take(self.range(&slo.indicator, &range)?, &mut values)?;
        }
        let mut corrected = SlotEvents::Empty;
        let mut corrected_ns = 0;
        for range in slo.corrected(&period) {
            corrected_ns += range.end - range.start;
            take(self.range(&slo.indicator, &range)?, &mut corrected)?;
        }
        let recent = self.range(&slo.indicator, &(now_ns.saturating_sub(CURRENT)..now_ns))?;
        gaps.sort_unstable();
        gaps.dedup();
        let limit = slo.indicator.limit(unit.as_deref().or(recent.unit.as_deref()))?;
        let events = values.count(limit);
        let corrected = corrected.count(limit);
        let mut uncorrected = events;
        uncorrected.add(&corrected);
        let recent = sum(&recent.slots, limit);
        let remaining = events.remaining(slo.objective);
        let kept = slo.kept(&period);
        Ok(SloSummary {
            attained: events.attained(),
            remaining,
            remaining_uncorrected: uncorrected.remaining(slo.objective),
            state: BudgetStatus::of(remaining, recent.total > 0.0),
            missing_ns: kept.iter().map(|range| missing_ns(&gaps, range)).sum(),
            period,
            events,
            uncorrected,
            corrected,
            corrected_ns,
            recent,
            unit,
            limit,
            gaps,
            values,
        })
    }

    /// Budget with its history.
    pub fn report(&self, slo: &Slo, range: ReportRange) -> Result<SloReport, SloError> {
        let summary = self.summary(slo, range.to_ns)?;
        let history = self.history(slo, range)?;
        let curve = AttainedCurve::of(&summary.values, summary.limit, slo.objective.share());
        let burn = slo.windows.iter().map(|window| self.burn(slo, window, range.to_ns));
        let burn = burn.collect::<Result<_, _>>()?;
        let people = self.people(slo, &summary)?;
        Ok(SloReport {
            points: history.points(slo, range, summary.limit),
            days: history.days(slo, range, summary.limit),
            summary,
            curve,
            burn,
            people,
        })
    }

    fn burn(&self, slo: &Slo, window: &BurnWindow, now_ns: i64) -> Result<BurnState, SloError> {
        let events = |length: i64| {
            let read = self.range(&slo.indicator, &(now_ns.saturating_sub(length)..now_ns))?;
            let is_known = read.slots.iter().any(|slot| slot.events != SlotEvents::Empty);
            let limit = slo.indicator.limit(read.unit.as_deref())?;
            Ok::<_, SloError>(is_known.then(|| sum(&read.slots, limit)))
        };
        let (long, short) = (events(window.long_ns)?, events(window.short_ns())?);
        let factor = window.factor(&slo.period);
        let rule = BurnRule { factor, budget: slo.objective.budget() };
        let of = |events: EventTotals| WindowEvents { bad: events.bad, total: events.total };
        Ok(BurnState {
            window: *window,
            factor,
            formula: window.formula(&slo.period),
            long: long.and_then(|events| events.burn_rate(slo.objective)),
            short: short.and_then(|events| events.burn_rate(slo.objective)),
            is_burning: long
                .zip(short)
                .map(|(long, short)| rule.burn_rate(&of(long), &of(short)).estimate > factor),
        })
    }

    fn people(&self, slo: &Slo, summary: &SloSummary) -> Result<Option<PeopleReport>, SloError> {
        if let Some(users) = slo.users {
            let share = summary.attained.map(|attained| Bracket {
                lower: 1.0 - attained.upper,
                estimate: 1.0 - attained.estimate,
                upper: 1.0 - attained.lower,
            });
            return Ok(share.map(|share| PeopleReport {
                affected: share.map(|share| share * users),
                total: users,
                is_counted: false,
            }));
        }
        let Some(label) = &slo.user_label else { return Ok(None) };
        let users = self.by_label(&slo.indicator, label, &summary.period, summary.limit)?;
        let with = |bad: fn(&EventTotals) -> f64| {
            users.iter().filter(|events| bad(events) >= 1.0).count() as f64
        };
        let affected = Bracket {
            lower: with(|events| events.bad.lower),
            estimate: with(|events| events.bad.estimate),
            upper: with(|events| events.bad.upper),
        };
        Ok(Some(PeopleReport { affected, total: users.len() as f64, is_counted: true }))
    }

    /// Slots from the start of the first window to the end of the range.
    fn history(&self, slo: &Slo, range: ReportRange) -> Result<SlotHistory, SloError> {
        let start = slo.period.until(range.from_ns).start.min(range.from_ns);
        let step = slot_length(&slo.period, range.to_ns.saturating_sub(start));
        let phase = slot_phase(&slo.period, range.from_ns).rem_euclid(step.min(HOUR));
        let start = start - (start - phase).rem_euclid(step);
        let count = usize::try_from((range.to_ns - start + step - 1) / step).unwrap_or(0).max(1);
        let SlotRead { mut slots, gaps, .. } = self.slots(&slo.indicator, start, step, count)?;
        for slot in &mut slots {
            let whole = slot.start_ns..slot.end_ns;
            let kept = slo.kept(&whole);
            if kept == [whole] {
                continue;
            }
            slot.events = SlotEvents::Empty;
            for range in kept {
                for part in self.range(&slo.indicator, &range)?.slots {
                    slot.events.add(&part.events)?;
                }
            }
        }
        Ok(SlotHistory { slots, gaps })
    }
}

/// An hour; a day if there are many hours.
fn slot_length(period: &Period, range_ns: i64) -> i64 {
    let hours_max = match period {
        Period::Calendar(_, zone) if zone.iana_name() != Some("UTC") => ZONED_HOURS_MAX,
        _ => HOURS_MAX,
    };
    if range_ns / HOUR <= hours_max { HOUR } else { DAY }
}

/// A time at which a slot begins: days begin with one, also in zones of half hours.
fn slot_phase(period: &Period, time_ns: i64) -> i64 {
    match period {
        Period::Rolling(_) => 0,
        Period::Calendar(_, zone) => day_around(zone, time_ns).map_or(0, |day| day.start),
    }
}

fn sum(slots: &[EventSlot], limit: f64) -> EventTotals {
    let mut all = EventTotals::NONE;
    slots.iter().for_each(|slot| all.add(&slot.events.count(limit)));
    all
}

/// Slots of a range, without what corrections take out.
struct SlotHistory {
    slots: Vec<EventSlot>,
    gaps: Vec<Gap>,
}

impl SlotHistory {
    fn points(&self, slo: &Slo, range: ReportRange, limit: f64) -> Vec<SloPoint> {
        // Sums up to each slot: a window is the difference of two.
        let mut sums = vec![EventTotals::NONE];
        for slot in &self.slots {
            let mut all = sums[sums.len() - 1];
            all.add(&slot.events.count(limit));
            sums.push(all);
        }
        let first = self.slots.partition_point(|slot| slot.end_ns <= range.from_ns);
        let stride = (self.slots.len() - first).div_ceil(POINTS_MAX).max(1);
        let mut points = Vec::new();
        let mut before = first;
        // Backwards from the end, so that the last point is the current one.
        let lasts = (first..self.slots.len()).rev().step_by(stride).collect::<Vec<_>>();
        for last in lasts.into_iter().rev() {
            let time_ns = self.slots[last].end_ns;
            let start = slo.period.until(time_ns).start;
            let middle = |slot: &EventSlot| slot.start_ns + (slot.end_ns - slot.start_ns) / 2;
            let begin = self.slots.partition_point(|slot| middle(slot) < start);
            let window = sums[last + 1].without(&sums[begin.min(last + 1)]);
            let new = self.slots[before].start_ns..time_ns;
            points.push(SloPoint {
                time_ns: time_ns.min(range.to_ns),
                remaining: window.remaining(slo.objective),
                events: sums[last + 1].without(&sums[before]),
                has_gap: missing_ns(&self.gaps, &new) > 0,
            });
            before = last + 1;
        }
        points
    }

    fn days(&self, slo: &Slo, range: ReportRange, limit: f64) -> Vec<DayReport> {
        let zone = slo.period.zone();
        let mut days: Vec<DayReport> = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.end_ns > range.from_ns) {
            let middle = slot.start_ns + (slot.end_ns - slot.start_ns) / 2;
            let Some(day) = day_around(&zone, middle) else { continue };
            if days.last().is_none_or(|last| last.start_ns != day.start) {
                let inside = day.start..day.end.min(range.to_ns);
                let corrected = slo.corrected(&inside);
                days.push(DayReport {
                    start_ns: day.start,
                    end_ns: day.end,
                    events: EventTotals::NONE,
                    missing_ns: missing_ns(&self.gaps, &inside),
                    corrected_ns: corrected.iter().map(|range| range.end - range.start).sum(),
                });
            }
            if let Some(day) = days.last_mut() {
                day.events.add(&slot.events.count(limit));
            }
        }
        days
    }
}

impl Slo {
    /// Parts of a range that corrections take out, by time.
    fn corrected(&self, range: &Range<i64>) -> Vec<Range<i64>> {
        let mut parts: Vec<Range<i64>> = self
            .corrections
            .iter()
            .map(|it| it.start_ns.max(range.start)..it.end_ns.min(range.end))
            .filter(|part| part.start < part.end)
            .collect();
        model::sort::by_key(&mut parts, |part| part.start);
        union(parts)
    }

    /// Parts of a range that count, by time.
    fn kept(&self, range: &Range<i64>) -> Vec<Range<i64>> {
        let mut kept = Vec::new();
        let mut start = range.start;
        for part in self.corrected(range) {
            kept.push(start..part.start);
            start = part.end;
        }
        kept.push(start..range.end);
        kept.retain(|part| part.start < part.end);
        kept
    }
}

/// Ranges sorted by start as disjoint ones.
fn union(parts: Vec<Range<i64>>) -> Vec<Range<i64>> {
    let mut all: Vec<Range<i64>> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => all.push(part),
        }
    }
    all
}

/// Time of a range that is in a gap. Gaps are sorted by start.
fn missing_ns(gaps: &[Gap], range: &Range<i64>) -> i64 {
    let parts = gaps.iter().map(|gap| gap.start.max(range.start)..gap.end.min(range.end));
    let parts = union(parts.filter(|part| part.start < part.end).collect());
    parts.iter().map(|part| part.end - part.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes after a full hour at which slots begin.
    #[track_caller]
    fn check(period: &str, zone: Option<&str>, expected: i64) {
        let period = Period::parse(period, zone).expect("a period");
        let time_ns = 1_700_000_000_000_000_000;
        assert_eq!(slot_phase(&period, time_ns).rem_euclid(HOUR) / (HOUR / 60), expected);
    }

    #[test]
    fn slots_begin_with_the_days_of_zones_of_half_hours() {
        check("30d", None, 0);
        check("month", None, 0);
        check("month", Some("Europe/Berlin"), 0);
        check("month", Some("Asia/Kolkata"), 30);
        check("quarter", Some("Asia/Kathmandu"), 15);
    }
}
