//! `topdeck check-config`: checks a settings file without starting anything.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use client::{print_message, print_stdout};

use crate::node::{ROLES, verify_settings, verify_tokens};
use crate::output::print_problems;
use crate::serve::data_dir;
use crate::settings::Settings;
use render::text::escape_control;
use render::text::plural;

/// Check the settings of `topdeck serve` and `topdeck agent`
///
/// Parses the file as they do and prints all errors with their lines and, for an unknown key, the
/// nearest valid one. Checks that files named in the settings exist, that certificates are valid,
/// and that tokens exist in the data directory if an address needs them. Opens no port and no
/// connection.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Settings file (TOML); docs/topdeck.toml lists all keys
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

const AFTER: &str = "\
Example:
  topdeck check-config /etc/topdeck.toml && kill -HUP \"$(pidof topdeck)\"

Exit status:
  0  the settings are valid
  1  the settings are invalid; standard error has the reasons
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (settings, problems) = match Settings::read_with_contents(&options.file, ROLES) {
        Ok((settings, problems)) => (Some(settings), problems),
        Err(problems) => (None, problems),
    };
    let mut is_valid = problems.is_empty();
    if !is_valid {
        print_problems(&problems);
    }
    if let Some(settings) = &settings {
        let verified = match is_valid {
            true => {
                data_dir(None, settings).and_then(|data| verify_settings(None, settings, &data))
            }
            false => {
                let data = data_dir(None, settings);
                let tokens = data.and_then(|data| verify_tokens(settings, &data));
                let files = settings.roles.validate_files(None).map_err(anyhow::Error::from_boxed);
                // The contents of some files were checked with the settings.
                let known = problems.to_string();
                tokens.and(files.or_else(|error| match known.contains(&error.to_string()) {
                    true => Ok(()),
                    false => Err(error),
                }))
            }
        };
        if let Err(error) = verified {
            print_message(format_args!("{}: {error:#}", options.file.display()));
            is_valid = false;
        }
        for warning in settings.roles.warnings() {
            print_message(format_args!("{}: warning: {warning}", options.file.display()));
        }
    }
    let Some(settings) = settings.filter(|_| is_valid) else { return Ok(ExitCode::FAILURE) };
    let counts = settings.roles.summary().into_iter();
    let counts: Vec<String> = counts.map(|n| plural(n.count as u64, n.one, n.many)).collect();
    let file = escape_control(&options.file.display().to_string());
    let text = match counts.split_last() {
        Some((last, first)) => format!("{file}: valid, with {} and {last}\n", first.join(", ")),
        None => format!("{file}: valid\n"),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The reason why `serve` and `check-config` reject the settings.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let dir = Path::new("/nonexistent");
        let settings = Settings::parse(text, dir, ROLES).expect("the file alone is valid");
        let data = data_dir(Some(dir), &settings).expect("it is given");
        match verify_settings(None, &settings, &data) {
            Ok(()) => assert_eq!("", expected),
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
        }
    }

    #[test]
    fn contents_of_files_are_checked_beside_other_errors() {
        let dir = std::env::temp_dir().join(format!("topdeck-check-{:x}", journal::random_id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let file = dir.join("topdeck.toml");
        std::fs::write(dir.join("ca.pem"), "x").expect("a file");
        let text = "colection_interval = \"1s\"\n[[scrape]]\nname = \"a\"\nurl = \
                    \"https://b\"\nca = \"ca.pem\"\n[[remote]]\nname = \"a/b\"\nurl = \
                    \"http://b\"\n";
        std::fs::write(&file, text).expect("a file");
        let (_, problems) = Settings::read_with_contents(&file, ROLES).expect("it is readable");
        std::fs::remove_dir_all(&dir).expect("it exists");
        let text = problems.to_string();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("  | ")).collect();
        let expected = [":1: unknown key", ":3: scrape \"a\":", ":7: remote name \"a/b\" has"];
        assert_eq!(lines.len(), expected.len(), "{text}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn address_without_tokens_is_rejected_as_serve_rejects_it() {
        check("[http]\nlisten = [\"127.0.0.1:7717\"]", "");
        check(
            "[http]\nlisten = [\"0.0.0.0:7717\"]",
            "cannot listen on 0.0.0.0:7717 without tokens",
        );
        check("[http]\ntokens_required = true", "tokens are required, but none exists");
    }
}
