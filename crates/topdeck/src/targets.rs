//! `topdeck targets`: state of the scrapes and checks of a server.

use std::process::ExitCode;

use anyhow::{Result, bail};
use render::json::Json::{self, List, Object, Text};
use render::json::{integer, number};
use render::number_formatter::NumberFormatter;
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use serde_json::Value;

use crate::command::print_stdout;
use crate::server_client::{RequestParameters, ServerClient};

/// Show the state of the scrapes and checks of a server
///
/// One line per target: whether its latest attempt succeeded, the share of successes and the
/// longest attempt of the last hour, and the reason of the latest failure. A target that has
/// reported nothing for five minutes is unknown.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck targets
  topdeck targets --server https://north.example:7717 --token-file token --json

Exit status:
  0  all targets are up
  1  the server was not reached
  2  usage error
  3  a target is down or unknown";

/// Exit status if a target is not up.
const NOT_UP: u8 = 3;

/// Names of the series of a kind of job.
struct TargetKind {
    name: &'static str,
    /// Gauge: 1 if the latest attempt succeeded.
    success: &'static str,
    /// Query of the longest attempt of an hour.
    longest: &'static str,
    /// Unit of that query if the server names none.
    unit: &'static str,
    /// Info metric: reason of a failure.
    failure: &'static str,
    /// Labels that do not belong to the target.
    own_labels: &'static [&'static str],
}

const KINDS: [TargetKind; 2] = [
    TargetKind {
        name: "scrape",
        success: "up",
        longest: "max_over_time(scrape_duration_seconds[1h])",
        unit: "s",
        failure: "scrape_error",
        own_labels: &["__name__"],
    },
    TargetKind {
        name: "check",
        success: "probe_success",
        longest: "histogram_max(exact_increase(probe_duration{phase=\"total\"}[1h]))",
        unit: "ns",
        failure: "probe_failure_reason",
        own_labels: &["__name__", "phase", "outcome"],
    },
];

/// One target.
struct ListedTarget {
    kind: &'static str,
    labels: String,
    /// `None` if it has reported nothing for five minutes.
    is_up: Option<bool>,
    /// Share of successful attempts of the last hour.
    success_share: f64,
    longest: String,
    /// Latest failure of the last hour.
    failure: String,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut targets = Vec::new();
    for kind in &KINDS {
        targets.extend(read_targets(&options.server, kind)?);
    }
    if targets.is_empty() && !options.json {
        bail!(
            "{}: no target has reported within an hour; add [[scrape]] or [[check]] to the \
             settings (docs/pull.md)",
            options.server.url()
        );
    }
    let all_up = targets.iter().all(|target| target.is_up == Some(true));
    let text = if options.json { targets_json(&targets) } else { targets_text(&targets) };
    print_stdout(text.as_bytes())?;
    Ok(if all_up { ExitCode::SUCCESS } else { ExitCode::from(NOT_UP) })
}

fn read_targets(server: &ServerClient, kind: &TargetKind) -> Result<Vec<ListedTarget>> {
    let share = format!("avg_over_time({}[1h])", kind.success);
    let latest = read_vector(server, kind, kind.success)?;
    let longest = read_vector(server, kind, kind.longest)?;
    let failures = read_failures(server, kind)?;
    let target = |(labels, success_share): (String, f64)| {
        let of = |vector: &TargetVector| {
            let same = vector.values.iter().filter(|(other, _)| *other == labels);
            same.map(|(_, value)| *value).reduce(f64::max)
        };
        let numbers = NumberFormatter::new(Some(longest.unit.as_deref().unwrap_or(kind.unit)));
        let failure = failures.iter().find(|(other, _)| *other == labels);
        ListedTarget {
            kind: kind.name,
            is_up: of(&latest).map(|up| up > 0.0),
            success_share,
            longest: of(&longest).map_or_else(String::new, |value| numbers.exact(value)),
            failure: failure.map_or_else(String::new, |(_, reason)| reason.clone()),
            labels,
        }
    };
    Ok(read_vector(server, kind, &share)?.values.into_iter().map(target).collect())
}

/// Values by target.
struct TargetVector {
    values: Vec<(String, f64)>,
    unit: Option<String>,
}

fn read_vector(server: &ServerClient, kind: &TargetKind, query: &str) -> Result<TargetVector> {
    let parameters = RequestParameters::default().with("query", query).with("maxima", false);
    let answer = server.get("/v1/query", parameters)?;
    let streams = answer["data"].as_array().map_or(&[][..], Vec::as_slice);
    let value = |stream: &Value| {
        let value = &stream["points"][0]["value"];
        let number = value.as_f64().or_else(|| value["estimate"].as_f64())?;
        Some((labels_text(&stream["labels"], kind), number))
    };
    let unit = answer["unit"].as_str().map(str::to_owned);
    Ok(TargetVector { values: streams.iter().filter_map(value).collect(), unit })
}

/// Latest reasons of failures by target.
fn read_failures(server: &ServerClient, kind: &TargetKind) -> Result<Vec<(String, String)>> {
    let parameters =
        RequestParameters::default().with("selector", kind.failure).with("from", "-1h");
    let answer = server.get("/v1/info_metrics", parameters)?;
    let found = answer["info_metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let reason = |metric: &Value| {
        (labels_text(&metric["labels"], kind), metric["text"].as_str().unwrap_or("").to_owned())
    };
    Ok(found.iter().map(reason).collect())
}

/// Labels of a target as text: `job=shop instance=127.0.0.1:9100`.
fn labels_text(labels: &Value, kind: &TargetKind) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let target_labels = labels.filter(|(name, _)| !kind.own_labels.contains(&name.as_str()));
    let text =
        target_labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("")));
    escape_control(&text.collect::<Vec<_>>().join(" "))
}

fn state_text(is_up: Option<bool>) -> &'static str {
    match is_up {
        Some(true) => "up",
        Some(false) => "down",
        None => "unknown",
    }
}

fn targets_text(targets: &[ListedTarget]) -> String {
    let columns = [
        ("state", false),
        ("kind", false),
        ("target", false),
        ("successes, 1 h", true),
        ("longest, 1 h", true),
        ("latest failure", false),
    ];
    let mut table = TextTable::new(&columns);
    for target in targets {
        table.row(vec![
            state_text(target.is_up).to_owned(),
            target.kind.to_owned(),
            target.labels.clone(),
            format!("{:.2} %", target.success_share * 100.0),
            target.longest.clone(),
            escape_control(&target.failure),
        ]);
    }
    table.text(&Terminal::new(false))
}

fn targets_json(targets: &[ListedTarget]) -> String {
    let targets = targets.iter().map(|target| {
        Object(vec![
            ("state", Text(state_text(target.is_up).to_owned())),
            ("kind", Text(target.kind.to_owned())),
            ("target", Text(target.labels.clone())),
            ("success_share", number(target.success_share)),
            ("longest", Text(target.longest.clone())),
            ("latest_failure", Text(target.failure.clone())),
        ])
    });
    let document: Json = Object(vec![("schema", integer(1)), ("targets", List(targets.collect()))]);
    format!("{document}\n")
}
