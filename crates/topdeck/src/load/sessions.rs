//! `topdeck load sessions`: what users meet who make many requests.

use std::process::ExitCode;

use anyhow::Result;
use hist::Histogram;
use load::Sessions;

use crate::command::print;
use crate::hist::show::{count, quantile_name};
use crate::hist::terminal::{Paint, Terminal};
use crate::load::statistics::{at, numbers, share_name};
use crate::query::table::Table;

/// What share of sessions meets the slow responses, and what most users really see
///
/// A session of n requests has none above the p-th percentile with the probability p^n, if each is slow or not whatever the others were. So
/// 1 - p^n of all sessions meet at least one response above it; and the share s of sessions sees none above the percentile s^(1/n).
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Clicks of a session
    #[arg(long, value_name = "N", value_parser = number())]
    clicks: u32,

    /// Requests that each click makes
    #[arg(long, value_name = "N", value_parser = number())]
    requests_per_click: u32,
}

const AFTER: &str = "\
Examples:
  topdeck load sessions --clicks 5 --requests-per-click 40
  topdeck load http://localhost:8080/ --rate 100 --clicks 5 --requests-per-click 40

Exit status:
  0  it is told
  2  the command line makes no sense";

/// Whole numbers, of which a session has one at the least.
pub(crate) fn number() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let &Options { clicks, requests_per_click } = options;
    let text = text(Sessions { clicks, requests_per_click }, None, &Terminal::new(false));
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Percentiles that sessions are held to.
pub(crate) const SHARES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999];
/// Shares of users whose worst response is told.
pub(crate) const USERS: [f64; 3] = [0.5, 0.95, 0.99];

/// Rows of both tables: a percentile with the share of sessions that meet something above it, and a share of users with the percentile
/// that their worst response is at; the times at those percentiles, where there are times.
pub(crate) fn rows(of: Sessions, times: Option<&Histogram>) -> [Vec<[String; 3]>; 2] {
    let value = |share: f64| {
        let value = times.and_then(|times| at(times, share));
        value.map_or(String::new(), |value| numbers().marked(value))
    };
    let met = SHARES.map(|p| [share_name(p), value(p), percent(of.above(p))]);
    let seen = USERS.map(|share| {
        let p = of.percentile(share);
        [percent(share), quantile(p), value(p)]
    });
    [met.to_vec(), seen.to_vec()]
}

/// Names of the columns of both.
pub(crate) const MET: [&str; 3] = ["percentile", "response", "sessions that meet more"];
pub(crate) const SEEN: [&str; 3] = ["users", "their worst response is at", "response"];

pub(crate) fn title(of: Sessions) -> String {
    let Sessions { clicks, requests_per_click } = of;
    format!(
        "Sessions of {} clicks with {} requests each: {} requests",
        count(clicks.into()),
        count(requests_per_click.into()),
        count(of.requests())
    )
}

pub(crate) fn text(of: Sessions, times: Option<&Histogram>, terminal: &Terminal) -> String {
    let [met, seen] = rows(of, times);
    let mut text = terminal.paint(Paint::Heading, &title(of)) + "\n";
    let mut table = Table::new(&[(MET[0], false), (MET[1], true), (MET[2], true)]);
    met.into_iter().for_each(|row| table.row(row.to_vec()));
    text.push_str(&table.text(terminal));
    text.push('\n');
    let mut table = Table::new(&[(SEEN[0], false), (SEEN[1], true), (SEEN[2], true)]);
    seen.into_iter().for_each(|row| table.row(row.to_vec()));
    text.push_str(&table.text(terminal));
    text.push_str(&terminal.paint(Paint::Faint, &format!("  {ASSUMED}")));
    text + "\n"
}

/// What the arithmetic takes for granted.
pub(crate) const ASSUMED: &str = "if each request is slow or not whatever the others are; where slow ones come together, fewer sessions meet more";

/// Where it is nearly all or nearly nothing, with the digits that tell.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let rest = 100.0 - percent;
    match () {
        () if rest < 0.01 => "> 99.99 %".to_owned(),
        () if percent.fract() == 0.0 => format!("{percent:.0} %"),
        () if percent < 0.01 && percent > 0.0 => "< 0.01 %".to_owned(),
        () => format!("{percent:.2} %"),
    }
}

/// As many digits as tell it from 100 %.
fn quantile(p: f64) -> String {
    let digits = (2.0 - (1.0 - p).log10()).ceil().clamp(2.0, 12.0) as i32;
    let step = 10f64.powi(digits);
    quantile_name((p * step).floor() / step)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::hist::terminal::Colours;

    #[test]
    fn most_users_see_more_than_the_99th_percentile() {
        let terminal =
            Terminal { width: 80, wide: 80, height: 24, ascii: true, colours: Colours::None };
        let of = Sessions { clicks: 5, requests_per_click: 40 };
        let expected = expect![[r#"
            Sessions of 5 clicks with 40 requests each: 200 requests
              percentile  sessions that meet more
              p50                       > 99.99 %
              p90                       > 99.99 %
              p95                       > 99.99 %
              p99                         86.60 %
              p99.9                       18.14 %
              p99.99                       1.98 %

              users  their worst response is at
              50 %                      p99.654
              95 %                     p99.9743
              99 %                    p99.99497
              if each request is slow or not whatever the others are; where slow ones come together, fewer sessions meet more
        "#]];
        expected.assert_eq(&text(of, None, &terminal));
    }
}
