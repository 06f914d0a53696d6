//! OTLP metrics: one `ExportMetricsServiceRequest`, in protocol buffers or in JSON, into rows.
//!
//! What becomes of each point, and which labels a series has: docs/formats/otlp.md. Histograms keep
//! their buckets. A point that cannot be taken is refused by itself, with the reason; a message
//! that is cut or no message is refused as a whole. JSON is written as protocol buffers first, so
//! that there is one reader.
//!
//! A series' key begins with a hash of resource, scope and metric, worked out once for all points
//! of the metric; the attributes of the point follow as they came. So a known series costs no
//! decoding of attributes.
//!
//! Source: opentelemetry-proto, `collector/metrics/v1/metrics_service.proto` and
//! `metrics/v1/metrics.proto`;
//! <https://opentelemetry.io/docs/specs/otlp/>.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod attributes;
mod json;
mod metric_context;
mod point_reader;

use codecs::protobuf::MessageReader;
use hist::codec::header::Temporality;
use model::SeriesKind;

use crate::input_error::{InputError, quote};
use crate::mapper::MAX_REPORTED_ERRORS;
use crate::row_sink::RowSink;

use metric_context::{MetricContext, ResourceContext, ScopeContext};
use point_reader::PointReader;

/// Characters of one message about a point at the most.
const MESSAGE_CHARS_MAX: usize = 300;

/// Counts of a request's points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpSummary {
    /// Points that became rows.
    pub points: u64,
    /// Points that say that there is no value now, where a series has no mark for that: no rows,
    /// and nothing lost.
    pub skipped: u64,
    /// Points that could not be taken.
    pub rejected: u64,
    /// The first of those, with the metric's name and the reason: [`TROUBLES_MAX`] at the most.
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
            PointOutcome::Rejected(why) => {
                self.rejected = self.rejected.saturating_add(1);
                if self.errors.len() < MAX_REPORTED_ERRORS {
                    let why = why.chars().map(|c| if c.is_control() { ' ' } else { c });
                    let why: String = why.take(MESSAGE_CHARS_MAX).collect();
                    self.errors.push(format!("metric {}: {why}", quote(metric.as_bytes())));
                }
            }
        }
    }
}

/// Reads a request in protocol buffers. `now` is when it came, in nanoseconds since the Unix epoch:
/// the time of points that have none. After an error nothing of the request is to be taken.
pub fn read_protobuf(
    body: &[u8],
    now: i64,
    rows: &mut dyn RowSink,
) -> Result<OtlpSummary, InputError> {
    let mut points = PointReader::new(body.len(), now, rows);
    let mut taken = OtlpSummary::default();
    let mut request = MessageReader::new(body);
    while let Some((number, field)) = request.field()? {
        if number == 1 {
            read_resource(field.message()?, &mut points, &mut taken)?;
        }
    }
    Ok(taken)
}

/// Reads a request in JSON. See [`read_protobuf`].
pub fn read_json(body: &[u8], now: i64, rows: &mut dyn RowSink) -> Result<OtlpSummary, InputError> {
    read_protobuf(&json::to_protobuf(body)?, now, rows)
}

fn read_resource(
    message: MessageReader<'_>,
    points: &mut PointReader<'_>,
    taken: &mut OtlpSummary,
) -> Result<(), InputError> {
    let resource = ResourceContext::new(last_field(&message, 1)?);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        if number == 2 {
            read_scope(&resource, field.message()?, points, taken)?;
        }
    }
    Ok(())
}

fn read_scope(
    resource: &ResourceContext<'_>,
    message: MessageReader<'_>,
    points: &mut PointReader<'_>,
    taken: &mut OtlpSummary,
) -> Result<(), InputError> {
    let scope = ScopeContext::new(resource, last_field(&message, 1)?);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        if number == 2 {
            read_metric(&scope, field.message()?, points, taken)?;
        }
    }
    Ok(())
}

/// The field that counts of a message that stands once: the last.
fn last_field<'a>(
    message: &MessageReader<'a>,
    wanted: u32,
) -> Result<Option<MessageReader<'a>>, InputError> {
    let (mut fields, mut found) = (message.clone(), None);
    while let Some((number, field)) = fields.field()? {
        if number == wanted {
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
    taken: &mut OtlpSummary,
) -> Result<(), InputError> {
    let (mut name, mut unit, mut data) = ("", "", None);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        match number {
            1 => name = field.text()?,
            3 => unit = field.text()?,
            5 | 7 | 9 | 10 | 11 => data = Some((number, field.message()?)),
            _ => {}
        }
    }
    let Some((number, data)) = data else { return Ok(()) };
    let (shape, kind) = point_kind(number, &data)?;
    let metric =
        kind.map(|kind| MetricContext::new(scope, name, unit, kind, shape == PointKind::Summary));
    let mut fields = data;
    while let Some((number, field)) = fields.field()? {
        if number == 1 {
            let point = field.message()?;
            let outcome = match &metric {
                Ok(metric) => points.read_point(metric, shape, point)?,
                Err(why) => PointOutcome::Rejected((*why).to_owned()),
            };
            taken.count(name, outcome);
        }
    }
    Ok(())
}

/// What points of a `data` field are, and of which kind their series is, or why they are refused.
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
        _ => Err("its aggregation temporality is neither delta (1) nor cumulative (2)"),
    };
    Ok(match number {
        5 => (PointKind::Number, Ok(SeriesKind::Gauge)),
        7 => (
            PointKind::Number,
            temporality.map(|temporality| match temporality {
                // What goes up and down is read like a gauge: of two readings the later one holds.
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
