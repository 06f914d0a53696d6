//! Churn: new series in each hour of a day, as of pods that live for an hour. The clock is that of
//! the samples: they are sent as fast as the server takes them.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};

use super::growth::check_sum;
use super::ingest;
use super::path_run::{DEFERRED, PathPeer, PathRun, megabytes, progress};
use super::path_table::{PathLimit, PathMeasure};
use super::server::{PathServer, PathServerKind};
use super::workload::{WireFormat, Workload};
use crate::clock::wall_time;
use crate::report::number;
use crate::store::http::percent_encode;
use crate::store::remote_write::WriteRequestBuilder;

const HOURS: usize = 24;
/// New series in each hour.
const SERIES: usize = 100_000;
/// Samples of each, 15 minutes apart.
const SAMPLES: usize = 4;
const INTERVAL_S: i64 = 15 * 60;
const PER_REQUEST: usize = 2_000;
/// 2026-11-15T00:00:00Z, as of set B.
const START_S: i64 = 1_794_700_800;
/// Hours after which the server may settle, and its memory is read.
const REST_HOURS: usize = 6;
/// Memory after the last hour against that after the middle one: flat but for noise.
const GROWTH_MAX: PathLimit = PathLimit::AtMost(1.1);
const CHECK_MAX: Duration = Duration::from_secs(30);
/// One sender has a million series by default, which are eleven hours of this churn.
const SETTINGS: &str = "[store]\nmax_producer_series = 10000000\nmax_metric_series = \
                        10000000\nmax_label_values = 10000000\n";

/// Figures of a run.
struct ChurnFigures {
    /// Memory after each rest, in bytes.
    memory: Vec<u64>,
    peak: u64,
    cpu: Duration,
    deferred: u64,
}

/// Samples of one hour.
fn workload(hour: usize, series: usize) -> Workload {
    let mut request = WriteRequestBuilder::default();
    let mut bodies = Vec::new();
    for sample in 0..SAMPLES {
        let time_s = START_S + (hour * SAMPLES + sample) as i64 * INTERVAL_S;
        for first in (0..series).step_by(PER_REQUEST) {
            for at in first..(first + PER_REQUEST).min(series) {
                let pod = format!("api-{hour:02}-{at:06}");
                let instance = format!("10.{}.{}.{}:9100", hour, at / 256 % 256, at % 256);
                let route = format!("/route/{}", at % 50);
                request.begin_labels(&[
                    ("__name__", "m"),
                    ("instance", &instance),
                    ("job", "shop"),
                    ("pod", &pod),
                    ("route", &route),
                ]);
                request.number((at % 1_000 + sample * 900) as f64, time_s * 1_000);
                request.end();
            }
            bodies.push(request.take_compressed());
        }
    }
    Workload { format: WireFormat::Classic, lanes: vec![bodies], points: (series * SAMPLES) as u64 }
}

/// Checks that the last samples of the last hour are those of its series alone.
/// VictoriaMetrics finds new series some seconds later.
fn check(server: &PathServer, series: usize) -> Result<()> {
    let end = START_S + (HOURS * SAMPLES - 1) as i64 * INTERVAL_S;
    let cache = if server.kind.is_victoria() { "&nocache=1" } else { "" };
    let query = percent_encode("count(m)");
    let path = format!("/api/v1/query?query={query}&time={end}{cache}");
    let until = wall_time() + CHECK_MAX;
    loop {
        let body = server.connect()?.get(&path)?.into_body()?;
        match check_sum(&body, series as f64) {
            Err(_) if wall_time() < until => std::thread::sleep(Duration::from_secs(1)),
            outcome => return outcome.context("count(m)"),
        }
    }
}

impl PathRun {
    /// Memory while series come and go.
    pub(crate) fn run_churn(&mut self) -> Result<()> {
        let series = ((SERIES as f64 * self.scale) as usize).max(1);
        for peer in self.peers.clone() {
            if peer.kind == PathServerKind::VictoriaOwn {
                continue;
            }
            for _ in 0..self.rounds {
                match self.churn(&peer, series) {
                    Ok(figures) => self.note_churn(peer.column, series, &figures),
                    Err(error) => self.fail(&peer, "churn", "24 hours", &error),
                }
            }
        }
        Ok(())
    }

    fn churn(&self, peer: &PathPeer, series: usize) -> Result<ChurnFigures> {
        let dir = self.empty_dir(peer, "churn")?;
        let mut server = PathServer::start_with(peer.kind, &peer.program, &dir, SETTINGS)?;
        server.process.wait_until_idle()?;
        let cpu = server.process.cpu_clock()?;
        let (mut memory, mut deferred) = (Vec::new(), 0);
        for hour in 0..HOURS {
            let load = workload(hour, series);
            deferred += ingest::stream(&server, &load, 0.0..1.0, None, &AtomicU64::new(0))
                .with_context(|| format!("hour {hour}"))?;
            if (hour + 1) % REST_HOURS == 0 {
                server.wait_until_settled()?;
                memory.push(server.process.resident_bytes()?);
            }
            let rss = number(megabytes(server.process.resident_bytes()?));
            progress(&format!("churn: {}, hour {hour}: {rss} MB", peer.kind.key()));
        }
        let cpu = server.process.cpu_clock()? - cpu;
        let peak = server.process.memory_bytes()?;
        check(&server, series)?;
        server.stop()?;
        fs::remove_dir_all(&dir)?;
        Ok(ChurnFigures { memory, peak, cpu, deferred })
    }

    fn note_churn(&mut self, column: usize, series: usize, figures: &ChurnFigures) {
        let what = format!("churn: {series} new series an hour for {HOURS} h");
        let names = ["RSS after 6 h, MB", "RSS after 12 h, MB", "RSS after 18 h, MB"];
        let names = names.into_iter().chain(["RSS after 24 h, MB"]);
        for (name, bytes) in names.zip(&figures.memory) {
            self.table.add(PathMeasure::new(what.as_str(), name), column, megabytes(*bytes));
        }
        if let [_, middle, .., last] = figures.memory[..] {
            let measure = PathMeasure::new(what.as_str(), "RSS after 24 h against 12 h");
            self.table.add(measure.with(Some(GROWTH_MAX)), column, last as f64 / middle as f64);
        }
        let rows = [
            ("peak RSS, MB", megabytes(figures.peak)),
            ("CPU, s", figures.cpu.as_secs_f64()),
            (DEFERRED, figures.deferred as f64),
        ];
        for (measure, value) in rows {
            self.table.add(PathMeasure::new(what.as_str(), measure), column, value);
        }
    }
}
