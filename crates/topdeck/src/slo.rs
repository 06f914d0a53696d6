//! `topdeck slo`: budgets of the service level objectives of a server.

mod list;
mod show;

use std::process::ExitCode;

use serde_json::Value;

use crate::subcommand_table::subcommands;

/// Show service level objectives and their budgets
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Option<Command>,

    #[command(flatten)]
    list: list::ListOptions,
}

subcommands! {
    Command:
    Show(show::Options) => show::run,
}

const AFTER: &str = "\
Examples:
  topdeck slo
  topdeck slo --csv > slos.csv
  topdeck slo show checkout --threshold 300ms
  topdeck slo show checkout --from -90d --json

Exit status:
  0  success
  1  the server was not reached
  2  usage error
  3  a budget is spent";

/// Exit status if a budget is spent.
const SPENT: u8 = 3;

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.subcommand {
        Some(subcommand) => subcommand.run(),
        None => list::run(&options.list),
    }
}

/// A share in percent.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size >= 10.0 && share < 0.9 => format!("{percent:.0} %"),
        _ => {
            let text = format!("{percent:.3}");
            format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

/// A value, with its bounds if they differ.
fn bounded(value: &Value, format: impl Fn(f64) -> String) -> String {
    let text = |bound: &str| value[bound].as_f64().map(&format);
    match (text("lower"), text("estimate"), text("upper")) {
        (Some(lower), Some(estimate), Some(upper)) if lower != upper => {
            format!("{estimate} ({lower} to {upper})")
        }
        (_, Some(estimate), _) => estimate,
        _ => "unknown".to_owned(),
    }
}

/// A whole number of events.
fn events(count: f64) -> String {
    render::value_formatter::count(count.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shares_are_percentages_with_their_bounds() {
        assert_eq!(percent(0.724), "72 %");
        assert_eq!(percent(0.9995), "99.95 %");
        assert_eq!(percent(-1.5), "-150 %");
        assert_eq!(percent(0.0), "0 %");
        let value = json!({"lower": 0.5, "estimate": 0.6, "upper": 0.7});
        assert_eq!(bounded(&value, percent), "60 % (50 % to 70 %)");
        assert_eq!(bounded(&Value::Null, percent), "unknown");
        assert_eq!(events(12_345.2), "12,345");
    }
}
