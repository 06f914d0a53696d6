//! Distributions of a live stream whose buckets are counters: the values between two scrapes.
//!
//! A stream has the samples of each counter `x_bucket` by itself. The samples of one time are a
//! scrape, which is complete when it has as many buckets as the one before it.

use std::collections::BTreeMap;

use hist::{Histogram, HistogramParts, Mixture, Scheme, TrackedValue};
use serde_json::{Map, Value, json};

use crate::document;

/// Maximum number of histograms of which the last scrape is kept; beyond, all are forgotten.
const HISTOGRAMS_MAX: usize = 10_000;
const BUCKET: &str = "_bucket";

/// Scrapes of the histograms of a stream.
#[derive(Debug, Default)]
pub struct BucketStream {
    histograms: BTreeMap<String, HistogramScrapes>,
}

/// The last two scrapes of a histogram.
#[derive(Debug, Default)]
struct HistogramScrapes {
    before: Option<BucketScrape>,
    current: BucketScrape,
    is_shown: bool,
}

/// Counters by bound, and the time of their samples.
#[derive(Debug, Default)]
struct BucketScrape {
    end_ns: i64,
    buckets: Vec<(f64, f64)>,
}

impl BucketStream {
    /// Whether an event `sample` is one of a bucket.
    pub fn is_bucket(event: &Value) -> bool {
        bucket_of(event).is_some()
    }

    /// Adds an event of a bucket. Returns the event of the distribution that it completes, if any.
    pub fn add(&mut self, event: &Value) -> Option<Value> {
        let (name, labels, bound) = bucket_of(event)?;
        let (count, end_ns) = event["value"].as_f64().zip(event["end_ns"].as_i64())?;
        let labels = Value::Object(labels);
        if self.histograms.len() >= HISTOGRAMS_MAX {
            self.histograms.clear();
        }
        let of = self.histograms.entry(format!("{name}{labels}")).or_default();
        let (start_ns, end_ns, values) = of.add((bound, count), end_ns)?;
        let value = render::json::Json::Object(document::distribution(&values));
        let value: Value = serde_json::from_str(&format!("{value:#}")).unwrap_or_default();
        let unit = name.rsplit_once('_').and_then(|(_, word)| decode::Unit::parse(word));
        Some(json!({
            "name": name, "labels": labels, "kind": "cumulative-histogram",
            "unit": unit.map(|unit| unit.name().to_owned()),
            "start_ns": start_ns, "end_ns": end_ns, "value": value
        }))
    }
}

/// Name and labels of the histogram of a bucket, and the bound.
fn bucket_of(event: &Value) -> Option<(&str, Map<String, Value>, f64)> {
    let name = event["name"].as_str()?.strip_suffix(BUCKET)?;
    let mut labels = event["labels"].as_object()?.clone();
    let bound = labels.remove("le")?.as_str()?.parse().ok()?;
    event["value"].is_number().then_some((name, labels, bound))
}

impl HistogramScrapes {
    /// Adds a sample. Returns the values since the scrape before, if this completes them.
    fn add(&mut self, bucket: (f64, f64), end_ns: i64) -> Option<(i64, i64, Mixture)> {
        if end_ns < self.current.end_ns {
            return None;
        }
        if end_ns > self.current.end_ns && !self.current.buckets.is_empty() {
            self.before = Some(std::mem::take(&mut self.current));
            self.is_shown = false;
        }
        self.current.end_ns = end_ns;
        self.current.buckets.retain(|of| of.0 != bucket.0);
        self.current.buckets.push(bucket);
        let before = self.before.as_ref()?;
        if self.is_shown || self.current.buckets.len() < before.buckets.len() {
            return None;
        }
        let values = self.current.values_since(before)?;
        self.is_shown = true;
        Some((before.end_ns, end_ns, values))
    }
}

impl BucketScrape {
    /// `None` if the bounds differ, or there is no finite one.
    fn values_since(&self, before: &BucketScrape) -> Option<Mixture> {
        let mut buckets = self.buckets.clone();
        model::sort::by(&mut buckets, |a, b| a.0.total_cmp(&b.0));
        let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0_u64);
        for (bound, count) in buckets {
            let (_, earlier) = before.buckets.iter().find(|of| of.0 == bound)?;
            // A counter that has fallen began anew.
            let rise = if count < *earlier { count } else { count - earlier };
            let up_to = (rise.round().max(0.0) as u64).max(below);
            bounds.push(bound);
            counts.push(up_to - below);
            below = up_to;
        }
        bounds.pop_if(|bound| bound.is_infinite());
        let parts = HistogramParts {
            positive: (0..).zip(counts).filter(|(_, count)| *count > 0).collect(),
            sum: TrackedValue::Absent,
            ..HistogramParts::new(Scheme::explicit(&bounds).ok().filter(|_| !bounds.is_empty())?)
        };
        Histogram::from_parts(parts).ok().map(Mixture::from)
    }
}

#[cfg(test)]
mod tests {
    use render::terminal::{ColourDepth, Terminal};

    use super::*;

    /// `topdeck tail x` of a histogram of remote write 1 printed nothing.
    #[test]
    fn buckets_of_two_scrapes_are_one_line_with_the_values_between_them() {
        let mut stream = BucketStream::default();
        let mut lines = Vec::new();
        let mut scrape = |end_ns: i64, counts: &[(&str, f64)]| {
            for (le, count) in counts {
                let event = json!({
                    "name": "took_seconds_bucket", "labels": {"host": "a", "le": le},
                    "kind": "cumulative-counter", "end_ns": end_ns, "value": count
                });
                let terminal = Terminal { colour_depth: ColourDepth::None, ..Terminal::new(false) };
                let found = stream.add(&event);
                lines.extend(found.map(|of| crate::point_line(&of, &terminal)));
            }
            lines.len()
        };
        const NOON: i64 = 1_794_225_600_000_000_000;
        let minute = |n: i64| NOON + n * 60_000_000_000;
        assert_eq!(scrape(minute(0), &[("0.1", 5.0), ("1", 7.0), ("+Inf", 9.0)]), 0);
        // In any order; a part of a scrape is none.
        assert_eq!(scrape(minute(1), &[("+Inf", 19.0), ("0.1", 5.0)]), 0);
        assert_eq!(scrape(minute(1), &[("1", 17.0)]), 1);
        // The last sample of the scrape again, and another one.
        assert_eq!(scrape(minute(1), &[("1", 17.0)]), 1);
        // A restart.
        assert_eq!(scrape(minute(2), &[("0.1", 2.0), ("1", 2.0), ("+Inf", 2.0)]), 2);
        // Another bound: its first scrape does not say how many values are new.
        let more = [("0.1", 3.0), ("0.5", 3.0), ("1", 3.0), ("+Inf", 3.0)];
        assert_eq!(scrape(minute(3), &more), 2);
        assert_eq!(scrape(minute(4), &more.map(|of| (of.0, of.1 + 1.0))), 3);
        let line = "2026-11-09 12:01:00Z  took_seconds{host=\"a\"}  10 values, min 100.0 ms to \
                    1.000 s, max 100.0 ms to 1.000 s\n";
        assert_eq!(lines[0], line, "{lines:?}");
        assert!(lines[1].contains("12:02:00Z") && lines[1].contains("  2 values"), "{lines:?}");
        assert!(lines[2].contains("12:04:00Z") && lines[2].contains("  1 value,"), "{lines:?}");
        let depth = json!({"name": "depth", "labels": {}, "value": 1.0});
        assert!(!BucketStream::is_bucket(&depth));
    }
}
