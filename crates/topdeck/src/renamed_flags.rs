//! Subcommands and flags of earlier versions; they are refused with their new names.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::command;

/// Renamed subcommand or flag.
struct RenamedFlag {
    /// Parent subcommands, by their current names.
    path: &'static str,
    /// Old name, which is refused.
    old: &'static str,
    /// New name.
    new: &'static str,
}

/// All renamed subcommands and flags. `CHANGELOG.md` has the same under *Renamed*.
const RENAMED_FLAGS: &[RenamedFlag] = &[
    row("", "explain", "breakdown"),
    row("", "inflight", "in-flight"),
    row("agent", "--data", "--data-dir"),
    row("breakdown", "--picture-from", "--baseline-from"),
    row("breakdown", "--picture-to", "--baseline-to"),
    row("diff", "--over", "--interval"),
    row("doctor", "interference", "overhead"),
    row("doctor", "viewers", "readers"),
    row("doctor clock", "--settle", "--warmup"),
    row("doctor overhead", "--of", "--observer-pid"),
    row("doctor overhead", "--only", "--experiment"),
    row("doctor overhead", "--read-as", "--observer"),
    row("doctor overhead", "--rounds", "--max-operations"),
    row("doctor readers", "--looks", "--samples"),
    row("doctor readers", "--viewers", "--readers"),
    row("gen", "--truth", "--expected"),
    row("journal", "rewind", "seek"),
    row("journal append", "--boot", "--epoch"),
    row("journal append", "--level", "--durability"),
    row("journal append", "--whole", "--record-per-file"),
    row("journal bench", "--alone", "--exclusive"),
    row("journal bench", "--codec", "--compression"),
    row("journal bench", "--bytes", "--record-size"),
    row("journal bench", "--level", "--durability"),
    row("journal cat", "--level", "--durability"),
    row("journal checkpoint", "--yields", "--droppable"),
    row("journal create", "--at-limit", "--on-full"),
    row("journal create", "--codec", "--compression"),
    row("journal create", "--max-bytes", "--max-size"),
    row("journal create", "--producers", "--dedup-producers"),
    row("journal limit", "--at-limit", "--on-full"),
    row("journal limit", "--max-bytes", "--max-size"),
    row("journal subscribers add", "--yields", "--droppable"),
    row("journal tail", "--level", "--durability"),
    row("load", "--argument", "--arg"),
    row("load", "--clicks", "--page-views"),
    row("load", "--connections-max", "--max-connections"),
    row("load", "--drain", "--grace-period"),
    row("load", "--precision", "--tolerance"),
    row("load", "--rate-max", "--max-rate"),
    row("load", "--requests-per-click", "--requests-per-page"),
    row("load", "--run", "--run-name"),
    row("load sessions", "--clicks", "--page-views"),
    row("load sessions", "--requests-per-click", "--requests-per-page"),
    row("serve", "--data", "--data-dir"),
    row("store", "keep", "retention"),
    row("store", "seal", "flush"),
    row("store create", "--codec", "--compression"),
    row("store create", "--keep", "--retention"),
    row("store restore", "--codec", "--compression"),
    row("token add", "--certificate", "--client-cert-name"),
];

const fn row(path: &'static str, old: &'static str, new: &'static str) -> RenamedFlag {
    RenamedFlag { path, old, new }
}

/// Replaces the error about an unknown subcommand or flag if it was renamed.
pub(crate) fn replace_error(error: clap::Error, args: &[OsString]) -> clap::Error {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let mut found = kinds.into_iter().filter_map(|kind| error.get(kind));
    let Some(ContextValue::String(old)) = found.next() else { return error };
    // Usage lines start with the program name.
    let mut command = command::clap_command().bin_name("topdeck");
    command.build();
    let (mut command, mut path) = (&mut command, Vec::new());
    for arg in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if command.find_subcommand(arg).is_some() {
            command = command.find_subcommand_mut(arg).expect("BUG: a subcommand that was there");
            path.push(arg);
        }
    }
    let path = path.join(" ");
    let renamed = RENAMED_FLAGS.iter().find(|row| row.path == path && row.old == *old);
    let Some(RenamedFlag { old, new, .. }) = renamed else { return error };
    let kind = if old.starts_with('-') {
        ErrorKind::UnknownArgument
    } else {
        ErrorKind::InvalidSubcommand
    };
    command.error(kind, format!("{old} was renamed to {new}"))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    const CHANGELOG: &str = include_str!("../../../CHANGELOG.md");

    fn has_name(command: &Command, name: &str) -> bool {
        match name.strip_prefix("--") {
            Some(flag) => command.get_arguments().any(|arg| arg.get_long() == Some(flag)),
            None => command.find_subcommand(name).is_some(),
        }
    }

    #[test]
    fn old_names_are_refused_with_names_that_exist() {
        for &RenamedFlag { path, old, new } in RENAMED_FLAGS {
            let mut args = vec!["topdeck"];
            args.extend(path.split(' ').filter(|name| !name.is_empty()));
            let mut command = &command::clap_command();
            for name in &args[1..] {
                command = command.find_subcommand(name).unwrap_or_else(|| panic!("{path}"));
            }
            assert!(has_name(command, new), "{path}: {new}");
            assert!(!has_name(command, old), "{path}: {old}");
            let is_listed = |line: &str| {
                line.contains(&format!("{old}`")) && line.contains(&format!("`{new}`"))
            };
            let is_hidden = ["--of", "--read-as"].contains(&old);
            assert!(is_hidden || CHANGELOG.lines().any(is_listed), "CHANGELOG.md: {path} {old}");
            args.push(old);
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            let error = command::clap_command().try_get_matches_from(&args).unwrap_err();
            let message = replace_error(error, &args).to_string();
            let expected = format!("error: {old} was renamed to {new}\n");
            assert!(message.starts_with(&expected), "{path}: {message}");
        }
    }

    #[test]
    fn other_mistakes_are_reported_as_they_are() {
        let args: Vec<OsString> = ["topdeck", "store", "sael"].map(OsString::from).to_vec();
        let error = command::clap_command().try_get_matches_from(&args).unwrap_err();
        let message = error.to_string();
        assert_eq!(replace_error(error, &args).to_string(), message);
    }
}
