//! What topdeck measures of itself, as Prometheus scrapes it (text format 0.0.4,
//! prometheus.io/docs/instrumenting/exposition_formats).
//!
//! The text has no room for whole distributions: they are in the store. Here times are histograms with bounds at
//! powers of two of nanoseconds, told in seconds, from [`FIRST`] to [`LAST`]. At these bounds the counts are exact, but
//! that a time of exactly a bound is counted above it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use axum::routing;
use hist::{Bound, Histogram};
use http::{HeaderValue, header};
use intake::{Measured, Now};

use crate::context::Context;
use crate::openapi::Route;
use crate::refusal::Refusal;

/// The first bound, as a power of two: 1.024 µs.
const FIRST: i32 = 10;
/// The last: 68.7 s.
const LAST: i32 = 36;

const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/metrics",
    "What topdeck measures of itself, for Prometheus to scrape.",
    &[],
    || routing::get(metrics),
)
.answers(200, "text/plain", "the text format 0.0.4")];

async fn metrics(context: Context) -> Result<Response, Refusal> {
    let intake = context.intake.clone();
    // Files are read for it, and the store catches up.
    let text = context.desk.metrics.get(move || Arc::from(text(intake.meter().now()))).await;
    let text: Arc<str> = text.map_err(|error| Refusal::Internal(format!("BUG: {error}")))?;
    let kind = HeaderValue::from_static(KIND);
    Ok(([(header::CONTENT_TYPE, kind)], text.to_string()).into_response())
}

/// All of a name stands together, as the format wants it.
fn text(all: Vec<Measured>) -> String {
    let mut names: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for measured in all {
        let unit = if matches!(measured.value, Now::Times(_)) { "_seconds" } else { "" };
        names.entry(format!("{}{unit}", measured.name)).or_default().push(measured);
    }
    let mut out = String::new();
    for (name, all) in &names {
        let kind = match all[0].value {
            Now::Count(_) => "counter",
            Now::Gauge(_) => "gauge",
            Now::Times(_) => "histogram",
        };
        let about = all[0].about.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
        all.iter().for_each(|measured| sample(&mut out, name, measured));
    }
    out
}

fn sample(out: &mut String, name: &str, measured: &Measured) {
    // What is written to a String is not refused.
    let _ = match &measured.value {
        Now::Count(n) => writeln!(out, "{name}{} {n}", labels(&measured.labels, None)),
        Now::Gauge(x) => {
            let x = format!("{x}").replace("inf", "+Inf").replace("-+", "-");
            writeln!(out, "{name}{} {x}", labels(&measured.labels, None))
        }
        Now::Times(times) => histogram(out, name, &measured.labels, times),
    };
}

fn histogram(
    out: &mut String,
    name: &str,
    own: &[(String, String)],
    times: &Histogram,
) -> std::fmt::Result {
    for power in FIRST..=LAST {
        let bound = 2f64.powi(power);
        let below = times.count_below(bound, Bound::Exclusive).estimate;
        let le = format!("{}", bound / 1e9);
        writeln!(out, "{name}_bucket{} {below}", labels(own, Some(&le)))?;
    }
    let count = times.count();
    writeln!(out, "{name}_bucket{} {count}", labels(own, Some("+Inf")))?;
    let plain = labels(own, None);
    writeln!(out, "{name}_sum{plain} {}", times.sum().estimate / 1e9)?;
    writeln!(out, "{name}_count{plain} {count}")
}

fn labels(own: &[(String, String)], le: Option<&str>) -> String {
    let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let all: Vec<String> = own
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
    fn own_metrics_are_text() {
        let meter = intake::Meter::default();
        meter.counter("topdeck_b_total", "what \"b\" is", &[("kind", "a\"b")]).add(3);
        meter.gauge("topdeck_c", "c", &[], || f64::NEG_INFINITY);
        let timer = meter.timer("topdeck_a", "times", &[("of", "x")]);
        for us in [1, 2, 2000] {
            timer.record(std::time::Duration::from_micros(us));
        }
        let text = text(meter.now());
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
