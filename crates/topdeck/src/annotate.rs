//! `topdeck annotate`: adds an annotation to a server, or lists the latest ones.

use std::process::ExitCode;

use anyhow::{Result, bail};
use bytes::Bytes;
use client::{RequestParameters, ServerClient, print_stdout};
use render::json::Json::{self, Map, Text};
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

use crate::import::parse_label;
use crate::time::{self, TimeExpr};

/// Path of annotations.
const PATH: &str = "/v1/annotations";

/// Add an annotation to a server, such as a deploy or an incident; or list the latest
///
/// Charts and heatmaps show annotations at their time. Without a text, lists those of a day, or of
/// the range from --from to --to.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Text of the annotation; without it, annotations are listed
    #[arg(value_name = "TEXT")]
    text: Option<String>,

    /// Time: 2026-11-09T12:30:00Z, -10min [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    at: Option<TimeExpr>,

    /// Start of an annotation with a duration, or of the list
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End, also: now
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Tag, such as service=checkout. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    tag: Vec<(String, String)>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck annotate 'deployed checkout 2.4.1' --tag service=checkout
  topdeck annotate 'database migration' --from -20min --to now
  topdeck annotate --from -7d

A server requires a token with the scope ingest (read, for a list), except on loopback.

Exit status:
  0  the annotation is stored durably
  1  the server was not reached, or rejected the annotation
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let answer = match &options.text {
        None => list(options)?,
        Some(text) => options.server.post(PATH, "application/json", body(options, text)?)?,
    };
    let text = match (options.json, &options.text) {
        (true, _) => format!("{answer}\n"),
        (false, None) => list_text(&answer),
        (false, Some(_)) => {
            format!("annotated {}\n", when_and_text(&answer["annotation"]).join("  "))
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn body(options: &Options, text: &str) -> Result<Bytes> {
    let now = journal::wall_clock()();
    let ns = |time: TimeExpr| Text(format!("{}ns", time.to_unix_ns(now)));
    let mut fields = vec![("text".to_owned(), Text(text.to_owned()))];
    match (options.at, options.from, options.to) {
        (Some(at), ..) => fields.push(("time".to_owned(), ns(at))),
        (None, None, None) => {}
        (None, Some(from), to) => {
            let to = to.map_or(Text(format!("{now}ns")), ns);
            fields.extend([("from".to_owned(), ns(from)), ("to".to_owned(), to)]);
        }
        (None, None, Some(_)) => bail!("--to needs --from; for a single time use --at"),
    }
    let tags = options.tag.iter().map(|(name, value)| (name.clone(), Text(value.clone())));
    fields.push(("tags".to_owned(), Map(tags.collect())));
    let body: Json = Map(fields);
    Ok(format!("{body:#}").into())
}

fn list(options: &Options) -> Result<Value> {
    let now = journal::wall_clock()();
    let mut parameters = RequestParameters::default();
    for (name, time) in [("from", options.from), ("to", options.to)] {
        if let Some(time) = time {
            parameters = parameters.with_ns(name, time.to_unix_ns(now));
        }
    }
    options.server.get(PATH, parameters)
}

fn list_text(answer: &Value) -> String {
    let annotations = answer["annotations"].as_array().map_or(&[][..], Vec::as_slice);
    if annotations.is_empty() {
        return "no annotations in the range\n".to_owned();
    }
    let mut table = TextTable::new(&[("time", false), ("annotation", false), ("tags", false)]);
    for annotation in annotations {
        let tags = annotation["tags"].as_object().into_iter().flatten();
        let tags: Vec<String> =
            tags.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or(""))).collect();
        let [when, text] = when_and_text(annotation);
        table.row(vec![when, text, escape_control(&tags.join(" "))]);
    }
    table.text(&Terminal::new(false))
}

/// Time or range, and text.
fn when_and_text(annotation: &Value) -> [String; 2] {
    let time = |name: &str| annotation[name].as_i64().unwrap_or(0);
    let (start, end) = (time("start_ns"), time("end_ns"));
    let when = match start == end {
        true => precise_time_text(start),
        false => format!("{} to {}", precise_time_text(start), precise_time_text(end)),
    };
    [when, escape_control(annotation["text"].as_str().unwrap_or(""))]
}
