//! Comparisons of topdeck with other libraries, side by side in one run.
//!
//! Writes `docs/benchmarks.md` and the samples, `bench/results/*.tsv`. The report describes
//! everything that can disturb a comparison. `record.rs` … `accuracy.rs` contain one comparison of
//! histograms each, with the peers; `topdeck.rs` is the topdeck contender of all of them. `time.rs`
//! compares clocks, `shared.rs` in-process metrics, `journal.rs` journals, `store.rs` stores,
//! `query.rs` queries of them, `serve.rs` servers under load, and `load.rs` load generators.
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
    /// Folder for the report, its samples and its images
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Run one query of the store in this folder and print the memory used: `query` starts such a
    /// process, which does nothing else
    #[arg(long, value_name = "FOLDER", hide = true)]
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
    Alone(fn(&Effort) -> ReportSection),
    /// Runs together with the other store comparisons, so that the stores are loaded once.
    OnStores,
}

const STORE: &str = "store";
const QUERY: &str = "query";
const SERVE: &str = "serve";
/// Comparisons of stores come last.
const COMPARISONS: [(&str, ComparisonKind); 15] = [
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
    if let Some(folder) = &options.memory_of {
        println!("{}", query::topdeck::query_memory(folder, options.caql)?);
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
        if let ComparisonKind::Alone(run) = run {
            says(&format!("{name} …"));
            sections.push(run(&effort));
        }
    }
    if wanted(STORE) || wanted(QUERY) {
        says("stores …");
        sections.extend(store::run(&effort, wanted(STORE), wanted(QUERY)));
    }
    says("done");
    let report = markdown(&machine, &effort, &sections);
    if let Some(folder) = &options.out {
        return write(&report, &sections, folder, folder);
    }
    if options.quick || !options.only.is_empty() {
        println!("{report}");
        return Ok(());
    }
    eprint!("{}", summary(&sections));
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    write(&report, &sections, &bench.join("../docs"), &bench.join("results"))
}

fn markdown(machine: &str, effort: &Effort, sections: &[ReportSection]) -> String {
    let mut report = format!(
        "# Benchmarks\n\nWritten by `make bench`, which runs all comparisons side by side in one \
         run; the samples are in `bench/results/`. Numbers are medians of {} rounds with minimum \
         and maximum in parentheses. Contenders take turns within each round. Single-threaded \
         costs are CPU time of the thread, so other work on the machine affects them only \
         through caches and clock frequency.\n\n{machine}\n\n",
        effort.rounds
    );
    report += &summary(sections);
    for section in sections {
        report += &section.markdown();
    }
    report.trim_end().to_owned() + "\n"
}

fn write(report: &str, sections: &[ReportSection], docs: &Path, results: &Path) -> Result<()> {
    for folder in [docs, results] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let mut files = vec![(docs.join("benchmarks.md"), report.to_owned())];
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
