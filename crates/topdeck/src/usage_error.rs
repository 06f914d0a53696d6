//! Usage errors that only a running subcommand detects.
//!
//! They are printed with the usage of the subcommand, which the table of all subcommands knows. A
//! subcommand must not import that table, which imports all of them.

use std::sync::OnceLock;

/// Builds the whole command line.
static ROOT: OnceLock<fn() -> clap::Command> = OnceLock::new();

/// Sets the function that builds the whole command line.
pub(crate) fn set_command(root: fn() -> clap::Command) {
    ROOT.get_or_init(|| root);
}

/// Reports a usage error of a check that clap cannot do: exit status 2. `subcommand` is `hist`, or
/// `journal cat`.
pub(crate) fn exit_with_usage_error(subcommand: &str, message: String) -> ! {
    let root = ROOT.get().expect("BUG: a subcommand runs before the arguments are parsed");
    let mut command = root();
    command.build();
    let mut found = &mut command;
    for name in subcommand.split(' ') {
        found = found.find_subcommand_mut(name).expect("BUG: no such subcommand");
    }
    found.error(clap::error::ErrorKind::ValueValidation, message).exit()
}
