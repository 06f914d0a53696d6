//! `cargo xtask dist`: shell completions and man pages, which the binary itself writes.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::line::{Line, root};
use crate::log::Log;

/// Write shell completions and man pages to target/dist.
#[derive(clap::Args)]
pub(crate) struct Options {}

const DIST: &str = "target/dist";

/// Each shell and the file name it looks for.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "topdeck.bash"), ("zsh", "_topdeck"), ("fish", "topdeck.fish")];

pub(crate) fn run(_: &Options) -> Result<ExitCode> {
    let log = Log::console("dist");
    Line::new("cargo build --release -p topdeck --locked").run(&log)?;
    let dist = root().join(DIST);
    // What an older binary wrote and this one does not would stay for ever.
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("removing {DIST}"))?;
    }
    write_completions(&dist.join("completions"))?;
    write_man_pages(&dist.join("man"))?;
    Ok(ExitCode::SUCCESS)
}

fn write_completions(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (shell, file) in COMPLETIONS {
        let text = topdeck(&format!("completions {shell}")).stdout()?;
        ensure!(!text.is_empty(), "`topdeck completions {shell}` wrote nothing");
        fs::write(folder.join(file), text)?;
        println!("== dist: {DIST}/completions/{file}");
    }
    Ok(())
}

fn write_man_pages(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    topdeck(&format!("man {DIST}/man")).run(&Log::console("dist"))?;
    let page_count = fs::read_dir(folder)?.count();
    ensure!(page_count > 0, "`topdeck man {DIST}/man` wrote no page");
    println!("== dist: {page_count} man pages in {DIST}/man");
    Ok(())
}

/// The binary that was just built, wherever cargo put it.
fn topdeck(arguments: &str) -> Line {
    Line::new(&format!("cargo run --quiet --release -p topdeck --locked -- {arguments}"))
}
