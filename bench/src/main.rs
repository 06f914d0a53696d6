//! Comparisons of topdeck with other libraries, side by side in one run.
//!
//! Writes `docs/benchmarks.md` and the samples, `bench/results/*.tsv`. The report describes
//! everything that can disturb a comparison. `path.rs` compares servers over HTTP, as users have
//! them, and comes first. `record.rs` … `accuracy.rs` contain one comparison of histograms each,
//! with the peers; `topdeck.rs` is the topdeck contender of all of them. `time.rs` compares clocks,
//! `shared.rs` in-process metrics, `journal.rs` journals, `store.rs` stores, `query.rs` queries of
//! them, `serve.rs` servers under load, and `load.rs` load generators.
#![forbid(unsafe_code)]

mod accuracy;
mod bursts;
mod bytes;
mod clock;
mod data;
mod floor;
mod journal;
mod load;
mod machine;
mod merge;
mod path;
mod quantile;
mod query;
mod record;
mod report;
mod rounds;
mod serve;
mod shared;
mod store;
mod threads;
mod time;
mod topdeck;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::clock::wall_time;
use crate::report::{ReportSection, summary};

/// Compare topdeck with other libraries and write docs/benchmarks.md
#[derive(Parser)]
#[command(name = "topdeck-bench")]
struct Options {
    /// Run everything in a minute with reduced sizes; print the report, write no files
    #[arg(long)]
    quick: bool,
    /// Run only this comparison; repeatable; print the report, write no files
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(COMPARISONS.map(|(name, _)| name)))]
    only: Vec<String>,
    /// Directory for the report, its samples and its images
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run one query of the store in this directory and print the memory used: `query` starts such
    /// a process, which does nothing else
    #[arg(long, value_name = "DIR", hide = true)]
    memory_of: Option<PathBuf>,
    /// Record into shared memory COUNT times on each of two threads, or until killed if 0: `shm`
    /// observes this process
    #[arg(long, value_name = "COUNT", hide = true)]
    record_shm: Option<u64>,
    /// Read the counters of that process COUNT times
    #[arg(long, value_name = "COUNT", hide = true)]
    read_shm: Option<u64>,
    /// Hold COUNT counters in shared memory until end of input
    #[arg(long, value_name = "COUNT", hide = true)]
    hold_shm: Option<usize>,
    /// Answer each request after a constant time until end of input
    #[arg(long, hide = true)]
    load_stub: Option<String>,
    /// Generate load and print the result: `load` compares it with other tools
    #[arg(long, hide = true, num_args = 6)]
    load_run: Option<Vec<String>>,
    /// Write the sections of this run into the report that exists, and keep the others
    #[arg(long, conflicts_with_all = ["out", "quick"])]
    insert: bool,
    #[command(flatten)]
    path: path::PathOptions,
    /// Query in CAQL
    #[arg(long, hide = true, requires = "memory_of")]
    caql: bool,
}

/// Size of a run.
struct Effort {
    rounds: usize,
    quick: bool,
}

/// Kind of a comparison.
#[derive(Clone, Copy)]
enum ComparisonKind {
    /// The user's path, which has options of its own.
    Path,
    Alone(fn(&Effort) -> ReportSection),
    /// Runs together with the other store comparisons, so that the stores are loaded once.
    OnStores,
}

const PATH: &str = "path";
const STORE: &str = "store";
const QUERY: &str = "query";
const SERVE: &str = "serve";
/// The user's path comes first, comparisons of stores last.
const COMPARISONS: [(&str, ComparisonKind); 16] = [
    (PATH, ComparisonKind::Path),
    ("record", ComparisonKind::Alone(record::run)),
    ("threads", ComparisonKind::Alone(threads::run)),
    ("merge", ComparisonKind::Alone(merge::run)),
    ("quantile", ComparisonKind::Alone(quantile::run)),
    ("bytes", ComparisonKind::Alone(bytes::run)),
    ("accuracy", ComparisonKind::Alone(accuracy::run)),
    ("clock", ComparisonKind::Alone(time::run)),
    ("shm", ComparisonKind::Alone(shared::run)),
    ("journal-append", ComparisonKind::Alone(journal::append)),
    ("journal-durable", ComparisonKind::Alone(journal::durable)),
    ("journal-read", ComparisonKind::Alone(journal::read)),
    (SERVE, ComparisonKind::Alone(serve::run)),
    ("load", ComparisonKind::Alone(load::run)),
    (STORE, ComparisonKind::OnStores),
    (QUERY, ComparisonKind::OnStores),
];

/// At least nine rounds are needed for a meaningful median and spread; a few more cost little.
const ROUNDS: usize = 15;
const ROUNDS_QUICK: usize = 3;

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(dir) = &options.memory_of {
        println!("{}", query::topdeck::query_memory(dir, options.caql)?);
        return Ok(());
    }
    if let Some(count) = options.record_shm {
        return shared::child::record_values(count);
    }
    if let Some(count) = options.hold_shm {
        return shared::child::hold_counters(count);
    }
    if let Some(count) = options.read_shm {
        return shared::child::read_counters(count);
    }
    if let Some(how) = &options.load_stub {
        return load::child::run_stub(how);
    }
    if let Some(what) = &options.load_run {
        return load::child::run_load(what);
    }
    let effort = match options.quick {
        true => Effort { rounds: ROUNDS_QUICK, quick: true },
        false => Effort { rounds: ROUNDS, quick: false },
    };
    // Read first, because the run itself is load.
    let machine = machine::describe();
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|one| one == name);
    let began = wall_time();
    let says = |what: &str| eprintln!("{:5.0} s  {what}", (wall_time() - began).as_secs_f64());
    let mut sections = Vec::new();
    for (name, run) in COMPARISONS.into_iter().filter(|(name, _)| wanted(name)) {
        match run {
            ComparisonKind::Path => {
                says(&format!("{name} …"));
                sections.push(path::run(&options.path, &effort));
            }
            ComparisonKind::Alone(run) => {
                says(&format!("{name} …"));
                sections.push(run(&effort));
            }
            ComparisonKind::OnStores => {}
        }
    }
    if wanted(STORE) || wanted(QUERY) {
        says("stores …");
        sections.extend(store::run(&effort, wanted(STORE), wanted(QUERY)));
    }
    says("done");
    let report = markdown(&machine, &effort, &sections);
    if let Some(dir) = &options.out {
        return write(&report, &sections, dir, dir);
    }
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (docs, results) = (bench.join("../docs"), bench.join("results"));
    if options.insert {
        let path = docs.join(REPORT);
        let old = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        eprint!("{}", summary(&sections));
        let report = sections.iter().fold(old, |report, one| {
            let text = format!("{}{machine}\n\n", one.markdown());
            insert_section(&report, one.title, &text, one.name == PATH)
        });
        return write(&report, &sections, &docs, &results);
    }
    if options.quick || !options.only.is_empty() {
        println!("{report}");
        return Ok(());
    }
    eprint!("{}", summary(&sections));
    write(&report, &sections, &docs, &results)
}

const REPORT: &str = "benchmarks.md";
const IN_PROCESS: &str = "## In-process figures\n\nWhat follows was measured inside the process of \
                          the benchmark, without HTTP, JSON and\nthe cost of a server, except for \
                          “Servers under load”, “Load generators” and “The page”.\n\n";

fn markdown(machine: &str, effort: &Effort, sections: &[ReportSection]) -> String {
    let mut report = format!(
        "# Benchmarks\n\nWritten by `make bench`, which runs all comparisons side by side in one \
         run; the samples are in `bench/results/`. Numbers are medians of {} rounds with minimum \
         and maximum in parentheses. Contenders take turns within each round. Single-threaded \
         costs are CPU time of the thread, so other work on the machine affects them only \
         through caches and clock frequency.\n\n{machine}\n\n",
        effort.rounds
    );
    let (path, others): (Vec<_>, Vec<_>) = sections.iter().partition(|one| one.name == PATH);
    path.iter().for_each(|section| report += &section.markdown());
    if !others.is_empty() {
        report += IN_PROCESS;
        report += &summary(others.iter().copied());
    }
    for section in others {
        report += &section.markdown();
    }
    report.trim_end().to_owned() + "\n"
}

/// A report with this section instead of the one of the same title. A new one is the first, or the
/// last.
fn insert_section(report: &str, title: &str, section: &str, first: bool) -> String {
    let headings: Vec<usize> = report.match_indices("\n## ").map(|(at, _)| at + 1).collect();
    let end = report.len();
    let old = headings.iter().position(|&at| report[at..].starts_with(&format!("## {title}\n")));
    let (from, to) = match old {
        Some(number) => (headings[number], headings.get(number + 1).copied().unwrap_or(end)),
        None if first => {
            (headings.first().copied().unwrap_or(end), headings.first().copied().unwrap_or(end))
        }
        None => (end, end),
    };
    let gap = if report[..from].ends_with("\n\n") { "" } else { "\n" };
    let whole = format!("{}{gap}{section}{}", &report[..from], &report[to..]);
    whole.trim_end().to_owned() + "\n"
}

fn write(report: &str, sections: &[ReportSection], docs: &Path, results: &Path) -> Result<()> {
    for dir in [docs, results] {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let mut files = vec![(docs.join(REPORT), report.to_owned())];
    for section in sections {
        files.push((results.join(section.name).with_extension("tsv"), section.tsv()));
        let plots = section.tables.iter().filter_map(|table| table.plot.as_ref());
        files.extend(plots.map(|plot| (docs.join(plot.file), plot.svg.clone())));
    }
    for (path, text) in files {
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_replaces_its_section_and_the_path_comes_first() {
        let report = "# Benchmarks\n\nText.\n\n## One\n\n1\n\n## Two\n\n2\n";
        let replaced = insert_section(report, "One", "## One\n\nnew\n\n", false);
        assert_eq!(replaced, "# Benchmarks\n\nText.\n\n## One\n\nnew\n\n## Two\n\n2\n");
        let first = insert_section(report, "Path", "## Path\n\nnew\n\n", true);
        assert!(first.starts_with("# Benchmarks\n\nText.\n\n## Path\n\nnew\n\n## One\n\n1\n"));
        let last = insert_section(report, "Three", "## Three\n\n3\n\n", false);
        assert!(last.ends_with("## Two\n\n2\n\n## Three\n\n3\n"), "{last}");
    }
}
