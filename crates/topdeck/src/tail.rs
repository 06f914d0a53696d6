//! `topdeck tail`: new points of a server as they arrive.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::process::ExitCode;

use answers::store_dir::ParsedSelector;
use anyhow::{Context as _, Result, bail};
use client::{RequestParameters, ServerClient, print_message, print_stdout};
use render::terminal::Terminal;
use render::text::{escape_control, plural};
use report::BucketStream;
use serde_json::Value;

/// Print new points of a server as they arrive
///
/// One line per point: its end, its series, and a number, a text, or the count, minimum and maximum
/// of a distribution. A histogram whose buckets are sent as counters, as by remote write 1, has a
/// line per scrape with the values since the scrape before, by its name and by that of its buckets.
/// Points that were stored earlier are not shown. If this program is too slow, the server drops
/// points, and the number of them is printed. Runs until ctrl-C.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Selectors, such as latency or 'latency{host="a"}' [default: all series]
    #[arg(value_name = "SELECTOR", value_parser = ParsedSelector::parse)]
    selectors: Vec<ParsedSelector>,

    /// Stop after this number of points
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Print each event as a line of JSON, with all buckets
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck tail latency
  topdeck tail 'latency{service=\"checkout\"}' orders_total
  topdeck tail --server https://north.example:7717 --token-file token --json | jq .value

Exit status:
  0  the number of points was reached, or the output was closed
  1  the server was not reached, or ended the stream
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut parameters = RequestParameters::default();
    for selector in &options.selectors {
        parameters = parameters.with("selector", &selector.text);
        if let Some(counters) = query::bucket_counters(&selector.selector) {
            parameters = parameters.with("selector", counters);
        }
    }
    let counters =
        options.selectors.iter().any(|of| query::bucket_counters(&of.selector).is_some());
    let mut buckets = counters.then(BucketStream::default);
    options.selectors.iter().for_each(|selector| report_no_match(&options.server, selector));
    let (terminal, mut rows) = (Terminal::new(false), 0);
    options.server.stream("/v1/stream", parameters, |event, data| {
        let mut shown: Value = serde_json::from_str(data).context("invalid event of the server")?;
        let mut text = Cow::Borrowed(data);
        if event == "sample"
            && let Some(buckets) = buckets.as_mut().filter(|_| BucketStream::is_bucket(&shown))
        {
            // The scrape may be incomplete.
            let Some(found) = buckets.add(&shown) else { return Ok(ControlFlow::Continue(())) };
            text = found.to_string().into();
            shown = found;
        }
        match options.json {
            true => print_stdout(format!("{text}\n").as_bytes())?,
            false => print_event(event, &shown, &terminal)?,
        }
        rows += u64::from(event == "sample");
        Ok(match options.limit {
            Some(limit) if rows >= limit => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Says that no stored series matches: of a misspelt selector, nothing would ever be printed.
fn report_no_match(server: &ServerClient, selector: &ParsedSelector) {
    let parameters = RequestParameters::default().with("selector", &selector.text);
    // The stream reports an unreachable server.
    let Ok(found) = server.get("/v1/selection", parameters) else { return };
    let is_empty = found["groups"].as_array().is_some_and(Vec::is_empty);
    let hint = found["hint"].as_str().map(escape_control);
    if is_empty {
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        print_message(format_args!("{} matches no series so far{hint}", selector.text));
    }
}

fn print_event(event: &str, data: &Value, terminal: &Terminal) -> Result<()> {
    let text = |name: &str| escape_control(data[name].as_str().unwrap_or(""));
    match event {
        "sample" => print_stdout(report::point_line(data, terminal).as_bytes())?,
        "gap" => print_message(format_args!("missing: {}", text("reason"))),
        "lagged" => {
            let dropped = plural(data["dropped"].as_u64().unwrap_or(0), "event", "events");
            print_message(format_args!("{dropped} dropped: this program is too slow"));
        }
        "error" => bail!("the server ended the stream: {}", text("error")),
        // Events of a later server.
        _ => {}
    }
    Ok(())
}
