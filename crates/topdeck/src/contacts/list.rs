//! `topdeck contacts list`: contacts, rotations and escalations of a settings file.

use std::process::ExitCode;

use anyhow::Result;
use client::{print_message, print_stdout};
use journal::wall_clock;
use render::table::format_table;
use render::text::escape_control;
use render::time::{format_age, format_time};

use super::SettingsArgument;

/// List the contacts, rotations and escalations of a settings file
///
/// One line per receiver that a route can name: its kind, and what follows if it is not reached.
/// Of a rotation, who is on call now and until when. Opens no connection.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    settings: SettingsArgument,
}

const AFTER: &str = "\
Example:
  topdeck contacts list --config /etc/topdeck.toml

Exit status:
  0  the settings are valid
  1  the settings are invalid; standard error has the reasons
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Some((settings, _)) = options.settings.read() else { return Ok(ExitCode::FAILURE) };
    let now_ns = wall_clock()();
    let mut rows = vec![["name", "kind", "detail"].map(str::to_owned)];
    let mut add = |name: &str, kind: &str, detail: String| {
        rows.push([name, kind, &detail].map(escape_control));
    };
    for contact in &settings.contacts {
        let failover = contact.policy.failover.as_ref().map(|failover| {
            let after = format_age(contact.policy.failover_after);
            format!("failover {failover} after {after}")
        });
        add(&contact.name, contact.contact.kind(), failover.unwrap_or_default());
    }
    for rotation in &settings.rotations {
        let shift = rotation.shift_at(now_ns);
        let who = shift.member.as_deref().unwrap_or("nobody");
        let until = match shift.until_ns {
            i64::MAX => String::new(),
            until_ns => format!(" until {}", format_time(until_ns)),
        };
        add(&rotation.name, "rotation", format!("{who} on call{until}"));
    }
    for escalation in &settings.escalations {
        add(&escalation.name, "escalation", escalation.to_string());
    }
    print_stdout(format_table(&rows, [false; 3]).as_bytes())?;
    for line in &settings.unused {
        print_message(line);
    }
    Ok(ExitCode::SUCCESS)
}
