//! `topdeck retire`: ends series of a server.

use std::process::ExitCode;

use anyhow::{Result, bail};
use model::{Selector, Series, SeriesKind};
use render::text::plural;
use serde_json::Value;

use crate::output::print_stdout;
use crate::server_client::{RequestParameters, ServerClient};
use crate::store::parse_selector;

/// End series of a server now: they are no longer current, and their rows stay
///
/// Stores a staleness marker after the last row of each, as if its source had stopped. Without
/// --yes it only prints the affected series. A new sample makes a series current again. Texts,
/// which have no markers, and series that are retired already are left out.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// A selector; '*' matches all series
    #[arg(value_name = "SELECTOR", value_parser = parse_selector)]
    selector: Selector,

    /// Confirm the retirement
    #[arg(long)]
    yes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck retire 'process_threads{host=\"old\"}'
  topdeck retire 'process_threads{host=\"old\"}' --yes

A server requires a token with the scope admin, except on loopback.

Exit status:
  0  the series are retired, durably
  1  nothing was retired: server or series not found, or --yes was not given; or a limit of the
     store rejected some
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let parameters = RequestParameters::default()
        .with("selector", &options.selector)
        .with("dry_run", !options.yes);
    let answer = options.server.post_form("/v1/series/retire", parameters)?;
    let series = plural(count(&answer, "series"), "series", "series");
    if !options.yes {
        let mark = if count(&answer, "series") > 1 { ", such as" } else { ":" };
        bail!("nothing retired; --yes retires {series}{mark} {}", example(&answer));
    }
    let rejected = count(&answer, "rejected");
    let text = match options.json {
        true => format!("{answer}\n"),
        false => {
            format!("retired {}\n", plural(count(&answer, "retired"), "series", "series"))
        }
    };
    print_stdout(text.as_bytes())?;
    if rejected > 0 {
        bail!(
            "cannot retire {rejected} of {series}: a limit of series is reached; delete series, or \
             raise the limit"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn count(answer: &Value, key: &str) -> u64 {
    answer[key].as_u64().unwrap_or(0)
}

/// The first of the series.
fn example(answer: &Value) -> String {
    let first = &answer["examples"][0];
    let labels = first["labels"].as_object().into_iter().flatten();
    let labels = labels.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or("")));
    // The kind is not part of the text.
    Series::new(first["name"].as_str().unwrap_or(""), SeriesKind::Gauge)
        .with_labels(labels)
        .to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn example_is_the_first_series() {
        let answer = json!({"examples": [{"name": "depth", "labels": {"host": "a", "zone": "b"}}]});
        assert_eq!(example(&answer), r#"depth{host="a",zone="b"}"#);
    }
}
