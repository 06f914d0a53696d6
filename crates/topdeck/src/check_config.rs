//! `topdeck check-config`: checks a settings file without starting anything.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::command::print_stdout;
use crate::node::{ROLES, verify_settings};
use crate::output::print_problems;
use crate::serve::data_dir;
use crate::settings::Settings;
use render::text::escape_control;
use render::text::plural;

/// Check the settings of `topdeck serve` and `topdeck agent`
///
/// Parses the file as they do and prints the errors with their lines and, for an unknown key, the
/// nearest valid one. A value that cannot be read hides the checks of other values: check again
/// after a correction. Checks that files named in the settings exist, that certificates are valid,
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
    match Settings::read(&options.file, ROLES) {
        Ok(settings) => {
            verify_settings(None, &settings, &data_dir(None, &settings)?)?;
            let counts = settings.roles.summary().into_iter();
            let counts: Vec<String> =
                counts.map(|n| plural(n.count as u64, n.one, n.many)).collect();
            let file = escape_control(&options.file.display().to_string());
            let text = match counts.split_last() {
                Some((last, first)) => {
                    format!("{file}: valid, with {} and {last}\n", first.join(", "))
                }
                None => format!("{file}: valid\n"),
            };
            print_stdout(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            print_problems(&problems);
            Ok(ExitCode::FAILURE)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The reason why `serve` and `check-config` reject the settings.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let folder = Path::new("/nonexistent");
        let settings = Settings::parse(text, folder, ROLES).expect("the file alone is valid");
        let data = data_dir(Some(folder), &settings).expect("it is given");
        match verify_settings(None, &settings, &data) {
            Ok(()) => assert_eq!("", expected),
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
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
