//! `topdeck exemplars`: the requests behind the values of a distribution.

use std::process::ExitCode;

use answers::store_dir::ParsedSelector;
use anyhow::Result;
use client::{RequestParameters, ServerClient, print_stdout};
use decode::Quantity;
use render::terminal::Terminal;

use crate::hist::options::parse_quantity;
use crate::time::{self, TimeExpr};

/// Show the requests behind the values of a distribution, such as all above a second
///
/// Senders add exemplars to their metrics: the value, the trace and attributes of single requests.
/// A server keeps up to two of each size and minute, and the maximum. The first line has the number
/// of all values in the range, of which the exemplars are a sample: each stands for as many of them
/// as the column says.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Series: latency{service="shop"}
    #[arg(value_name = "SELECTOR", value_parser = ParsedSelector::parse)]
    selector: ParsedSelector,

    /// Lower bound of the values (exclusive), such as 1s
    #[arg(long, value_name = "THRESHOLD", value_parser = parse_quantity, allow_hyphen_values = true)]
    above: Option<Quantity>,

    /// Upper bound of the values [default: none]
    #[arg(long, value_name = "THRESHOLD", value_parser = parse_quantity, allow_hyphen_values = true)]
    up_to: Option<Quantity>,

    /// Start of the range: 2026-11-09T12:30:00Z, -30m [default: one hour before its end]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End of the range, also: now [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Length of the range up to its end, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration, conflicts_with = "from")]
    last: Option<i64>,

    /// Maximum number of exemplars; more are sampled by weight
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck exemplars latency --above 1s
  topdeck exemplars 'latency{service=\"shop\"}' --above 1s --last 1h
  topdeck exemplars latency --last 10m --json | jq -r '.exemplars[].trace_id'

Exit status:
  0  success
  1  the server or a series was not found, or the token lacks scope exemplars
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let now = journal::wall_clock()();
    let to = options.to.map_or(now, |to| to.to_unix_ns(now));
    let from = match (options.from, options.last) {
        (Some(from), _) => Some(from.to_unix_ns(now)),
        (None, last) => last.map(|last| to.saturating_sub(last)),
    };
    let mut parameters = RequestParameters::default()
        .with("selector", &options.selector.text)
        .with_option("above", options.above.as_ref())
        .with_option("up_to", options.up_to.as_ref())
        .with("limit", options.limit);
    if let Some(from) = from {
        parameters = parameters.with_ns("from", from);
    }
    if options.to.is_some() || options.last.is_some() {
        parameters = parameters.with_ns("to", to);
    }
    let answer = options.server.get("/v1/exemplars", parameters)?;
    let text = match options.json {
        true => format!("{answer}\n"),
        false => report::exemplars_text(&answer, &Terminal::new(false))?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
