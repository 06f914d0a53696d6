//! Flags of earlier versions, which are refused with their new names.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::command;

/// Subcommand, old flag, new flag.
const FLAGS: [(&str, &str, &str); 8] = [
    ("load", "--argument", "--arg"),
    ("load", "--clicks", "--page-views"),
    ("load", "--connections-max", "--max-connections"),
    ("load", "--drain", "--grace-period"),
    ("load", "--precision", "--tolerance"),
    ("load", "--rate-max", "--max-rate"),
    ("load", "--requests-per-click", "--requests-per-page"),
    ("load", "--run", "--run-name"),
];

/// Replaces the error about an unknown flag if the flag was renamed.
pub(crate) fn replace_error(error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(old)) = error.get(ContextKind::InvalidArg) else { return error };
    let subcommand = std::env::args_os().nth(1).unwrap_or_default();
    let renamed = FLAGS.iter().find(|flag| subcommand == flag.0 && *old == flag.1);
    let Some((name, old, new)) = renamed else { return error };
    let mut command = command::clap_command();
    command.build();
    let command = command.find_subcommand_mut(name).expect("BUG: a flag of no subcommand");
    command.error(ErrorKind::UnknownArgument, format!("{old} was renamed to {new}"))
}
