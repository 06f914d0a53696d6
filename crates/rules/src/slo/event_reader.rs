//! Reads the events of time ranges from a query source.
//!
//! Every read is a PromQL query with `exact_increase`, which merges stored distributions without
//! extrapolation and reads rollups where their boundaries fit. A range starts after its start and
//! includes its end. Times are multiples of a millisecond.

use std::ops::Range;

use hist::Bracket;
use model::Gap;
use query::{
    Language, QueryContext, QueryRequest, QueryResult, ResultData, Settings, Source, StepValue,
    Stream, execute, promql,
};

use super::events::{EventSlot, EventTotals, SlotEvents};
use super::{Indicator, Quantity};

const MILLISECOND: i64 = 1_000_000;

/// Why events could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SloError {
    /// The store cannot be read.
    #[error("cannot read events of the store: {0}")]
    Store(String),
    /// The query failed.
    #[error("cannot read events of {selector}: {cause}")]
    Query {
        /// Selector.
        selector: String,
        /// Cause.
        cause: String,
    },
    /// A threshold needs distributions.
    #[error(
        "{selector} has no distributions: found {found}; a threshold needs histograms, counters \
         need good or bad, and total"
    )]
    Kind {
        /// Selector.
        selector: String,
        /// What was found.
        found: &'static str,
    },
    /// Distributions cannot be merged.
    #[error("cannot merge distributions: {0}")]
    Merge(String),
    /// The unit of the threshold does not fit.
    #[error("threshold {threshold} does not fit the unit of {selector} ({unit})")]
    Unit {
        /// Threshold.
        threshold: String,
        /// Selector.
        selector: String,
        /// Unit of the values.
        unit: String,
    },
}

/// Events of adjacent slots.
#[derive(Clone, Debug)]
pub(super) struct SlotRead {
    pub(super) slots: Vec<EventSlot>,
    /// Unit of the values, if known.
    pub(super) unit: Option<String>,
    pub(super) gaps: Vec<Gap>,
}

/// Reader of events.
pub struct EventReader<'a> {
    /// Data.
    pub source: &'a dyn Source,
    /// Limits.
    pub settings: &'a Settings,
    /// Cancellation and memory.
    pub context: &'a dyn QueryContext,
}

impl EventReader<'_> {
    /// Events of one range; `None` of an empty one.
    pub(super) fn range(
        &self,
        indicator: &Indicator,
        range: &Range<i64>,
    ) -> Result<SlotRead, SloError> {
        let end = range.end - range.end.rem_euclid(MILLISECOND);
        let length = (end - range.start) / MILLISECOND * MILLISECOND;
        if length <= 0 {
            let slot = EventSlot { start_ns: end, end_ns: end, events: SlotEvents::Empty };
            return Ok(SlotRead { slots: vec![slot], unit: None, gaps: Vec::new() });
        }
        self.slots(indicator, end - length, length, 1)
    }

    /// Events of `count` adjacent slots of the length `step`.
    pub(super) fn slots(
        &self,
        indicator: &Indicator,
        start: i64,
        step: i64,
        count: usize,
    ) -> Result<SlotRead, SloError> {
        match indicator {
            Indicator::Threshold { selector, .. } => {
                let result = self.query(selector, None, start, step, count)?;
                let mut slots = empty_slots(start, step, count);
                for stream in streams(result.data) {
                    add_values(&mut slots, selector, stream)?;
                }
                Ok(SlotRead { slots, unit: result.unit, gaps: result.gaps })
            }
            Indicator::Ratio { part, is_good, total } => {
                let (parts, mut gaps) = self.numbers(part, start, step, count)?;
                let (totals, more) = self.numbers(total, start, step, count)?;
                gaps.extend(more);
                gaps.sort_unstable();
                gaps.dedup();
                let mut slots = empty_slots(start, step, count);
                for ((slot, part), total) in slots.iter_mut().zip(parts).zip(totals) {
                    slot.events = ratio(part, *is_good, total);
                }
                Ok(SlotRead { slots, unit: None, gaps })
            }
        }
    }

    /// Events of a range by the values of a label; those of series without it are left out.
    pub(super) fn by_label(
        &self,
        indicator: &Indicator,
        label: &str,
        range: &Range<i64>,
        limit: f64,
    ) -> Result<Vec<EventTotals>, SloError> {
        let Indicator::Threshold { selector, .. } = indicator else { return Ok(Vec::new()) };
        let end = range.end - range.end.rem_euclid(MILLISECOND);
        let length = (end - range.start) / MILLISECOND * MILLISECOND;
        let result = self.query(selector, Some(label), end - length, length.max(MILLISECOND), 1)?;
        let mut users = Vec::new();
        for stream in streams(result.data) {
            if stream.labels.get(label).is_empty() {
                continue;
            }
            if let Some(StepValue::Distribution(values)) =
                stream.points.into_iter().next().flatten()
            {
                users.push(SlotEvents::Values((*values).clone()).count(limit));
            }
        }
        Ok(users)
    }

    fn numbers(
        &self,
        selector: &str,
        start: i64,
        step: i64,
        count: usize,
    ) -> Result<(Vec<Option<f64>>, Vec<Gap>), SloError> {
        let result = self.query(selector, None, start, step, count)?;
        let mut sums: Vec<Option<f64>> = vec![None; count];
        for stream in streams(result.data) {
            for (sum, point) in sums.iter_mut().zip(stream.points) {
                // The number of values of a histogram counts events, too.
                let number = match &point {
                    Some(StepValue::Distribution(values)) => Some(values.count() as f64),
                    Some(value) => value.number(),
                    None => None,
                };
                if let Some(number) = number {
                    *sum = Some(sum.unwrap_or(0.0) + number);
                }
            }
        }
        Ok((sums, result.gaps))
    }

    fn query(
        &self,
        selector: &str,
        by: Option<&str>,
        start: i64,
        step: i64,
        count: usize,
    ) -> Result<QueryResult, SloError> {
        let by = by.map_or_else(String::new, |label| format!(" by ({label:?})"));
        let text = format!("sum{by}(exact_increase({selector}[{}ms]))", step / MILLISECOND);
        let first = start.saturating_add(step);
        let last = start.saturating_add(step.saturating_mul(count as i64));
        let request = QueryRequest {
            text: &text,
            language: Language::PromQl,
            start: first,
            end: last,
            step: if count == 1 { 0 } else { step },
            options: promql::Options { standard_only: false, ..promql::Options::all() },
        };
        execute(self.source, &request, self.settings, self.context).map_err(|error| {
            SloError::Query { selector: selector.to_owned(), cause: error.to_string() }
        })
    }
}

fn empty_slots(start: i64, step: i64, count: usize) -> Vec<EventSlot> {
    (0..count as i64)
        .map(|at| {
            let start_ns = start.saturating_add(step.saturating_mul(at));
            let end_ns = start_ns.saturating_add(step);
            EventSlot { start_ns, end_ns, events: SlotEvents::Empty }
        })
        .collect()
}

fn streams(data: ResultData) -> Vec<Stream> {
    match data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams,
        _ => Vec::new(),
    }
}

fn add_values(slots: &mut [EventSlot], selector: &str, stream: Stream) -> Result<(), SloError> {
    let kind = |found| SloError::Kind { selector: selector.to_owned(), found };
    for (slot, point) in slots.iter_mut().zip(stream.points) {
        match point {
            None => {}
            Some(StepValue::Distribution(values)) => {
                slot.events = SlotEvents::Values(std::sync::Arc::unwrap_or_clone(values));
            }
            Some(StepValue::Number(_) | StepValue::Bracket(_)) => return Err(kind("counters")),
            Some(StepValue::Histogram(_)) => return Err(kind("float histograms")),
        }
    }
    Ok(())
}

/// Events from counts of a part and of all. Bad events that were never counted are none; if good
/// ones are missing, nothing is known.
fn ratio(part: Option<f64>, is_good: bool, total: Option<f64>) -> SlotEvents {
    let Some(total) = total else { return SlotEvents::Empty };
    let bad = match (part, is_good) {
        (Some(good), true) => total - good,
        (Some(bad), false) => bad,
        (None, false) => 0.0,
        (None, true) if total == 0.0 => 0.0,
        (None, true) => return SlotEvents::Empty,
    };
    let bad = Bracket::exact(bad.clamp(0.0, total.max(0.0)));
    SlotEvents::Counts(EventTotals { bad, total })
}

impl Indicator {
    /// Largest good value in the unit of the values; infinite for counts. A duration of values
    /// without a unit is in seconds, as in PromQL.
    pub(super) fn limit(&self, unit: Option<&str>) -> Result<f64, SloError> {
        let Indicator::Threshold { selector, threshold } = self else { return Ok(f64::INFINITY) };
        limit_in(threshold, unit).ok_or_else(|| SloError::Unit {
            threshold: threshold.to_string(),
            selector: selector.clone(),
            unit: unit.unwrap_or("unknown").to_owned(),
        })
    }
}

fn limit_in(threshold: &Quantity, unit: Option<&str>) -> Option<f64> {
    match unit.filter(|unit| !unit.is_empty()) {
        Some(unit) => threshold.value_in(decode::Unit::parse(unit).as_ref()),
        None => threshold
            .value_in(None)
            .or_else(|| threshold.value_in(Some(&decode::Unit::Seconds)))
            .or_else(|| threshold.value_in(threshold.unit())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(threshold: &str, unit: Option<&str>, expected: Option<f64>) {
        assert_eq!(limit_in(&Quantity::parse(threshold).unwrap(), unit), expected);
    }

    #[test]
    fn threshold_is_converted_to_the_unit_of_the_values() {
        check("250ms", Some("ns"), Some(250e6));
        check("0.3ms", Some("ns"), Some(300_000.0));
        check("250ms", Some("s"), Some(0.25));
        check("250", Some("ns"), Some(250.0));
        check("250ms", None, Some(0.25));
        check("250ms", Some("B"), None);
        check("4096", Some("B"), Some(4096.0));
        check("4096B", None, Some(4096.0));
    }

    #[test]
    fn missing_good_events_are_unknown_and_missing_bad_ones_are_none() {
        let counts = |bad: f64, total: f64| {
            SlotEvents::Counts(EventTotals { bad: Bracket::exact(bad), total })
        };
        assert_eq!(ratio(Some(90.0), true, Some(100.0)), counts(10.0, 100.0));
        assert_eq!(ratio(Some(10.0), false, Some(100.0)), counts(10.0, 100.0));
        assert_eq!(ratio(None, false, Some(100.0)), counts(0.0, 100.0));
        assert_eq!(ratio(None, true, Some(100.0)), SlotEvents::Empty);
        assert_eq!(ratio(None, true, Some(0.0)), counts(0.0, 0.0));
        assert_eq!(ratio(Some(1.0), true, None), SlotEvents::Empty);
    }
}
