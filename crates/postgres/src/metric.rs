//! Definitions of metrics: name, kind, unit, and the SQL expression of their value.
//!
//! Names and meanings are those of postgres_exporter where it has the metric. Where it has another
//! unit than seconds or bytes, the name ends with the unit.

use std::ops::RangeInclusive;

/// Major versions of PostgreSQL with these metrics. Later versions are taken for the last one.
pub(crate) const VERSIONS: RangeInclusive<u32> = 13..=19;
/// No upper bound.
const ANY: u32 = u32::MAX;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostgresKind {
    /// Monotonic since the statistics were reset.
    Counter,
    Gauge,
    /// Distribution of samples since the previous row.
    Distribution,
    Text,
}

/// A metric and its SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostgresMetric {
    pub(crate) name: &'static str,
    pub(crate) kind: PostgresKind,
    /// Symbol of the unit.
    pub(crate) unit: &'static str,
    /// Expression of the value; empty if it is computed here.
    pub(crate) sql: &'static str,
    /// First and last major version that has it.
    pub(crate) since: u32,
    pub(crate) until: u32,
    pub(crate) help: &'static str,
}

impl PostgresMetric {
    /// From this major version on.
    pub(crate) const fn since(self, since: u32) -> PostgresMetric {
        PostgresMetric { since, ..self }
    }

    /// Up to this major version.
    pub(crate) const fn until(self, until: u32) -> PostgresMetric {
        PostgresMetric { until, ..self }
    }

    pub(crate) fn is_of(&self, version: u32) -> bool {
        (self.since..=self.until).contains(&version)
    }
}

const fn metric(
    kind: PostgresKind,
    name: &'static str,
    unit: &'static str,
    sql: &'static str,
    help: &'static str,
) -> PostgresMetric {
    PostgresMetric { name, kind, unit, sql, since: *VERSIONS.start(), until: ANY, help }
}

/// Counter.
pub(crate) const fn counter(
    name: &'static str,
    unit: &'static str,
    sql: &'static str,
    help: &'static str,
) -> PostgresMetric {
    metric(PostgresKind::Counter, name, unit, sql, help)
}

/// Gauge.
pub(crate) const fn gauge(
    name: &'static str,
    unit: &'static str,
    sql: &'static str,
    help: &'static str,
) -> PostgresMetric {
    metric(PostgresKind::Gauge, name, unit, sql, help)
}

/// Distribution that is computed here.
pub(crate) const fn distribution(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
) -> PostgresMetric {
    metric(PostgresKind::Distribution, name, unit, "", help)
}

/// Text that is computed here.
pub(crate) const fn text(name: &'static str, help: &'static str) -> PostgresMetric {
    metric(PostgresKind::Text, name, "", "", help)
}
