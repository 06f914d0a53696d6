//! Self metrics in the Prometheus text format 0.0.4.
//!
//! The text format has no native histograms; the store has the complete distributions. Here
//! durations are classic histograms in seconds with bounds at powers of two of nanoseconds, from
//! [`FIRST_POWER`] to [`LAST_POWER`]. The counts are exact, except that a duration equal to a bound
//! is counted above it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use hist::{Histogram, LimitInclusion};
use http::{HeaderValue, header};
use intake::{MetricSnapshot, SnapshotValue};

use crate::api_error::ApiError;
use crate::context::Context;
use crate::route::ApiRoute;
use crate::routing;

/// First bound as a power of two: 1.024 µs.
const FIRST_POWER: i32 = 10;
/// Last bound: 68.7 s.
const LAST_POWER: i32 = 36;

const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get("/metrics", "Self metrics for Prometheus to scrape.", &[], || {
        routing::get(metrics)
    })
    .with_response(200, "text/plain", "Prometheus text format 0.0.4")];

async fn metrics(context: Context) -> Result<Response, ApiError> {
    let intake = context.intake.clone();
    // The snapshot reads files, and updates the store's view.
    let text = context
        .queries
        .metrics
        .get(move || Arc::from(metrics_text(intake.meter().snapshot())))
        .await;
    let text: Arc<str> = text.map_err(|error| ApiError::Internal(format!("BUG: {error}")))?;
    let kind = HeaderValue::from_static(KIND);
    Ok(([(header::CONTENT_TYPE, kind)], text.to_string()).into_response())
}

/// The format requires all series of a name to be contiguous.
fn metrics_text(all: Vec<MetricSnapshot>) -> String {
    let mut names: BTreeMap<String, Vec<MetricSnapshot>> = BTreeMap::new();
    for measured in all {
        let unit =
            if matches!(measured.value, SnapshotValue::Histogram(_)) { "_seconds" } else { "" };
        names.entry(format!("{}{unit}", measured.name)).or_default().push(measured);
    }
    let mut out = String::new();
    for (name, all) in &names {
        let kind = match all[0].value {
            SnapshotValue::Counter(_) => "counter",
            SnapshotValue::Gauge(_) => "gauge",
            SnapshotValue::Histogram(_) => "histogram",
        };
        let about = all[0].help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
        all.iter().for_each(|measured| write_sample(&mut out, name, measured));
    }
    out
}

fn write_sample(out: &mut String, name: &str, measured: &MetricSnapshot) {
    // Writing to a `String` cannot fail.
    let _ = match &measured.value {
        SnapshotValue::Counter(n) => {
            writeln!(out, "{name}{} {n}", labels_text(&measured.labels, None))
        }
        SnapshotValue::Gauge(x) => {
            let x = format!("{x}").replace("inf", "+Inf").replace("-+", "-");
            writeln!(out, "{name}{} {x}", labels_text(&measured.labels, None))
        }
        SnapshotValue::Histogram(times) => write_histogram(out, name, &measured.labels, times),
    };
}

fn write_histogram(
    out: &mut String,
    name: &str,
    labels: &[(String, String)],
    times: &Histogram,
) -> std::fmt::Result {
    for power in FIRST_POWER..=LAST_POWER {
        let bound = 2f64.powi(power);
        let below = times.count_below(bound, LimitInclusion::Exclusive).estimate;
        let le = format!("{}", bound / 1e9);
        writeln!(out, "{name}_bucket{} {below}", labels_text(labels, Some(&le)))?;
    }
    let count = times.count();
    writeln!(out, "{name}_bucket{} {count}", labels_text(labels, Some("+Inf")))?;
    let plain = labels_text(labels, None);
    writeln!(out, "{name}_sum{plain} {}", times.sum().estimate / 1e9)?;
    writeln!(out, "{name}_count{plain} {count}")
}

fn labels_text(labels: &[(String, String)], le: Option<&str>) -> String {
    let labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let all: Vec<String> = labels
        .chain(le.map(|le| ("le", le)))
        .map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        })
        .collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_metrics_are_prometheus_text() {
        let meter = intake::Meter::default();
        meter.counter("topdeck_b_total", "what \"b\" is", &[("kind", "a\"b")]).add(3);
        meter.gauge("topdeck_c", "c", &[], || f64::NEG_INFINITY);
        let timer = meter.histogram("topdeck_a", "times", &[("of", "x")]);
        for us in [1, 2, 2000] {
            timer.record(std::time::Duration::from_micros(us));
        }
        let text = metrics_text(meter.snapshot());
        let starts = "# HELP topdeck_a_seconds times\n# TYPE topdeck_a_seconds histogram\n\
            topdeck_a_seconds_bucket{of=\"x\",le=\"0.000001024\"} 1\n\
            topdeck_a_seconds_bucket{of=\"x\",le=\"0.000002048\"} 2\n";
        assert!(text.starts_with(starts), "{text}");
        let ends = "topdeck_a_seconds_bucket{of=\"x\",le=\"68.719476736\"} 3\n\
            topdeck_a_seconds_bucket{of=\"x\",le=\"+Inf\"} 3\n\
            topdeck_a_seconds_sum{of=\"x\"} 0.002003\n\
            topdeck_a_seconds_count{of=\"x\"} 3\n\
            # HELP topdeck_b_total what \"b\" is\n# TYPE topdeck_b_total counter\n\
            topdeck_b_total{kind=\"a\\\"b\"} 3\n\
            # HELP topdeck_c c\n# TYPE topdeck_c gauge\n\
            topdeck_c -Inf\n";
        assert!(text.ends_with(ends), "{text}");
    }
}
