//! Command line: subcommands and exit statuses.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches as _, Parser};
use client::print_message;

use crate::subcommand_table::subcommands;
use crate::{renamed_flags, usage_error};

/// Latency observability with full distributions instead of averages.
///
/// topdeck stores the whole distribution of every latency and shows how many requests were slow,
/// when and where.
#[derive(Parser)]
#[command(name = "topdeck", version, long_version = LONG_VERSION)]
#[command(arg_required_else_help = true, after_long_help = AFTER)]
pub(crate) struct Topdeck {
    #[command(subcommand)]
    subcommand: Command,
}

/// Says whether the page is in the binary: a build without it differs in nothing else.
const LONG_VERSION: &str = if page::IS_EMBEDDED {
    concat!(env!("CARGO_PKG_VERSION"), "\nweb page: included")
} else {
    concat!(env!("CARGO_PKG_VERSION"), "\nweb page: not included; `cargo xtask page` builds it")
};

const AFTER: &str = "\
Exit status:
  0  success
  1  error: an input could not be read or was empty
  2  usage error
  3  data is missing (`topdeck journal cat` and `tail`, `topdeck store export`), or the result of
     `topdeck load` is invalid
  4  a requirement of `topdeck load` was not met";

subcommands! {
    Command:
    Serve(crate::serve::ServeOptions) => crate::serve::serve,
    Agent(crate::serve::AgentOptions) => crate::serve::agent,
    Ls(crate::ls::Options) => crate::ls::run,
    Cat(crate::cat::Options) => crate::cat::run,
    Watch(crate::watch::Options) => crate::watch::run,
    Hist(crate::hist::Options) => crate::hist::run,
    InFlight(crate::in_flight::Options) => crate::in_flight::run,
    Diff(crate::diff::Options) => crate::diff::run,
    PostMortem(crate::post_mortem::Options) => crate::post_mortem::run,
    Crash(crate::crash::Options) => crate::crash::run,
    Journal(crate::journal::Options) => crate::journal::run,
    Load(Box<crate::load::Options>) => crate::load::run,
    Store(crate::store::Options) => crate::store::run,
    Import(crate::import::Options) => crate::import::run,
    Overview(crate::overview::Options) => crate::overview::run,
    Query(crate::query::Options) => crate::query::run,
    Compare(crate::compare::Options) => crate::compare::run,
    Breakdown(crate::breakdown::Options) => crate::breakdown::run,
    Exemplars(crate::exemplars::Options) => crate::exemplars::run,
    Trace(crate::trace::Options) => crate::trace::run,
    Heatmap(crate::heatmap::Options) => crate::heatmap::run,
    Cardinality(crate::cardinality::Options) => crate::cardinality::run,
    Delete(crate::store::delete::Options) => crate::store::delete::run,
    Rename(crate::rename::Options) => crate::rename::run,
    Retire(crate::retire::Options) => crate::retire::run,
    Tail(crate::tail::Options) => crate::tail::run,
    Annotate(crate::annotate::Options) => crate::annotate::run,
    Dashboards(crate::dashboards::Options) => crate::dashboards::run,
    Contacts(crate::contacts::Options) => crate::contacts::run,
    Status(crate::status::Options) => crate::status::run,
    Targets(crate::targets::Options) => crate::targets::run,
    Alerts(crate::alerts::Options) => crate::alerts::run,
    Silences(crate::silences::Options) => crate::silences::run,
    Rules(crate::rules::Options) => crate::rules::run,
    Slo(crate::slo::Options) => crate::slo::run,
    Changes(crate::changes::Options) => crate::changes::run,
    Demo(crate::demo::Options) => crate::demo::run,
    #[command(name = "gen")]
    Generate(crate::generate::Options) => crate::generate::run,
    Token(crate::token::Options) => crate::token::run,
    Install(crate::install::Options) => crate::install::run,
    Uninstall(crate::uninstall::Options) => crate::uninstall::run,
    Audit(crate::audit::Options) => crate::audit::run,
    Damage(crate::damage::Options) => crate::damage::run,
    Snapshot(crate::snapshot::Options) => crate::snapshot::run,
    Restore(crate::restore::Options) => crate::restore::run,
    CheckConfig(crate::check_config::Options) => crate::check_config::run,
    Doctor(crate::doctor::Options) => crate::doctor::run,
    Top(crate::top::Options) => crate::top::run,
    Wire(crate::wire::Options) => crate::wire::run,
    Hiccup(crate::hiccup::Options) => crate::hiccup::run,
    Completions(crate::completions::Options) => crate::completions::run,
    Man(crate::man::Options) => crate::man::run,
}

pub(crate) fn parse_args() -> Topdeck {
    usage_error::set_command(Topdeck::command);
    let args: Vec<OsString> = std::env::args_os().collect();
    let matches = Topdeck::command().try_get_matches_from(&args);
    // `try_parse_from` would add the usage of the program instead of the subcommand.
    matches
        .and_then(|matches| Topdeck::from_arg_matches(&matches))
        .unwrap_or_else(|error| renamed_flags::replace_error(error, &args).exit())
}

/// The whole command line, for completions and man pages.
pub(crate) fn clap_command() -> clap::Command {
    Topdeck::command()
}

impl Topdeck {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        self.subcommand.run()
    }
}

/// Prints an error. A closed standard output (`| head`) is not an error.
pub(crate) fn report_failure(error: &anyhow::Error) -> ExitCode {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        return ExitCode::SUCCESS;
    }
    print_message(format_args!("{error:#}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_valid() {
        super::clap_command().debug_assert();
    }
}
