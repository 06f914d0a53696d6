//! Comparisons of topdeck with other libraries, side by side in one run.
//!
//! Writes `docs/benchmarks.md` and the samples behind it, `bench/results/*.tsv`. Everything that can disturb
//! a comparison is said in the report itself. `record.rs` … `accuracy.rs` hold one comparison of histograms each,
//! with the peers; `topdeck.rs` is topdeck's side of all of them. `journal.rs` has those of journals,
//! `store.rs` that of stores.
#![forbid(unsafe_code)]

mod accuracy;
mod bursts;
mod bytes;
mod clock;
mod data;
mod floor;
mod journal;
mod machine;
mod merge;
mod quantile;
mod record;
mod report;
mod rounds;
mod store;
mod threads;
mod topdeck;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::clock::wall_time;
use crate::report::{Section, summary};

/// Compare topdeck with other libraries and write docs/benchmarks.md
#[derive(Parser)]
#[command(name = "topdeck-bench")]
struct Options {
    /// Try everything in a minute; print the report, write nothing
    #[arg(long)]
    quick: bool,
    /// Run this comparison alone; print the report, write nothing
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(COMPARISONS.map(|(name, _)| name)))]
    only: Option<String>,
}

/// How much work a run does.
struct Effort {
    rounds: usize,
    quick: bool,
}

type Comparison = (&'static str, fn(&Effort) -> Section);
const COMPARISONS: [Comparison; 10] = [
    ("record", record::run),
    ("threads", threads::run),
    ("merge", merge::run),
    ("quantile", quantile::run),
    ("bytes", bytes::run),
    ("accuracy", accuracy::run),
    ("journal-append", journal::append),
    ("journal-durable", journal::durable),
    ("journal-read", journal::read),
    ("store", store::run),
];

/// Nine rounds are the least of which a median and a spread say something; a few more cost little.
const ROUNDS: usize = 15;
const ROUNDS_QUICK: usize = 3;

fn main() -> Result<()> {
    let options = Options::parse();
    let effort = match options.quick {
        true => Effort { rounds: ROUNDS_QUICK, quick: true },
        false => Effort { rounds: ROUNDS, quick: false },
    };
    // Read first: the run itself is a load.
    let machine = machine::describe();
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let began = wall_time();
    let mut sections = Vec::new();
    for (name, run) in COMPARISONS.into_iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{:5.0} s  {name} …", (wall_time() - began).as_secs_f64());
        sections.push(run(&effort));
    }
    eprintln!("{:5.0} s  done", (wall_time() - began).as_secs_f64());
    let report = markdown(&machine, &effort, &sections);
    if options.quick || options.only.is_some() {
        println!("{report}");
        return Ok(());
    }
    eprint!("{}", summary(&sections));
    write(&report, &sections)
}

fn markdown(machine: &str, effort: &Effort, sections: &[Section]) -> String {
    let mut report = format!(
        "# Benchmarks\n\n\
         Written by `make bench`, which runs all of it side by side in one run; the samples are in \
         `bench/results/`. Numbers are medians of {} rounds with the least and the greatest in \
         parentheses. Contenders take turns within each round. Single-threaded costs are processor time of \
         the thread, so other work on the machine lengthens them only through caches and clock frequency.\n\n\
         {machine}\n\n",
        effort.rounds
    );
    report += &summary(sections);
    for section in sections {
        report += &section.markdown();
    }
    report.trim_end().to_owned() + "\n"
}

fn write(report: &str, sections: &[Section]) -> Result<()> {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = bench.join("../docs");
    let results = bench.join("results");
    for folder in [&docs, &results] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let mut files = vec![(docs.join("benchmarks.md"), report.to_owned())];
    files.extend(
        sections
            .iter()
            .map(|section| (results.join(section.name).with_extension("tsv"), section.tsv())),
    );
    for (path, text) in files {
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
