//! Cost against the number of series: counters and histograms by remote write, searches of labels,
//! and the start after kill -9.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use synthetic::{Dataset, DatasetKind, DatasetScale};

use super::dashboard::{self, READERS, ReadersCost};
use super::ingest;
use super::server::{PathServer, PathServerKind};
use super::workload::{self, WireFormat, Workload};
use crate::clock::wall_time;
use crate::store::http::percent_encode;
use crate::store::remote_write::WriteRequestBuilder;

/// Numbers of series, the middle one as in the targets.
pub(crate) const SIZES: [usize; 3] = [10_000, 200_000, 1_000_000];
/// The same of histograms.
pub(crate) const SIZES_HISTOGRAMS: [usize; 3] = [100, 3_000, 100_000];
const SAMPLES: usize = 4;
const INTERVAL_S: i64 = 15;
const ROUTES: usize = 50;
const PER_REQUEST: usize = 2_000;
/// Pods that the regular expression selects.
const SELECTED: usize = 10_000;
/// 2026-11-15T00:00:00Z, as of set B.
const START_S: i64 = 1_794_700_800;
const END_S: i64 = START_S + (SAMPLES as i64 - 1) * INTERVAL_S;
/// A query counts as its median over this many runs, after one that does not count.
const RUNS: usize = 3;

/// Cost of one query, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrowthQuery {
    pub(crate) cpu_ms: f64,
    pub(crate) wall_ms: f64,
}

/// Titles of the queries, with the limits of the CPU time with 200,000 series.
pub(crate) const QUERIES: [(&str, f64); 4] = [
    ("`count(m)`", 150.0),
    ("`sum by (route) (rate(m[1m]))`", 250.0),
    ("`count(m{pod=~\"api-000.*\"})`, 10,000 pods", 15.0),
    ("`/api/v1/label/pod/values`", 80.0),
];

/// The search by regular expression.
pub(crate) const SEARCH: usize = 2;

/// Figures of one number of series.
#[derive(Debug)]
pub(crate) struct GrowthFigures {
    /// CPU time until the last acknowledgement, and until the server was idle.
    pub(crate) answered_cpu: Duration,
    pub(crate) ingest_cpu: Duration,
    /// Memory after ingest, less that of the empty server.
    pub(crate) bytes_per_series: f64,
    pub(crate) queries: [Result<GrowthQuery, String>; 4],
    /// From the start after kill -9 to the first right answer of the search by regular expression;
    /// `None` if there was none.
    pub(crate) restart: Option<Duration>,
    /// Cost of the rate of a route by [`READERS`], if asked.
    pub(crate) readers: Vec<ReadersCost>,
}

/// Samples of all series, in the order of a scraper: all series, then all again.
pub(crate) fn workload(series: usize) -> Workload {
    let mut request = WriteRequestBuilder::default();
    let mut bodies = Vec::new();
    for sample in 0..SAMPLES {
        for first in (0..series).step_by(PER_REQUEST) {
            for at in first..(first + PER_REQUEST).min(series) {
                let pod = format!("api-{at:07}");
                let instance = format!("10.{}.{}.{}:9100", at / 65_536, at / 256 % 256, at % 256);
                let route = format!("/route/{}", at % ROUTES);
                request.begin_labels(&[
                    ("__name__", "m"),
                    ("instance", &instance),
                    ("job", "shop"),
                    ("pod", &pod),
                    ("route", &route),
                ]);
                // One per second: rates are exact, also extrapolated ones.
                let seconds = sample as i64 * INTERVAL_S;
                request.number((1_000 + seconds) as f64, (START_S + seconds) * 1_000);
                request.end();
            }
            bodies.push(request.take_compressed());
        }
    }
    Workload { format: WireFormat::Classic, lanes: vec![bodies], points: (series * SAMPLES) as u64 }
}

/// Path of a query at the end of the data.
fn path(kind: PathServerKind, text: &str) -> String {
    let cache = if kind.is_victoria() { "&nocache=1" } else { "" };
    format!("/api/v1/query?query={}&time={END_S}{cache}", percent_encode(text))
}

fn paths(kind: PathServerKind) -> [String; 4] {
    let query = |text: &str| path(kind, text);
    [
        query("count(m)"),
        query("sum by (route) (rate(m[1m]))"),
        query("count(m{pod=~\"api-000.*\"})"),
        format!("/api/v1/label/pod/values?start={START_S}&end={END_S}"),
    ]
}

/// Checks an answer, whose value follows from the number of series.
fn check(query: usize, body: &[u8], series: usize) -> Result<()> {
    // One per second and series.
    check_sum(body, if query == SEARCH { SELECTED.min(series) } else { series } as f64)
}

/// Checks the sum of the values of an answer, or the number of values of a label.
pub(super) fn check_sum(body: &[u8], expected: f64) -> Result<()> {
    let answer: Value = serde_json::from_slice(body).context("a response that is no JSON")?;
    let value = |one: &Value| one["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
    let found = match answer["data"].as_array() {
        Some(values) => values.len() as f64,
        None => answer["data"]["result"].as_array().into_iter().flatten().filter_map(value).sum(),
    };
    ensure!((found / expected - 1.0).abs() < 1e-6, "answers {found} instead of {expected}");
    Ok(())
}

/// Measures one server with an empty directory.
pub(crate) fn measure(
    kind: PathServerKind,
    program: &Path,
    dir: &Path,
    load: &Workload,
    has_readers: bool,
) -> Result<GrowthFigures> {
    let series = load.points as usize / SAMPLES;
    let mut server = PathServer::start(kind, program, dir)?;
    let (answered_cpu, ingest_cpu, more) = fill(&mut server, load)?;
    let paths = paths(kind);
    let queries = std::array::from_fn(|query| {
        ask(&server, query, &paths[query], series)
            .map_err(|error| format!("{error:#}").replace(['|', '\n'], " "))
    });
    let mut readers = Vec::new();
    if has_readers {
        let path = path(kind, "sum(rate(m{route=\"/route/0\"}[1m]))");
        let body = server.connect()?.get(&path)?.into_body()?;
        check_sum(&body, series.div_ceil(ROUTES) as f64)?;
        for count in READERS {
            readers.push(dashboard::ask_by_readers(&server, &path, count)?);
        }
    }
    // VictoriaMetrics writes its newest data within seconds. The drop of a process is kill -9.
    std::thread::sleep(BEFORE_KILL);
    drop(server);
    let restart = restart(kind, program, dir, &paths[SEARCH], series)?;
    let bytes_per_series = more as f64 / series as f64;
    Ok(GrowthFigures { answered_cpu, ingest_cpu, bytes_per_series, queries, restart, readers })
}

/// Starts the server until it answers right, or gives up.
fn restart(
    kind: PathServerKind,
    program: &Path,
    dir: &Path,
    path: &str,
    series: usize,
) -> Result<Option<Duration>> {
    let start = wall_time();
    let server = PathServer::start(kind, program, dir)?;
    let mut found = None;
    while found.is_none() && wall_time() - start < RESTART_MAX {
        let answer = server.connect()?.get(path)?;
        if answer.status == 200 && check(SEARCH, &answer.body, series).is_ok() {
            found = Some(wall_time() - start);
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    server.stop()?;
    Ok(found)
}

/// CPU time of ingest until the last acknowledgement and until the server was idle, and the memory
/// that it has more than before.
fn fill(server: &mut PathServer, load: &Workload) -> Result<(Duration, Duration, u64)> {
    server.process.wait_until_idle()?;
    let (cpu, memory) = (server.process.cpu_clock()?, server.process.resident_bytes()?);
    ingest::stream(server, load, 0.0..1.0, None, &AtomicU64::new(0))?;
    let answered = server.process.cpu_clock()? - cpu;
    server.process.wait_until_idle()?;
    let more = server.process.resident_bytes()?.saturating_sub(memory);
    Ok((answered, server.process.cpu_clock()? - cpu, more))
}

/// Histograms of so many series, one a minute.
pub(crate) fn histograms(series: usize) -> Workload {
    let full = DatasetScale::full(DatasetKind::Http);
    let scale = DatasetScale { series, minutes: SAMPLES, ..full };
    workload::encode(&Dataset::new(DatasetKind::Http, scale), WireFormat::Native, None)
}

/// CPU time of the ingest of each histogram, in microseconds, and bytes of memory per series.
pub(crate) fn measure_histograms(
    kind: PathServerKind,
    program: &Path,
    dir: &Path,
    load: &Workload,
) -> Result<(f64, f64)> {
    let mut server = PathServer::start(kind, program, dir)?;
    let (_, cpu, more) = fill(&mut server, load)?;
    server.stop()?;
    let points = load.points as f64;
    Ok((cpu.as_secs_f64() * 1e6 / points, more as f64 * SAMPLES as f64 / points))
}

const BEFORE_KILL: Duration = Duration::from_secs(10);
const RESTART_MAX: Duration = Duration::from_secs(120);

fn ask(server: &PathServer, query: usize, path: &str, series: usize) -> Result<GrowthQuery> {
    let mut connection = server.connect()?;
    let mut runs = Vec::new();
    for run in 0..=RUNS {
        let (cpu, wall) = (server.process.cpu_clock()?, wall_time());
        let body = connection.get(path)?.into_body()?;
        let wall = wall_time() - wall;
        let cpu = server.process.cpu_clock()? - cpu;
        if run > 0 {
            runs.push((cpu, wall));
        }
        check(query, &body, series)?;
    }
    runs.sort_unstable();
    let (cpu, wall) = runs[runs.len() / 2];
    Ok(GrowthQuery { cpu_ms: cpu.as_secs_f64() * 1e3, wall_ms: wall.as_secs_f64() * 1e3 })
}

/// Exponent of a cost between two sizes: 1 is linear.
pub(crate) fn exponent(sizes: (usize, usize), costs: (f64, f64)) -> f64 {
    (costs.1 / costs.0).ln() / (sizes.1 as f64 / sizes.0 as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_in_proportion_to_the_size_has_exponent_one() {
        assert!((exponent((10, 1_000), (2.0, 200.0)) - 1.0).abs() < 1e-12);
        assert!((exponent((10, 1_000), (2.0, 20_000.0)) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_wrong_count_is_an_error() {
        let body = br#"{"data":{"result":[{"value":[0,"99"]}]}}"#;
        assert!(check(0, body, 99).is_ok());
        assert!(check(0, body, 100).is_err());
        assert!(check(3, br#"{"data":["api-1"]}"#, 1).is_ok());
        assert!(check(SEARCH, body, 100).is_err() && check(SEARCH, body, 99).is_ok());
    }
}
