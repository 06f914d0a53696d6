//! `topdeck targets`: state of the scrape targets and checks of a server, and of what sends to it.

use std::process::ExitCode;

use anyhow::{Result, bail};
use client::{RequestParameters, ServerClient, print_stdout};
use render::number_formatter::NumberFormatter;
use render::text::escape_control;
use render::time::duration_text;
use report::{CsvTable, ListedTarget, targets_json, targets_text};
use serde_json::Value;

/// Show the state of the scrapes, checks and sources of a server
///
/// One line per target: whether its latest attempt succeeded, the share of successes and the
/// longest attempt of the last hour, and the reason of the latest failure. A target that has
/// reported nothing for five minutes is unknown. One line per source that sends by itself: it is
/// absent after five of its usual intervals without a batch, and at least 30 s ([absence] of the
/// settings).
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per target or source
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck targets
  topdeck targets --server https://north.example:7717 --token-file token --json

Exit status:
  0  all targets are up, and all sources send
  1  the server was not reached
  2  usage error
  3  a target is down or unknown, or a source is absent";

/// Exit status if a target is not up or a source is absent.
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
    /// Text: reason of a failure.
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

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut targets = Vec::new();
    for kind in &KINDS {
        targets.extend(read_targets(&options.server, kind)?);
    }
    let (sources, young) = read_sources(&options.server)?;
    targets.extend(sources);
    if targets.is_empty() && !options.json && !options.csv {
        let sent = match young.is_empty() {
            true => "nothing has sent yet".to_owned(),
            false => format!("{} sent too little to tell when absent", young.join(", ")),
        };
        bail!(
            "{}: no target has reported within an hour, and {sent}; add [[scrape]] or [[check]] to \
             the settings (docs/pull.md)",
            options.server.url()
        );
    }
    let all_up = targets.iter().all(|target| target.is_ok);
    let text = match options.json {
        _ if options.csv => report::document_csv(CsvTable::Targets, &targets_json(&targets)),
        true => format!("{}\n", targets_json(&targets)),
        false => targets_text(&targets),
    };
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
        let is_up = of(&latest).map(|up| up > 0.0);
        ListedTarget {
            kind: kind.name,
            state: state_text(is_up),
            is_ok: is_up == Some(true),
            success_share: Some(success_share),
            longest: of(&longest).map_or_else(String::new, |value| numbers.exact(value)),
            failure: failure.map_or_else(String::new, |(_, reason)| reason.clone()),
            labels,
        }
    };
    Ok(read_vector(server, kind, &share)?.values.into_iter().map(target).collect())
}

/// Sources that send by themselves. Scrapes and checks are targets, and a source of which too
/// little is known is listed only once it sends regularly: only its name is returned.
fn read_sources(server: &ServerClient) -> Result<(Vec<ListedTarget>, Vec<String>)> {
    Ok(listed_sources(&server.get("/v1/status", RequestParameters::default())?))
}

/// Sources of `/v1/status`, and the names of those of which too little is known.
fn listed_sources(status: &Value) -> (Vec<ListedTarget>, Vec<String>) {
    let now = status["now_ns"].as_i64().unwrap_or(0);
    let sources = status["sources"].as_array().map_or(&[][..], Vec::as_slice);
    let mut young = Vec::new();
    let source = |source: &Value| {
        let name = source["name"].as_str().unwrap_or("");
        let is_target = KINDS
            .iter()
            .any(|kind| name.strip_prefix(kind.name).is_some_and(|rest| rest.starts_with(' ')));
        let state = match source["state"].as_str() {
            Some("sending") => "sending",
            Some("absent") => "absent",
            _ => {
                if !is_target {
                    young.push(escape_control(name));
                }
                return None;
            }
        };
        let duration = |ns: &Value| duration_text(ns.as_i64().unwrap_or(0));
        let absence = now.saturating_sub(source["last_ns"].as_i64().unwrap_or(now));
        let absence = duration_text(absence - absence.rem_euclid(1_000_000_000));
        let interval = duration(&source["interval_ns"]);
        (!is_target).then(|| ListedTarget {
            kind: "source",
            labels: escape_control(name),
            state,
            is_ok: state == "sending",
            success_share: None,
            longest: String::new(),
            failure: match state {
                "absent" => format!("no batch for {absence}, usually one every {interval}"),
                _ => String::new(),
            },
        })
    };
    let listed = sources.iter().filter_map(source).collect();
    (listed, young)
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
    let answer = server.get("/v1/texts", parameters)?;
    let found = answer["texts"].as_array().map_or(&[][..], Vec::as_slice);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender sent nothing for hours, and nothing in a terminal said so.
    #[test]
    fn absent_source_is_listed_with_its_last_batch() {
        let second = 1_000_000_000_i64;
        let source = |name: &str, state: &str, absence: i64| {
            serde_json::json!({
                "name": name, "state": state, "interval_ns": 10 * second,
                "last_ns": (5_000 - absence) * second,
            })
        };
        let status = serde_json::json!({
            "now_ns": 5_000 * second,
            "sources": [
                source("otlp shop", "sending", 4),
                source("statsd", "absent", 3_725),
                source("record", "unknown", 9),
                // A target has a line of its own.
                source("scrape app", "absent", 60),
            ],
        });
        let (sources, young) = listed_sources(&status);
        assert_eq!(young, ["record"]);
        expect_test::expect![[r#"
              state    kind    target     latest failure
              sending  source  otlp shop
              absent   source  statsd     no batch for 1 h 2 min 5 s, usually one every 10 s
        "#]]
        .assert_eq(targets_text(&sources).replace("\n  ", "\n").trim_start_matches("  "));
        assert_eq!(sources.iter().map(|one| one.is_ok).collect::<Vec<_>>(), [true, false]);
        let csv = report::document_csv(CsvTable::Targets, &targets_json(&sources));
        assert!(csv.lines().nth(2).is_some_and(|row| row.starts_with("absent,source,statsd,")));
    }
}
