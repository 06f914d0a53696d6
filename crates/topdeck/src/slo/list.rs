//! `topdeck slo`: all SLOs.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use report::CsvTable;
use serde_json::Value;

use super::{SPENT, bounded, events, percent};
use crate::output::print_stdout;
use crate::server_client::{RequestParameters, ServerClient};

// No doc comment: it would replace the description of `topdeck slo`.
#[derive(clap::Args)]
pub(crate) struct ListOptions {
    /// Print JSON, as `/v1/slos` responds
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per SLO
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    server: ServerClient,
}

pub(crate) fn run(options: &ListOptions) -> Result<ExitCode> {
    let answer = options.server.get("/v1/slos", RequestParameters::default())?;
    let text = match options.json {
        _ if options.csv => report::csv_text(CsvTable::Slos, &answer),
        true => format!("{answer}\n"),
        false => slos_text(&answer).context("unexpected response of /v1/slos")?,
    };
    print_stdout(text.as_bytes())?;
    let slos = answer["slos"].as_array();
    let is_spent = slos.into_iter().flatten().any(|slo| slo["state"] == "spent");
    Ok(if is_spent { ExitCode::from(SPENT) } else { ExitCode::SUCCESS })
}

fn slos_text(answer: &Value) -> Option<String> {
    let slos = answer["slos"].as_array()?;
    if slos.is_empty() {
        return Some("no SLOs: [[slo]] of the settings has them\n".to_owned());
    }
    let columns = [
        ("slo", false),
        ("state", false),
        ("budget left", true),
        ("good", true),
        ("objective", true),
        ("period", false),
        ("bad", true),
        ("allowed", true),
        ("alerts", false),
    ];
    let mut table = TextTable::new(&columns);
    let mut problems = String::new();
    for slo in slos {
        let budget = &slo["budget"];
        let name = escape_control(slo["name"].as_str()?);
        let alerts = &slo["alerts"];
        let counts = ["firing", "unknown", "pending"].iter().filter_map(|key| {
            alerts[*key].as_u64().filter(|count| *count > 0).map(|count| format!("{count} {key}"))
        });
        let allowed = budget["allowed"].as_f64();
        table.row(vec![
            name.clone(),
            slo["state"].as_str()?.to_owned(),
            bounded(&budget["remaining"], percent),
            bounded(&budget["attained"], percent),
            percent(slo["objective"].as_f64()?),
            slo["period"].as_str()?.to_owned(),
            bounded(&budget["events"]["bad"], events),
            allowed.map_or_else(|| "unknown".to_owned(), events),
            counts.collect::<Vec<_>>().join(", "),
        ]);
        if let Some(error) = slo["error"].as_str() {
            problems.push_str(&format!("{name}: {}\n", escape_control(error)));
        } else if let Some(warning) = slo["warning"].as_str() {
            problems.push_str(&format!("{}\n", escape_control(warning)));
        } else if slo["computed_ns"].is_null() {
            problems.push_str(&format!("{name}: not computed yet\n"));
        }
    }
    Some(format!("{}{problems}", table.text(&Terminal::new(false))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_budgets_are_no_numbers() {
        let exact = |value: f64| json!({"lower": value, "estimate": value, "upper": value});
        let answer = json!({"slos": [
            {"name": "search", "state": "unknown", "objective": 0.99, "period": "30 d",
             "budget": null, "computed_ns": null, "error": null, "alerts": {}},
            {"name": "checkout", "state": "left", "objective": 0.999, "period": "30 d",
             "budget": {"remaining": exact(0.7), "attained": exact(0.9997), "allowed": 1000.0,
                        "events": {"bad": exact(300.0), "total": 1e6}},
             "computed_ns": 1, "error": null, "alerts": {"firing": 1, "pending": 0}},
        ]});
        let text = slos_text(&answer).unwrap();
        assert_eq!(text.matches("unknown").count(), 5, "{text}");
        for part in ["70 %", "99.97 %", "99.9 %", "300", "1,000", "1 firing"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.lines().last(), Some("search: not computed yet"));
        let unmatched = json!({"slos": [
            {"name": "rw", "state": "unknown", "objective": 0.99, "period": "30 d", "budget": null,
             "computed_ns": 1, "error": null, "warning": "SLO \"rw\" matches nothing",
             "alerts": {}},
        ]});
        assert!(slos_text(&unmatched).unwrap().ends_with("\nSLO \"rw\" matches nothing\n"));
        assert!(slos_text(&json!({"slos": []})).unwrap().contains("[[slo]]"));
    }
}
