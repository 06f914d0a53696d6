//! `topdeck slo`: all SLOs.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::{RequestParameters, ServerClient, print_stdout};
use report::{CsvTable, slos_text};

use super::SPENT;

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
