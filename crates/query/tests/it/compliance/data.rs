//! Test data: 85 minutes of a synthetic service on three hosts, scraped every five seconds.
//!
//! Names and shapes are those of the demo service that the queries of Prometheus' compliance tests
//! use. In addition there are counters with resets, series that end, gaps, native histograms, NaN
//! and infinities.

use hist::{Histogram, Scheme};
use model::{Series, SeriesKind};
use query::STALE_BITS;

/// 2024-01-01T00:00:00Z: Prometheus rejects samples from the future, but accepts any age.
pub(crate) const START_MS: i64 = 1_704_067_200_000;
const READ_EVERY_MS: i64 = 5_000;
const READINGS: i64 = 1_020;
/// Ranges of each query: start, end and step. They start late enough for the widest range and
/// offset; the second one is aligned with no sample.
pub(crate) const QUERY_RANGES_MS: [(i64, i64, i64); 2] = [
    (START_MS + 4_380_000, START_MS + 4_980_000, 10_000),
    (START_MS + 4_283_211, START_MS + 5_041_017, 47_321),
];
/// After all data.
pub(crate) const END_MS: i64 = START_MS + READINGS * READ_EVERY_MS;

/// Series with its values.
pub(crate) struct DataSeries {
    pub(crate) series: Series,
    pub(crate) points: Vec<(i64, DataPoint)>,
}

/// One value.
#[derive(Clone)]
pub(crate) enum DataPoint {
    Number(f64),
    Histogram(Box<Histogram>),
}

/// All series.
pub(crate) fn lines() -> Vec<DataSeries> {
    let mut all = Vec::new();
    for host in 0..3 {
        let mut service = Service { host, random: Splitmix64(host as u64 + 1), lines: &mut all };
        service.gauges();
        service.counters();
        service.classic();
        service.native();
        service.edge_cases();
    }
    all
}

const CUMULATIVE: hist::codec::header::Temporality = hist::codec::header::Temporality::Cumulative;

/// Splitmix64: the same numbers on every platform.
struct Splitmix64(u64);

impl Splitmix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit_interval(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Service on one host.
struct Service<'a> {
    host: i64,
    random: Splitmix64,
    lines: &'a mut Vec<DataSeries>,
}

impl Service<'_> {
    /// Hosts are scraped at different times.
    fn time(&self, sample: i64) -> i64 {
        START_MS + sample * READ_EVERY_MS + 137 * self.host
    }

    fn series(&self, name: &str, kind: SeriesKind, labels: &[(&str, &str)]) -> Series {
        let instance = format!("demo.promlabs.com:{}", 10_000 + self.host);
        let series =
            Series::new(name, kind).with_label("instance", instance).with_label("job", "demo");
        let with = |series: Series, (name, value): &(&str, &str)| series.with_label(*name, *value);
        labels.iter().fold(series, with).validate().expect("a series is as it should be")
    }

    /// `value` is called once per scrape; `None` is no sample.
    fn add(
        &mut self,
        (name, kind): (&str, SeriesKind),
        labels: &[(&str, &str)],
        mut value: impl FnMut(i64, &mut Splitmix64) -> Option<f64>,
    ) {
        let series = self.series(name, kind, labels);
        let mut points = Vec::new();
        for sample in 0..READINGS {
            if let Some(value) = value(sample, &mut self.random) {
                points.push((self.time(sample), DataPoint::Number(value)));
            }
        }
        self.lines.push(DataSeries { series, points });
    }

    fn gauges(&mut self) {
        for (kind, base) in [("used", 4e9), ("free", 2e9), ("cached", 1e9), ("buffers", 2.5e8)] {
            let mut level = base;
            self.add(
                ("demo_memory_usage_bytes", SeriesKind::Gauge),
                &[("type", kind)],
                |_, random| {
                    level += (random.unit_interval() - 0.5) * base / 50.0;
                    Some(level.round())
                },
            );
        }
        self.add(("demo_num_cpus", SeriesKind::Gauge), &[], |_, _| Some(4.0));
        self.add(("demo_disk_total_bytes", SeriesKind::Gauge), &[], |_, _| Some(2e11));
        self.add(("demo_disk_usage_bytes", SeriesKind::Gauge), &[], |sample, random| {
            Some(5e10 + 1e6 * sample as f64 + (1e6 * random.unit_interval()).round())
        });
        let name = "demo_batch_last_success_timestamp_seconds";
        self.add((name, SeriesKind::Gauge), &[], |sample, _| {
            Some((START_MS / 1_000 + sample / 13 * 65) as f64)
        });
        let host = self.host;
        let version = ["1.2.3", "1.2.3", "1.3.0"][host as usize];
        self.add(("demo_build_info", SeriesKind::Gauge), &[("version", version)], |_, _| Some(1.0));
        self.add(
            ("target_info", SeriesKind::Gauge),
            &[("zone", "a"), ("version", version)],
            |_, _| Some(1.0),
        );
    }

    fn counters(&mut self) {
        let host = self.host;
        let kind = SeriesKind::Counter(CUMULATIVE);
        for (mode, rate) in [("idle", 3.1), ("user", 0.7), ("system", 0.2)] {
            let mut total = 0.0;
            self.add(("demo_cpu_usage_seconds_total", kind), &[("mode", mode)], |at, random| {
                // The second host restarts twice, once within the queried ranges.
                total = if host == 1 && (at == 300 || at == 931) { 0.0 } else { total };
                total += rate * 5.0 * (0.9 + 0.2 * random.unit_interval());
                Some(total)
            });
        }
        // Starts within the queried ranges, like the third host of a deployment.
        self.add(("demo_items_shipped_total", kind), &[], |sample, random| {
            let begun = sample - 900 * i64::from(host == 2);
            (begun >= 0)
                .then(|| (begun as f64 * 7.0).floor() + (5.0 * random.unit_interval()).floor())
        });
    }

    fn classic(&mut self) {
        const BOUNDS: [&str; 11] =
            ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5", "+Inf"];
        let kind = SeriesKind::Counter(CUMULATIVE);
        let name = |end: &str| format!("demo_api_request_duration_seconds_{end}");
        for (method, path, status) in
            [("GET", "/api/foo", "200"), ("POST", "/api/bar", "200"), ("GET", "/api/nope", "404")]
        {
            let labels = [("method", method), ("path", path), ("status", status)];
            let limits: Vec<f64> =
                BOUNDS.iter().map(|bound| bound.parse().expect("a number")).collect();
            let (mut counts, mut sum) = (vec![0.0; BOUNDS.len()], 0.0);
            let mut samples = Vec::new();
            for sample in 0..READINGS {
                if self.host == 1 && sample == 931 {
                    counts.fill(0.0);
                    sum = 0.0;
                }
                for _ in 0..self.random.next() % 6 {
                    let value = (-self.random.unit_interval().ln() * 0.3).powi(2);
                    sum += value;
                    for (count, limit) in counts.iter_mut().zip(&limits) {
                        *count += f64::from(u8::from(value <= *limit));
                    }
                }
                samples.push((counts.clone(), sum));
            }
            for (at, bound) in BOUNDS.iter().enumerate() {
                let labels: Vec<_> = labels.into_iter().chain([("le", *bound)]).collect();
                let value = |sample: i64, _: &mut Splitmix64| Some(samples[sample as usize].0[at]);
                self.add((&name("bucket"), kind), &labels, value);
            }
            self.add((&name("sum"), kind), &labels, |at, _| Some(samples[at as usize].1));
            self.add((&name("count"), kind), &labels, |at, _| {
                samples[at as usize].0.last().copied()
            });
        }
    }

    fn native(&mut self) {
        let host = self.host;
        // The third host has wider buckets.
        let scheme = || Scheme::exp2(if host == 2 { 1 } else { 3 }).expect("is a scheme");
        for path in ["/api/foo", "/api/bar"] {
            self.histograms("demo_latency_seconds", &[("path", path)], scheme(), |random| {
                (-random.unit_interval().ln() * 0.3).powi(2)
            });
        }
        self.histograms("demo_skew_seconds", &[], scheme(), |random| {
            let value = random.unit_interval() - 0.4;
            if value.abs() < 0.02 { 0.0 } else { value }
        });
        let bounds = [0.01, 0.1, 0.5, 1.0, if host == 2 { 3.0 } else { 2.0 }];
        let explicit = Scheme::explicit(&bounds).expect("is a scheme");
        self.histograms("demo_custom_seconds", &[], explicit, |random| {
            random.unit_interval() * 3.0
        });
    }

    fn histograms(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        scheme: Scheme,
        mut value: impl FnMut(&mut Splitmix64) -> f64,
    ) {
        let series = self.series(name, SeriesKind::Histogram(CUMULATIVE), labels);
        let mut histogram = Histogram::new(scheme.clone());
        let mut points = Vec::new();
        for sample in 0..READINGS {
            if self.host == 1 && sample == 931 {
                histogram = Histogram::new(scheme.clone());
            }
            for _ in 0..1 + self.random.next() % 6 {
                histogram.record(value(&mut self.random));
            }
            points.push((self.time(sample), DataPoint::Histogram(Box::new(histogram.clone()))));
        }
        self.lines.push(DataSeries { series, points });
    }

    fn edge_cases(&mut self) {
        // Present for a minute, then absent for three, with staleness markers.
        self.add(("demo_intermittent_metric", SeriesKind::Gauge), &[], |sample, _| {
            match sample % 48 {
                0..12 => Some(sample as f64),
                12 => Some(f64::from_bits(STALE_BITS)),
                _ => None,
            }
        });
        // Absent for seven minutes without a staleness marker.
        self.add(("demo_silent_metric", SeriesKind::Gauge), &[], |sample, random| {
            let is_silent = (890..974).contains(&sample);
            (!is_silent).then(|| (10.0 * random.unit_interval()).round())
        });
        let values = [
            ("nan", f64::NAN),
            ("inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("-0", -0.0),
            ("tiny", 5e-324),
            ("huge", f64::MAX),
        ];
        for (kind, value) in values {
            self.add(("demo_special", SeriesKind::Gauge), &[("kind", kind)], |_, _| Some(value));
        }
        // Numbers with NaN between them.
        self.add(("demo_with_holes", SeriesKind::Gauge), &[], |sample, random| {
            Some(if sample % 7 == 3 { f64::NAN } else { random.unit_interval() - 0.5 })
        });
        self.add(("demo.dotted", SeriesKind::Gauge), &[("region.name", "süd")], |sample, _| {
            Some((sample % 60) as f64)
        });
    }
}
