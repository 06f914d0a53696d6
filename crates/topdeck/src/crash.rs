//! `topdeck crash`: crashes of programs of all hosts, and the handler of crashes on this one.

mod core_pattern;
mod dying_process;
mod file_rights;
mod former_handler;
mod handle;
mod handler_limits;
mod list;
mod read;
mod recorded_input;
mod trusted_file;

use std::process::ExitCode;

use anyhow::Result;

use crate::subcommand_table::subcommands;

/// Show the crashes of programs, and report those of this host
///
/// `topdeck crash install` makes the kernel start topdeck when a program of this host crashes. It
/// leaves a notice, which the agent or server of this host sends: which program, why, where in the
/// code, and which operations were in flight. Neither heap nor arguments nor environment of the
/// process are read.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

subcommands! {
    Command:
    Ls(list::LsOptions) => list::ls,
    Group(list::CrashGroupOptions) => list::group,
    Show(list::ShowOptions) => list::show,
    Install(core_pattern::HandlerInstallOptions) => core_pattern::install,
    Uninstall(core_pattern::HandlerUninstallOptions) => core_pattern::uninstall,
    Status(core_pattern::HandlerStatusOptions) => core_pattern::status,
    Read(read::Options) => read::run,
    #[command(hide = true)]
    Handle(handle::Options) => handle::run,
}

pub(crate) use core_pattern::uninstall_with_program;

const AFTER: &str = "\
Examples:
  topdeck crash install
  topdeck crash group --from -7d
  topdeck crash ls --from -1h
  topdeck crash show 1-f875632070d148d4

Exit status:
  0  success
  1  error: the server was not reached, or the setting of the kernel cannot be changed
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.subcommand.run()
}
