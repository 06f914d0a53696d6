//! The path of users: servers over HTTP with the same bytes and the same queries.
//!
//! `workload.rs` and `encoding.rs` make the requests, `server.rs` starts the servers, `ingest.rs`
//! sends, `path_query.rs` asks, `answer.rs` compares the answers with each other and with
//! `expected.rs`. `dashboard.rs`, `growth.rs`, `growth_range.rs`, `churn.rs` and `import.rs`
//! measure parts of their own, `path_run.rs` and `growth_run.rs` call them all, and `path_table.rs`
//! makes the table.

mod answer;
mod churn;
mod dashboard;
mod encoding;
mod expected;
mod growth;
mod growth_range;
mod growth_run;
mod import;
mod ingest;
mod path_query;
mod path_run;
mod path_table;
mod server;
mod workload;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use self::path_run::{PathPeer, PathRun};
use self::path_table::PathTable;
use self::server::{KINDS, PathServerKind};
use self::workload::{PathSet, SETS};
use crate::Effort;
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
    /// Only this part, by default all; repeatable: A, B, B-classic, B-OTLP, dashboard, growth,
    /// growth-histograms, growth-range, churn or import
    #[arg(long = "set", value_name = "PART", value_parser = parse_part)]
    parts: Vec<PathPart>,
    /// Only queries whose text contains this
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Part of the data: minutes of A, series of B
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    scale: f64,
    /// Rounds of each query, and of ingest
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    path_rounds: usize,
    /// Directory that keeps the loaded data; a run that finds them there sends nothing
    #[arg(long, value_name = "DIR")]
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

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathPart {
    Set(PathSet),
    Dashboard,
    Growth,
    GrowthHistograms,
    GrowthRange,
    Churn,
    Import,
}

/// Parts that are no data sets.
const OTHER_PARTS: [PathPart; 6] = [
    PathPart::Dashboard,
    PathPart::Growth,
    PathPart::GrowthHistograms,
    PathPart::GrowthRange,
    PathPart::Churn,
    PathPart::Import,
];

impl PathPart {
    fn all() -> impl Iterator<Item = PathPart> {
        SETS.map(PathPart::Set).into_iter().chain(OTHER_PARTS)
    }

    fn name(self) -> &'static str {
        match self {
            PathPart::Set(set) => set.name(),
            PathPart::Dashboard => "dashboard",
            PathPart::Growth => "growth",
            PathPart::GrowthHistograms => "growth-histograms",
            PathPart::GrowthRange => "growth-range",
            PathPart::Churn => "churn",
            PathPart::Import => "import",
        }
    }
}

fn parse_part(text: &str) -> Result<PathPart, String> {
    let found = PathPart::all().find(|part| part.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("unknown part {text}"))
}

/// Runs the comparison.
pub(crate) fn run(options: &PathOptions, effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: crate::PATH,
        title: "The path of users: servers over HTTP",
        method: method(options, effort),
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

fn run_all(options: &PathOptions, effort: &Effort) -> Result<PathRun> {
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
                eprintln!("        {missing}");
                remarks.push(missing);
            }
        }
    }
    ensure!(!peers.is_empty(), "no server");
    // Deleted on drop.
    let scratch = scratch::dir()?;
    let scale = if effort.quick { SCALE_QUICK } else { options.scale };
    let table = PathTable::new(columns, own);
    let mut run = PathRun {
        peers,
        table: if scale == 1.0 { table } else { table.without_limits() },
        remarks,
        dir: options.keep.clone().unwrap_or_else(|| scratch.path().to_owned()),
        scale,
        rounds: if effort.quick { 1 } else { options.path_rounds },
        query: options.query.clone(),
    };
    for part in PathPart::all() {
        if !options.parts.is_empty() && !options.parts.contains(&part) {
            continue;
        }
        match part {
            PathPart::Set(set) => run.run_set(set)?,
            PathPart::Dashboard => run.run_dashboard()?,
            PathPart::Growth => run.run_growth()?,
            PathPart::GrowthHistograms => run.run_growth_of_histograms()?,
            PathPart::GrowthRange => run.run_growth_of_ranges()?,
            PathPart::Churn => run.run_churn()?,
            PathPart::Import => run.run_import()?,
        }
    }
    Ok(run)
}

/// Part of the data in a quick run.
const SCALE_QUICK: f64 = 0.02;

fn method(options: &PathOptions, effort: &Effort) -> String {
    let scale = if effort.quick { SCALE_QUICK } else { options.scale };
    match scale == 1.0 {
        true => METHOD.to_owned(),
        false => format!("{METHOD}\n\nThis run had {scale} of the data; targets are those of all."),
    }
}

const METHOD: &str = "Each server is a process of its own with its default settings \
                      (Prometheus and VictoriaMetrics keep data for ten years, \
                      VictoriaMetrics answers with up to 3,000,000 series and without its \
                      cache of results; host metrics of topdeck are off), loaded and asked \
                      over HTTP on this machine, which it shares with the sender. All get \
                      the same bytes in the same order, by remote write 1 in snappy: A (one \
                      series, a week, 10,080 histograms) and B (1,000 series, a day, \
                      1,440,000 histograms) as cumulative native histograms of schema 5; \
                      10,000 series of B for an hour as 12 classic buckets each; B again by \
                      OTLP over HTTP, as cumulative exponential histograms of scale 5. \
                      VictoriaMetrics converts native histograms to a counter per bucket; \
                      its second column gets the 18 buckets per decade of its own clients. \
                      It does not get B as native histograms, which would be more than 190 \
                      million samples of counters.\n\nTargets are those of topdeck and hold \
                      for both functions. `increase` is compared with that of Prometheus, \
                      value by value, with the tolerance of its own tests (10^-6). \
                      `exact_increase` and the `increase` of VictoriaMetrics are compared \
                      with the counts that were sent: counts must be equal, and quantiles \
                      and shares lie in the bucket where the exact value is. An answer that \
                      differs says so in its row.\n\nNumbers are medians of all rounds, with \
                      minimum and maximum in parentheses; in each round the servers take \
                      turns. CPU time is that of the whole process, user and system, from \
                      its CPU clock. A cold query is the first one of a server that has just \
                      started and whose files are not in the page cache; others are the \
                      median of up to five that follow it. Peak RSS is VmHWM, reset before \
                      the query. “Settled” is until the server was idle and Prometheus had \
                      moved everything older than three hours to blocks. “On disk” is \
                      everything in the data directory after a clean stop. The dashboard has 20 \
                      panels with 360 steps over 6 hours of B, over six connections, and is \
                      reloaded every 10 s while the second half of B arrives within a \
                      minute, 12,000 histograms per second; there VictoriaMetrics has its \
                      cache. Its answers after ingest are compared as others: those of exact \
                      functions at steps of whole windows, 13 panels of 20. Growth loads \
                      counters with five labels and four samples each, whose regular \
                      expression selects 10,000 pods; after kill -9, ten seconds after the \
                      last query, the time runs to the first right answer of that search. \
                      Readers ask without a pause for 5 s each. Growth of ranges is a series \
                      of B with a cumulative histogram per minute for a year. The exponent of \
                      a cost is the slope of its logarithm between the smallest and the \
                      largest size. Churn sends counters that live for an hour with a sample \
                      every 15 minutes, by the clock of the samples, and as fast as the \
                      server takes them; every six hours it may settle. There topdeck accepts \
                      ten million series of one sender, of which the default is one million. \
                      The import is a file of frames of B's series, which the server on the \
                      same machine gets from `topdeck import`; all values are counted \
                      afterwards. “B: a light query” sums the counts of one host at one \
                      moment.";
