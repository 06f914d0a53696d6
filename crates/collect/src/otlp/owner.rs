//! Whose points they are: resource, scope and metric, what they add to a series' labels, and to its key.
//!
//! Keys have hashes of 128 bits of BLAKE3 in place of resource, scope and metric, each of what stands above it too: a
//! resource of a megabyte is not copied for every point, and two that share a hash cannot be made on purpose. Labels
//! are read when a series is met for the first time, those of a resource and a scope once in a request.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cell::OnceCell;

use model::{Error, Kind, LABELS_MAX, Labels, Series, SeriesId};

use hist::protobuf::Message;

use crate::unit::Unit;

use super::attributes::{self, refused};

/// Bytes of a resource's attribute at the most: longer ones, such as command lines, are no labels.
pub(super) const RESOURCE_VALUE_BYTES_MAX: usize = 1024;

type Digest = [u8; 16];

fn digest(parts: &[&[u8]]) -> Digest {
    SeriesId::of_form(&parts.concat()).0
}

/// Attributes that many series share, as labels.
type Shared = OnceCell<model::Result<Labels>>;

fn labels_of(
    shared: &Shared,
    read: impl FnOnce() -> model::Result<Labels>,
) -> model::Result<&[(String, String)]> {
    shared.get_or_init(read).as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// What produced the metrics.
pub(super) struct Resource<'a> {
    message: Option<Message<'a>>,
    digest: Digest,
    labels: Shared,
}

impl<'a> Resource<'a> {
    pub(super) fn new(message: Option<Message<'a>>) -> Resource<'a> {
        let digest = digest(&[message.as_ref().map_or(&[], Message::rest)]);
        Resource { message, digest, labels: OnceCell::new() }
    }

    fn read(&self) -> model::Result<Labels> {
        let mut labels = Labels::new();
        let Some(mut fields) = self.message.clone() else { return Ok(labels) };
        while let Some((number, field)) = fields.field().map_err(refused)? {
            if number == 1 {
                let pair = attributes::label(field.message().map_err(refused)?)?;
                if pair.1.len() <= RESOURCE_VALUE_BYTES_MAX {
                    push(&mut labels, pair)?;
                }
            }
        }
        Ok(labels)
    }
}

/// What measured: a library.
pub(super) struct Scope<'a> {
    resource: &'a Resource<'a>,
    message: Option<Message<'a>>,
    digest: Digest,
    labels: Shared,
}

impl<'a> Scope<'a> {
    pub(super) fn new(resource: &'a Resource<'a>, message: Option<Message<'a>>) -> Scope<'a> {
        let bytes = message.as_ref().map_or(&[][..], Message::rest);
        let digest = digest(&[&resource.digest, bytes]);
        Scope { resource, message, digest, labels: OnceCell::new() }
    }

    fn read(&self) -> model::Result<Labels> {
        let mut labels = Labels::new();
        let Some(mut fields) = self.message.clone() else { return Ok(labels) };
        while let Some((number, field)) = fields.field().map_err(refused)? {
            let (name, value) = match number {
                1 => ("name".to_owned(), field.text().map_err(refused)?.to_owned()),
                2 => ("version".to_owned(), field.text().map_err(refused)?.to_owned()),
                3 => attributes::label(field.message().map_err(refused)?)?,
                _ => continue,
            };
            push(&mut labels, (format!("otel_scope_{name}"), value))?;
        }
        Ok(labels)
    }
}

/// One more of attributes that are bounded already here, not only in the series: they are copied for each.
fn push(labels: &mut Labels, pair: (String, String)) -> model::Result<()> {
    if pair.1.is_empty() {
        return Ok(());
    }
    if labels.len() == LABELS_MAX {
        let (what, found, unit) =
            ("a resource or scope", labels.len().saturating_add(1), "attributes");
        return Err(Error::Size { what, found, min: 0, max: LABELS_MAX, unit });
    }
    labels.push(pair);
    Ok(())
}

/// What was measured.
pub(super) struct Metric<'a> {
    scope: &'a Scope<'a>,
    pub(super) name: &'a str,
    unit: &'a str,
    pub(super) kind: Kind,
    digest: Digest,
}

/// Which series of a metric: a summary has several.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Whole,
    Sum,
    Count,
    Quantile(f64),
}

impl<'a> Metric<'a> {
    pub(super) fn new(
        scope: &'a Scope<'a>,
        name: &'a str,
        unit: &'a str,
        kind: Kind,
        is_summary: bool,
    ) -> Metric<'a> {
        let kind_tag = match kind {
            Kind::Gauge => 0,
            Kind::Counter(_) => 1,
            Kind::Histogram(_) | Kind::Text => 2,
        };
        let tags = [kind_tag, u8::from(kind.is_cumulative()), u8::from(is_summary)];
        let length = (name.len() as u64).to_le_bytes();
        let parts: [&[u8]; 5] = [&scope.digest, &tags, &length, name.as_bytes(), unit.as_bytes()];
        Metric { scope, name, unit, kind, digest: digest(&parts) }
    }

    /// How the keys of a part begin; the attributes follow.
    pub(super) fn key(&self, part: Part, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.digest);
        match part {
            Part::Whole => key.push(0),
            Part::Sum => key.push(1),
            Part::Count => key.push(2),
            Part::Quantile(q) => {
                key.push(3);
                key.extend_from_slice(&q.to_bits().to_le_bytes());
            }
        }
    }

    /// The series of a part with the attributes of a point, as [`attributes::keep`] put them together.
    ///
    /// Of labels of one name the part's holds, then the point's, then the resource's, then the scope's.
    pub(super) fn series(&self, part: Part, point: &[u8]) -> model::Result<Series> {
        let (suffix, kind, unit) = match part {
            Part::Whole => ("", self.kind, self.unit),
            Part::Sum => ("_sum", self.kind, self.unit),
            Part::Count => ("_count", self.kind, ""),
            Part::Quantile(_) => ("", Kind::Gauge, self.unit),
        };
        let mut labels = Labels::new();
        if let Part::Quantile(q) = part {
            labels.push(("quantile".to_owned(), attributes::number(q)));
        }
        attributes::kept(point, &mut labels)?;
        let resource = self.scope.resource;
        let shared = [
            labels_of(&resource.labels, || resource.read())?,
            labels_of(&self.scope.labels, || self.scope.read())?,
        ];
        for level in shared {
            let above = labels.len();
            for (name, value) in level {
                if !labels[..above].iter().any(|label| label.0 == *name) {
                    labels.push((name.clone(), value.clone()));
                }
            }
        }
        let series = Series::new(format!("{}{suffix}", self.name), kind).with_unit(unit_name(unit));
        series.with_labels(labels).checked()
    }
}

/// OTLP's units are UCUM's (ucum.org): what topdeck has a name for gets it, everything else stays.
fn unit_name(unit: &str) -> String {
    match unit {
        "1" => String::new(),
        "By" => Unit::Bytes.name().to_owned(),
        unit => Unit::parse(unit).map_or_else(|| unit.to_owned(), |known| known.name().to_owned()),
    }
}
