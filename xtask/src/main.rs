//! `cargo xtask`: commands for developers and CI, as a program instead of shell scripts.
//!
//! One file per subcommand. `command_line` runs programs, `ci_part` runs parts, `run_summary` shows
//! their outcome, and `suite` builds and runs the tests of the workspace.
#![forbid(unsafe_code)]

mod aarch64;
mod alertmanager;
mod bindings;
mod ci;
mod ci_part;
mod clients;
mod command_line;
mod conformance;
mod crash;
mod dist;
mod extension_list;
mod extensions;
mod fuzz;
mod golden;
mod hostile;
mod installed_packages;
mod libtest;
mod loom;
mod miri;
mod mutations;
mod packages;
mod page;
mod part_log;
mod passed_tests;
mod prefix_check;
mod run_summary;
mod soak;
mod suite;
mod system;
mod test_report;
mod test_seed;
mod wire;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Checks, soak tests, packages and golden files of topdeck
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    Ci(ci::Options),
    System(system::Options),
    Soak(soak::Options),
    Fuzz(fuzz::Options),
    Dist(dist::Options),
    Packages(packages::Options),
    Golden(golden::Options),
    Page(page::Options),
}

fn main() -> Result<ExitCode> {
    let xtask = Xtask::parse();
    let _lock = match &xtask {
        Xtask::Ci(_) | Xtask::System(_) | Xtask::Soak(_) => Some(ci_part::lock_runs()?),
        _ => None,
    };
    match xtask {
        Xtask::Ci(options) => Ok(ci::run(&options)),
        Xtask::System(options) => Ok(system::run(&options)),
        Xtask::Soak(options) => Ok(soak::run(&options)),
        Xtask::Fuzz(options) => fuzz::run_target(&options),
        Xtask::Dist(options) => dist::run(&options),
        Xtask::Packages(options) => packages::run(&options),
        Xtask::Golden(options) => golden::run(&options),
        Xtask::Page(options) => page::build(&options),
    }
}
