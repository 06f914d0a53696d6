//! Data set plan: counts, shapes and incidents per minute.
//!
//! The count of a minute is a share of the total, and the count of a series is a share of the
//! minute's count. Shares are rounded so that they add up; then pairs of neighbouring series
//! exchange some values.

use super::cells::CELLS;
use super::keyed_rng::KeyedRng;
use super::shape::{LatencyMode, approximate_sine, shares};
use super::{DatasetKind, DatasetScale, SyntheticSeries};

const DAY_MINUTES: usize = 1_440;
const US: f64 = 1e3;
const MS: f64 = 1e6;
const S: f64 = 1e9;

/// Plan of a data set.
#[derive(Clone, Debug)]
pub(super) struct DatasetPlan {
    kind: DatasetKind,
    seed: u64,
    /// Number of values of each minute of the full length. Longer data sets repeat the list.
    minute_counts: Vec<u64>,
    /// Cumulative share of a minute's values, in units of 1 / `SHARE_ONE`: entry `i` is the share
    /// of the series before `i`; the last entry is the whole. Wider data sets repeat the list.
    series_shares: Vec<u64>,
    /// Incidents of the disk, sorted by their first minute.
    incidents: Vec<Incident>,
}

const SHARE_ONE: u64 = 1 << 32;

/// An incident on the disk.
#[derive(Clone, Copy, Debug)]
struct Incident {
    begin: usize,
    end: usize,
    kind: IncidentKind,
}

#[derive(Clone, Copy, Debug)]
enum IncidentKind {
    /// Many more requests wait for the slowest mode.
    Stall,
    /// The mode of the disk itself becomes slower.
    Slowdown,
    /// The queue in front of the disk grows.
    Queueing,
    /// The page cache is cold.
    CacheMisses,
}

impl DatasetPlan {
    pub(super) fn new(which: DatasetKind, scale: DatasetScale) -> DatasetPlan {
        let full = DatasetScale::full(which);
        let weights = (0..full.minutes).map(|minute| minute_load(which, scale.seed, minute));
        let total = match which {
            DatasetKind::Disk => 1_226_742_335,
            DatasetKind::Http => 1_361_435_848,
        };
        let series: Vec<u64> =
            (0..full.series).map(|series| fixed_point(popularity(which, series))).collect();
        let mut series_shares = vec![0];
        let parts = split(SHARE_ONE, &series);
        series_shares.extend(parts.iter().scan(0, |before, part| {
            *before += part;
            Some(*before)
        }));
        DatasetPlan {
            kind: which,
            seed: scale.seed,
            minute_counts: split(total, &weights.map(fixed_point).collect::<Vec<_>>()),
            series_shares,
            incidents: match which {
                DatasetKind::Disk => incidents(scale.seed, scale.minutes),
                DatasetKind::Http => Vec::new(),
            },
        }
    }

    pub(super) fn start_ns(&self) -> i64 {
        match self.kind {
            // 2026-11-09T00:00:00Z, a Monday.
            DatasetKind::Disk => 1_794_182_400_000_000_000,
            // 2026-11-15T00:00:00Z, the Sunday of the same week.
            DatasetKind::Http => 1_794_700_800_000_000_000,
        }
    }

    pub(super) fn series(&self, series: usize) -> SyntheticSeries {
        let (metric, labels) = match self.kind {
            DatasetKind::Disk => (
                "disk_io_latency",
                vec![("device", format!("nvme{series}n1")), ("host", "db-01".to_owned())],
            ),
            DatasetKind::Http => (
                "http_request_duration",
                vec![
                    ("endpoint", endpoint_name(series % ENDPOINTS)),
                    ("host", format!("web-{:02}", series / ENDPOINTS + 1)),
                    ("region", ["eu-west", "us-east"][series / ENDPOINTS % 2].to_owned()),
                ],
            ),
        };
        SyntheticSeries { metric, labels }
    }

    /// Number of values of series `series` in minute `minute`.
    pub(super) fn count(&self, series: usize, minute: usize) -> u64 {
        let of_minute = self.minute_counts[minute % self.minute_counts.len()];
        let width = self.series_shares.len() - 1;
        if width == 1 {
            return of_minute;
        }
        let upto =
            |at: usize| ((u128::from(of_minute) * u128::from(self.series_shares[at])) >> 32) as u64;
        let of = |at: usize| upto(at + 1) - upto(at);
        let at = series % width;
        let pair = [of(at & !1), of(at | 1)];
        // Both series of a pair draw the same number: one adds it and the other subtracts it.
        let mut random = KeyedRng::new([self.seed ^ COUNTS, (series & !1) as u64, minute as u64]);
        let least = pair[0].min(pair[1]) as f64;
        let deviation =
            (random.normal() * least.sqrt() * 1.5).clamp(-least * 0.9, least * 0.9) as i64;
        let sign = if series.is_multiple_of(2) { 1 } else { -1 };
        pair[at % 2].saturating_add_signed(sign * deviation)
    }

    /// Approximate number of values of a series in a minute.
    pub(super) fn expected(&self, series: usize) -> f64 {
        let at = series % (self.series_shares.len() - 1);
        let share = (self.series_shares[at + 1] - self.series_shares[at]) as f64 / SHARE_ONE as f64;
        let total: u64 = self.minute_counts.iter().sum();
        total as f64 / self.minute_counts.len() as f64 * share
    }

    pub(super) fn random(&self, series: usize, minute: usize) -> KeyedRng {
        KeyedRng::new([self.seed, series as u64, minute as u64])
    }

    /// Shape key of a series in a minute. Minutes with the same key have the same shape.
    pub(super) fn shape_key(&self, series: usize, minute: usize) -> u64 {
        match self.kind {
            DatasetKind::Disk => minute as u64,
            DatasetKind::Http => {
                (minute / HOUR_MINUTES) as u64 * 4 + series_incident(series, minute % DAY_MINUTES)
            }
        }
    }

    /// The shape of a key.
    pub(super) fn shape(&self, series: usize, key: u64) -> [f64; CELLS] {
        match self.kind {
            DatasetKind::Disk => shares(&self.disk_modes(key as usize)),
            DatasetKind::Http => shares(&self.request_modes(series, key)),
        }
    }

    /// Modes of a disk: page cache, flash, disk, queue, and retries after a stall.
    fn disk_modes(&self, minute: usize) -> [LatencyMode; 5] {
        let busy = daily_load(minute);
        let mut modes = [
            LatencyMode::new(0.40, 85.0 * US, 10),
            LatencyMode::new(0.27, 420.0 * US, 9),
            LatencyMode::new(0.24 + 0.05 * busy, 7.5 * MS, 7),
            LatencyMode::new(0.06 + 0.05 * busy, 60.0 * MS * (1.0 + 0.25 * busy), 7),
            LatencyMode::new(0.006 + 0.004 * busy, 1.9 * S, 9),
        ];
        for incident in self.incidents.iter().filter(|one| (one.begin..one.end).contains(&minute)) {
            match incident.kind {
                IncidentKind::Stall => modes[4].weight *= 12.0,
                IncidentKind::Slowdown => modes[2].median_ns *= 2.2,
                IncidentKind::Queueing => {
                    modes[3].weight *= 3.5;
                    modes[3].median_ns *= 1.6;
                }
                IncidentKind::CacheMisses => {
                    modes[0].weight *= 0.3;
                    modes[2].weight *= 1.8;
                }
            }
        }
        modes
    }

    /// Modes of a request: served from a cache, processed, and waiting for another service.
    fn request_modes(&self, series: usize, key: u64) -> [LatencyMode; 3] {
        let (endpoint, host) = (series % ENDPOINTS, series / ENDPOINTS);
        let (hour, fault) = ((key / 4) as usize, key % 4);
        let busy = daily_load(hour * HOUR_MINUTES + HOUR_MINUTES / 2);
        let mode_fraction = fraction([self.seed, SHAPES, endpoint as u64]);
        let of_host = 0.9 + 0.2 * fraction([self.seed, SHAPES + 1, host as u64]);
        // 37 and 40 are coprime, so the ranks of neighbours differ widely.
        let rank = (endpoint * 37 % ENDPOINTS) as f64 / ENDPOINTS as f64;
        // 4 ms to 160 ms, spaced about evenly by ratio, as a polynomial of the rank (square and
        // fourth power).
        let median = 4.0 * MS * (1.0 + 9.0 * rank * rank + 30.0 * rank * rank * rank * rank);
        let median = median * of_host * (1.0 + 0.3 * busy);
        let mut modes = [
            LatencyMode::new(0.15 + 0.35 * mode_fraction, median / 5.0, 6),
            LatencyMode::new(0.75, median, 5),
            LatencyMode::new(0.02 + 0.04 * mode_fraction, median * 6.0, 5),
        ];
        match fault {
            SLOW_HOST => modes[1].median_ns *= 3.0,
            WAITING => modes[2].weight *= 7.0,
            _ => {}
        }
        modes
    }
}

const HOUR_MINUTES: usize = 60;
/// Keys of random streams that do not draw values.
const COUNTS: u64 = 0xc0;
const SHAPES: u64 = 0x5a;
const LOADS: u64 = 0x10ad;
const INCIDENTS: u64 = 0x1c;

const ENDPOINTS: usize = 40;
const RESOURCES: [&str; 10] = [
    "accounts", "cart", "catalog", "invoices", "login", "orders", "payments", "reviews", "search",
    "shipping",
];
const ACTIONS: [&str; 4] = ["get", "list", "put", "delete"];

fn endpoint_name(endpoint: usize) -> String {
    format!("/{}/{}", RESOURCES[endpoint / ACTIONS.len()], ACTIONS[endpoint % ACTIONS.len()])
}

const SLOW_HOST: u64 = 1;
const WAITING: u64 = 2;

/// Incidents of a series of B by minute of the day: one host is slow in the afternoon, and the
/// payment endpoints are slow for some time in the morning.
fn series_incident(series: usize, minute: usize) -> u64 {
    const SLOW_HOST_NUMBER: usize = 6;
    let payments = RESOURCES.iter().position(|&name| name == "payments");
    let (endpoint, host) = (series % ENDPOINTS, series / ENDPOINTS);
    if host == SLOW_HOST_NUMBER && (850..903).contains(&minute) {
        SLOW_HOST
    } else if Some(endpoint / ACTIONS.len()) == payments && (571..612).contains(&minute) {
        WAITING
    } else {
        0
    }
}

/// Load by time of day: 0 at 03:00, 1 at 15:00.
fn daily_load(minute: usize) -> f64 {
    let turn = (minute % DAY_MINUTES) as f64 / DAY_MINUTES as f64;
    0.5 - 0.5 * approximate_sine(turn + 0.125)
}

/// Load of a minute.
fn minute_load(which: DatasetKind, seed: u64, minute: usize) -> f64 {
    let is_weekend = which == DatasetKind::Disk && minute / DAY_MINUTES % 7 >= 5;
    let noise = 1.0 + 0.05 * KeyedRng::new([seed, LOADS, minute as u64]).normal();
    (0.45 + 0.55 * daily_load(minute)) * noise * if is_weekend { 0.7 } else { 1.0 }
}

/// Share of the load of a series: some endpoints get five times as many requests as others.
fn popularity(which: DatasetKind, series: usize) -> f64 {
    match which {
        DatasetKind::Disk => 1.0,
        DatasetKind::Http => {
            let rank = (series % ENDPOINTS * 23 % ENDPOINTS) as f64 / ENDPOINTS as f64;
            0.4 + 1.6 * rank * rank
        }
    }
}

/// Two or three incidents per day, each 20 to 90 minutes long.
fn incidents(seed: u64, minutes: usize) -> Vec<Incident> {
    const EVERY: usize = 540;
    let one = |number: usize| {
        let mut random = KeyedRng::new([seed, INCIDENTS, number as u64]);
        let begin = number * EVERY + random.below(EVERY as u64 - 90) as usize;
        let kind = [
            IncidentKind::Stall,
            IncidentKind::Slowdown,
            IncidentKind::Queueing,
            IncidentKind::CacheMisses,
        ][number % 4];
        Incident { begin, end: begin + 20 + random.below(71) as usize, kind }
    };
    (0..minutes.div_ceil(EVERY)).map(one).collect()
}

fn fraction(parts: [u64; 3]) -> f64 {
    (KeyedRng::new(parts).next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn fixed_point(weight: f64) -> u64 {
    (weight * f64::from(1 << 20)) as u64
}

/// Splits `total` into whole parts in proportion to `weights`; the parts add up to `total`.
fn split(total: u64, weights: &[u64]) -> Vec<u64> {
    let all: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let mut before = 0u128;
    let mut upto = 0;
    let mut part = |&weight: &u64| {
        before += u128::from(weight);
        let end = (u128::from(total) * before / all) as u64;
        let part = end - upto;
        upto = end;
        part
    };
    weights.iter().map(&mut part).collect()
}
