//! Which series a reading belongs to, and when it was.

use collect::{Format, Over, Reading, Unit, Value};
use hist::codec::header::Temporality;
use model::{Kind, Sample, Series};

use crate::hist::intervals;

/// What the command line says of what a file does not.
pub(crate) struct Rules<'a> {
    pub(crate) metric: Option<&'a str>,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) unit: Option<&'a Unit>,
    pub(crate) start: Option<i64>,
}

/// Why a reading cannot be placed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unplaced {
    /// It has no name, and none was given.
    NoName,
    /// It has no time, and none was given.
    NoTime,
    /// Its times count from its log's own beginning, and it was not said when that was.
    SinceStart,
    /// The model refuses it.
    Refused(String),
}

impl Rules<'_> {
    /// Bytes that differ where the same file becomes other rows.
    pub(crate) fn bytes(&self, format: Format) -> Vec<u8> {
        let unit = self.unit.map(Unit::name);
        format!("{:?}", (self.metric, self.labels, unit, self.start, format.name())).into_bytes()
    }

    /// Numbers of any unit of time are read as nanoseconds.
    pub(crate) fn numbers_unit(&self) -> Option<Unit> {
        let is_time = self.unit.is_some_and(|unit| unit.in_nanoseconds().is_some());
        if is_time { Some(Unit::Nanoseconds) } else { self.unit.cloned() }
    }

    pub(crate) fn place(
        &self,
        reading: Reading,
        format: Format,
    ) -> Result<(Series, Sample), Unplaced> {
        let (start, end) = self.times(&reading, format)?;
        let temporality = match reading.over {
            Over::Total => Temporality::Cumulative,
            Over::Interval | Over::Moment => Temporality::Delta,
        };
        let (kind, value) = match reading.value {
            Value::Histogram(histogram) => {
                (Kind::Histogram(temporality), model::Value::Histogram(histogram))
            }
            Value::Text(text) => (Kind::Text, model::Value::Text(text)),
            number @ (Value::Integer(_) | Value::Number(_)) => {
                let kind = match reading.over {
                    Over::Moment => Kind::Gauge,
                    Over::Interval | Over::Total => Kind::Counter(temporality),
                };
                let number = match number {
                    Value::Integer(n) => n as f64,
                    Value::Number(x) => x,
                    _ => unreachable!("BUG: the arm takes numbers"),
                };
                (kind, model::Value::Number(number))
            }
        };
        let name = match reading.metric.as_str() {
            "" => self.metric.ok_or(Unplaced::NoName)?,
            name => name,
        };
        let mut series = Series::new(name, kind);
        if let Some(unit) = reading.unit.as_ref().or(self.unit).filter(|_| kind != Kind::Text) {
            series = series.with_unit(unit.name());
        }
        for (name, value) in reading.labels.iter().chain(self.labels) {
            series = series.with_label(name.as_str(), value.as_str());
        }
        let series = series.checked().map_err(|error| Unplaced::Refused(error.to_string()))?;
        if end < start {
            let (start, end) = (crate::time::text(start), crate::time::text(end));
            return Err(Unplaced::Refused(format!("it begins at {start} and ends at {end}")));
        }
        Ok((series, Sample { start, end, value }))
    }

    fn times(&self, reading: &Reading, format: Format) -> Result<(i64, i64), Unplaced> {
        let known = reading.start.or(reading.end).zip(reading.end.or(reading.start));
        let Some((start, end)) = known else {
            let start = self.start.ok_or(Unplaced::NoTime)?;
            // What happened is in the nanosecond that was named, what was read was read then.
            let length = i64::from(reading.over == Over::Interval);
            return Ok((start, start.saturating_add(length)));
        };
        if format == Format::Hlog && intervals::is_since_start(start) {
            let log_start = self.start.ok_or(Unplaced::SinceStart)?;
            return Ok((start.saturating_add(log_start), end.saturating_add(log_start)));
        }
        Ok((start, end))
    }
}
