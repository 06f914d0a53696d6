//! OTLP metrics: one `ExportMetricsServiceRequest`, in protocol buffers or in JSON, into rows.
//!
//! What becomes of each point, and which labels a series has: docs/formats/otlp.md. Histograms keep their buckets.
//! A point that cannot be taken is refused by itself, with the reason; a message that is cut or no message is refused
//! as a whole. JSON is written as protocol buffers first, so that there is one reader.
//!
//! A series' key begins with a hash of resource, scope and metric, worked out once for all points of the metric; the
//! attributes of the point follow as they came. So a known series costs no decoding of attributes.
//!
//! Source: opentelemetry-proto, `collector/metrics/v1/metrics_service.proto` and `metrics/v1/metrics.proto`;
//! <https://opentelemetry.io/docs/specs/otlp/>.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod attributes;
mod json;
mod owner;
mod point;

use hist::codec::header::Temporality;
use hist::protobuf::Message;
use model::Kind;

use crate::place::TROUBLES_MAX;
use crate::rows::Rows;
use crate::trouble::{Trouble, quote};

use owner::{Metric, Resource, Scope};
use point::Points;

/// Characters of one message about a point at the most.
const MESSAGE_CHARS_MAX: usize = 300;

/// What became of the points of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Points that became rows.
    pub points: u64,
    /// Points that say that there is no value now, where a series has no mark for that: no rows, and nothing lost.
    pub skipped: u64,
    /// Points that could not be taken.
    pub refused: u64,
    /// The first of those, with the metric's name and the reason: [`TROUBLES_MAX`] at the most.
    pub troubles: Vec<String>,
}

/// What one point became.
enum Outcome {
    Taken,
    Skipped,
    Refused(String),
}

impl Taken {
    fn count(&mut self, metric: &str, outcome: Outcome) {
        match outcome {
            Outcome::Taken => self.points = self.points.saturating_add(1),
            Outcome::Skipped => self.skipped = self.skipped.saturating_add(1),
            Outcome::Refused(why) => {
                self.refused = self.refused.saturating_add(1);
                if self.troubles.len() < TROUBLES_MAX {
                    let why = why.chars().map(|c| if c.is_control() { ' ' } else { c });
                    let why: String = why.take(MESSAGE_CHARS_MAX).collect();
                    self.troubles.push(format!("metric {}: {why}", quote(metric.as_bytes())));
                }
            }
        }
    }
}

/// Reads a request in protocol buffers. `now` is when it came, in nanoseconds since the Unix epoch: the time of points
/// that have none. After an error nothing of the request is to be taken.
pub fn read_protobuf(body: &[u8], now: i64, rows: &mut dyn Rows) -> Result<Taken, Trouble> {
    let mut points = Points::new(body.len(), now, rows);
    let mut taken = Taken::default();
    let mut request = Message::new(body);
    while let Some((number, field)) = request.field()? {
        if number == 1 {
            read_resource(field.message()?, &mut points, &mut taken)?;
        }
    }
    Ok(taken)
}

/// Reads a request in JSON. See [`read_protobuf`].
pub fn read_json(body: &[u8], now: i64, rows: &mut dyn Rows) -> Result<Taken, Trouble> {
    read_protobuf(&json::to_protobuf(body)?, now, rows)
}

fn read_resource(
    message: Message<'_>,
    points: &mut Points<'_>,
    taken: &mut Taken,
) -> Result<(), Trouble> {
    let resource = Resource::new(last(&message, 1)?);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        if number == 2 {
            read_scope(&resource, field.message()?, points, taken)?;
        }
    }
    Ok(())
}

fn read_scope(
    resource: &Resource<'_>,
    message: Message<'_>,
    points: &mut Points<'_>,
    taken: &mut Taken,
) -> Result<(), Trouble> {
    let scope = Scope::new(resource, last(&message, 1)?);
    let mut fields = message;
    while let Some((number, field)) = fields.field()? {
        if number == 2 {
            read_metric(&scope, field.message()?, points, taken)?;
        }
    }
    Ok(())
}

/// The field that counts of a message that stands once: the last.
fn last<'a>(message: &Message<'a>, wanted: u32) -> Result<Option<Message<'a>>, Trouble> {
    let (mut fields, mut found) = (message.clone(), None);
    while let Some((number, field)) = fields.field()? {
        if number == wanted {
            found = Some(field.message()?);
        }
    }
    Ok(found)
}

/// What a metric's points are.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Number,
    Histogram,
    Exponential,
    Summary,
}

fn read_metric(
    scope: &Scope<'_>,
    message: Message<'_>,
    points: &mut Points<'_>,
    taken: &mut Taken,
) -> Result<(), Trouble> {
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
    let (shape, kind) = shape(number, &data)?;
    let metric = kind.map(|kind| Metric::new(scope, name, unit, kind, shape == Shape::Summary));
    let mut fields = data;
    while let Some((number, field)) = fields.field()? {
        if number == 1 {
            let point = field.message()?;
            let outcome = match &metric {
                Ok(metric) => points.take(metric, shape, point)?,
                Err(why) => Outcome::Refused((*why).to_owned()),
            };
            taken.count(name, outcome);
        }
    }
    Ok(())
}

/// What points of a `data` field are, and of which kind their series is, or why they are refused.
fn shape(number: u32, data: &Message<'_>) -> Result<(Shape, Result<Kind, &'static str>), Trouble> {
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
        5 => (Shape::Number, Ok(Kind::Gauge)),
        7 => (
            Shape::Number,
            temporality.map(|temporality| match temporality {
                // What goes up and down is read like a gauge: of two readings the later one holds.
                Temporality::Cumulative if !is_monotonic => Kind::Gauge,
                temporality => Kind::Counter(temporality),
            }),
        ),
        9 => (Shape::Histogram, temporality.map(Kind::Histogram)),
        10 => (Shape::Exponential, temporality.map(Kind::Histogram)),
        _ => (Shape::Summary, Ok(Kind::Counter(Temporality::Cumulative))),
    })
}

#[cfg(test)]
mod tests;
