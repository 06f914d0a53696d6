//! Command line: subcommands and exit statuses.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{CommandFactory, Parser, Subcommand};
use render::text::escape_control;

use crate::{
    audit, breakdown, cardinality, cat, check_config, compare, completions, diff, doctor, generate,
    heatmap, hiccup, hist, import, in_flight, journal, load, ls, man, post_mortem, query,
    renamed_flags, restore, serve, snapshot, store, token, top, watch,
};

/// See how a system treats each of its users, not on average.
///
/// topdeck keeps the whole distribution of every latency and tells how many people had a bad
/// experience, when, and where.
#[derive(Parser)]
#[command(name = "topdeck", version, arg_required_else_help = true, after_long_help = AFTER)]
pub(crate) struct Topdeck {
    #[command(subcommand)]
    subcommand: Command,
}

const AFTER: &str = "\
Exit status:
  0  all went well
  1  an input could not be read, or held nothing
  2  the command line makes no sense
  3  something was missing (`topdeck journal cat` and `tail`, `topdeck store export`), or the result of
     `topdeck load` is invalid
  4  a requirement of `topdeck load` was not met";

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeOptions),
    Agent(serve::AgentOptions),
    Ls(ls::Options),
    Cat(cat::Options),
    Watch(watch::Options),
    Hist(hist::Options),
    Inflight(in_flight::Options),
    Diff(diff::Options),
    #[command(name = "post-mortem")]
    PostMortem(post_mortem::Options),
    Journal(journal::Options),
    Load(Box<load::Options>),
    Store(store::Options),
    Import(import::Options),
    Query(query::Options),
    Compare(compare::Options),
    Explain(breakdown::Options),
    Heatmap(heatmap::Options),
    Cardinality(cardinality::Options),
    #[command(name = "gen")]
    Generate(generate::Options),
    Token(token::Options),
    Audit(audit::Options),
    Snapshot(snapshot::Options),
    Restore(restore::Options),
    #[command(name = "check-config")]
    CheckConfig(check_config::Options),
    Doctor(doctor::Options),
    Top(top::Options),
    Hiccup(hiccup::Options),
    Completions(completions::Options),
    Man(man::Options),
}

pub(crate) fn parse_args() -> Topdeck {
    Topdeck::try_parse().unwrap_or_else(|error| renamed_flags::replace_error(error).exit())
}

/// The whole command line, for what is written from it.
pub(crate) fn clap_command() -> clap::Command {
    Topdeck::command()
}

impl Topdeck {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.subcommand {
            Command::Serve(options) => serve::serve(&options),
            Command::Agent(options) => serve::agent(&options),
            Command::Token(options) => token::run(&options),
            Command::Audit(options) => audit::run(&options),
            Command::Snapshot(options) => snapshot::run(&options),
            Command::Restore(options) => restore::run(&options),
            Command::Ls(options) => ls::run(&options),
            Command::Cat(options) => cat::run(&options),
            Command::Watch(options) => watch::run(&options),
            Command::Hist(options) => hist::run(&options),
            Command::Inflight(options) => in_flight::run(&options),
            Command::Diff(options) => diff::run(&options),
            Command::PostMortem(options) => post_mortem::run(&options),
            Command::Journal(options) => journal::run(&options),
            Command::Load(options) => load::run(&options),
            Command::Store(options) => store::run(&options),
            Command::Import(options) => import::run(&options),
            Command::Query(options) => query::run(&options),
            Command::Compare(options) => compare::run(&options),
            Command::Explain(options) => breakdown::run(&options),
            Command::Heatmap(options) => heatmap::run(&options),
            Command::Cardinality(options) => cardinality::run(&options),
            Command::Generate(options) => generate::run(&options),
            Command::CheckConfig(options) => check_config::run(&options),
            Command::Doctor(options) => doctor::run(&options),
            Command::Top(options) => top::run(&options),
            Command::Hiccup(options) => hiccup::run(&options),
            Command::Completions(options) => completions::run(&options),
            Command::Man(options) => man::run(&options),
        }
    }
}

/// Says what went wrong. That nobody reads on (`| head`) is no failure of ours.
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

/// Tells the user. Where nobody can be told (standard error is full, or gone) the exit status still is.
pub(crate) fn print_message(message: impl Display) {
    let _ = writeln!(io::stderr(), "topdeck: {}", escape_control(&message.to_string()));
}

/// Writes what was asked for.
pub(crate) fn print_stdout(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// What is told beside it, to standard error, if anybody listens there.
pub(crate) fn print_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_valid() {
        super::clap_command().debug_assert();
    }
}
