//! A run: every server loaded, asked and compared, data set by data set.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use synthetic::Dataset;

use super::answer::{AnswerBounds, AnswerValues};
use super::dashboard::{self, READERS, ReadersCost};
use super::expected::CountOracle;
use super::ingest::{self, PathIngest};
use super::path_query::{PathQuery, QUERIES};
use super::path_table::{ANSWER, PathLimit, PathMeasure, PathTable};
use super::server::{PathServer, PathServerKind, disk_bytes, drop_page_cache};
use super::workload::{self, PathSet, Workload};
use crate::clock::wall_time;
use crate::report::number;

/// A server of a run, with its program.
#[derive(Clone)]
pub(crate) struct PathPeer {
    pub(crate) kind: PathServerKind,
    pub(crate) program: PathBuf,
    /// Its first column; its functions have one each.
    pub(crate) column: usize,
}

/// State of a run.
pub(crate) struct PathRun {
    pub(crate) peers: Vec<PathPeer>,
    pub(crate) table: PathTable,
    pub(crate) remarks: Vec<String>,
    pub(crate) dir: PathBuf,
    /// Part of the data.
    pub(crate) scale: f64,
    pub(crate) rounds: usize,
    /// Only queries that contain this.
    pub(crate) query: Option<String>,
}

/// A query is measured for this long, at least once and at most a number of times.
const WARM_TIME: Duration = Duration::from_secs(2);
const WARM_RUNS: usize = 5;
/// Memory is read this long after the last query.
const REST: Duration = Duration::from_secs(60);
/// Rate at which no request may be deferred, in histograms per second.
const RATE: f64 = 60_000.0;
/// Times that the heaviest query is asked beside the light one.
const HEAVY_RUNS: usize = 3;

impl PathRun {
    /// Loads a data set into all servers and asks its queries in turn.
    pub(crate) fn run_set(&mut self, set: PathSet) -> Result<()> {
        let dataset = set.dataset(self.scale);
        progress(&format!("{}: drawing the data …", set.name()));
        let mut expected = CountOracle::new(&dataset);
        // Encoded in any case: the expected counts are those of what is encoded.
        let load = workload::encode(&dataset, set.format(), Some(&mut expected));
        let mut loaded = Vec::new();
        for peer in self.peers.clone() {
            let Some(format) = peer.kind.format(set) else { continue };
            let own = (format != load.format).then(|| workload::encode(&dataset, format, None));
            let load = own.as_ref().unwrap_or(&load);
            match self.load(&peer, set, load) {
                Ok(()) => loaded.push(peer.clone()),
                Err(error) => self.fail(&peer, set.name(), "ingest", &error),
            }
            // Queries alone need no more ingest.
            if set == PathSet::B && self.query.is_none() {
                if let Err(error) = self.load_at_rate(&peer, load) {
                    self.fail(&peer, set.name(), "ingest at a rate", &error);
                }
            }
        }
        drop(load);
        let selected = |query: &&PathQuery| {
            let text = query.text(PathServerKind::Prometheus, "increase");
            let wanted = self.query.as_deref();
            query.set == set && wanted.is_none_or(|wanted| text.contains(wanted))
        };
        let queries: Vec<PathQuery> = QUERIES.iter().filter(selected).copied().collect();
        for round in 0..self.rounds {
            for query in &queries {
                self.ask_all(&loaded, &dataset, query, &expected, round);
            }
        }
        // A choice of queries leaves no memory to compare.
        if set == PathSet::B && self.query.is_none() {
            for peer in &loaded {
                if let Err(error) = self.rest(peer, &dataset, &queries) {
                    self.fail(peer, set.name(), "after the queries", &error);
                }
            }
        }
        Ok(())
    }

    fn ask_all(
        &mut self,
        peers: &[PathPeer],
        dataset: &Dataset,
        query: &PathQuery,
        expected: &CountOracle,
        round: usize,
    ) {
        let mut answers = Vec::new();
        for peer in peers {
            for (number, over) in peer.kind.functions().iter().enumerate() {
                let text = query.text(peer.kind, over);
                let set = query.set.name();
                progress(&format!("{set}, round {round}: {}, {text}", peer.kind.key()));
                let column = peer.column + number;
                match self.ask(peer, dataset, query, over, column) {
                    Ok(answer) => answers.push((peer.kind, *over, column, answer)),
                    Err(error) => self.refuse(query, column, &error),
                }
            }
        }
        self.compare(query, expected, &answers);
    }

    pub(super) fn dir_of(&self, peer: &PathPeer, part: &str) -> PathBuf {
        self.dir.join(format!("{}-{part}-{}", peer.kind.key(), self.scale))
    }

    pub(super) fn fail(&mut self, peer: &PathPeer, part: &str, what: &str, error: &anyhow::Error) {
        let text = format!("{}, {part}, {what}: {error:#}.", peer.kind.name());
        let text = text.replace(['|', '\n'], " ");
        progress(&text);
        self.remarks.push(text);
    }

    /// Sends the data in each round to a server with an empty directory; the last one keeps them.
    /// Data that an earlier run kept have the cost of their ingest beside them.
    fn load(&mut self, peer: &PathPeer, set: PathSet, load: &Workload) -> Result<()> {
        let dir = self.dir_of(peer, set.name());
        let mark = dir.join("loaded");
        let mut costs = Vec::new();
        if let Ok(text) = fs::read_to_string(&mark) {
            costs.extend(text.lines().filter_map(PathIngest::parse));
        } else {
            for round in 0..self.rounds {
                progress(&format!("{}, round {round}: ingest, {} …", set.name(), peer.kind.key()));
                let mut cost = ingest::send(start_empty(peer, &dir)?, load)?;
                cost.disk_bytes = disk_bytes(&dir.join("data"))?;
                costs.push(cost);
            }
            let lines: Vec<String> = costs.iter().map(PathIngest::line).collect();
            fs::write(mark, lines.join("\n"))?;
        }
        for cost in costs {
            self.note_ingest(set, peer.column, load, &cost);
        }
        Ok(())
    }

    /// Ingest at a rate, during which no request should be deferred.
    fn load_at_rate(&mut self, peer: &PathPeer, load: &Workload) -> Result<()> {
        progress(&format!("B: ingest at {RATE} per second, {} …", peer.kind.key()));
        let dir = self.dir_of(peer, "paced");
        for _ in 0..self.rounds {
            let server = start_empty(peer, &dir)?;
            let sent = AtomicU64::new(0);
            let deferred = ingest::stream(&server, load, 0.0..1.0, Some(RATE), &sent)?;
            server.stop()?;
            let measure = PathMeasure::new("B: ingest at 60,000 histograms per second", DEFERRED);
            let measure = measure.with(Some(PathLimit::AtMost(0.0)));
            self.table.add(measure, peer.column, deferred as f64);
        }
        Ok(fs::remove_dir_all(&dir)?)
    }

    fn note_ingest(&mut self, set: PathSet, column: usize, load: &Workload, found: &PathIngest) {
        let is_b = set == PathSet::B;
        let points = load.points as f64;
        let what = format!("{}: ingest of {} histograms", set.name(), load.points);
        let limit = |limit: PathLimit| is_b.then_some(limit);
        let received = load.bytes() as f64;
        let rows = [
            (
                "histograms per CPU second, to the last answer",
                limit(PathLimit::AtLeast(100_000.0)),
                points / found.cpu.as_secs_f64(),
            ),
            (
                "histograms per CPU second, settled",
                limit(PathLimit::AtLeast(60_000.0)),
                points / found.cpu_settled.as_secs_f64(),
            ),
            ("histograms per second", None, points / found.wall.as_secs_f64()),
            (DEFERRED, None, found.deferred as f64),
            ("peak RSS, MB", limit(PathLimit::AtMost(400.0)), megabytes(found.memory_bytes)),
            ("received, B per histogram", None, received / points),
            (
                "bytes written per byte received",
                limit(PathLimit::AtMost(1.0)),
                found.written_bytes as f64 / received,
            ),
            ("on disk, B per histogram", None, found.disk_bytes as f64 / points),
        ];
        for (measure, limit, value) in rows {
            progress(&format!("{measure}: {}", number(value)));
            self.table.add(PathMeasure::new(what.as_str(), measure).with(limit), column, value);
        }
    }

    /// Asks a server that has just started and whose files are not in the page cache, then again.
    fn ask(
        &mut self,
        peer: &PathPeer,
        dataset: &Dataset,
        query: &PathQuery,
        over: &str,
        column: usize,
    ) -> Result<AnswerValues> {
        let dir = self.dir_of(peer, query.set.name());
        drop_page_cache(&dir.join("data"))?;
        let kind = peer.kind;
        let mut server = PathServer::start(kind, &peer.program, &dir)?;
        server.process.wait_until_idle()?;
        server.process.forget_memory();
        let path = query.path(dataset, kind, over);
        let mut connection = server.connect()?;
        let mut runs = Vec::new();
        let (mut answer, start) = (Vec::new(), wall_time());
        while runs.is_empty()
            || runs.len() <= WARM_RUNS && (runs.len() < 2 || wall_time() - start < WARM_TIME)
        {
            let (cpu, wall) = (server.process.cpu_clock()?, wall_time());
            answer = connection.get(&path)?.into_body()?;
            let wall = wall_time() - wall;
            runs.push([server.process.cpu_clock()? - cpu, wall].map(|one| one.as_secs_f64() * 1e3));
        }
        let memory = server.process.memory_bytes()?;
        server.stop()?;
        let title = query.title();
        let title = format!("{}: {title}", query.set.name());
        let warm = |which: usize| {
            let mut values: Vec<f64> = runs[1..].iter().map(|run| run[which]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let cpu = PathMeasure::new(title.as_str(), "CPU, ms");
        let rows = [
            (cpu.with(query.target_ms.map(PathLimit::AtMost)), warm(0)),
            (PathMeasure::new(title.as_str(), "wall, ms"), warm(1)),
            (PathMeasure::new(title.as_str(), "cold CPU, ms"), runs[0][0]),
            (PathMeasure::new(title.as_str(), "cold wall, ms"), runs[0][1]),
            (
                PathMeasure::new(title.as_str(), "peak RSS, MB")
                    .with(query.target_mb.map(PathLimit::AtMost)),
                megabytes(memory),
            ),
            (PathMeasure::new(title.as_str(), "answer, kB"), answer.len() as f64 / 1e3),
        ];
        progress(&format!(
            "CPU {:.1} ms, wall {:.1} ms, cold {:.1} ms CPU, {:.0} MB, {} kB",
            rows[0].1,
            rows[1].1,
            rows[2].1,
            rows[4].1,
            answer.len() / 1000
        ));
        for (measure, value) in rows {
            self.table.add(measure, column, value);
        }
        AnswerValues::parse(&answer)
    }

    fn refuse(&mut self, query: &PathQuery, column: usize, error: &anyhow::Error) {
        progress(&refusal(error));
        let cpu = PathMeasure::new(format!("{}: {}", query.set.name(), query.title()), "CPU, ms");
        let cpu = cpu.with(query.target_ms.map(PathLimit::AtMost));
        self.table.say(cpu, column, refusal(error));
    }

    /// Compares the answers: those of `increase` with those of Prometheus, which defines it, and
    /// those of exact functions with what was sent.
    fn compare(
        &mut self,
        query: &PathQuery,
        expected: &CountOracle,
        answers: &[(PathServerKind, &str, usize, AnswerValues)],
    ) {
        let prometheus = answers.iter().find(|one| one.0 == PathServerKind::Prometheus);
        let extrapolated: Option<AnswerBounds> = prometheus.map(|one| one.3.bounds());
        let exact = answers.iter().find(|one| one.0.is_victoria()).map(|one| one.3.bounds());
        let title = format!("{}: {}", query.set.name(), query.title());
        for (kind, over, column, answer) in answers {
            let is_exact = kind.is_victoria() || *over != "increase";
            let bounds = match is_exact {
                false => extrapolated.clone(),
                true => query.expected(expected, kind.bucket_width()).or_else(|| exact.clone()),
            };
            let Some(bounds) = bounds.filter(|_| *kind != PathServerKind::Prometheus) else {
                let is_peer = *kind == PathServerKind::Prometheus;
                let text = if is_peer { "defines `increase`" } else { "not compared" };
                self.table.say(PathMeasure::new(title.as_str(), ANSWER), *column, text);
                continue;
            };
            let check = answer.check(&bounds);
            progress(&format!("{}, {over}: {}", kind.key(), check.cell()));
            self.table.judge(&title, *column, &check);
        }
    }

    /// A light query beside the heaviest one, and memory a minute after all queries, asked one
    /// after the other.
    fn rest(&mut self, peer: &PathPeer, dataset: &Dataset, queries: &[PathQuery]) -> Result<()> {
        progress(&format!("B: after the queries, {} …", peer.kind.key()));
        let dir = self.dir_of(peer, PathSet::B.name());
        let mut server = PathServer::start(peer.kind, &peer.program, &dir)?;
        let (light, heavy) = (PathQuery::light(), PathQuery::heaviest());
        for (number, over) in peer.kind.functions().iter().enumerate() {
            let [light, heavy] = [light, heavy].map(|one| one.path(dataset, peer.kind, over));
            let measure = PathMeasure::new("B: a light query beside the heaviest", "p99 wall, ms");
            let measure = measure.with(Some(PathLimit::AtMost(50.0)));
            let column = peer.column + number;
            match dashboard::light_beside_heavy(&server, &light, &heavy, HEAVY_RUNS) {
                Ok(times) => self.table.add(measure, column, dashboard::quantile(&times, 0.99)),
                Err(error) => self.table.say(measure, column, refusal(&error)),
            }
        }
        for readers in READERS {
            let path = light.path(dataset, peer.kind, peer.kind.functions()[0]);
            let cost = dashboard::ask_by_readers(&server, &path, readers)?;
            self.note_readers("B: the light query", peer.column, readers, &cost);
        }
        for query in queries {
            for over in peer.kind.functions() {
                // A refused query is reported elsewhere.
                server.connect()?.get(&query.path(dataset, peer.kind, over))?;
            }
        }
        std::thread::sleep(REST);
        server.process.check_alive()?;
        let memory = server.process.resident_bytes()?;
        server.stop()?;
        let measure = PathMeasure::new("B: a minute after the last query", "RSS, MB");
        let measure = measure.with(Some(PathLimit::AtMost(400.0)));
        self.table.add(measure, peer.column, megabytes(memory));
        Ok(())
    }

    /// Cost of a query by so many readers at once.
    pub(super) fn note_readers(
        &mut self,
        what: &str,
        column: usize,
        readers: usize,
        cost: &ReadersCost,
    ) {
        let what = format!("{what} by {readers} readers at once");
        let rows = [
            ("CPU of a query, ms", cost.cpu_ms),
            ("p99 wall, ms", cost.p99_ms),
            ("queries per second", cost.per_second),
        ];
        for (measure, value) in rows {
            progress(&format!("{readers} readers, {measure}: {}", number(value)));
            self.table.add(PathMeasure::new(what.as_str(), measure), column, value);
        }
    }

    /// The dashboard, with each server and function.
    pub(crate) fn run_dashboard(&mut self) -> Result<()> {
        let dataset = PathSet::B.dataset(self.scale);
        progress("dashboard: drawing the data …");
        let mut expected = CountOracle::new(&dataset);
        let same = workload::encode(&dataset, PathSet::B.format(), Some(&mut expected));
        let mut all = Vec::new();
        for peer in self.peers.clone() {
            let Some(format) = peer.kind.format(PathSet::B) else { continue };
            let own = (format != same.format).then(|| workload::encode(&dataset, format, None));
            let load = own.as_ref().unwrap_or(&same);
            for _ in 0..self.rounds {
                for (number, over) in peer.kind.functions().iter().enumerate() {
                    let column = peer.column + number;
                    match self.reload(&peer, &dataset, load, over, column) {
                        Ok(answers) => all.push(((peer.kind, *over), column, answers)),
                        Err(error) => self.fail(&peer, "dashboard", over, &error),
                    }
                }
            }
        }
        let prometheus = all.iter().find(|one| one.0.0 == PathServerKind::Prometheus);
        let prometheus = prometheus.map(|one| one.2.clone()).unwrap_or_default();
        for (of, column, answers) in &all {
            let check = dashboard::check_panels(*of, answers, &prometheus, (&dataset, &expected));
            let is_peer = of.0 == PathServerKind::Prometheus;
            if is_peer || check.is_empty() {
                let text = if is_peer { "defines `increase`" } else { "not compared" };
                self.table.say(PathMeasure::new(DASHBOARD, ANSWER), *column, text);
                continue;
            }
            progress(&format!("dashboard: {}, {}: {}", of.0.key(), of.1, check.cell()));
            self.table.judge(DASHBOARD, *column, &check);
        }
        Ok(())
    }

    fn reload(
        &mut self,
        peer: &PathPeer,
        dataset: &Dataset,
        load: &Workload,
        over: &str,
        column: usize,
    ) -> Result<Vec<Option<AnswerValues>>> {
        progress(&format!("dashboard: {}, {over} …", peer.kind.key()));
        let dir = self.dir_of(peer, "dashboard");
        let mut server = start_empty(peer, &dir)?;
        let times = dashboard::run(&mut server, dataset, load, over)?;
        server.stop()?;
        fs::remove_dir_all(&dir)?;
        if let Some(error) = &times.first_error {
            let text = format!("{}, dashboard, {over}: {error}.", peer.kind.name());
            if !self.remarks.contains(&text) {
                self.remarks.push(text);
            }
        }
        let rows = [
            ("panel, p50 wall, ms", dashboard::quantile(&times.panels_ms, 0.5)),
            ("panel, p99 wall, ms", dashboard::quantile(&times.panels_ms, 0.99)),
            ("all panels, p50 wall, ms", dashboard::quantile(&times.reloads_ms, 0.5)),
            ("panels that failed, %", times.failed as f64 * 100.0 / times.panels_ms.len() as f64),
            (DEFERRED, times.deferred as f64),
            (
                "CPU with ingest, % of one",
                times.cpu.as_secs_f64() * 100.0 / times.wall.as_secs_f64(),
            ),
            ("peak RSS, MB", megabytes(times.memory_bytes)),
        ];
        for (measure, value) in rows {
            progress(&format!("{measure}: {}", number(value)));
            self.table.add(PathMeasure::new(DASHBOARD, measure), column, value);
        }
        Ok(times.answers)
    }
}

pub(super) fn start_empty(peer: &PathPeer, dir: &Path) -> Result<PathServer> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    PathServer::start(peer.kind, &peer.program, dir)
}

/// Text of a cell: the server's reason if it gave one.
pub(super) fn refusal(error: &anyhow::Error) -> String {
    let text = format!("{error:#}").replace(['|', '\n'], " ");
    let reason = text.split("\"error\":\"").nth(1).and_then(|rest| rest.split('"').next());
    format!("refused: {}", reason.unwrap_or(&text))
}

pub(super) fn progress(what: &str) {
    eprintln!("        {what}");
}

pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

const DASHBOARD: &str = "B: dashboard of 20 panels during ingest";
pub(super) const DEFERRED: &str = "answers of 429";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_reason_of_the_server() {
        let answer =
            r#"status 422: {"status":"error","errorType":"execution","error":"limit of 5"}"#;
        assert_eq!(refusal(&anyhow::anyhow!("{answer}")), "refused: limit of 5");
        assert_eq!(refusal(&anyhow::anyhow!("broken | pipe")), "refused: broken   pipe");
    }
}
