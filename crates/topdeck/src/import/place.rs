//! Which series a reading belongs to, and when it was.

use collect::{Format, Reading, Unit, hlog, place};
use model::{Sample, Series};

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
        mut reading: Reading,
        format: Format,
    ) -> Result<(Series, Sample), Unplaced> {
        if format == Format::Hlog && !hlog::date(&mut reading, self.start) {
            return Err(Unplaced::SinceStart);
        }
        let rules = place::Rules {
            metric: self.metric,
            labels: self.labels,
            unit: self.unit,
            time: self.start,
        };
        rules.place(reading).map_err(|error| match error {
            place::Unplaced::NoName => Unplaced::NoName,
            place::Unplaced::NoTime => Unplaced::NoTime,
            place::Unplaced::Backwards { start, end } => {
                let (start, end) = (crate::time::text(start), crate::time::text(end));
                Unplaced::Refused(format!("it begins at {start} and ends at {end}"))
            }
            place::Unplaced::Refused(error) => Unplaced::Refused(error.to_string()),
        })
    }
}
