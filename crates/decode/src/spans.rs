//! Decoder of traces: each span becomes a measurement of its duration.
//!
//! Names and labels are those of OpenTelemetry's span metrics connector; page docs/traces.md. The
//! spans of a series and a second are one histogram, corrected for what an upstream sampler left
//! out. An invalid span is rejected alone, with a reason; a truncated or malformed request as a
//! whole. JSON is converted to protobuf first, so there is one decoder, and no span is copied.
//!
//! Source: opentelemetry-proto, `collector/trace/v1/trace_service.proto` and
//! `trace/v1/trace.proto`; <https://zipkin.io/zipkin-api/zipkin2-api.yaml>.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod adjusted_count;
mod span_message;
mod span_name;
mod span_recorder;
mod span_sample;
pub mod trace;
mod zipkin;

use codecs::protobuf::MessageReader;

use crate::input_error::{InputError, quote};
use crate::mapper::MAX_REPORTED_ERRORS;
use crate::otlp::{json, last_field};
use crate::series_sink::SeriesSink;

use span_message::{SpanMessage, SpanResource};
use span_recorder::SpanRecorder;

/// Name of the histograms of durations, in milliseconds.
const DURATION_METRIC: &str = "traces.span.metrics.duration";
/// Name of the counters of spans.
const CALLS_METRIC: &str = "traces.span.metrics.calls";
/// Label value of services and span names beyond the limit of their number.
pub const OTHER_NAME: &str = "other";

/// Why a span is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanProblem {
    /// Its trace id is not of 16 bytes or its span id not of 8, or one of them is zero.
    MalformedId,
    /// The request has a span of the same ids and kind.
    Duplicate,
    /// It has no end: Zipkin's spans need not have a duration.
    NoEnd,
    /// It has no start: its duration would be the time since 1970.
    NoStart,
    /// It ends before it starts.
    EndsBeforeStart,
    /// A time beyond 64 bits of signed nanoseconds.
    InvalidTime,
    /// Its series is invalid, or beyond a limit.
    RefusedSeries,
}

impl SpanProblem {
    /// All of them.
    pub const ALL: [SpanProblem; 7] = [
        SpanProblem::MalformedId,
        SpanProblem::Duplicate,
        SpanProblem::NoEnd,
        SpanProblem::NoStart,
        SpanProblem::EndsBeforeStart,
        SpanProblem::InvalidTime,
        SpanProblem::RefusedSeries,
    ];

    /// Its name, as in metrics.
    pub fn name(self) -> &'static str {
        match self {
            SpanProblem::MalformedId => "malformed_id",
            SpanProblem::Duplicate => "duplicate",
            SpanProblem::NoEnd => "no_end",
            SpanProblem::NoStart => "no_start",
            SpanProblem::EndsBeforeStart => "ends_before_start",
            SpanProblem::InvalidTime => "invalid_time",
            SpanProblem::RefusedSeries => "refused_series",
        }
    }

    fn text(self) -> &'static str {
        match self {
            SpanProblem::MalformedId => {
                "expected a trace id of 16 bytes and a span id of 8 bytes, not zero"
            }
            SpanProblem::Duplicate => "the request has another span with these ids and this kind",
            SpanProblem::NoEnd => "it has no end or duration",
            SpanProblem::NoStart => "it has no start",
            SpanProblem::EndsBeforeStart => "it ends before it starts",
            SpanProblem::InvalidTime => "expected times below 2^63 ns",
            SpanProblem::RefusedSeries => "its series is refused",
        }
    }
}

/// Counts of a request's spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSummary {
    /// Spans that were measured.
    pub measured: u64,
    /// Spans that were not, in the order of [`SpanProblem::ALL`].
    pub problems: [u64; SpanProblem::ALL.len()],
    /// Measured spans whose service or name is [`OTHER_NAME`] because of their number.
    pub other_names: u64,
    /// Measured spans that count once because the sampling threshold of their `tracestate` is
    /// invalid.
    pub ignored_thresholds: u64,
    /// Rows that the sink refused.
    pub refused_rows: u64,
    /// First errors, with the span's name and the reason; at most [`MAX_REPORTED_ERRORS`].
    pub errors: Vec<String>,
}

impl SpanSummary {
    /// Number of spans with a problem.
    pub fn rejected(&self) -> u64 {
        self.problems.iter().copied().fold(0, u64::saturating_add)
    }

    /// Number of invalid spans and refused rows: a refused row is one input, however many spans it
    /// has.
    pub fn rejected_inputs(&self) -> u64 {
        let refused = self.problems[SpanProblem::RefusedSeries as usize];
        self.rejected().saturating_sub(refused).saturating_add(self.refused_rows)
    }

    fn reject(&mut self, problem: SpanProblem, name: &str) {
        self.count(problem, 1);
        self.report(name, problem.text());
    }

    fn count(&mut self, problem: SpanProblem, spans: u64) {
        if let Some(count) = self.problems.get_mut(problem as usize) {
            *count = count.saturating_add(spans);
        }
    }

    fn report(&mut self, name: &str, reason: &str) {
        if self.errors.len() < MAX_REPORTED_ERRORS {
            self.errors.push(format!("span {}: {reason}", quote(name.as_bytes())));
        }
    }
}

/// Reads an `ExportTraceServiceRequest` in protobuf. After an error, the caller must discard all
/// rows of the request.
pub fn read_otlp_protobuf(
    body: &[u8],
    sink: &mut dyn SeriesSink,
) -> Result<SpanSummary, InputError> {
    let mut recorder = SpanRecorder::new(sink);
    let mut request = MessageReader::new(body);
    while let Some((number, field)) = request.field()? {
        if number == 1 {
            read_resource(field.message()?, &mut recorder)?;
        }
    }
    Ok(recorder.finish())
}

/// Reads an `ExportTraceServiceRequest` in JSON. See [`read_otlp_protobuf`].
pub fn read_otlp_json(body: &[u8], sink: &mut dyn SeriesSink) -> Result<SpanSummary, InputError> {
    read_otlp_protobuf(&json::traces_to_protobuf(body)?, sink)
}

/// Reads a list of Zipkin's spans in JSON, version 2. See [`read_otlp_protobuf`].
pub fn read_zipkin(body: &[u8], sink: &mut dyn SeriesSink) -> Result<SpanSummary, InputError> {
    read_otlp_protobuf(&zipkin::to_protobuf(body)?, sink)
}

fn read_resource<'a>(
    message: MessageReader<'a>,
    recorder: &mut SpanRecorder<'a, '_>,
) -> Result<(), InputError> {
    let resource = last_field(&message, 1)?;
    let resource_bytes = resource.as_ref().map_or(&[][..], MessageReader::remaining);
    recorder.set_resource(SpanResource::read(resource)?);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        if number != 2 {
            continue;
        }
        let mut fields = field.message()?;
        let scope = last_field(&fields, 1)?;
        let messages = (resource_bytes, scope.as_ref().map_or(&[][..], MessageReader::remaining));
        while let Some((number, field)) = fields.field()? {
            if number == 2 {
                recorder.record(SpanMessage::read(field.message()?)?, messages);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
