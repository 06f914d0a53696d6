//! `topdeck audit`: reconciliation of received, stored and lost samples.

use std::process::ExitCode;

use anyhow::Result;
use http::Method;
use serde_json::Value;

use crate::command::print_stdout;
use crate::server_client;
use render::table::format_table;
use render::text::escape_control;

/// Reconcile received, stored and lost samples per producer and stage
///
/// A producer is a source, a client or an agent. A stage is the journal, the store or a remote. The
/// audit shows for each stage how many values the previous stage sent, how many this stage has, and
/// the reason of a difference.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    server: server_client::ServerClient,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck audit
  topdeck audit --server https://north.example:7717 --token-file token

Exit status:
  0  every difference is zero or has a reason
  1  the request to topdeck failed
  2  usage error
  3  a difference has no reason";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let audit = options.server.request(Method::GET, "/v1/audit")?;
    let text = if options.json { format!("{audit}\n") } else { audit_table(&audit) };
    print_stdout(text.as_bytes())?;
    Ok(if audit["reconciled"].as_bool() == Some(true) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

fn json_array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn count_text(value: &Value) -> String {
    value["values"].as_u64().map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

fn audit_table(audit: &Value) -> String {
    let mut rows = vec![
        ["producer", "stage", "received", "acknowledged", "stored", "reason"].map(str::to_owned),
    ];
    for producer in json_array(&audit["producers"]) {
        let name = match producer["name"].as_str() {
            Some("") | None => producer["id"].as_str().unwrap_or("others"),
            Some(name) => name,
        };
        for (at, line) in json_array(&producer["stages"]).iter().enumerate() {
            let text = |key: &str| escape_control(line[key].as_str().unwrap_or(""));
            rows.push([
                if at == 0 { escape_control(name) } else { String::new() },
                text("stage"),
                count_text(&line["received"]),
                count_text(&line["acknowledged"]),
                count_text(&line["stored"]),
                text("reason"),
            ]);
        }
    }
    let mut text = format_table(&rows, [false, false, true, true, true, false]);
    for note in json_array(&audit["warnings"]) {
        text.push_str(&format!("{}\n", escape_control(note.as_str().unwrap_or(""))));
    }
    text
}
