//! `topdeck slo show`: one SLO.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::{RequestParameters, ServerClient, print_stdout};
use decode::Quantity;
use report::{CsvTable, slo_text};

use super::SPENT;
use crate::hist::options::parse_quantity;

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
