//! Context of a point: resource, scope and metric; labels and series key.
//!
//! A key has 128-bit BLAKE3 hashes of resource, scope and metric, each covering its parents: a
//! megabyte of resource attributes is not copied for every point, and collisions cannot be
//! constructed. Labels are decoded when a series is new; resource and scope labels once per
//! request.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cell::OnceCell;

use model::{Error, LABELS_MAX, Labels, Series, SeriesKind};

use codecs::protobuf::MessageReader;

use crate::unit::Unit;

use super::attributes::{self, attribute_error};

/// Size limit of a resource attribute. Longer attributes, such as command lines, do not become
/// labels.
pub(super) const RESOURCE_VALUE_BYTES_MAX: usize = 1024;

type Digest = [u8; 16];

fn digest(parts: &[&[u8]]) -> Digest {
    model::blake3_128(&parts.concat())
}

/// Attributes shared by many series, as labels.
type SharedLabels = OnceCell<model::Result<Labels>>;

fn get_or_read_labels(
    shared: &SharedLabels,
    read: impl FnOnce() -> model::Result<Labels>,
) -> model::Result<&[(String, String)]> {
    shared.get_or_init(read).as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// Resource attributes.
pub(super) struct ResourceContext<'a> {
    message: Option<MessageReader<'a>>,
    digest: Digest,
    labels: SharedLabels,
}

impl<'a> ResourceContext<'a> {
    pub(super) fn new(message: Option<MessageReader<'a>>) -> ResourceContext<'a> {
        let digest = digest(&[message.as_ref().map_or(&[], MessageReader::remaining)]);
        ResourceContext { message, digest, labels: OnceCell::new() }
    }

    fn read(&self) -> model::Result<Labels> {
        let mut labels = Labels::new();
        let Some(mut fields) = self.message.clone() else { return Ok(labels) };
        while let Some((number, field)) = fields.field().map_err(attribute_error)? {
            if number == 1 {
                let pair = attributes::parse_label(field.message().map_err(attribute_error)?)?;
                if pair.1.len() <= RESOURCE_VALUE_BYTES_MAX {
                    push_label(&mut labels, pair)?;
                }
            }
        }
        Ok(labels)
    }
}

/// Instrumentation scope.
pub(super) struct ScopeContext<'a> {
    resource: &'a ResourceContext<'a>,
    message: Option<MessageReader<'a>>,
    digest: Digest,
    labels: SharedLabels,
}

impl<'a> ScopeContext<'a> {
    pub(super) fn new(
        resource: &'a ResourceContext<'a>,
        message: Option<MessageReader<'a>>,
    ) -> ScopeContext<'a> {
        let bytes = message.as_ref().map_or(&[][..], MessageReader::remaining);
        let digest = digest(&[&resource.digest, bytes]);
        ScopeContext { resource, message, digest, labels: OnceCell::new() }
    }

    fn read(&self) -> model::Result<Labels> {
        let mut labels = Labels::new();
        let Some(mut fields) = self.message.clone() else { return Ok(labels) };
        while let Some((number, field)) = fields.field().map_err(attribute_error)? {
            let (name, value) = match number {
                1 => ("name".to_owned(), field.text().map_err(attribute_error)?.to_owned()),
                2 => ("version".to_owned(), field.text().map_err(attribute_error)?.to_owned()),
                3 => attributes::parse_label(field.message().map_err(attribute_error)?)?,
                _ => continue,
            };
            push_label(&mut labels, (format!("otel_scope_{name}"), value))?;
        }
        Ok(labels)
    }
}

/// Adds an attribute. The limits are checked here and not only in the series, because the labels
/// are copied to every series.
fn push_label(labels: &mut Labels, pair: (String, String)) -> model::Result<()> {
    if pair.1.is_empty() {
        return Ok(());
    }
    if labels.len() == LABELS_MAX {
        let (what, found, unit) =
            ("resource or scope", labels.len().saturating_add(1), "attributes");
        return Err(Error::Size { part: what, found, min: 0, max: LABELS_MAX, unit });
    }
    labels.push(pair);
    Ok(())
}

/// Metric name, unit and kind.
pub(super) struct MetricContext<'a> {
    scope: &'a ScopeContext<'a>,
    pub(super) name: &'a str,
    unit: &'a str,
    pub(super) kind: SeriesKind,
    digest: Digest,
}

/// Component of a metric that is a series of its own: a summary has several, other metrics only
/// `Value`.
#[derive(Clone, Copy)]
pub(super) enum MetricComponent {
    Value,
    Sum,
    Count,
    Quantile(f64),
}

impl<'a> MetricContext<'a> {
    pub(super) fn new(
        scope: &'a ScopeContext<'a>,
        name: &'a str,
        unit: &'a str,
        kind: SeriesKind,
        is_summary: bool,
    ) -> MetricContext<'a> {
        let kind_tag = match kind {
            SeriesKind::Gauge => 0,
            SeriesKind::Counter(_) => 1,
            SeriesKind::Histogram(_) | SeriesKind::Text => 2,
        };
        let tags = [kind_tag, u8::from(kind.is_cumulative()), u8::from(is_summary)];
        let length = (name.len() as u64).to_le_bytes();
        let parts: [&[u8]; 5] = [&scope.digest, &tags, &length, name.as_bytes(), unit.as_bytes()];
        MetricContext { scope, name, unit, kind, digest: digest(&parts) }
    }

    /// Writes the key prefix of a series; the attributes follow.
    pub(super) fn key(&self, component: MetricComponent, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.digest);
        match component {
            MetricComponent::Value => key.push(0),
            MetricComponent::Sum => key.push(1),
            MetricComponent::Count => key.push(2),
            MetricComponent::Quantile(q) => {
                key.push(3);
                key.extend_from_slice(&q.to_bits().to_le_bytes());
            }
        }
    }

    /// Series with the attributes of a point, encoded by [`attributes::append_raw`].
    ///
    /// Labels of the same name: the component's label takes precedence, then the point's, the
    /// resource's and the scope's.
    pub(super) fn series(&self, component: MetricComponent, point: &[u8]) -> model::Result<Series> {
        let (suffix, kind, unit) = match component {
            MetricComponent::Value => ("", self.kind, self.unit),
            MetricComponent::Sum => ("_sum", self.kind, self.unit),
            MetricComponent::Count => ("_count", self.kind, ""),
            MetricComponent::Quantile(_) => ("", SeriesKind::Gauge, self.unit),
        };
        let mut labels = Labels::new();
        if let MetricComponent::Quantile(q) = component {
            labels.push(("quantile".to_owned(), attributes::number_label(q)));
        }
        attributes::read_raw(point, &mut labels)?;
        let resource = self.scope.resource;
        let shared = [
            get_or_read_labels(&resource.labels, || resource.read())?,
            get_or_read_labels(&self.scope.labels, || self.scope.read())?,
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
        series.with_labels(labels).validate()
    }
}

/// OTLP units are UCUM (ucum.org). Units known to topdeck get topdeck's name; others are unchanged.
fn unit_name(unit: &str) -> String {
    Unit::parse(unit).map_or_else(|| unit.to_owned(), |known| known.name().to_owned())
}
