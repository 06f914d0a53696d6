//! `topdeck retire`: ends series of a server.

use std::process::ExitCode;

use answers::store_dir::parse_selector;
use anyhow::{Result, bail};
use client::{RequestParameters, ServerClient, print_stdout};
use model::{Selector, Series, SeriesKind};
use render::text::plural;
use serde_json::Value;

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
  0  the series are retired, durably; without --yes: they can be retired
  1  nothing was retired: server or series not found; or a limit of the store rejected some
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let parameters = RequestParameters::default()
        .with("selector", &options.selector)
        .with("dry_run", !options.yes);
    let answer = options.server.post_form("/v1/series/retire", parameters)?;
    let series = plural(answer_count(&answer, "series"), "series", "series");
    let rejected = answer_count(&answer, "rejected");
    let text = match (options.json, options.yes) {
        (true, _) => format!("{answer}\n"),
        (false, true) => {
            format!("retired {}\n", plural(answer_count(&answer, "retired"), "series", "series"))
        }
        (false, false) => {
            let mark = if answer_count(&answer, "series") > 1 { ", such as" } else { ":" };
            let example = series_text(&answer["examples"][0]);
            format!("would retire {series}{mark} {example}; --yes retires\n")
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

/// A number of a change of series.
pub(crate) fn answer_count(answer: &Value, key: &str) -> u64 {
    answer[key].as_u64().unwrap_or(0)
}

/// A series of an answer; with its unit, which is not part of the text, if there is one.
pub(crate) fn series_text(series: &Value) -> String {
    let labels = series["labels"].as_object().into_iter().flatten();
    let labels = labels.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or("")));
    // The kind is not part of the text.
    let text = Series::new(series["name"].as_str().unwrap_or(""), SeriesKind::Gauge)
        .with_labels(labels)
        .to_string();
    match series["unit"].as_str() {
        None | Some("") => text,
        Some(unit) => format!("{text} in {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn series_of_an_answer_has_its_labels_and_unit() {
        let series = json!({"name": "depth", "labels": {"host": "a", "zone": "b"}, "unit": null});
        assert_eq!(series_text(&series), r#"depth{host="a",zone="b"}"#);
        assert_eq!(series_text(&json!({"name": "took", "unit": "ms"})), "took in ms");
    }
}
