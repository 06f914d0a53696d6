//! Prometheus with native histograms: the server itself, built from the module that
//! `peers/prometheus` pins.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use synthetic::{Dataset, ExpectedStats, SyntheticSample, SyntheticSeries, THRESHOLD_NS};
use tempfile::TempDir;

use super::StoreWork;
use super::figures::{CheckedAnswer, IngestCost, QueryCost, SETS, StoreFigures};
use super::http::{BenchConnection, BenchResponse, percent_encode};
use super::lockstep::{REMOTE_WRITE_HEADERS, send_in_lockstep};
use super::remote_write::{BucketMap, HistogramKind, SeriesCounts, WriteRequestBuilder};
use super::server::PeerServer;
use super::window_errors::window_errors;
use crate::clock::wall_time;
use crate::journal::{program, scratch};
use crate::query::QueryResults;

const PACKAGE: &str = "github.com/prometheus/prometheus/cmd/prometheus";
const MANIFEST: &str = include_str!("../../peers/prometheus/go.mod");
/// Data older than this in the head are compacted to blocks: one and a half times two hours.
pub(crate) const HEAD_SPAN_MS: f64 = 3.0 * 3_600_000.0;
/// Prometheus checks for compaction at each append and once per minute.
pub(crate) const COMPACTION_TIMEOUT: Duration = Duration::from_secs(150);
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Minutes per request: with one series, and with many, so that a request has about 2,000 points
/// like those of Prometheus, or 2 MB.
const MINUTES_ALONE: usize = 120;
const MINUTES_MANY: usize = 4;

pub(crate) fn name() -> String {
    // The module of version 3.15 has the version 0.315.
    let mut parts = version().trim_start_matches("v0.").splitn(2, '.');
    let minor: Option<u32> = parts.next().and_then(|minor| minor.parse().ok());
    match (minor, parts.next()) {
        (Some(minor), Some(patch)) => {
            format!("Prometheus {}.{}.{patch}", minor / 100, minor % 100)
        }
        _ => format!("Prometheus, module {}", version()),
    }
}

fn version() -> &'static str {
    program::version(MANIFEST, "github.com/prometheus/prometheus ", "\n")
}

/// All figures. An error is the reason why there are none.
pub(crate) fn run(work: &StoreWork) -> Result<(StoreFigures, QueryResults)> {
    let program = build(work)?;
    let (mut figures, mut results) = (StoreFigures::new(&name()), QueryResults::new(&name()));
    run_a(&program, work, HistogramKind::Cumulative, &mut figures, &mut results)?;
    run_b(&program, work, &mut figures, &mut results)?;
    if work.store {
        run_gauges(&program, work, &mut figures)?;
    }
    Ok((figures, results))
}

/// Row name of [`run_a_as_gauges`].
pub(crate) fn name_gauge() -> String {
    format!("{}, gauge histograms", name())
}

/// A alone, sent as gauge histograms: Prometheus' clients do not do that, but counts are then
/// exact.
pub(crate) fn run_a_as_gauges(work: &StoreWork) -> Result<(StoreFigures, QueryResults)> {
    let (mut figures, mut results) =
        (StoreFigures::new(&name_gauge()), QueryResults::new(&name_gauge()));
    run_a(&build(work)?, work, HistogramKind::Gauge, &mut figures, &mut results)?;
    Ok((figures, results))
}

/// The program, built unless it exists: that takes minutes, too long for a quick run.
fn build(work: &StoreWork) -> Result<PathBuf> {
    let program = build_dir()?;
    if !program.exists() {
        ensure!(!work.quick, "not built yet; a full run builds it");
    }
    self::program()
}

fn build_dir() -> Result<PathBuf> {
    Ok(program::build_dir("prometheus")?.join(format!("prometheus-{}", version())))
}

/// The program, built if it does not exist.
pub(crate) fn program() -> Result<PathBuf> {
    let program = build_dir()?;
    if !program.exists() {
        let dir = program::build_dir("prometheus")?;
        program::run_tool(Command::new("go").arg("version"))?;
        eprintln!("        building {}, which takes minutes …", name());
        let made = dir.join("made");
        let mut build = Command::new("go");
        build.current_dir(program::source_dir("prometheus"));
        build.args(["build", "-mod=readonly", "-o"]).arg(&made).arg(PACKAGE);
        program::run_tool(&mut build)?;
        fs::rename(made, &program)?;
    }
    Ok(program)
}

/// Prometheus with its own directory.
pub(crate) struct PrometheusServer {
    server: PeerServer,
    port: u16,
    dir: TempDir,
}

impl PrometheusServer {
    fn start(program: &Path) -> Result<PrometheusServer> {
        let dir = scratch::dir()?;
        let config = dir.path().join("prometheus.yml");
        fs::write(&config, "global: {}\n")?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = Command::new(program);
        command.current_dir(dir.path());
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command.args([
            "--web.enable-remote-write-receiver",
            "--web.enable-admin-api",
            "--enable-feature=promql-experimental-functions",
            "--storage.tsdb.retention.time=10y",
            "--log.level=error",
        ]);
        let server = PeerServer::start(&mut command, &dir.path().join("log"))?;
        let mut started = PrometheusServer { server, port, dir };
        let until = wall_time() + START_TIMEOUT;
        loop {
            started.server.check_alive()?;
            let ready = BenchConnection::open(port).and_then(|mut one| one.get("/-/ready"));
            if ready.is_ok_and(|ready| ready.status == 200) {
                return Ok(started);
            }
            ensure!(wall_time() < until, "Prometheus did not become ready");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn connect(&self) -> Result<BenchConnection> {
        BenchConnection::open(self.port)
    }

    /// Sends the requests of each connection by its own thread.
    fn load(
        &mut self,
        set: &'static str,
        points: u64,
        lanes: &[Vec<Vec<u8>>],
    ) -> Result<IngestCost> {
        self.server.wait_until_idle()?;
        let (cpu, written) = (self.server.cpu()?, self.server.written_bytes());
        let wall = wall_time();
        let connections: Result<Vec<BenchConnection>> =
            lanes.iter().map(|_| self.connect()).collect();
        let steps = lanes.iter().map(Vec::len).max().unwrap_or_default();
        send_in_lockstep(connections?, steps, |lane, step, connection| {
            match lanes[lane].get(step) {
                Some(request) => write(connection, request)?.into_body().map(drop),
                None => Ok(()),
            }
        })
        .with_context(|| format!("taking in {set}"))?;
        let (passed, cpu_after) = (wall_time() - wall, self.server.cpu()?);
        self.wait_until_compacted()?;
        let cpu_until_idle = self.server.cpu()? - cpu;
        let memory_bytes = self.server.memory_bytes()?;
        let written_after = self.server.written_bytes();
        Ok(IngestCost {
            set,
            points,
            sent_bytes: lanes.iter().flatten().map(|request| request.len() as u64).sum(),
            cpu: cpu_after - cpu,
            cpu_until_idle,
            wall: passed,
            written_bytes: written_after.zip(written).map(|(after, before)| after - before),
            stored_bytes: self.snapshot_bytes()?,
            memory_bytes,
        })
    }

    /// Waits until everything old enough is in blocks and the server is idle.
    fn wait_until_compacted(&mut self) -> Result<()> {
        let until = wall_time() + COMPACTION_TIMEOUT;
        loop {
            self.server.wait_until_idle()?;
            let span = head_span_ms(&mut self.connect()?)?;
            if span <= HEAD_SPAN_MS {
                return Ok(());
            }
            ensure!(wall_time() < until, "compaction did not finish");
        }
    }

    /// Size of all data in blocks: a snapshot writes the head as a block and hard-links the others.
    fn snapshot_bytes(&self) -> Result<u64> {
        let path = "/api/v1/admin/tsdb/snapshot";
        let answer = self.connect()?.post(path, "", &[])?.into_body().context("a snapshot")?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let name = answer["data"]["name"].as_str().context("a snapshot without a name")?;
        let dir = self.dir.path().join("data/snapshots").join(name);
        let bytes = dir_bytes(&dir)?;
        fs::remove_dir_all(dir)?;
        Ok(bytes)
    }

    /// Runs a query once to warm up, then for each counted round. The second value is the last
    /// answer.
    pub(crate) fn query(
        &mut self,
        work: &StoreWork,
        key: &'static str,
        path: &str,
    ) -> Result<(QueryCost, Value)> {
        let mut connection = self.connect()?;
        let mut query = QueryCost {
            key,
            cpu_ms: Vec::new(),
            wall_ms: Vec::new(),
            answer_bytes: 0,
            memory_bytes: 0,
        };
        if !work.quick {
            self.server.wait_until_idle()?;
        }
        self.server.forget_memory();
        let mut answer = Vec::new();
        for round in 0..=work.query_rounds {
            let (cpu, threads, wall) = (self.server.cpu()?, self.server.threads(), wall_time());
            answer = connection.get(path)?.into_body().with_context(|| format!("query {key}"))?;
            let wall = wall_time() - wall;
            let cpu = match self.server.threads().since(&threads) {
                Some(used) => used,
                None => self.server.cpu()? - cpu,
            };
            if round > 0 {
                query.cpu_ms.push(cpu.as_secs_f64() * 1e3);
                query.wall_ms.push(wall.as_secs_f64() * 1e3);
            }
        }
        query.answer_bytes = answer.len() as u64;
        query.memory_bytes = self.server.memory_bytes()?;
        Ok((query, serde_json::from_slice(&answer)?))
    }

    fn stop(self) -> Result<()> {
        let PrometheusServer { server, dir, .. } = self;
        server.stop()?;
        Ok(dir.close()?)
    }
}

/// Time between the oldest and the newest sample of the head.
pub(crate) fn head_span_ms(connection: &mut BenchConnection) -> Result<f64> {
    let metrics = String::from_utf8(connection.get("/metrics")?.into_body()?)?;
    let value = |name: &str| -> Option<f64> {
        metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    value("prometheus_tsdb_head_max_time ")
        .zip(value("prometheus_tsdb_head_min_time "))
        .map(|(max_ms, min_ms)| max_ms - min_ms)
        .context("no span of the head in /metrics")
}

fn write(connection: &mut BenchConnection, request: &[u8]) -> Result<BenchResponse> {
    connection.post("/api/v1/write", REMOTE_WRITE_HEADERS, request)
}

/// Bytes of all files in a directory, recursively.
fn dir_bytes(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let data = entry.metadata()?;
        sum += if data.is_dir() { dir_bytes(&entry.path())? } else { data.len() };
    }
    Ok(sum)
}

/// Timestamp of the cumulative count before the end of a minute; 0 is before the first one.
fn time_ms(dataset: &Dataset, minutes: usize) -> i64 {
    dataset.start_ns(minutes) / 1_000_000
}

/// Requests of each connection; cumulative histograms start with an empty one.
fn requests(
    dataset: &Dataset,
    lanes: usize,
    kind: HistogramKind,
    truth: &mut ExpectedStats,
) -> Vec<Vec<Vec<u8>>> {
    let (scale, moved) = (dataset.scale(), BucketMap::new());
    let series: Vec<SyntheticSeries> = (0..scale.series).map(|at| dataset.series(at)).collect();
    let mut counted = vec![SeriesCounts::new(); scale.series];
    let mut generator = dataset.generator();
    let step = if scale.series == 1 { MINUTES_ALONE } else { MINUTES_MANY };
    let mut all = vec![Vec::new(); lanes];
    let mut request = WriteRequestBuilder::default();
    for first in (0..scale.minutes).step_by(step) {
        for (lane, requests) in all.iter_mut().enumerate() {
            let of_lane = scale.series * lane / lanes..scale.series * (lane + 1) / lanes;
            for at in of_lane {
                request.begin(&series[at]);
                if first == 0 && kind == HistogramKind::Cumulative {
                    request.histogram(kind, &counted[at], time_ms(dataset, 0));
                }
                for minute in first..(first + step).min(scale.minutes) {
                    let sample: &SyntheticSample = generator.draw(at, minute);
                    truth.add(sample);
                    if kind == HistogramKind::Gauge {
                        counted[at].reset();
                    }
                    counted[at].add(sample, &moved);
                    request.histogram(kind, &counted[at], time_ms(dataset, minute + 1));
                }
                request.end();
            }
            requests.push(request.take_compressed());
        }
    }
    all
}

/// A range query over a whole data set; the first step ends one step after its start.
pub(crate) fn range(query: &str, start_s: i64, end_s: i64, step_s: i64) -> String {
    let (query, start_s) = (percent_encode(query), start_s + step_s);
    format!("/api/v1/query_range?query={query}&start={start_s}&end={end_s}&step={step_s}")
}

fn ends_s(dataset: &Dataset) -> (i64, i64) {
    let minutes = dataset.scale().minutes;
    (time_ms(dataset, 0) / 1_000, time_ms(dataset, minutes) / 1_000)
}

fn run_a(
    program: &Path,
    work: &StoreWork,
    kind: HistogramKind,
    figures: &mut StoreFigures,
    results: &mut QueryResults,
) -> Result<()> {
    let dataset = &work.a;
    let mut truth = ExpectedStats::new(dataset);
    let lanes = requests(dataset, 1, kind, &mut truth);
    let points = dataset.scale().minutes as u64;
    let mut server = PrometheusServer::start(program)?;
    figures.loads.push(server.load(SETS[0], points, &lanes)?);
    let over = match kind {
        HistogramKind::Cumulative => "increase",
        HistogramKind::Gauge => "sum_over_time",
    };
    if work.query {
        crate::query::prometheus::run_a(&mut server, work, over, &truth, results)?;
    }
    if work.store {
        query_a(&mut server, work, kind, over, &truth, &lanes[0], figures)?;
    }
    server.stop()
}

fn query_a(
    server: &mut PrometheusServer,
    work: &StoreWork,
    kind: HistogramKind,
    over: &str,
    truth: &ExpectedStats,
    requests: &[Vec<u8>],
    figures: &mut StoreFigures,
) -> Result<()> {
    let (start, end) = ends_s(&work.a);
    let path = range(&format!("{over}(disk_io_latency[90m])"), start, end, 90 * 60);
    let (query, answer) = server.query(work, "a-heatmap", &path)?;
    figures.queries.push(query);
    let columns = series_of(&answer, "histograms")?;
    let counts =
        columns.iter().filter_map(|(_, value)| value["count"].as_str()?.parse::<f64>().ok());
    let total: f64 = counts.sum();
    figures.answers.push(CheckedAnswer::new(
        "A: measurements in the heatmap",
        format!("{total:.1}"),
        truth.total().count.to_string(),
    ));

    let window = format!("{over}(disk_io_latency[4m])");
    let path = range(&format!("histogram_quantile(0.99, {window})"), start, end, 240);
    let (query, answer) = server.query(work, "a-p99", &path)?;
    figures.queries.push(query);
    let errors = window_errors(&answer, start, truth, |window, found| {
        let (lower, upper) = window.quantile_ns(0.99)?;
        let middle = (lower + upper) as f64 / 2e9;
        Some((found / middle - 1.0).abs())
    })?;
    figures.answers.push(CheckedAnswer::new(
        "A: relative error of p99 per 4 min relative to the middle of its exact bucket, median \
         and worst",
        format!("{} %, {} %", errors.median(), errors.worst()),
        "0; a bucket is up to 10 % wide",
    ));

    let limit_s = THRESHOLD_NS as f64 / 1e9;
    let path = range(&format!("histogram_fraction(0, {limit_s}, {window})"), start, end, 240);
    let (query, answer) = server.query(work, "a-below", &path)?;
    figures.queries.push(query);
    let errors = window_errors(&answer, start, truth, |window, found| {
        let share = window.at_or_below_threshold as f64 / window.count as f64;
        Some((found - share).abs())
    })?;
    figures.answers.push(CheckedAnswer::new(
        "A: error of the share at or below 12.3 ms per 4 min, median and worst",
        format!("{} %, {} %", errors.median(), errors.worst()),
        "0",
    ));
    let path = range(&format!("histogram_count({window})"), start, end, 240);
    let (_, answer) = server.query(work, "a-count", &path)?;
    let errors = window_errors(&answer, start, truth, |window, found| {
        Some((found / window.count as f64 - 1.0).abs())
    })?;
    figures.answers.push(CheckedAnswer::new(
        "A: relative error of the count per 4 min, median and worst",
        format!("{} %, {} %", errors.median(), errors.worst()),
        "0",
    ));

    figures.answers.push(resend_all(server, requests, kind, truth, end)?);
    Ok(())
}

/// Sends everything again, like a sender that missed the acknowledgements.
fn resend_all(
    server: &mut PrometheusServer,
    requests: &[Vec<u8>],
    kind: HistogramKind,
    truth: &ExpectedStats,
    end_s: i64,
) -> Result<CheckedAnswer> {
    let count = |server: &PrometheusServer| -> Result<String> {
        let all = match kind {
            HistogramKind::Cumulative => "disk_io_latency".to_owned(),
            HistogramKind::Gauge => {
                format!("sum_over_time(disk_io_latency[{}m])", 4 * truth.windows().len())
            }
        };
        let query = percent_encode(&format!("histogram_count({all})"));
        let path = format!("/api/v1/query?query={query}&time={end_s}");
        let answer: Value = serde_json::from_slice(&server.connect()?.get(&path)?.into_body()?)?;
        Ok(answer["data"]["result"][0]["value"][1].as_str().unwrap_or("nothing").to_owned())
    };
    let before = count(server)?;
    let (mut connection, mut statuses) = (server.connect()?, BTreeMap::new());
    for request in requests {
        let answer = write(&mut connection, request)?;
        *statuses.entry(answer.status).or_insert(0) += 1;
    }
    let after = count(server)?;
    let statuses: Vec<String> =
        statuses.iter().map(|(status, times)| format!("{times} × {status}")).collect();
    let question = format!("A: all requests sent again; measurements, {before} before");
    Ok(CheckedAnswer::new(
        &question,
        format!("{after} ({})", statuses.join(", ")),
        "no change, accepted",
    ))
}

fn run_b(
    program: &Path,
    work: &StoreWork,
    figures: &mut StoreFigures,
    results: &mut QueryResults,
) -> Result<()> {
    let dataset = &work.b;
    let scale = dataset.scale();
    let mut truth = ExpectedStats::new(dataset);
    let lanes = requests(dataset, 2, HistogramKind::Cumulative, &mut truth);
    let mut server = PrometheusServer::start(program)?;
    let points = (scale.series * scale.minutes) as u64;
    figures.loads.push(server.load(SETS[1], points, &lanes)?);
    drop(lanes);
    if work.query {
        crate::query::prometheus::run_b(&mut server, work, results)?;
    }
    if work.store {
        query_b(&mut server, work, &truth, figures)?;
    }
    server.stop()
}

fn query_b(
    server: &mut PrometheusServer,
    work: &StoreWork,
    truth: &ExpectedStats,
    figures: &mut StoreFigures,
) -> Result<()> {
    let (dataset, scale) = (&work.b, work.b.scale());
    let (start, end) = ends_s(dataset);
    let sum = "sum(increase(http_request_duration[5m]))";
    let path = range(&format!("histogram_quantile(0.999, {sum})"), start, end, 300);
    figures.queries.push(server.query(work, "b-p99.9", &path)?.0);

    let minutes = scale.minutes;
    let query = percent_encode(&format!("sum(increase(http_request_duration[{minutes}m]))"));
    let path = format!("/api/v1/query?query={query}&time={end}");
    let (query, answer) = server.query(work, "b-day", &path)?;
    figures.queries.push(query);
    let count = answer["data"]["result"][0]["histogram"][1]["count"].as_str();
    figures.answers.push(CheckedAnswer::new(
        "B: measurements of the whole day",
        count.unwrap_or("nothing"),
        truth.total().count.to_string(),
    ));
    Ok(())
}

fn run_gauges(program: &Path, work: &StoreWork, figures: &mut StoreFigures) -> Result<()> {
    let walk = super::RandomWalk::new(work);
    let mut all = vec![Vec::new(); 2];
    let mut request = WriteRequestBuilder::default();
    // As many points per request as for histograms.
    for first in (0..walk.minutes).step_by(MINUTES_MANY) {
        for (lane, requests) in all.iter_mut().enumerate() {
            for gauge in walk.gauges * lane / 2..walk.gauges * (lane + 1) / 2 {
                let host = format!("host-{gauge:04}");
                request.begin_labels(&[("__name__", "load_average"), ("host", &host)]);
                for minute in first..(first + MINUTES_MANY).min(walk.minutes) {
                    request.number(walk.value(gauge, minute), walk.time_ms(minute));
                }
                request.end();
            }
            requests.push(request.take_compressed());
        }
    }
    let mut server = PrometheusServer::start(program)?;
    figures.loads.push(server.load(SETS[2], (walk.gauges * walk.minutes) as u64, &all)?);
    let (start, end) = (walk.time_ms(0) / 1_000, walk.time_ms(walk.minutes - 1) / 1_000);
    let path = range("avg(load_average)", start - 60, end, 60);
    let (query, answer) = server.query(work, "gauges-mean", &path)?;
    figures.queries.push(query);
    let minute = walk.minutes / 2;
    let found = series_of(&answer, "values")?
        .get(minute)
        .and_then(|(_, value)| value.as_str()?.parse::<f64>().ok());
    let truth = (0..walk.gauges).map(|gauge| walk.value(gauge, minute)).sum::<f64>();
    figures.answers.push(CheckedAnswer::new(
        "gauges: mean at the middle",
        found.map_or("nothing".to_owned(), |found| format!("{found:.9}")),
        format!("{:.9}", truth / walk.gauges as f64),
    ));
    server.stop()
}

/// Times and values of the only series of a range query.
pub(crate) fn series_of(answer: &Value, kind: &str) -> Result<Vec<(i64, Value)>> {
    let values =
        answer["data"]["result"][0][kind].as_array().context("a response without values")?;
    let pair = |pair: &Value| Some((pair[0].as_f64()? as i64, pair[1].clone()));
    Ok(values.iter().filter_map(pair).collect())
}
