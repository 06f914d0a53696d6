//! `topdeck contacts`: contacts of a settings file. `list` shows them, `test` sends a message.

mod list;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alerts::{AlertMessageTemplates, message_template_problems};
use anyhow::Result;
use notify::NotifySettings;
use role::settings::{Document, Problems};

use crate::output::print_problems;
use crate::subcommand_table::subcommands;

/// Show and test the contacts of notifications
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

subcommands! {
    Command:
    List(list::Options) => list::run,
    Test(test::Options) => test::run,
}

/// The settings file.
#[derive(clap::Args)]
struct SettingsArgument {
    /// Settings file (TOML), as of `topdeck serve --config`
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl SettingsArgument {
    /// Settings of notifications and what templates see; problems are printed.
    fn read(&self) -> Option<(NotifySettings, AlertMessageTemplates)> {
        let read = self.read_file().map_err(|problems| problems.in_file(&self.config));
        read.inspect_err(print_problems).ok()
    }

    fn read_file(&self) -> Result<(NotifySettings, AlertMessageTemplates), Problems> {
        let text = std::fs::read_to_string(&self.config)
            .map_err(|error| Problems::of_file(&self.config, format!("cannot read it: {error}")))?;
        let document = Document::parse(&text, self.dir())?;
        let read = NotifySettings::read(document.root(), document.dir());
        let read = read.and_then(|settings| {
            let problems = message_template_problems(&settings.contacts);
            if problems.is_empty() { Ok(settings) } else { Err(problems) }
        });
        let settings = read.map_err(|found| {
            document.problems_at(found.into_iter().map(|problem| (problem.position, problem.what)))
        })?;
        Ok((settings, AlertMessageTemplates::of_settings(&document)))
    }

    fn dir(&self) -> &Path {
        self.config.parent().unwrap_or(Path::new("."))
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.subcommand.run()
}
