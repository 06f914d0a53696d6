//! `topdeck slo show`: one SLO.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use decode::Quantity;
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::{duration_text, precise_time_text};
use report::CsvTable;
use serde_json::Value;

use super::{SPENT, bounded, events, percent};
use crate::hist::options::parse_quantity;
use crate::output::print_stdout;
use crate::server_client::{RequestParameters, ServerClient};

/// Show an SLO: its budget, bad events by day, burn rates
///
/// With --threshold or --objective: what it would have been. The past is computed from stored
/// distributions.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Name of the SLO
    name: String,

    /// Another largest good value, such as 300ms
    #[arg(long, value_name = "LIMIT", value_parser = parse_quantity)]
    threshold: Option<Quantity>,

    /// Another objective, such as 99.5%
    #[arg(long, value_name = "SHARE")]
    objective: Option<String>,

    /// Start of the history [default: 30 days before the end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,

    /// End of the history, and time of the budget [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,

    /// Print JSON, as `/v1/slo` responds
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per point of the history
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    server: ServerClient,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut parameters = RequestParameters::default().with("name", &options.name);
    if let Some(threshold) = &options.threshold {
        parameters = parameters.with("threshold", threshold);
    }
    let texts = [("objective", &options.objective), ("from", &options.from), ("to", &options.to)];
    for (key, text) in texts {
        if let Some(text) = text {
            parameters = parameters.with(key, text);
        }
    }
    let answer = options.server.get("/v1/slo", parameters)?;
    let text = match options.json {
        _ if options.csv => report::csv_text(CsvTable::SloHistory, &answer),
        true => format!("{answer}\n"),
        false => slo_text(&answer).context("unexpected response of /v1/slo")?,
    };
    print_stdout(text.as_bytes())?;
    Ok(if answer["state"] == "spent" { ExitCode::from(SPENT) } else { ExitCode::SUCCESS })
}

fn slo_text(answer: &Value) -> Option<String> {
    let name = escape_control(answer["name"].as_str()?);
    if let Some(error) = answer["error"].as_str() {
        return Some(format!("{name}: unknown: {}\n", escape_control(error)));
    }
    let budget = &answer["budget"];
    let mut text = format!(
        "{name}: {} of the budget left; {} good, objective {} in {}\n",
        bounded(&budget["remaining"], percent),
        bounded(&budget["attained"], percent),
        percent(answer["objective"].as_f64()?),
        answer["period"].as_str()?,
    );
    if let Some(threshold) = answer["threshold"].as_str() {
        text.push_str(&format!("  good: at most {threshold}\n"));
    }
    text.push_str(&format!(
        "  bad: {} of {} events, {} allowed\n",
        bounded(&budget["events"]["bad"], events),
        events(budget["events"]["total"].as_f64()?),
        events(budget["allowed"].as_f64()?),
    ));
    if answer["people"].is_object() {
        let people = &answer["people"];
        let (affected, all) = (bounded(&people["affected"], events), people["total"].as_f64()?);
        text.push_str(&format!("  users affected: {affected} of {}\n", events(all)));
    }
    match budget["missing_ns"].as_i64()? {
        0 => {}
        ns => text.push_str(&format!("  data missing: {}\n", duration_text(ns))),
    }
    match budget["corrected_ns"].as_i64() {
        None | Some(0) => {}
        Some(ns) => text.push_str(&format!(
            "  taken out in all: {} with {} events, {} bad\n",
            duration_text(ns),
            events(budget["corrected"]["total"].as_f64()?),
            bounded(&budget["corrected"]["bad"], events),
        )),
    }
    for correction in answer["corrections"].as_array()? {
        let time = |key: &str| correction[key].as_i64().map(precise_time_text);
        let reason = escape_control(correction["reason"].as_str()?);
        text.push_str(&format!(
            "  taken out: {} to {}: {reason}\n",
            time("from_ns")?,
            time("to_ns")?
        ));
    }
    text.push_str(&days_text(answer)?);
    text.push_str(&burn_text(answer)?);
    Some(text)
}

fn days_text(answer: &Value) -> Option<String> {
    let columns = [("day", false), ("bad", true), ("events", true), ("remarks", false)];
    let mut table = TextTable::new(&columns);
    for day in answer["days"].as_array()? {
        let start = precise_time_text(day["start_ns"].as_i64()?);
        let total = day["total"].as_f64()?;
        let mut remarks = Vec::new();
        if total == 0.0 {
            remarks.push("no events".to_owned());
        }
        for (key, what) in [("missing_ns", "missing"), ("corrected_ns", "taken out")] {
            match day[key].as_i64()? {
                0 => {}
                ns => remarks.push(format!("{} {what}", duration_text(ns))),
            }
        }
        table.row(vec![
            start.chars().take(10).collect(),
            bounded(&day["bad"], events),
            events(total),
            remarks.join(", "),
        ]);
    }
    Some(table.text(&Terminal::new(false)))
}

fn burn_text(answer: &Value) -> Option<String> {
    let burn = answer["burn"].as_array()?;
    if burn.is_empty() {
        return Some("no burn-rate alerts\n".to_owned());
    }
    let columns = [
        ("window", false),
        ("burn rate", true),
        ("short window", true),
        ("fires above", true),
        ("formula", false),
        ("burns", false),
    ];
    let mut table = TextTable::new(&columns);
    let rate = |rate: f64| format!("{rate:.2}");
    for window in burn {
        table.row(vec![
            window["window"].as_str()?.to_owned(),
            bounded(&window["long"], rate),
            bounded(&window["short"], rate),
            window["factor"].as_f64()?.to_string(),
            window["formula"].as_str()?.to_owned(),
            match window["is_burning"].as_bool() {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => "unknown".to_owned(),
            },
        ]);
    }
    Some(table.text(&Terminal::new(false)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_has_gaps_corrections_and_windows() {
        let exact = |value: f64| json!({"lower": value, "estimate": value, "upper": value});
        let answer = json!({
            "name": "checkout", "error": null, "state": "left", "objective": 0.999,
            "period": "30 d", "threshold": "250 ms", "people": null,
            "budget": {"remaining": {"lower": 0.5, "estimate": 0.6, "upper": 0.7},
                       "attained": exact(0.9995), "allowed": 100.0, "missing_ns": 60_000_000_000_i64,
                       "events": {"bad": exact(40.0), "total": 100_000.0},
                       "corrected_ns": 3_600_000_000_000_i64,
                       "corrected": {"bad": exact(7.0), "total": 1_200.0}},
            "corrections": [{"from_ns": 0, "to_ns": 3_600_000_000_000_i64, "reason": "a move"}],
            "days": [{"start_ns": 1_794_182_400_000_000_000_i64, "bad": exact(0.0), "total": 0.0,
                      "missing_ns": 0, "corrected_ns": 0}],
            "burn": [{"window": "1h", "long": exact(20.0), "short": null, "factor": 14.4,
                      "formula": "2 % × 30 d / 1 h = 14.4", "is_burning": null}],
        });
        let text = slo_text(&answer).unwrap();
        for part in [
            "checkout: 60 % (50 % to 70 %) of the budget left; 99.95 % good, objective 99.9 %",
            "good: at most 250 ms",
            "bad: 40 of 100,000 events, 100 allowed",
            "data missing: 1 min",
            "taken out in all: 1 h with 1,200 events, 7 bad",
            "a move",
            "2026-11-09",
            "no events",
            "2 % × 30 d / 1 h = 14.4",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let failed = json!({"name": "checkout", "error": "the store is closed"});
        assert_eq!(slo_text(&failed).unwrap(), "checkout: unknown: the store is closed\n");
    }
}
