//! The program `topdeck`: one file per subcommand.
#![forbid(unsafe_code)]

mod alerts;
mod annotate;
mod audit;
mod background;
mod breakdown;
mod cardinality;
mod cat;
mod changes;
mod check_config;
mod command;
mod compare;
mod completions;
mod contacts;
mod crash;
mod damage;
mod dashboards;
mod data_dirs;
mod demo;
mod diff;
mod doctor;
#[cfg(test)]
#[path = "../../../testdata/extensions/subcommand/rate.rs"]
mod example;
mod exemplars;
mod generate;
mod heatmap;
mod hiccup;
mod hist;
mod import;
mod in_flight;
mod install;
mod journal;
mod load;
mod ls;
mod man;
mod node;
mod output;
mod overview;
mod post_mortem;
mod process_argument;
mod process_waiter;
mod query;
mod rename;
mod renamed_flags;
mod restore;
mod retire;
mod rules;
mod serve;
mod server_log;
mod settings;
mod silences;
mod slo;
mod snapshot;
mod status;
mod store;
mod subcommand_table;
mod tail;
mod targets;
mod time;
mod token;
mod top;
mod trace;
mod uninstall;
mod usage_error;
mod watch;
mod wire;

use std::process::ExitCode;

/// With another C library its own allocator is used: docs/dist.md has the measurements. Libraries
/// set no allocator.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: heap::StaticAllocator = heap::STATIC_ALLOCATOR;

fn main() -> ExitCode {
    match command::parse_args().run() {
        Ok(status) => status,
        Err(error) => command::report_failure(&error),
    }
}
