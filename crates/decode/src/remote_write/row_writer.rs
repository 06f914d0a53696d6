//! Row writer for remote write requests.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::prometheus::{
    HistogramSample as Native, PlainReader, PlainSample, RemoteSample, ResetHint, STALE_MARKER,
};
use codecs::protobuf::{FieldValue, MessageReader};
use hist::DecodeError;
use model::{Sample, SampleValue};

use super::request_series::{self, RequestSeries, SampleKind};
use super::{RemoteWriteVersion, WriteSummary};
use crate::exemplar::{self, ExemplarProblem};
use crate::input_error::InputError;
use crate::mapper::MAX_REPORTED_ERRORS;
use crate::series_sink::{SeriesSink, pass_exemplar};

const NANOSECONDS: i64 = 1_000_000;

/// Emits rows and counts them.
pub(crate) struct RequestRowWriter<'a> {
    sink: &'a mut dyn SeriesSink,
    pub(crate) summary: WriteSummary,
    plain: PlainReader,
    /// End of the last sample of the current series, in ns: the time of exemplars without one.
    last_end: Option<i64>,
}

/// Current series of a request.
pub(crate) struct RequestCursor<'a> {
    pub(crate) version: RemoteWriteVersion,
    pub(crate) series: &'a dyn RequestSeries,
    /// Series key; its first byte is the sample kind.
    pub(crate) key: &'a mut [u8],
    /// Creation time of the series in milliseconds, for samples without a start; 0 if unknown.
    pub(crate) created: i64,
}

/// Current series of the sink.
pub(crate) enum SeriesCursor {
    Start,
    Values(SampleKind),
    /// The series was rejected and reported.
    Rejected,
}

impl<'a> RequestRowWriter<'a> {
    pub(crate) fn new(sink: &'a mut dyn SeriesSink) -> RequestRowWriter<'a> {
        let (summary, plain) = (WriteSummary::default(), PlainReader::default());
        RequestRowWriter { sink, summary, plain, last_end: None }
    }

    /// Passes on the description of a metric.
    pub(super) fn describe(&mut self, metric: &str, text: &str) {
        if !metric.is_empty() && !text.is_empty() {
            self.sink.description(metric, text);
        }
    }

    pub(super) fn reject(&mut self, reason: impl FnOnce() -> String) {
        self.summary.rejected = self.summary.rejected.saturating_add(1);
        if self.summary.errors.len() < MAX_REPORTED_ERRORS {
            self.summary.errors.push(reason());
        }
    }

    /// Writes all samples and histograms of a series. Returns whether there were any.
    pub(super) fn write_series(
        &mut self,
        mut fields: MessageReader<'_>,
        series: &mut RequestCursor<'_>,
    ) -> Result<bool, InputError> {
        let mut at = SeriesCursor::Start;
        let mut any = false;
        self.last_end = None;
        let (all, mut has_exemplars) = (fields.clone(), false);
        while let Some((number, field)) = fields.field()? {
            match (number, series.version) {
                (2, _) => self.write_number(field, series, &mut at)?,
                (4, RemoteWriteVersion::V1) | (3, RemoteWriteVersion::V2) => {
                    self.write_histogram(field, series, &mut at)?
                }
                field if is_exemplar(field) => has_exemplars = true,
                _ => continue,
            }
            any = true;
        }
        if has_exemplars {
            self.write_exemplars(all, series, &at)?;
        }
        Ok(any)
    }

    /// Writes the exemplars of a series after its samples: their kind decides which series it is.
    fn write_exemplars(
        &mut self,
        mut fields: MessageReader<'_>,
        series: &mut RequestCursor<'_>,
        at: &SeriesCursor,
    ) -> Result<(), InputError> {
        let source = series.series;
        let what = match at {
            SeriesCursor::Values(SampleKind::StaleMarkers) => SampleKind::Histograms,
            SeriesCursor::Values(what) => *what,
            SeriesCursor::Start => {
                let name = request_series::metric_name(source).unwrap_or_default();
                source.family().0.kind_of_exemplars(name)
            }
            SeriesCursor::Rejected => return Ok(()),
        };
        series.key[0] = what as u8;
        let mut make = || {
            let no_series = |_| model::Error::Truncated { offset: 0, field: "series" };
            request_series::to_series(what, source).map_err(no_series)
        };
        while let Some((number, field)) = fields.field()? {
            if !is_exemplar((number, series.version)) {
                continue;
            }
            let read_label = |field: FieldValue<'_>, texts: &mut Vec<String>| {
                source.exemplar_labels(field, texts)
            };
            let (sink, taken) = (&mut *self.sink, &mut self.summary.exemplars);
            let last_end = self.last_end;
            exemplar::from_remote_write(field.message()?, &read_label, &mut |found| {
                let found = match (found, last_end) {
                    (Ok(of), Some(time)) if of.time == 0 => Ok(model::Exemplar { time, ..of }),
                    (Ok(of), None) if of.time == 0 => Err(ExemplarProblem::InvalidTime),
                    (found, _) => found,
                };
                let is_taken = pass_exemplar(sink, series.key, &mut make, &found);
                *taken = taken.saturating_add(is_taken.into());
            });
        }
        Ok(())
    }

    /// Selects the series of a sample kind. A rejection is reported once per series.
    fn select_series(
        &mut self,
        what: SampleKind,
        series: &mut RequestCursor<'_>,
        at: &mut SeriesCursor,
    ) -> bool {
        match at {
            SeriesCursor::Values(current) if *current == what => return true,
            SeriesCursor::Rejected => {
                self.summary.rejected = self.summary.rejected.saturating_add(1);
                return false;
            }
            SeriesCursor::Start | SeriesCursor::Values(_) => {}
        }
        series.key[0] = what as u8;
        let mut cause = None;
        let source = series.series;
        let result = self.sink.series(series.key, &mut || {
            request_series::to_series(what, source).map_err(|reason| {
                cause = Some(reason);
                model::Error::Truncated { offset: 0, field: "series" }
            })
        });
        let Err(error) = result else {
            *at = SeriesCursor::Values(what);
            return true;
        };
        *at = SeriesCursor::Rejected;
        let cause = cause.unwrap_or_else(|| error.to_string());
        self.reject(|| format!("{}: {cause}", request_series::display_series(source)));
        false
    }

    fn write_number(
        &mut self,
        field: FieldValue<'_>,
        series: &mut RequestCursor<'_>,
        at: &mut SeriesCursor,
    ) -> Result<(), InputError> {
        let (mut value, mut time, mut start) = (0.0, 0, series.created);
        let mut fields = field.message()?;
        while let Some((number, field)) = fields.field()? {
            match number {
                1 => value = field.double()?,
                2 => time = field.varint()? as i64,
                3 if series.version == RemoteWriteVersion::V2 => start = field.varint()? as i64,
                _ => {}
            }
        }
        self.write_value(value, (start, time), series, at);
        Ok(())
    }

    /// Writes a number with its start (0 if unknown) and timestamp in milliseconds.
    pub(crate) fn write_value(
        &mut self,
        value: f64,
        (start, time): (i64, i64),
        series: &mut RequestCursor<'_>,
        at: &mut SeriesCursor,
    ) {
        if !self.select_series(SampleKind::Numbers, series, at) {
            return;
        }
        let counts = start != 0 && {
            let name = request_series::metric_name(series.series).unwrap_or_default();
            series.series.family().0.is_monotonic(name)
        };
        let start = if counts { start } else { 0 };
        let Some((start, end)) = self.interval(series, (start, time)) else { return };
        match self.sink.sample(&Sample { start, end, value: SampleValue::Number(value) }) {
            Ok(()) => self.summary.samples = self.summary.samples.saturating_add(1),
            Err(error) => self.reject(|| error.to_string()),
        }
    }

    fn write_histogram(
        &mut self,
        field: FieldValue<'_>,
        series: &mut RequestCursor<'_>,
        at: &mut SeriesCursor,
    ) -> Result<(), InputError> {
        let bytes = field.bytes()?;
        // The result lies in the reader's memory.
        let mut plain = std::mem::take(&mut self.plain);
        match plain.read(bytes) {
            Some(sample) => self.write_plain(&sample, series, at),
            None => self.write_histogram_sample(RemoteSample::from_bytes(bytes), series, at),
        }
        self.plain = plain;
        Ok(())
    }

    fn write_plain(
        &mut self,
        sample: &PlainSample<'_>,
        series: &mut RequestCursor<'_>,
        at: &mut SeriesCursor,
    ) {
        let PlainSample { body, timestamp, start_timestamp, reset_hint } = sample;
        let what = histogram_kind(*reset_hint);
        if !self.select_series(what, series, at) {
            return;
        }
        let start = histogram_start(what, *start_timestamp, series);
        let Some(interval) = self.interval(series, (start, *timestamp)) else { return };
        let result = self.sink.frame(interval, body);
        self.count_histogram(result);
    }

    fn count_histogram(&mut self, result: model::Result<()>) {
        match result {
            Ok(()) => self.summary.histograms = self.summary.histograms.saturating_add(1),
            Err(error) => self.reject(|| error.to_string()),
        }
    }

    /// Writes a histogram, or rejects an invalid one.
    pub(crate) fn write_histogram_sample(
        &mut self,
        read: Result<RemoteSample, DecodeError>,
        series: &mut RequestCursor<'_>,
        at: &mut SeriesCursor,
    ) {
        let read = read.and_then(|sample| {
            let RemoteSample { value, timestamp, start_timestamp, reset_hint } = sample;
            let value = match value {
                Native::Integer(histogram) => Some(histogram),
                Native::Float(float) => Some(float.to_histogram()?),
                Native::Stale => None,
            };
            Ok((value, timestamp, start_timestamp, reset_hint))
        });
        let (value, timestamp, start_timestamp, reset_hint) = match read {
            Ok(read) => read,
            Err(error) => {
                return self.reject(|| {
                    format!("{}: {error}", request_series::display_series(series.series))
                });
            }
        };
        let what = match value {
            None => SampleKind::StaleMarkers,
            Some(_) => histogram_kind(reset_hint),
        };
        let start = histogram_start(what, start_timestamp, series);
        let value = match value {
            None => SampleValue::Number(f64::from_bits(STALE_MARKER)),
            Some(histogram) => SampleValue::Histogram(Box::new(histogram)),
        };
        if !self.select_series(what, series, at) {
            return;
        }
        let Some((start, end)) = self.interval(series, (start, timestamp)) else { return };
        let result = self.sink.sample(&Sample { start, end, value });
        self.count_histogram(result);
    }

    /// Start and end of a value in nanoseconds, from its start (0 if unknown) and timestamp in
    /// milliseconds. Rejects a timestamp out of range.
    #[inline]
    fn interval(&mut self, series: &RequestCursor<'_>, times: (i64, i64)) -> Option<(i64, i64)> {
        let (start, time) = times;
        let Some(end) = time.checked_mul(NANOSECONDS) else {
            self.reject(|| {
                let name = request_series::display_series(series.series);
                format!("{name}: timestamp {time} ms is out of range")
            });
            return None;
        };
        self.last_end = Some(end);
        // A start after the end results from clock differences and is ignored.
        match start.checked_mul(NANOSECONDS) {
            Some(start) if start != 0 && start < end => Some((start, end)),
            _ => Some((end, end)),
        }
    }
}

/// Whether a field of a series is an exemplar.
fn is_exemplar(field: (u32, RemoteWriteVersion)) -> bool {
    matches!(field, (3, RemoteWriteVersion::V1) | (4, RemoteWriteVersion::V2))
}

/// Kind of a histogram with a reset hint.
fn histogram_kind(reset_hint: i32) -> SampleKind {
    match reset_hint == ResetHint::Gauge as i32 {
        true => SampleKind::GaugeHistograms,
        false => SampleKind::Histograms,
    }
}

/// Start of a histogram in milliseconds; 0 if it is unknown.
fn histogram_start(what: SampleKind, start: i64, series: &RequestCursor<'_>) -> i64 {
    match (what, start) {
        (SampleKind::Histograms, 0) => series.created,
        (SampleKind::Histograms, start) => start,
        _ => 0,
    }
}
