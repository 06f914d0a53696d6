//! `topdeck damage`: damage of a server's stored data, and its acknowledgement.

use std::process::ExitCode;

use anyhow::Result;
use http::Method;
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::{Value, json};

use crate::output::print_stdout;
use crate::server_client::{RequestParameters, ServerClient};

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
    let is_reported = |key| entries(&status, key).iter().any(|it| it["acknowledged"] == false);
    let code = if is_reported("damage") || is_reported("quarantined") { IS_REPORTED } else { 0 };
    Ok(ExitCode::from(code))
}

fn entries<'a>(status: &'a Value, key: &str) -> &'a [Value] {
    status[key].as_array().map_or(&[][..], Vec::as_slice)
}

fn text_of(entry: &Value, key: &str) -> String {
    escape_control(entry[key].as_str().unwrap_or(""))
}

fn time_of(entry: &Value, key: &str) -> String {
    precise_time_text(entry[key].as_i64().unwrap_or(0))
}

fn damage_text(status: &Value) -> String {
    let mut reported =
        TextTable::new(&[("found", false), ("location", false), ("lost", true), ("remedy", false)]);
    let mut count = 0;
    for it in entries(status, "damage").iter().filter(|it| it["acknowledged"] == false) {
        count += 1;
        let lost = format!("{} records", it["records"].as_u64().unwrap_or(0));
        reported.row(vec![
            time_of(it, "since_ns"),
            text_of(it, "location"),
            lost,
            text_of(it, "remedy"),
        ]);
    }
    for it in entries(status, "quarantined").iter().filter(|it| it["acknowledged"] == false) {
        count += 1;
        let panicked = format!("panicked: {}", text_of(it, "reason"));
        reported.row(vec![time_of(it, "since_ns"), text_of(it, "input"), String::new(), panicked]);
    }
    let terminal = Terminal::new(false);
    let mut text = match count {
        0 => "no damage that is not acknowledged\n".to_owned(),
        _ => reported.text(&terminal),
    };
    let acknowledged = entries(status, "acknowledged_damage");
    if acknowledged.is_empty() {
        return text;
    }
    let mut table = TextTable::new(&[
        ("acknowledged", false),
        ("found", false),
        ("location", false),
        ("lost", true),
        ("note", false),
    ]);
    for it in acknowledged {
        table.row(vec![
            time_of(it, "acknowledged_ns"),
            time_of(it, "found_ns"),
            text_of(it, "location"),
            format!("{} records", it["records"].as_u64().unwrap_or(0)),
            text_of(it, "note"),
        ]);
    }
    text.push('\n');
    text + &table.text(&terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_damage_is_listed_below_what_is_reported() {
        let none = json!({"damage": [], "quarantined": [], "acknowledged_damage": []});
        assert_eq!(damage_text(&none), "no damage that is not acknowledged\n");
        let status = json!({
            "damage": [
                {"location": "records 3..4 of the journal", "records": 1, "remedy": "repair",
                 "since_ns": 0, "acknowledged": true},
                {"location": "records 8..9 of the journal", "records": 1, "remedy": "repair",
                 "since_ns": 0, "acknowledged": false},
            ],
            "quarantined": [
                {"input": "rolling up day 7", "reason": "a count overflows", "since_ns": 0,
                 "acknowledged": false},
            ],
            "acknowledged_damage": [
                {"location": "records 3..4 of the journal", "records": 1, "found_ns": 0,
                 "acknowledged_ns": 60_000_000_000_i64, "note": "disk replaced"},
            ],
        });
        let text = damage_text(&status);
        let (reported, acknowledged) = text.split_once("\n\n").unwrap();
        assert!(reported.contains("records 8..9") && reported.contains("rolling up day 7"));
        assert!(reported.contains("panicked: a count overflows"), "{reported}");
        assert!(!reported.contains("records 3..4"), "{text}");
        assert!(acknowledged.contains("records 3..4") && acknowledged.contains("disk replaced"));
        assert_eq!(acknowledged.lines().count(), 2, "{text}");
    }
}
