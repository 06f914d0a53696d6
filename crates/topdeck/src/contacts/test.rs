//! `topdeck contacts test`: sends a marked message to one contact.

use std::process::ExitCode;

use anyhow::{Context, Result};
use client::{print_message, print_stdout};
use journal::wall_clock;
use net::tls::ClientTls;
use notify::ContactTest;
use render::text::escape_control;

use super::SettingsArgument;

/// Send a test message to a contact
///
/// Sends one message, which says that it is a test, and prints what the receiver answered. A
/// receiver that tracks alerts (PagerDuty, Opsgenie, VictorOps) is told that the test is resolved.
/// The message is sent once, without retries and without failover. Its link leads to the view
/// Alerts, if external_url of [alerts] is set.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Name of a [[contact]]
    #[arg(value_name = "NAME")]
    name: String,

    /// Print the message, with the contact's templates, instead of sending it
    #[arg(long)]
    print: bool,

    #[command(flatten)]
    settings: SettingsArgument,
}

const AFTER: &str = "\
Examples:
  topdeck contacts test chat --config /etc/topdeck.toml
  topdeck contacts test chat --config /etc/topdeck.toml --print

Exit status:
  0  the receiver accepted the message, or it was printed
  1  it did not, a template of the printed message failed, the settings are
     invalid, or there is no such contact
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Some((settings, templates)) = options.settings.read() else {
        return Ok(ExitCode::FAILURE);
    };
    let Some(contact) = settings.contacts.iter().find(|contact| contact.name == options.name)
    else {
        let names: Vec<&str> = settings.contacts.iter().map(|one| one.name.as_str()).collect();
        let known = escape_control(&names.join(", "));
        print_message(format_args!("there is no contact {:?}; known: {known}", options.name));
        return Ok(ExitCode::FAILURE);
    };
    let test = ContactTest::new(contact, &templates, templates.alerts_link(), wall_clock()());
    if options.print {
        let text: String = test.text().lines().map(|line| escape_control(line) + "\n").collect();
        print_stdout(text.as_bytes())?;
        for note in test.notes() {
            print_message(escape_control(note));
        }
        let has_failed = !test.notes().is_empty();
        return Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start an event loop")?;
    let sent = test.send(contact, ClientTls::default(), options.settings.dir());
    match runtime.block_on(sent) {
        Ok(notes) => {
            let name = escape_control(&options.name);
            let mut text = format!("{name}: the receiver accepted the message\n");
            notes.iter().for_each(|note| text += &format!("{name}: {}\n", escape_control(note)));
            print_stdout(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let reason = escape_control(&error.to_string());
            print_message(format_args!("cannot send to {:?}: {reason}", options.name));
            Ok(ExitCode::FAILURE)
        }
    }
}
