//! `topdeck changes`: series that vanished, and what replaced them.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

use crate::output::print_stdout;
use crate::server_client::{RequestParameters, ServerClient};
use crate::time::{self, TimeExpr};

/// List series that vanished from a server and what replaced them, or accept such a change
///
/// A series has vanished when it sent nothing for five of its intervals. New series of the same
/// source and name are matched with it by their labels, so that a label that was dropped or renamed
/// is one line. Charts show the changes, too.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Start of the list: 2026-11-09T12:30:00Z, -2d [default: a week ago]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// Leave out changes that somebody accepted
    #[arg(long)]
    open: bool,

    /// Accept the change with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["from", "open"])]
    accept: Option<String>,

    /// Note of the acceptance
    #[arg(long, value_name = "TEXT", requires = "accept")]
    note: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck changes --open
  topdeck changes --accept 5d4140c8e2f9b1a7 --note 'load balancers were merged'

A server requires a token with the scope read (ingest, to accept), except on loopback.

Exit status:
  0  the changes were listed, or the change is accepted
  1  the server was not reached, or it knows no such change
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let answer = match &options.accept {
        Some(id) => accept(options, id)?,
        None => list(options)?,
    };
    let text = match (options.json, &options.accept) {
        (true, _) => format!("{answer}\n"),
        (false, Some(_)) => {
            let text = answer["change"]["text"].as_str().context("unexpected response")?;
            format!("accepted: {}\n", escape_control(text))
        }
        (false, None) => list_text(&answer).context("unexpected response of /v1/changes")?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn accept(options: &Options, id: &str) -> Result<Value> {
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        bail!("invalid id {id:?}; `topdeck changes` lists the ids");
    }
    let body = serde_json::json!({"note": options.note.clone().unwrap_or_default()});
    let path = format!("/v1/changes/{id}/accept");
    options.server.post(&path, "application/json", Bytes::from(body.to_string()))
}

fn list(options: &Options) -> Result<Value> {
    let now = journal::wall_clock()();
    let mut parameters = RequestParameters::default();
    if let Some(from) = options.from {
        parameters = parameters.with_ns("from", from.to_unix_ns(now));
    }
    if options.open {
        parameters = parameters.with("open", "true");
    }
    options.server.get("/v1/changes", parameters)
}

fn list_text(answer: &Value) -> Option<String> {
    let changes = answer["changes"].as_array()?;
    if changes.is_empty() {
        return Some("no series changed\n".to_owned());
    }
    let columns =
        [("time", false), ("id", false), ("source", false), ("change", false), ("accepted", false)];
    let mut table = TextTable::new(&columns);
    for change in changes {
        let acceptance = &change["acceptance"];
        let by = acceptance["by"].as_str().map_or_else(String::new, |by| {
            let note = acceptance["note"].as_str().unwrap_or_default();
            let colon = if note.is_empty() { "" } else { ": " };
            format!("{by}{colon}{note}")
        });
        table.row(vec![
            precise_time_text(change["at_ns"].as_i64()?),
            escape_control(change["id"].as_str()?),
            escape_control(change["source"].as_str()?),
            escape_control(change["text"].as_str()?),
            escape_control(&by),
        ]);
    }
    Some(table.text(&Terminal::new(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expect!` removes the indentation that all lines share.
    fn without_indent(text: &str) -> String {
        text.lines().map(|line| format!("{}\n", line.trim_start())).collect()
    }

    #[test]
    fn a_change_is_listed_with_its_acceptance() {
        let answer = serde_json::json!({"changes": [
            {"id": "5d41", "at_ns": 1_700_000_000_000_000_000_i64, "source": "shop",
             "text": "2 series vanished", "acceptance": null},
            {"id": "40c8", "at_ns": 1_700_000_060_000_000_000_i64, "source": "shop",
             "text": "label `lb` disappeared",
             "acceptance": {"at_ns": 1, "by": "ann", "note": "planned"}},
        ]});
        expect_test::expect![[r#"
              time                  id    source  change                  accepted
              2023-11-14 22:13:20Z  5d41  shop    2 series vanished
              2023-11-14 22:14:20Z  40c8  shop    label `lb` disappeared  ann: planned
        "#]]
        .assert_eq(&without_indent(&list_text(&answer).expect("a valid response")));
        let none = serde_json::json!({"changes": []});
        assert_eq!(list_text(&none).as_deref(), Some("no series changed\n"));
    }
}
