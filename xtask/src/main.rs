//! `cargo xtask`: what people and CI do to this repository, as a program instead of shell scripts.
//!
//! One file per subcommand; `part` runs parts and counts them, `line` is a command as one types it.
#![forbid(unsafe_code)]

mod aarch64;
mod ci;
mod clients;
mod conformance;
mod dist;
mod fuzz;
mod golden;
mod line;
mod loom;
mod miri;
mod page;
mod part;
mod soak;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Checks, soaks, packages and golden files of topdeck.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    Ci(ci::Options),
    Conformance(conformance::Options),
    Soak(soak::Options),
    Dist(dist::Options),
    Golden(golden::Options),
    Page(page::Options),
}

fn main() -> Result<ExitCode> {
    match Xtask::parse() {
        Xtask::Ci(options) => Ok(ci::run(&options)),
        Xtask::Conformance(options) => Ok(conformance::run(&options)),
        Xtask::Soak(options) => Ok(soak::run(&options)),
        Xtask::Dist(options) => dist::run(&options),
        Xtask::Golden(options) => golden::run(&options),
        Xtask::Page(options) => page::build(&options),
    }
}
