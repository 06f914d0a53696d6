//! A dashboard of 20 panels over 6 hours, reloaded every 10 s while data arrive, and a light query
//! beside the heaviest.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use synthetic::Dataset;

use super::answer::{AnswerCheck, AnswerValues, of_group};
use super::expected::CountOracle;
use super::ingest;
use super::path_query::LIMIT_S;
use super::server::{PathServer, PathServerKind};
use super::workload::Workload;
use crate::clock::wall_time;
use crate::store::http::percent_encode;

const RELOAD: Duration = Duration::from_secs(10);
/// A browser opens at most this many connections to a server.
const CONNECTIONS: usize = 6;
const SPAN_S: i64 = 6 * 3_600;
const STEP_S: i64 = 60;
/// Data there before the first reload, and the time in which the rest arrives.
const FIRST_PART: f64 = 0.5;
const ARRIVAL_S: f64 = 60.0;

/// Times of a dashboard.
#[derive(Debug, Default)]
pub(crate) struct DashboardTimes {
    /// Of each panel, sorted.
    pub(crate) panels_ms: Vec<f64>,
    /// From the start of a reload to its last panel, sorted.
    pub(crate) reloads_ms: Vec<f64>,
    pub(crate) failed: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) deferred: u64,
    /// CPU time of the server, ingest included.
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    pub(crate) memory_bytes: u64,
    /// Answers of the panels after ingest; `None` of one that failed.
    pub(crate) answers: Vec<Option<AnswerValues>>,
}

/// Quantile of sorted values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

const METRIC: &str = "http_request_duration";

/// Queries of the panels: p99 of ten endpoints, heatmaps of four, p99 of both regions, two
/// quantiles of all, requests by endpoint, and the share at or below a limit.
fn panels(dataset: &Dataset, kind: PathServerKind, over: &str) -> Vec<String> {
    let endpoints = endpoints(dataset);
    let sum = |selector: &str| match kind.is_victoria() {
        true => format!("sum by (vmrange) ({over}({METRIC}_bucket{selector}[5m]))"),
        false => format!("sum({over}({METRIC}{selector}[5m]))"),
    };
    let p99 = |selector: String| format!("histogram_quantile(0.99, {})", sum(&selector));
    let endpoint = |at: usize| format!("{{endpoint=\"{}\"}}", endpoints[at % endpoints.len()]);
    let mut all: Vec<String> = (0..10).map(|at| p99(endpoint(at))).collect();
    all.extend((10..14).map(|at| sum(&endpoint(at))));
    all.extend(["eu-west", "us-east"].map(|region| p99(format!("{{region=\"{region}\"}}"))));
    all.extend([p99(String::new()), format!("histogram_quantile(0.5, {})", sum(""))]);
    all.push(match kind.is_victoria() {
        true => format!("sum by (endpoint) (rate({METRIC}_count[5m]))"),
        false => format!("sum by (endpoint) (histogram_count(rate({METRIC}[5m])))"),
    });
    all.push(match kind.is_victoria() {
        true => format!("histogram_share({LIMIT_S}, {})", sum("")),
        false => format!("histogram_fraction(-Inf, {LIMIT_S}, {})", sum("")),
    });
    all
}

fn endpoints(dataset: &Dataset) -> Vec<String> {
    let mut endpoints: Vec<String> = Vec::new();
    for at in 0..dataset.scale().series {
        let labels = dataset.series(at).labels;
        let endpoint = labels.into_iter().find(|(name, _)| *name == "endpoint");
        endpoints.extend(endpoint.map(|(_, value)| value).filter(|it| !endpoints.contains(it)));
    }
    endpoints
}

/// Panel with requests by endpoint: an extrapolated rate, whichever function the others have.
const RATE_PANEL: usize = 18;
/// Window of the panels, in minutes and seconds.
const WINDOW_MINUTES: usize = 5;
const WINDOW_S: i64 = 300;

/// Compares the answers of a server after ingest with those of Prometheus, if its function is
/// Prometheus', or with the counts that were sent, at steps that are whole windows from the start.
pub(crate) fn check_panels(
    (kind, over): (PathServerKind, &str),
    answers: &[Option<AnswerValues>],
    prometheus: &[Option<AnswerValues>],
    (dataset, expected): (&Dataset, &CountOracle),
) -> AnswerCheck {
    let from_s = dataset.start_ns(dataset.scale().minutes) / 1_000_000_000 - SPAN_S;
    let (endpoints, widen) = (endpoints(dataset), kind.bucket_width());
    let mut check = AnswerCheck::default();
    for (panel, answer) in answers.iter().enumerate() {
        let is_exact = kind.is_victoria() || over != "increase" && panel != RATE_PANEL;
        let quantiles = |q: f64, by: bool| expected.quantiles(q, WINDOW_MINUTES, by, widen);
        let bounds = match (is_exact, panel) {
            (false, _) => prometheus.get(panel).and_then(Option::as_ref).map(AnswerValues::bounds),
            (_, 0..10) => {
                let endpoint = &endpoints[panel % endpoints.len()];
                Some(of_group(quantiles(0.99, true), endpoint, from_s))
            }
            (_, 16) => Some(of_group(quantiles(0.99, false), "", from_s)),
            (_, 17) => Some(of_group(quantiles(0.5, false), "", from_s)),
            (_, 19) => Some(of_group(expected.shares(LIMIT_S, WINDOW_MINUTES, widen), "", from_s)),
            _ => None,
        };
        let Some(bounds) = bounds else { continue };
        let answer = answer.clone().unwrap_or_default();
        let answer = if is_exact { answer.every(WINDOW_S, from_s) } else { answer };
        check.merge(&answer.check(&bounds));
    }
    check
}

/// Loads a part of B into an empty server, then reloads the dashboard while the rest arrives.
pub(crate) fn run(
    server: &mut PathServer,
    dataset: &Dataset,
    load: &Workload,
    over: &str,
) -> Result<DashboardTimes> {
    let sent = AtomicU64::new(0);
    ingest::stream(server, load, 0.0..FIRST_PART, None, &sent)?;
    server.process.wait_until_idle()?;
    server.process.forget_memory();
    let (cpu, wall) = (server.process.cpu_clock()?, wall_time());
    let rate = load.points as f64 * (1.0 - FIRST_PART) / ARRIVAL_S;
    let texts = panels(dataset, server.kind, over);
    let (done, times) = (AtomicBool::new(false), Mutex::new(DashboardTimes::default()));
    let deferred = std::thread::scope(|scope| {
        let reloads = scope.spawn(|| -> Result<()> {
            let mut next = wall_time();
            while !done.load(Ordering::Relaxed) {
                let share = sent.load(Ordering::Relaxed) as f64 / load.lanes[0].len() as f64;
                let minutes = (share * dataset.scale().minutes as f64) as usize;
                let now_s = dataset.start_ns(minutes) / 1_000_000_000;
                reload(server, &texts, now_s, &times)?;
                next += RELOAD;
                while wall_time() < next && !done.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            Ok(())
        });
        let sending = ingest::stream(server, load, FIRST_PART..1.0, Some(rate), &sent);
        done.store(true, Ordering::Relaxed);
        reloads.join().expect("BUG: a reload does not panic")?;
        sending
    })?;
    let mut times = times.into_inner().expect("no panic");
    times.panels_ms.sort_by(f64::total_cmp);
    times.reloads_ms.sort_by(f64::total_cmp);
    times.deferred = deferred;
    times.wall = wall_time() - wall;
    times.cpu = server.process.cpu_clock()? - cpu;
    times.memory_bytes = server.process.memory_bytes()?;
    // VictoriaMetrics finds the newest data some seconds later.
    std::thread::sleep(RELOAD);
    let now_s = dataset.start_ns(dataset.scale().minutes) / 1_000_000_000;
    let mut connection = server.connect()?;
    for text in &texts {
        let cache = if server.kind.is_victoria() { "&nocache=1" } else { "" };
        let answer = connection.get(&(panel_path(text, now_s) + cache))?;
        let values = answer.into_body().and_then(|body| AnswerValues::parse(&body));
        times.answers.push(values.ok());
    }
    Ok(times)
}

fn panel_path(text: &str, now_s: i64) -> String {
    let (query, start_s) = (percent_encode(text), now_s - SPAN_S);
    format!("/api/v1/query_range?query={query}&start={start_s}&end={now_s}&step={STEP_S}")
}

/// All panels once, over as many connections as a browser has.
fn reload(
    server: &PathServer,
    texts: &[String],
    now_s: i64,
    times: &Mutex<DashboardTimes>,
) -> Result<()> {
    let (next, start) = (AtomicU64::new(0), wall_time());
    std::thread::scope(|scope| {
        let connection = || {
            scope.spawn(|| -> Result<()> {
                let mut connection = server.connect()?;
                while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let asked = wall_time();
                    let answer = connection.get(&panel_path(text, now_s))?;
                    let took = (wall_time() - asked).as_secs_f64() * 1e3;
                    let mut times = times.lock().expect("no panic");
                    times.panels_ms.push(took);
                    if let Err(error) = answer.into_body() {
                        times.failed += 1;
                        times.first_error.get_or_insert(format!("{text}: {error:#}"));
                    }
                }
                Ok(())
            })
        };
        let running: Vec<_> = (0..CONNECTIONS).map(|_| connection()).collect();
        running.into_iter().try_for_each(|one| one.join().expect("BUG: a panel does not panic"))
    })?;
    let took = (wall_time() - start).as_secs_f64() * 1e3;
    times.lock().expect("no panic").reloads_ms.push(took);
    Ok(())
}

/// Pause between two light queries.
const LIGHT_PAUSE: Duration = Duration::from_millis(20);

/// Times of a light query, sorted, while a heavy one is asked several times.
pub(crate) fn light_beside_heavy(
    server: &PathServer,
    light: &str,
    heavy: &str,
    times: usize,
) -> Result<Vec<f64>> {
    server.connect()?.get(light)?.into_body().context("the light query")?;
    let done = AtomicBool::new(false);
    let mut all = std::thread::scope(|scope| {
        let heavy = scope.spawn(|| -> Result<()> {
            let asked = (0..times).try_for_each(|_| {
                server.connect()?.get(heavy)?.into_body().context("the heavy query").map(drop)
            });
            done.store(true, Ordering::Relaxed);
            asked
        });
        let (mut all, mut connection) = (Vec::new(), server.connect()?);
        while !done.load(Ordering::Relaxed) {
            let asked = wall_time();
            connection.get(light)?.into_body().context("the light query")?;
            all.push((wall_time() - asked).as_secs_f64() * 1e3);
            std::thread::sleep(LIGHT_PAUSE);
        }
        heavy.join().expect("BUG: the heavy query does not panic")?;
        anyhow::Ok(all)
    })?;
    all.sort_by(f64::total_cmp);
    Ok(all)
}

/// Numbers of readers that ask at once.
pub(crate) const READERS: [usize; 3] = [1, 8, 64];
/// Time for which readers ask.
const READERS_TIME: Duration = Duration::from_secs(5);

/// Cost of a query that several readers ask at once, without a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadersCost {
    pub(crate) cpu_ms: f64,
    /// p99 of the wall time.
    pub(crate) p99_ms: f64,
    pub(crate) per_second: f64,
}

/// Asks a query by several readers.
pub(crate) fn ask_by_readers(
    server: &PathServer,
    path: &str,
    readers: usize,
) -> Result<ReadersCost> {
    let (cpu, start) = (server.process.cpu_clock()?, wall_time());
    let mut all = std::thread::scope(|scope| {
        let reader = || {
            scope.spawn(|| -> Result<Vec<f64>> {
                let (mut connection, mut times) = (server.connect()?, Vec::new());
                while wall_time() - start < READERS_TIME {
                    let asked = wall_time();
                    connection.get(path)?.into_body()?;
                    times.push((wall_time() - asked).as_secs_f64() * 1e3);
                }
                Ok(times)
            })
        };
        let running: Vec<_> = (0..readers).map(|_| reader()).collect();
        let mut all = Vec::new();
        for one in running {
            all.extend(one.join().expect("BUG: a reader does not panic")?);
        }
        anyhow::Ok(all)
    })?;
    all.sort_by(f64::total_cmp);
    let count = all.len() as f64;
    Ok(ReadersCost {
        cpu_ms: (server.process.cpu_clock()? - cpu).as_secs_f64() * 1e3 / count,
        p99_ms: quantile(&all, 0.99),
        per_second: count / (wall_time() - start).as_secs_f64(),
    })
}
