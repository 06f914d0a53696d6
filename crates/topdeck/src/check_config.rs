//! `topdeck check-config`: whether a file of settings makes sense, without starting anything.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::command::{print_message, print_stdout};
use crate::node::ROLES;
use crate::settings::Settings;
use render::text::escape_control;
use render::text::plural;

/// Check the settings of `topdeck serve` and `topdeck agent`
///
/// Reads the file as they do and says everything that is wrong with it, each with its line and, for
/// a key that does not exist, the nearest one that does. Files that the settings name are looked
/// for; nothing is started, listened on or connected to.
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
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match Settings::read(&options.file, ROLES) {
        Ok(settings) => {
            settings.roles.verify(None).map_err(anyhow::Error::from_boxed)?;
            let counts = settings.roles.summary().into_iter();
            let counts: Vec<String> =
                counts.map(|n| plural(n.count as u64, n.one, n.many)).collect();
            let file = escape_control(&options.file.display().to_string());
            let text = match counts.split_last() {
                Some((last, first)) => {
                    format!("{file}: sound, with {} and {last}\n", first.join(", "))
                }
                None => format!("{file}: sound\n"),
            };
            print_stdout(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            for problem in problems.to_string().split('\n') {
                // The lines of the file below a message are shown as they stand.
                match problem.strip_prefix("  | ") {
                    Some(_) => eprintln!("{}", problem.replace(char::is_control, " ")),
                    None => print_message(problem),
                }
            }
            Ok(ExitCode::FAILURE)
        }
    }
}
