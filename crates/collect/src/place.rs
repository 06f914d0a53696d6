//! Which series a reading belongs to, and when it was: readings into rows.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::ControlFlow;

use hist::codec::header::Temporality;
use model::{Kind, Sample, Series};

use crate::reading::{Over, Reading, Sink, Value};
use crate::rows::Rows;
use crate::trouble::Trouble;
use crate::unit::Unit;

/// What is said from outside of what a reading does not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    /// Name of what was measured, where there is none.
    pub metric: Option<&'a str>,
    /// Labels that every series gets.
    pub labels: &'a [(String, String)],
    /// Unit of the values, where there is none.
    pub unit: Option<&'a Unit>,
    /// When it was, where that is not said: nanoseconds since the Unix epoch. What happened is in the nanosecond
    /// that is named, what was read was read then.
    pub time: Option<i64>,
}

/// Why a reading cannot be placed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unplaced {
    /// It has no name, and none was given.
    #[error("it has no name")]
    NoName,
    /// It has no time, and none was given.
    #[error("it has no time")]
    NoTime,
    /// It ends before it begins.
    #[error("it begins at {start} ns and ends at {end} ns")]
    Backwards {
        /// Where it begins, in nanoseconds since the Unix epoch.
        start: i64,
        /// Where it ends.
        end: i64,
    },
    /// The model refuses it.
    #[error(transparent)]
    Refused(#[from] model::Error),
}

impl Rules<'_> {
    /// The series and the sample that a reading is.
    pub fn place(&self, reading: Reading) -> Result<(Series, Sample), Unplaced> {
        let (start, end) = self.times(&reading)?;
        let temporality = match reading.over {
            Over::Total => Temporality::Cumulative,
            Over::Interval | Over::Moment => Temporality::Delta,
        };
        let number = |number: f64| {
            let kind = match reading.over {
                Over::Moment => Kind::Gauge,
                Over::Interval | Over::Total => Kind::Counter(temporality),
            };
            (kind, model::Value::Number(number))
        };
        let (kind, value) = match reading.value {
            Value::Histogram(histogram) => {
                (Kind::Histogram(temporality), model::Value::Histogram(histogram))
            }
            Value::Text(text) => (Kind::Text, model::Value::Text(text)),
            Value::Integer(n) => number(n as f64),
            Value::Number(x) => number(x),
        };
        let name = match reading.metric.as_str() {
            "" => self.metric.ok_or(Unplaced::NoName)?,
            name => name,
        };
        let mut series = Series::new(name, kind);
        if let Some(unit) = reading.unit.as_ref().or(self.unit).filter(|_| kind != Kind::Text) {
            series = series.with_unit(unit.name());
        }
        let labels = reading.labels.iter().chain(self.labels);
        let series = series.with_labels(labels.map(|(name, value)| (name, value))).checked()?;
        if end < start {
            return Err(Unplaced::Backwards { start, end });
        }
        Ok((series, Sample { start, end, value }))
    }

    fn times(&self, reading: &Reading) -> Result<(i64, i64), Unplaced> {
        if let (Over::Total, Some(created), None) = (reading.over, reading.start, reading.end) {
            // Read now. Where its own clock says that it began later, nothing is known about its start.
            let end = self.time.ok_or(Unplaced::NoTime)?;
            return Ok((created.min(end), end));
        }
        let known = reading.start.or(reading.end).zip(reading.end.or(reading.start));
        if let Some(times) = known {
            return Ok(times);
        }
        let start = self.time.ok_or(Unplaced::NoTime)?;
        let length = i64::from(reading.over == Over::Interval);
        Ok((start, start.saturating_add(length)))
    }
}

/// A sink that places readings and hands them on as rows, counting what it does.
pub struct Placing<'a, R: ?Sized> {
    rules: Rules<'a>,
    rows: &'a mut R,
    /// Recorded values of the format that is nothing else.
    numbers: Option<hist::Histogram>,
    placed: u64,
    skipped: u64,
    refused: u64,
    troubles: Vec<String>,
    key: Vec<u8>,
}

/// What became of the readings of one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Readings that became rows.
    pub readings: u64,
    /// Things that were understood and are no readings.
    pub skipped: u64,
    /// What could not be read or placed.
    pub refused: u64,
    /// The first of those, with place and reason: [`TROUBLES_MAX`] at the most.
    pub troubles: Vec<String>,
}

/// Messages that are kept of one input.
pub const TROUBLES_MAX: usize = 10;

impl<'a, R: Rows + ?Sized> Placing<'a, R> {
    /// Hands readings on to `rows`.
    pub fn new(rules: Rules<'a>, rows: &'a mut R) -> Placing<'a, R> {
        Placing {
            rules,
            rows,
            numbers: None,
            placed: 0,
            skipped: 0,
            refused: 0,
            troubles: Vec::new(),
            key: Vec::new(),
        }
    }

    fn refuse(&mut self, why: String) {
        self.refused = self.refused.saturating_add(1);
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.push(why);
        }
    }

    fn hand_on(&mut self, reading: Reading) -> Result<(), (String, Unplaced)> {
        let name = reading.metric.clone();
        let (series, sample) = self.rules.place(reading).map_err(|why| (name, why))?;
        self.key.clear();
        self.key.extend_from_slice(&series.form());
        let mut made = || Ok(series.clone());
        self.rows
            .series(&self.key, &mut made)
            .and_then(|()| self.rows.sample(&sample))
            .map_err(|error| (series.to_string(), error.into()))
    }

    /// Hands on what was counted last, and says what became of it all.
    pub fn finish(mut self) -> Placed {
        if let Some(histogram) = self.numbers.take() {
            let mut reading = Reading::new(Value::Histogram(Box::new(histogram)));
            reading.unit = self.rules.unit.cloned();
            self.reading(reading);
        }
        Placed {
            readings: self.placed,
            skipped: self.skipped,
            refused: self.refused,
            troubles: self.troubles,
        }
    }
}

impl<R: Rows + ?Sized> Sink for Placing<'_, R> {
    fn number(&mut self, value: f64) {
        self.numbers.get_or_insert_default().record(value);
    }

    fn reading(&mut self, reading: Reading) {
        match self.hand_on(reading) {
            Ok(()) => self.placed = self.placed.saturating_add(1),
            Err((name, why)) => self.refuse(format!("{name}: {why}")),
        }
    }

    fn skipped(&mut self, _: &'static str) {
        self.skipped = self.skipped.saturating_add(1);
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        self.refuse(trouble.to_string());
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::RowsKept;

    /// Of a total: what it says of its times, and where it is placed.
    #[track_caller]
    fn check(said: (Option<i64>, Option<i64>), time: Option<i64>, expected: Option<(i64, i64)>) {
        let mut reading = Reading::new(Value::Number(1.0));
        (reading.metric, reading.over) = ("a".to_owned(), Over::Total);
        (reading.start, reading.end) = said;
        let mut rows = RowsKept::default();
        let mut placing = Placing::new(Rules { time, ..Rules::default() }, &mut rows);
        placing.reading(reading);
        let placed = placing.finish();
        let found = rows.rows.first().map(|(_, sample)| (sample.start, sample.end));
        assert_eq!((found, placed.refused), (expected, u64::from(expected.is_none())));
    }

    #[test]
    fn a_total_that_says_since_when_was_read_now() {
        check((Some(5), None), Some(9), Some((5, 9)));
        check((Some(12), None), Some(9), Some((9, 9)));
        check((Some(5), Some(7)), Some(9), Some((5, 7)));
        check((None, None), Some(9), Some((9, 9)));
        check((Some(5), None), None, None);
    }
}
