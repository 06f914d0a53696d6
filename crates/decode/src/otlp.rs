//! Decoder of OTLP metrics: one `ExportMetricsServiceRequest`, in protobuf or JSON, into rows.
//!
//! Mapping of points to rows and of attributes to labels: docs/formats/otlp.md. Histograms keep
//! their buckets. An invalid point is rejected alone, with a reason; a truncated or malformed
//! message is rejected as a whole. JSON is converted to protobuf first, so there is one decoder.
//!
//! A series key begins with a hash of resource, scope and metric, computed once for all points of
//! the metric; the raw attributes of the point follow. A known series thus needs no attribute
//! decoding.
//!
//! Source: opentelemetry-proto, `collector/metrics/v1/metrics_service.proto` and
//! `metrics/v1/metrics.proto`; <https://opentelemetry.io/docs/specs/otlp/>.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

pub(crate) mod attributes;
pub(crate) mod json;
pub(crate) mod message_copy;
pub(crate) mod message_fields;
pub(crate) mod message_json;
mod metric_context;
mod point_reader;

use codecs::protobuf::MessageReader;
use hist::codec::header::Temporality;
use model::SeriesKind;

use crate::input_error::{InputError, quote};
use crate::mapper::MAX_REPORTED_ERRORS;
use crate::series_sink::SeriesSink;

use metric_context::{MetricContext, ResourceContext, ScopeContext};
use point_reader::PointReader;

/// Length limit, in characters, of an error message about a point.
const MESSAGE_CHARS_MAX: usize = 300;

/// Counts of a request's points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpSummary {
    /// Metrics of the request.
    pub metrics: u64,
    /// Points that became rows.
    pub points: u64,
    /// Points flagged as having no recorded value, of a series kind without staleness markers: no
    /// rows, no loss.
    pub skipped: u64,
    /// Rejected points.
    pub rejected: u64,
    /// First errors, with the metric's name and the reason; at most [`MAX_REPORTED_ERRORS`].
    pub errors: Vec<String>,
}

/// Outcome of a point.
enum PointOutcome {
    Accepted,
    Skipped,
    Rejected(String),
}

impl OtlpSummary {
    fn count(&mut self, metric: &str, outcome: PointOutcome) {
        match outcome {
            PointOutcome::Accepted => self.points = self.points.saturating_add(1),
            PointOutcome::Skipped => self.skipped = self.skipped.saturating_add(1),
            PointOutcome::Rejected(reason) => {
                self.rejected = self.rejected.saturating_add(1);
                if self.errors.len() < MAX_REPORTED_ERRORS {
                    let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
                    let reason: String = reason.take(MESSAGE_CHARS_MAX).collect();
                    let metric = match metric {
                        "" => format!("{} of the request, which has no name", self.metrics),
                        name => quote(name.as_bytes()),
                    };
                    self.errors.push(format!("metric {metric}: {reason}"));
                }
            }
        }
    }
}

/// Reads a protobuf request. `now` is the receive time in nanoseconds since the Unix epoch, used
/// for points without a time. After an error, the caller must discard all rows of the request.
pub fn read_protobuf(
    body: &[u8],
    now: i64,
    sink: &mut dyn SeriesSink,
) -> Result<OtlpSummary, InputError> {
    let mut points = PointReader::new(body.len(), now, sink);
    let mut summary = OtlpSummary::default();
    let mut request = MessageReader::new(body);
    while let Some((number, field)) = request.field()? {
        if number == 1 {
            read_resource(field.message()?, &mut points, &mut summary)?;
        }
    }
    Ok(summary)
}

/// Reads a JSON request. See [`read_protobuf`].
pub fn read_json(
    body: &[u8],
    now: i64,
    sink: &mut dyn SeriesSink,
) -> Result<OtlpSummary, InputError> {
    read_protobuf(&json::metrics_to_protobuf(body)?, now, sink)
}

fn read_resource(
    message: MessageReader<'_>,
    points: &mut PointReader<'_>,
    summary: &mut OtlpSummary,
) -> Result<(), InputError> {
    let resource = ResourceContext::new(last_field(&message, 1)?);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        if number == 2 {
            read_scope(&resource, field.message()?, points, summary)?;
        }
    }
    Ok(())
}

fn read_scope(
    resource: &ResourceContext<'_>,
    message: MessageReader<'_>,
    points: &mut PointReader<'_>,
    summary: &mut OtlpSummary,
) -> Result<(), InputError> {
    let scope = ScopeContext::new(resource, last_field(&message, 1)?);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        if number == 2 {
            read_metric(&scope, field.message()?, points, summary)?;
        }
    }
    Ok(())
}

/// Last occurrence of a non-repeated field, which is the valid one.
pub(crate) fn last_field<'a>(
    message: &MessageReader<'a>,
    field_number: u32,
) -> Result<Option<MessageReader<'a>>, InputError> {
    let (mut fields, mut found) = (message.clone(), None);
    while let Some((number, field)) = fields.field()? {
        if number == field_number {
            found = Some(field.message()?);
        }
    }
    Ok(found)
}

/// Kind of a metric's points.
#[derive(Clone, Copy, PartialEq)]
enum PointKind {
    Number,
    Histogram,
    Exponential,
    Summary,
}

fn read_metric(
    scope: &ScopeContext<'_>,
    message: MessageReader<'_>,
    points: &mut PointReader<'_>,
    summary: &mut OtlpSummary,
) -> Result<(), InputError> {
    summary.metrics = summary.metrics.saturating_add(1);
    let (mut name, mut description, mut unit, mut data) = ("", "", "", None);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        match number {
            1 => name = field.text()?,
            2 => description = field.text()?,
            3 => unit = field.text()?,
            5 | 7 | 9 | 10 | 11 => data = Some((number, field.message()?)),
            _ => {}
        }
    }
    let Some((number, data)) = data else { return Ok(()) };
    points.describe(name, description);
    let (shape, kind) = point_kind(number, &data)?;
    let metric =
        kind.map(|kind| MetricContext::new(scope, name, unit, kind, shape == PointKind::Summary));
    let mut fields = data;
    while let Some((number, field)) = fields.field()? {
        if number == 1 {
            let point = field.message()?;
            let outcome = match &metric {
                Ok(metric) => points.read_point(metric, shape, point)?,
                Err(reason) => PointOutcome::Rejected((*reason).to_owned()),
            };
            summary.count(name, outcome);
        }
    }
    Ok(())
}

/// Point shape and series kind of a `data` field, or the reason for rejection.
fn point_kind(
    number: u32,
    data: &MessageReader<'_>,
) -> Result<(PointKind, Result<SeriesKind, &'static str>), InputError> {
    let (mut temporality, mut is_monotonic) = (0, false);
    let mut fields = data.clone();
    while let Some((number, field)) = fields.field()? {
        match number {
            2 => temporality = field.varint()?,
            3 => is_monotonic = field.varint()? != 0,
            _ => {}
        }
    }
    let temporality = match temporality {
        1 => Ok(Temporality::Delta),
        2 => Ok(Temporality::Cumulative),
        _ => Err("aggregation temporality is neither delta (1) nor cumulative (2)"),
    };
    Ok(match number {
        5 => (PointKind::Number, Ok(SeriesKind::Gauge)),
        7 => (
            PointKind::Number,
            temporality.map(|temporality| match temporality {
                // A non-monotonic cumulative sum is a gauge: the later of two samples replaces the
                // earlier.
                Temporality::Cumulative if !is_monotonic => SeriesKind::Gauge,
                temporality => SeriesKind::Counter(temporality),
            }),
        ),
        9 => (PointKind::Histogram, temporality.map(SeriesKind::Histogram)),
        10 => (PointKind::Exponential, temporality.map(SeriesKind::Histogram)),
        _ => (PointKind::Summary, Ok(SeriesKind::Counter(Temporality::Cumulative))),
    })
}

#[cfg(test)]
mod tests;
