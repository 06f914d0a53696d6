//! `topdeck damage`: damage of a server's stored data, and its acknowledgement.

use std::process::ExitCode;

use anyhow::Result;
use client::{RequestParameters, ServerClient, print_stdout};
use http::Method;
use report::damage_text;
use serde_json::json;

/// Show damage of stored data of a server, or acknowledge it
///
/// Lists damaged records of the journal found within a day, and inputs whose processing panicked:
/// records, which are skipped, and maintenance, which is retried. /health reports them until they
/// are acknowledged, or maintenance succeeds. Acknowledgements stay: they are listed over restarts.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Acknowledge what is reported: all of it, or these locations
    #[arg(long, value_name = "LOCATION", num_args = 0..)]
    acknowledge: Option<Vec<String>>,

    /// Text that is stored with the acknowledgement, such as the cause
    #[arg(long, value_name = "TEXT", requires = "acknowledge")]
    note: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck damage
  topdeck damage --acknowledge --note 'disk replaced, journal repaired'
  topdeck damage --acknowledge 'records 3..4 of the journal'

A server requires a token with the scope read, and admin to acknowledge, except on loopback.

Exit status:
  0  no damage is reported, or all of it is acknowledged
  1  the server was not reached, or rejected the acknowledgement
  2  usage error
  3  damage is reported that is not acknowledged";

/// Exit status if damage is reported.
const IS_REPORTED: u8 = 3;
/// Keys of the status.
const KEYS: [&str; 3] = ["damage", "quarantined", "acknowledged_damage"];

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let acknowledge = |location: Option<&String>| -> Result<()> {
        let parameters = RequestParameters::default()
            .with_option("location", location)
            .with_option("note", options.note.as_ref());
        options.server.request(Method::POST, "/v1/damage/acknowledge", parameters).map(drop)
    };
    match options.acknowledge.as_deref() {
        None => {}
        Some([]) => acknowledge(None)?,
        Some(locations) => locations.iter().try_for_each(|location| acknowledge(Some(location)))?,
    }
    let status = options.server.get("/v1/status", RequestParameters::default())?;
    let text = match options.json {
        true => {
            let [damage, quarantined, acknowledged] = KEYS.map(|key| &status[key]);
            let lists = json!({
                "schema": 1,
                "damage": damage,
                "quarantined": quarantined,
                "acknowledged_damage": acknowledged,
            });
            format!("{lists}\n")
        }
        false => damage_text(&status),
    };
    print_stdout(text.as_bytes())?;
    let is_reported = |key: &str| {
        let entries = status[key].as_array().into_iter().flatten();
        entries.into_iter().any(|entry| entry["acknowledged"] == false)
    };
    let code = if is_reported("damage") || is_reported("quarantined") { IS_REPORTED } else { 0 };
    Ok(ExitCode::from(code))
}
