//! `topdeck check-config`: whether a file of settings makes sense, without starting anything.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::command::{plain, print, say};
use crate::settings::Settings;
use crate::store::plural;

/// Check the settings of `topdeck serve` and `topdeck agent`
///
/// Reads the file as they do and says everything that is wrong with it, each with its line and, for a key that
/// does not exist, the nearest one that does. Files that the settings name are looked for; nothing is started,
/// listened on or connected to.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The file, TOML; docs/topdeck.toml has every key
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

const AFTER: &str = "\
Example:
  topdeck check-config /etc/topdeck.toml && kill -HUP \"$(pidof topdeck)\"

Exit status:
  0  the settings make sense
  1  they do not; standard error says why
  2  the command line makes no sense";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match Settings::read(&options.file) {
        Ok(settings) => {
            settings.pull()?.check()?;
            let n = |n: usize, one: &str, many: &str| plural(n as u64, one, many);
            let text = format!(
                "{}: sound, with {}, {} and {}\n",
                plain(&options.file.display().to_string()),
                n(settings.scrapes.len(), "scrape", "scrapes"),
                n(settings.checks.len(), "check", "checks"),
                n(settings.sites.len(), "site", "sites"),
            );
            print(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            for problem in problems.to_string().split('\n') {
                // The lines of the file below a message are shown as they stand.
                match problem.strip_prefix("  | ") {
                    Some(_) => eprintln!("{}", problem.replace(char::is_control, " ")),
                    None => say(problem),
                }
            }
            Ok(ExitCode::FAILURE)
        }
    }
}
