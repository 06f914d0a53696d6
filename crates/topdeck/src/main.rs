//! The program `topdeck`: one file per subcommand.
#![forbid(unsafe_code)]

mod command;
mod completions;
mod generate;
mod heatmap;
mod hist;
mod journal;
mod json;
mod man;
mod svg;

use std::process::ExitCode;

fn main() -> ExitCode {
    match command::parse().run() {
        Ok(status) => status,
        Err(error) => command::failed(&error),
    }
}
