//! Comparisons of topdeck with other libraries, side by side in one run.
//!
//! Writes `docs/benchmarks.md` and the samples behind it, `bench/results/*.tsv`. Everything that
//! can disturb a comparison is said in the report itself. `record.rs` … `accuracy.rs` hold one
//! comparison of histograms each, with the peers; `topdeck.rs` is topdeck's side of all of them.
//! `time.rs` compares clocks, `shared.rs` what programs measure themselves with, `journal.rs` has
//! those of journals, `store.rs` that of stores, `query.rs` that of questions to them, `serve.rs`
//! that of servers under load, `load.rs` that of load generators.
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
    /// Try everything in a minute; print the report, write nothing
    #[arg(long)]
    quick: bool,
    /// Run this comparison alone, or several; print the report, write nothing
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(COMPARISONS.map(|(name, _)| name)))]
    only: Vec<String>,
    /// Write the report, its samples and its pictures to this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Ask the store in this folder one question and print the memory that this took: how `query`
    /// asks a process that does nothing else
    #[arg(long, value_name = "FOLDER", hide = true)]
    memory_of: Option<PathBuf>,
    /// Record into shared memory, so often on each of two threads or until killed if 0: what `shm`
    /// looks at from outside
    #[arg(long, value_name = "COUNT", hide = true)]
    record_shm: Option<u64>,
    /// Read that process's counters so often
    #[arg(long, value_name = "COUNT", hide = true)]
    read_shm: Option<u64>,
    /// Hold so many counters in shared memory until the input ends
    #[arg(long, value_name = "COUNT", hide = true)]
    hold_shm: Option<usize>,
    /// Answer each request after the same time until the input ends
    #[arg(long, hide = true)]
    load_stub: Option<String>,
    /// Make load and print what came of it: what `load` compares with other tools
    #[arg(long, hide = true, num_args = 6)]
    load_run: Option<Vec<String>>,
    /// In CAQL
    #[arg(long, hide = true, requires = "memory_of")]
    caql: bool,
}

/// How much work a run does.
struct Effort {
    rounds: usize,
    quick: bool,
}

/// How a comparison is made.
#[derive(Clone, Copy)]
enum ComparisonKind {
    Alone(fn(&Effort) -> ReportSection),
    /// With all others of stores, so that they are loaded once.
    OnStores,
}

const STORE: &str = "store";
const QUERY: &str = "query";
const SERVE: &str = "serve";
/// Those on stores come last.
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

/// Nine rounds are the least of which a median and a spread say something; a few more cost little.
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
    // Read first: the run itself is a load.
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
