//! The program `topdeck`: one file per subcommand.
#![forbid(unsafe_code)]

mod cardinality;
mod check_config;
mod command;
mod compare;
mod completions;
mod explain;
mod generate;
mod heatmap;
mod hist;
mod import;
mod journal;
mod json;
mod man;
mod query;
mod settings;
mod store;
mod svg;
mod time;

use std::process::ExitCode;

fn main() -> ExitCode {
    match command::parse().run() {
        Ok(status) => status,
        Err(error) => command::failed(&error),
    }
}
