//! Maps a sample to a series and a time.

use decode::{DecodedSample, InputFormat, Unit, hlog, mapper};
use model::{Sample, Series};
use render::time::precise_time_text;

/// Defaults from the command line for fields a file lacks.
pub(crate) struct ImportDefaults<'a> {
    pub(crate) metric: Option<&'a str>,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) unit: Option<&'a Unit>,
    pub(crate) start: Option<i64>,
}

/// Reason why a sample cannot be mapped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ImportUnmapped {
    /// The sample has no metric name, and none was given.
    NoName,
    /// The sample has no timestamp, and none was given.
    NoTime,
    /// Times are relative to the start of the log, and no start was given.
    RelativeTime,
    /// The model rejects the sample.
    Invalid(String),
}

impl ImportDefaults<'_> {
    /// Bytes that distinguish imports of the same file with different results.
    pub(crate) fn fingerprint(&self, format: InputFormat) -> Vec<u8> {
        let unit = self.unit.map(Unit::name);
        format!("{:?}", (self.metric, self.labels, unit, self.start, format.name())).into_bytes()
    }

    /// Unit of numbers: any time unit is converted to nanoseconds.
    pub(crate) fn numbers_unit(&self) -> Option<Unit> {
        let is_time = self.unit.is_some_and(|unit| unit.in_nanoseconds().is_some());
        if is_time { Some(Unit::Nanoseconds) } else { self.unit.cloned() }
    }

    pub(crate) fn map(
        &self,
        mut reading: DecodedSample,
        format: InputFormat,
    ) -> Result<(Series, Sample), ImportUnmapped> {
        if format == InputFormat::Hlog && !hlog::make_absolute(&mut reading, self.start) {
            return Err(ImportUnmapped::RelativeTime);
        }
        let rules = mapper::MappingDefaults {
            metric: self.metric,
            labels: self.labels,
            unit: self.unit,
            time: self.start,
        };
        rules.map(reading).map_err(|error| match error {
            mapper::UnmappedReason::NoName => ImportUnmapped::NoName,
            mapper::UnmappedReason::NoTime => ImportUnmapped::NoTime,
            mapper::UnmappedReason::EndBeforeStart { start, end } => {
                let (start, end) = (precise_time_text(start), precise_time_text(end));
                ImportUnmapped::Invalid(format!("its start {start} is after its end {end}"))
            }
            mapper::UnmappedReason::Invalid(error) => ImportUnmapped::Invalid(error.to_string()),
        })
    }
}
