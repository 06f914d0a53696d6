//! The path of users: servers over HTTP with the same bytes and the same queries.
//!
//! `workload.rs` and `encoding.rs` make the requests, `server.rs` starts the servers, `ingest.rs`
//! sends, `path_query.rs` asks, `answer.rs` compares the answers with each other and with
//! `expected.rs`, and `path_table.rs` makes the table.

mod answer;
mod encoding;
mod expected;
mod ingest;
mod path_query;
mod path_table;
mod server;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use synthetic::Dataset;
use tempfile::TempDir;

use self::answer::{AnswerBounds, AnswerValues};
use self::expected::ExpectedCounts;
use self::ingest::PathIngest;
use self::path_query::{PathQuery, QUERIES};
use self::path_table::{PathLimit, PathMeasure, PathTable};
use self::server::{KINDS, PathServer, PathServerKind, disk_bytes, drop_page_cache};
use self::workload::{PathSet, SETS, Workload};
use crate::Effort;
use crate::clock::wall_time;
use crate::journal::scratch;
use crate::report::ReportSection;

/// Options of the comparison `path`
#[derive(Args)]
#[command(next_help_heading = "Options of the comparison path")]
pub(crate) struct PathOptions {
    /// Only this server, by default all; repeatable: topdeck, prometheus, victoria (the bytes that
    /// all get) or victoria-own (18 buckets per decade), perhaps with its program
    #[arg(long = "server", value_name = "NAME[=PROGRAM]", value_parser = parse_server)]
    servers: Vec<(PathServerKind, Option<PathBuf>)>,
    /// Only this data set, by default all; repeatable: A, B, B-classic or B-OTLP
    #[arg(long = "set", value_name = "SET", value_parser = parse_set)]
    sets: Vec<PathSet>,
    /// Only queries whose text contains this
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Part of the data: minutes of A, series of B
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    scale: f64,
    /// Rounds of each query, and of ingest
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    path_rounds: usize,
    /// Folder that keeps the loaded data; a run that finds them there sends nothing
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

fn parse_server(text: &str) -> Result<(PathServerKind, Option<PathBuf>), String> {
    let (name, program) = match text.split_once('=') {
        Some((name, program)) => (name, Some(PathBuf::from(program))),
        None => (text, None),
    };
    let kind = KINDS.into_iter().find(|kind| kind.key() == name);
    let kind = kind.ok_or_else(|| format!("unknown server {name}"))?;
    Ok((kind, program))
}

fn parse_set(text: &str) -> Result<PathSet, String> {
    let found = SETS.into_iter().find(|set| set.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("unknown data set {text}"))
}

/// A server of a run, with its program.
struct PathPeer {
    kind: PathServerKind,
    program: PathBuf,
    /// Its first column; its functions have one each.
    column: usize,
}

/// State of a run.
struct PathRun<'a> {
    options: &'a PathOptions,
    peers: Vec<PathPeer>,
    table: PathTable,
    remarks: Vec<String>,
    _scratch: Option<TempDir>,
    folder: PathBuf,
}

/// A query is measured for this long, at least once and at most a number of times.
const WARM_TIME: Duration = Duration::from_secs(2);
const WARM_RUNS: usize = 5;
/// Memory is read this long after the last query.
const REST: Duration = Duration::from_secs(60);
/// Rate at which no request may be deferred, in histograms per second.
const RATE: f64 = 60_000.0;

/// Runs the comparison.
pub(crate) fn run(options: &PathOptions, effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: crate::PATH,
        title: "The path of users: servers over HTTP",
        method: method(options),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    match run_all(options, effort) {
        Ok(run) => {
            for remark in &run.remarks {
                section.method += &format!("\n\n{remark}");
            }
            section.targets = run.table.targets();
            section.samples = run.table.samples();
            section.tables.push(run.table.table());
        }
        Err(error) => section.method += &format!("\n\nFailed: {error:#}."),
    }
    section
}

fn run_all<'a>(options: &'a PathOptions, effort: &Effort) -> Result<PathRun<'a>> {
    let mut columns = Vec::new();
    let (mut peers, mut remarks, mut own) = (Vec::new(), Vec::new(), 0);
    for kind in KINDS {
        let chosen = options.servers.iter().find(|(one, _)| *one == kind);
        if chosen.is_none() && !options.servers.is_empty() {
            continue;
        }
        let column = columns.len();
        columns.extend(kind.functions().iter().map(|over| match kind {
            PathServerKind::Topdeck => format!("{}, `{over}`", kind.name()),
            _ => kind.name(),
        }));
        if kind == PathServerKind::Topdeck {
            own = columns.len();
        }
        match kind.program(chosen.and_then(|(_, program)| program.as_deref())) {
            Ok(program) => peers.push(PathPeer { kind, program, column }),
            Err(error) => {
                let missing = format!("{} is missing: {error:#}.", kind.name());
                progress(&missing);
                remarks.push(missing);
            }
        }
    }
    ensure!(!peers.is_empty(), "no server");
    let (scratch, folder) = match &options.keep {
        Some(folder) => (None, folder.clone()),
        None => {
            let scratch = scratch::folder()?;
            let folder = scratch.path().to_owned();
            (Some(scratch), folder)
        }
    };
    let table = PathTable::new(columns, own);
    let mut run = PathRun { options, peers, table, remarks, _scratch: scratch, folder };
    let scale = if effort.quick { 0.02 } else { options.scale };
    let rounds = if effort.quick { 1 } else { options.path_rounds };
    for set in SETS {
        if options.sets.is_empty() || options.sets.contains(&set) {
            run.run_set(set, scale, rounds)?;
        }
    }
    Ok(run)
}

fn progress(what: &str) {
    eprintln!("        {what}");
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl PathRun<'_> {
    fn run_set(&mut self, set: PathSet, scale: f64, rounds: usize) -> Result<()> {
        let dataset = set.dataset(scale);
        progress(&format!("{}: drawing the data …", set.name()));
        let mut expected = ExpectedCounts::new(&dataset);
        // Encoded in any case: the expected counts are those of what is encoded.
        let load = workload::encode(&dataset, set.format(), Some(&mut expected))?;
        let mut loaded = Vec::new();
        for at in 0..self.peers.len() {
            let Some(format) = self.peers[at].kind.format(set) else { continue };
            let folder = self.folder_of(at, set, scale);
            let done = match format == load.format {
                true => self.load(at, set, &folder, &load, rounds),
                false => {
                    let own = workload::encode(&dataset, format, None)?;
                    self.load(at, set, &folder, &own, rounds)
                }
            };
            match done {
                Ok(()) => loaded.push(at),
                Err(error) => self.fail(at, set, "ingest", &error),
            }
        }
        drop(load);
        let selected = |query: &&PathQuery| {
            let text = query.text(PathServerKind::Prometheus, "increase");
            let wanted = self.options.query.as_deref();
            query.set == set && wanted.is_none_or(|wanted| text.contains(wanted))
        };
        let queries: Vec<PathQuery> = QUERIES.iter().filter(selected).copied().collect();
        for round in 0..rounds {
            for query in &queries {
                let mut answers = Vec::new();
                for &at in &loaded {
                    let folder = self.folder_of(at, set, scale);
                    for (number, over) in self.peers[at].kind.functions().iter().enumerate() {
                        progress(&format!(
                            "{}, round {round}: {}, {}",
                            set.name(),
                            self.peers[at].kind.key(),
                            query.text(self.peers[at].kind, over)
                        ));
                        let column = self.peers[at].column + number;
                        match self.ask(at, &dataset, query, over, &folder, column) {
                            Ok(answer) => {
                                answers.push((self.peers[at].kind, *over, column, answer))
                            }
                            Err(error) => self.refuse(query, column, &error),
                        }
                    }
                }
                self.compare(query, &expected, &answers);
            }
        }
        for &at in &loaded {
            if let Err(error) = self.rest(at, set, &dataset, &queries, scale) {
                self.fail(at, set, "memory after the queries", &error);
            }
        }
        Ok(())
    }

    fn folder_of(&self, at: usize, set: PathSet, scale: f64) -> PathBuf {
        self.folder.join(format!("{}-{}-{scale}", self.peers[at].kind.key(), set.name()))
    }

    fn fail(&mut self, at: usize, set: PathSet, what: &str, error: &anyhow::Error) {
        let name = self.peers[at].kind.name();
        let text = format!("{name}, {}, {what}: {error:#}.", set.name());
        let text = text.replace(['|', '\n'], " ");
        progress(&text);
        self.remarks.push(text);
    }

    /// Sends the data in each round to a server with an empty folder; the last one keeps them.
    fn load(
        &mut self,
        at: usize,
        set: PathSet,
        folder: &Path,
        load: &Workload,
        rounds: usize,
    ) -> Result<()> {
        let mark = folder.join("loaded");
        if mark.exists() {
            return Ok(());
        }
        let (kind, column) = (self.peers[at].kind, self.peers[at].column);
        let program = self.peers[at].program.clone();
        for round in 0..rounds {
            progress(&format!("{}, round {round}: ingest, {} …", set.name(), kind.key()));
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            let mut server = PathServer::start(kind, &program, folder)?;
            let found = ingest::send(&mut server, load)?;
            server.stop()?;
            self.note_ingest(set, column, load, &found, disk_bytes(&folder.join("data"))?);
        }
        if set == PathSet::B {
            let paced = folder.with_extension("paced");
            let server = PathServer::start(kind, &program, &paced)?;
            progress(&format!("{}: ingest at {RATE} per second, {} …", set.name(), kind.key()));
            let deferred = ingest::stream(&server, load, 0.0..1.0, Some(RATE), &AtomicU64::new(0))?;
            server.stop()?;
            fs::remove_dir_all(&paced)?;
            let measure = PathMeasure::new("B: ingest at 60,000 histograms per second", DEFERRED);
            self.table.add(measure.with(Some(PathLimit::AtMost(0.0))), column, deferred as f64);
        }
        fs::write(mark, "")?;
        Ok(())
    }

    fn note_ingest(
        &mut self,
        set: PathSet,
        column: usize,
        load: &Workload,
        found: &PathIngest,
        disk: u64,
    ) {
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
            ("on disk, B per histogram", None, disk as f64 / points),
        ];
        for (measure, limit, value) in rows {
            let value = value.to_owned();
            progress(&format!("{measure}: {}", crate::report::number(value)));
            self.table.add(PathMeasure::new(what.as_str(), measure).with(limit), column, value);
        }
    }

    /// Asks a server that has just started and whose files are not in the page cache, then again.
    fn ask(
        &mut self,
        at: usize,
        dataset: &Dataset,
        query: &PathQuery,
        over: &str,
        folder: &Path,
        column: usize,
    ) -> Result<AnswerValues> {
        drop_page_cache(&folder.join("data"))?;
        let kind = self.peers[at].kind;
        let mut server = PathServer::start(kind, &self.peers[at].program, folder)?;
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
        let text = format!("{error:#}").replace(['|', '\n'], " ");
        progress(&text);
        let cpu = PathMeasure::new(format!("{}: {}", query.set.name(), query.title()), "CPU, ms");
        let cpu = cpu.with(query.target_ms.map(PathLimit::AtMost));
        self.table.say(cpu, column, format!("refused: {text}"));
    }

    /// Compares the answers: those of `increase` with those of Prometheus, which defines it, and
    /// those of exact functions with what was sent.
    fn compare(
        &mut self,
        query: &PathQuery,
        expected: &ExpectedCounts,
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
            let text = match (kind, bounds) {
                (PathServerKind::Prometheus, _) => "defines `increase`".to_owned(),
                (_, None) => "not compared".to_owned(),
                (_, Some(bounds)) => answer.check(&bounds).cell(),
            };
            progress(&format!("{}, {over}: {text}", kind.key()));
            self.table.say(PathMeasure::new(title.as_str(), "answer"), *column, text);
        }
    }

    /// Memory a minute after all queries, asked one after the other.
    fn rest(
        &mut self,
        at: usize,
        set: PathSet,
        dataset: &Dataset,
        queries: &[PathQuery],
        scale: f64,
    ) -> Result<()> {
        if set != PathSet::B || self.options.query.is_some() {
            return Ok(());
        }
        let (kind, column) = (self.peers[at].kind, self.peers[at].column);
        progress(&format!("{}: memory after the queries, {} …", set.name(), kind.key()));
        let folder = self.folder_of(at, set, scale);
        let mut server = PathServer::start(kind, &self.peers[at].program, &folder)?;
        for query in queries {
            for over in kind.functions() {
                // A refused query is reported elsewhere.
                server.connect()?.get(&query.path(dataset, kind, over))?;
            }
        }
        std::thread::sleep(REST);
        server.process.check_alive().context("after the queries")?;
        let memory = server.process.resident_bytes()?;
        server.stop()?;
        let measure = PathMeasure::new("B: a minute after the last query", "RSS, MB");
        let measure = measure.with(Some(PathLimit::AtMost(400.0)));
        self.table.add(measure, column, megabytes(memory));
        Ok(())
    }
}

const DEFERRED: &str = "answers of 429";

fn method(options: &PathOptions) -> String {
    let mut text =
        "Each server is a process of its own with its default settings (but a retention \
                    of ten years), loaded and asked over HTTP on this machine, which the sender \
                    shares."
            .to_owned();
    if options.scale != 1.0 {
        text += &format!("\n\nThis run has {} of the data.", options.scale);
    }
    text
}
