//! `topdeck alerts ack`, `unack` and `clear`: acknowledges alerts of a server, takes it back, and
//! ends alerts.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::{ServerClient, print_stdout};
use render::text::plural;
use serde_json::{Map, Value, json};

/// Acknowledge alerts: escalations and reminders of them stop
///
/// An acknowledgement ends when it expires, when the alert resolves, or with `topdeck alerts
/// unack`. The same command again only moves the expiry.
#[derive(clap::Args)]
#[command(after_long_help = ACKNOWLEDGE_AFTER)]
pub(crate) struct AcknowledgeOptions {
    #[command(flatten)]
    selection: SelectionArguments,

    /// Time until it expires, at most 31 days
    #[arg(long = "for", value_name = "DURATION", default_value = "1h")]
    length: String,

    /// What is done about it
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,

    #[command(flatten)]
    author: AuthorArgument,

    #[command(flatten)]
    server: ServerClient,
}

/// Take back the acknowledgement of alerts: contacts are notified of those that fire
#[derive(clap::Args)]
#[command(after_long_help = UNACKNOWLEDGE_AFTER)]
pub(crate) struct UnacknowledgeOptions {
    #[command(flatten)]
    selection: SelectionArguments,

    #[command(flatten)]
    server: ServerClient,
}

/// End alerts by hand, such as those of series that will not return
///
/// Contacts are told that the alerts are resolved, and by whom. An alert whose condition holds at
/// the next evaluation begins anew.
#[derive(clap::Args)]
#[command(after_long_help = CLEAR_AFTER)]
pub(crate) struct ClearOptions {
    #[command(flatten)]
    selection: SelectionArguments,

    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,

    #[command(flatten)]
    author: AuthorArgument,

    #[command(flatten)]
    server: ServerClient,
}

/// Which alerts.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SelectionArguments {
    /// Fingerprint of the alert, as `topdeck alerts` prints it
    #[arg(value_name = "FINGERPRINT")]
    fingerprint: Option<String>,

    /// Matcher of labels, such as severity=page or host=~"db.*"; all must match
    #[arg(long = "matcher", value_name = "MATCHER")]
    matchers: Vec<String>,
}

/// Who makes a change.
#[derive(clap::Args)]
pub(crate) struct AuthorArgument {
    /// Name of the author [default: the user]
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
}

const ACKNOWLEDGE_AFTER: &str = "\
Examples:
  topdeck alerts ack 0cb2f34e1a2b3c4d --for 2h --note 'disk is replaced'
  topdeck alerts ack --matcher alertname=DiskFull --matcher 'host=~\"db.*\"'

A server requires a token with the scope alerts, except on loopback.

Exit status:
  0  the alerts are acknowledged, durably
  1  no such alert, or the server was not reached
  2  usage error";

const UNACKNOWLEDGE_AFTER: &str = "\
Examples:
  topdeck alerts unack 0cb2f34e1a2b3c4d
  topdeck alerts unack --matcher alertname=DiskFull

A server requires a token with the scope alerts, except on loopback.

Exit status:
  0  the alerts have no acknowledgement
  1  no such alert, or the server was not reached
  2  usage error";

const CLEAR_AFTER: &str = "\
Examples:
  topdeck alerts clear 0cb2f34e1a2b3c4d --note 'the host is gone'
  topdeck alerts clear --matcher host=db7

A server requires a token with the scope alerts, except on loopback.

Exit status:
  0  the alerts have ended, durably
  1  no such alert, or the server was not reached
  2  usage error";

impl SelectionArguments {
    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        match &self.fingerprint {
            Some(fingerprint) => fields.insert("fingerprint".to_owned(), json!(fingerprint)),
            None => fields.insert("matchers".to_owned(), json!(self.matchers)),
        };
        fields
    }
}

impl AuthorArgument {
    /// The author, or the user of this process, if the environment names one.
    pub(crate) fn name(&self) -> Option<String> {
        self.author.clone().or_else(|| std::env::var("USER").ok())
    }
}

pub(crate) fn acknowledge(options: &AcknowledgeOptions) -> Result<ExitCode> {
    let mut body = options.selection.fields();
    body.insert("for".to_owned(), json!(options.length));
    body.insert("note".to_owned(), json!(options.note));
    if let Some(author) = options.author.name() {
        body.insert("author".to_owned(), json!(author));
    }
    change(&options.server, "/v1/alerts/acknowledge", body, "acknowledged")
}

pub(crate) fn unacknowledge(options: &UnacknowledgeOptions) -> Result<ExitCode> {
    let body = options.selection.fields();
    change(&options.server, "/v1/alerts/unacknowledge", body, "no longer acknowledged:")
}

pub(crate) fn clear(options: &ClearOptions) -> Result<ExitCode> {
    let mut body = options.selection.fields();
    body.insert("note".to_owned(), json!(options.note));
    if let Some(author) = options.author.name() {
        body.insert("author".to_owned(), json!(author));
    }
    change(&options.server, "/v1/alerts/clear", body, "cleared")
}

fn change(
    server: &ServerClient,
    path: &str,
    body: Map<String, Value>,
    done: &str,
) -> Result<ExitCode> {
    let body = Value::Object(body).to_string();
    let answer = server.post(path, "application/json", body.into())?;
    let count = answer["fingerprints"].as_array().map(Vec::len);
    let count = count.with_context(|| format!("unexpected response of {path}"))?;
    print_stdout(format!("{done} {}\n", plural(count as u64, "alert", "alerts")).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
