//! Cost against the length of the range: quantiles of one series over an hour to a year.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use synthetic::{Dataset, DatasetKind, DatasetScale};

use super::answer::{AnswerBounds, AnswerKey, AnswerValues};
use super::encoding;
use super::expected::quantile_bounds;
use super::growth;
use super::growth_run::EXPONENT_MAX;
use super::ingest;
use super::path_run::{PathPeer, PathRun, progress, refusal};
use super::path_table::{ANSWER, PathMeasure};
use super::server::{PathServer, PathServerKind};
use super::workload::{PathSet, WireFormat, Workload};
use crate::clock::wall_time;
use crate::report::number;
use crate::store::http::percent_encode;
use crate::store::remote_write::{BUCKETS, BucketMap, SeriesCounts};

/// Steps of each query; its window is its step.
const STEPS: usize = 10;
/// Windows in minutes and ranges: an hour, a day, ten days, 73 days, a year.
const RANGES: [(usize, &str); 5] =
    [(6, "1 h"), (144, "1 d"), (1_440, "10 d"), (10_512, "73 d"), (52_560, "1 y")];
const MINUTES: usize = 365 * 1_440;
/// Minutes per request.
const PER_REQUEST: usize = 360;
/// 2026-11-15T00:00:00Z: the end of the data, which lie in the past.
const END_S: i64 = 1_794_700_800;
const SECOND_NS: i64 = 1_000_000_000;
const Q: f64 = 0.99;
/// A query counts as its median over this many runs, after one that does not count.
const RUNS: usize = 5;

/// A year of one series, and the counts of the windows that are asked for.
struct RangeData {
    dataset: Dataset,
    minutes: usize,
    /// Counts of native buckets by window in minutes and end.
    windows: BTreeMap<(usize, i64), Vec<u64>>,
}

impl RangeData {
    fn new(scale: f64) -> RangeData {
        let minutes = ((MINUTES as f64 * scale) as usize).max(RANGES[2].0 * STEPS);
        let full = DatasetScale::full(DatasetKind::Http);
        let dataset = Dataset::new(DatasetKind::Http, DatasetScale { series: 1, minutes, ..full });
        RangeData { dataset, minutes, windows: BTreeMap::new() }
    }

    /// Ranges within the data.
    fn ranges(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let minutes = self.minutes;
        RANGES.into_iter().filter(move |(window, _)| window * STEPS <= minutes)
    }

    /// End of a minute, in seconds.
    fn time_s(&self, minute: usize) -> i64 {
        END_S - (self.minutes - minute) as i64 * 60
    }

    fn encode(&mut self, format: WireFormat) -> Workload {
        let mut encoder = encoding::encoder(format, &self.dataset);
        let (series, moved) = (self.dataset.series(0), BucketMap::new());
        let mut counted = SeriesCounts::new();
        let mut windows = BTreeMap::new();
        let mut generator = self.dataset.generator();
        let ranges: Vec<usize> = self.ranges().map(|(window, _)| window).collect();
        let mut bodies = Vec::new();
        for first in (0..self.minutes).step_by(PER_REQUEST) {
            encoder.begin(&series);
            if first == 0 {
                encoder.put(&counted, self.time_s(0) * SECOND_NS);
            }
            for minute in first..(first + PER_REQUEST).min(self.minutes) {
                let sample = generator.draw(0, minute);
                counted.add(sample, &moved);
                for &window in &ranges {
                    let first = self.minutes - window * STEPS;
                    let Some(since) = minute.checked_sub(first) else { continue };
                    let end = first + (since / window + 1) * window;
                    let counts: &mut Vec<u64> = windows
                        .entry((window, self.time_s(end)))
                        .or_insert_with(|| vec![0; BUCKETS]);
                    for &(index, count) in &sample.buckets {
                        counts[moved.target(index)] += count;
                    }
                }
                encoder.put(&counted, self.time_s(minute + 1) * SECOND_NS);
            }
            encoder.end();
            bodies.push(encoder.take());
        }
        self.windows = windows;
        Workload { format, lanes: vec![bodies], points: self.minutes as u64 }
    }

    /// What exact functions must answer.
    fn bounds(&self, window: usize, widen: f64) -> AnswerBounds {
        let of_range = self.windows.iter().filter(|((minutes, _), _)| *minutes == window);
        let bounds = |((_, end), counts): (&(usize, i64), &Vec<u64>)| {
            Some((AnswerKey::new("", *end), quantile_bounds(counts, Q, widen)?))
        };
        of_range.filter_map(bounds).collect()
    }
}

fn path(kind: PathServerKind, over: &str, window: usize) -> String {
    let metric = "http_request_duration";
    let growth = match kind.is_victoria() {
        true => format!("sum by (vmrange) ({over}({metric}_bucket[{window}m]))"),
        false => format!("{over}({metric}[{window}m])"),
    };
    let query = percent_encode(&format!("histogram_quantile({Q}, {growth})"));
    let cache = if kind.is_victoria() { "&nocache=1" } else { "" };
    let step = window as i64 * 60;
    let start = END_S - step * (STEPS as i64 - 1);
    format!("/api/v1/query_range?query={query}&start={start}&end={END_S}&step={step}{cache}")
}

/// Median CPU and wall time in milliseconds, and the answer.
fn ask(server: &PathServer, path: &str) -> Result<([f64; 2], AnswerValues)> {
    let (mut connection, mut runs, mut answer) = (server.connect()?, Vec::new(), Vec::new());
    for run in 0..=RUNS {
        let (cpu, wall) = (server.process.cpu_clock()?, wall_time());
        answer = connection.get(path)?.into_body()?;
        let wall = wall_time() - wall;
        if run > 0 {
            runs.push((server.process.cpu_clock()? - cpu, wall));
        }
    }
    runs.sort_unstable();
    let (cpu, wall) = runs[RUNS / 2];
    Ok((
        [cpu, wall].map(|time| time.as_secs_f64() * 1e3),
        AnswerValues::parse(&answer)?.without_group(),
    ))
}

/// Cost and answer of each range, by function.
type RangeAnswers = Vec<Vec<Result<([f64; 2], AnswerValues)>>>;

fn measure(peer: &PathPeer, dir: &Path, load: &Workload, data: &RangeData) -> Result<RangeAnswers> {
    let mut server = PathServer::start(peer.kind, &peer.program, dir)?;
    ingest::stream(&server, load, 0.0..1.0, None, &Default::default())?;
    server.wait_until_settled()?;
    // VictoriaMetrics finds new series some seconds later, or after a restart.
    server.stop()?;
    let mut server = PathServer::start(peer.kind, &peer.program, dir)?;
    server.process.wait_until_idle()?;
    let functions = peer.kind.functions().iter();
    let of = |over: &&str| {
        data.ranges().map(|(window, _)| ask(&server, &path(peer.kind, over, window))).collect()
    };
    let answers = functions.map(of).collect();
    server.stop()?;
    Ok(answers)
}

impl PathRun {
    /// Cost of a query against the length of its range.
    pub(crate) fn run_growth_of_ranges(&mut self) -> Result<()> {
        let mut data = RangeData::new(self.scale);
        progress(&format!("growth of ranges: drawing {} minutes …", data.minutes));
        let mut all = Vec::new();
        for peer in self.peers.clone() {
            let Some(format) = peer.kind.format(PathSet::B) else { continue };
            let load = data.encode(format);
            progress(&format!("growth of ranges: {} …", peer.kind.key()));
            let dir = self.empty_dir(&peer, "growth")?;
            match measure(&peer, &dir, &load, &data) {
                Ok(answers) => all.push((peer, answers)),
                Err(error) => self.fail(&peer, "growth of ranges", "queries", &error),
            }
            fs::remove_dir_all(&dir)?;
        }
        for (at, (window, range)) in data.ranges().enumerate() {
            let is_peer =
                |(peer, _): &&(PathPeer, RangeAnswers)| peer.kind == PathServerKind::Prometheus;
            let reference = all.iter().find(is_peer).and_then(|(_, of)| of[0][at].as_ref().ok());
            let extrapolated = reference.map(|(_, values)| values.bounds());
            let what = format!("growth: p99 of a series at {STEPS} steps within {range}");
            for (peer, answers) in &all {
                let functions = peer.kind.functions().iter().zip(answers).enumerate();
                for (number, (over, of_function)) in functions {
                    let column = peer.column + number;
                    let is_exact = peer.kind.is_victoria() || *over != "increase";
                    let bounds = match is_exact {
                        true => Some(data.bounds(window, peer.kind.bucket_width())),
                        false => extrapolated.clone(),
                    };
                    self.note_range(&what, (peer.kind, column), &of_function[at], bounds);
                }
            }
        }
        self.note_range_exponents(&data, &all);
        Ok(())
    }

    fn note_range(
        &mut self,
        what: &str,
        (kind, column): (PathServerKind, usize),
        found: &Result<([f64; 2], AnswerValues)>,
        bounds: Option<AnswerBounds>,
    ) {
        let cpu = PathMeasure::new(what, "CPU, ms");
        match found {
            Err(error) => self.table.say(cpu, column, refusal(error)),
            Ok(([cpu_ms, wall_ms], values)) => {
                progress(&format!("{what}: {}, CPU {} ms", kind.key(), number(*cpu_ms)));
                self.table.add(cpu, column, *cpu_ms);
                self.table.add(PathMeasure::new(what, "wall, ms"), column, *wall_ms);
                match bounds {
                    Some(_) if kind == PathServerKind::Prometheus => {
                        let measure = PathMeasure::new(what, ANSWER);
                        self.table.say(measure, column, "defines `increase`");
                    }
                    Some(bounds) => {
                        let check = values.check(&bounds);
                        progress(&format!("{}: {}", kind.key(), check.cell()));
                        self.table.judge(what, column, &check);
                    }
                    None => self.table.say(PathMeasure::new(what, ANSWER), column, "not compared"),
                }
            }
        }
    }

    /// Exponents of the CPU time between the shortest and the longest range.
    fn note_range_exponents(&mut self, data: &RangeData, all: &[(PathPeer, RangeAnswers)]) {
        let ranges: Vec<(usize, &str)> = data.ranges().collect();
        let (Some(short), Some(long)) = (ranges.first(), ranges.last()) else { return };
        let what = format!("growth: exponent from {} to {}", short.1, long.1);
        for (peer, answers) in all {
            for (number, of_function) in answers.iter().enumerate() {
                let (Some(Ok(first)), Some(Ok(last))) = (of_function.first(), of_function.last())
                else {
                    continue;
                };
                let measure = PathMeasure::new(what.as_str(), "of p99").with(Some(EXPONENT_MAX));
                let found = growth::exponent((short.0, long.0), (first.0[0], last.0[0]));
                self.table.add(measure, peer.column + number, found);
            }
        }
    }
}
