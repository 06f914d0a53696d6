//! Share of sessions that meet slow responses, as tables.

use crate::Sessions;
use hist::Histogram;

use crate::report::statistics::{estimate_formatter, quantile_or_max, quantile_or_max_name};
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::value_formatter::{count, quantile_name};

/// Percentiles in the first table.
pub(crate) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999];
/// Shares of sessions in the second table.
pub(crate) const SESSION_SHARES: [f64; 3] = [0.5, 0.95, 0.99];

/// Rows of both tables: percentiles with the share of sessions above them, and shares of sessions
/// with the percentile of their slowest response; with times, if there are any.
pub fn rows(of: Sessions, times: Option<&Histogram>) -> [Vec<[String; 3]>; 2] {
    let value = |q: f64| {
        let value = times.and_then(|times| quantile_or_max(times, q));
        value.map_or(String::new(), |value| estimate_formatter().value_with_mark(value))
    };
    let percentiles =
        QUANTILES.map(|p| [quantile_or_max_name(p), value(p), percent(of.share_above(p))]);
    let shares = SESSION_SHARES.map(|share| {
        let p = of.percentile(share);
        [percent(share), quantile(p), value(p)]
    });
    [percentiles.to_vec(), shares.to_vec()]
}

/// Columns of both tables.
pub(crate) const PERCENTILE_COLUMNS: [&str; 3] = ["percentile", "response", "sessions above"];
pub(crate) const SHARE_COLUMNS: [&str; 3] = ["sessions", "slowest response at", "response"];

pub(crate) fn title(of: Sessions) -> String {
    let Sessions { page_views, requests_per_page } = of;
    format!(
        "Sessions of {} page views with {} requests each: {} requests",
        count(page_views.into()),
        count(requests_per_page.into()),
        count(of.requests())
    )
}

/// Both tables as text.
pub fn text(of: Sessions, times: Option<&Histogram>, terminal: &Terminal) -> String {
    let [percentiles, shares] = rows(of, times);
    let mut text = terminal.paint(TextStyle::Heading, &title(of)) + "\n";
    let mut table = TextTable::new(&[
        (PERCENTILE_COLUMNS[0], false),
        (PERCENTILE_COLUMNS[1], true),
        (PERCENTILE_COLUMNS[2], true),
    ]);
    percentiles.into_iter().for_each(|row| table.row(row.to_vec()));
    text.push_str(&table.text(terminal));
    text.push('\n');
    let mut table = TextTable::new(&[
        (SHARE_COLUMNS[0], false),
        (SHARE_COLUMNS[1], true),
        (SHARE_COLUMNS[2], true),
    ]);
    shares.into_iter().for_each(|row| table.row(row.to_vec()));
    text.push_str(&table.text(terminal));
    text.push_str(&terminal.paint(TextStyle::Faint, &format!("  {ASSUMPTION}")));
    text + "\n"
}

/// Assumption of the model.
pub(crate) const ASSUMPTION: &str =
    "assumes independent requests; if slow ones cluster, fewer sessions meet more of them";

/// Formats a share, with special cases near 0 and 100 %.
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

/// Formats a quantile with enough digits to differ from 100 %.
fn quantile(p: f64) -> String {
    let digits = (2.0 - (1.0 - p).log10()).ceil().clamp(2.0, 12.0) as i32;
    let step = 10f64.powi(digits);
    quantile_name((p * step).floor() / step)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use render::terminal::ColourDepth;

    #[test]
    fn most_sessions_exceed_p99() {
        let terminal = Terminal {
            width: 80,
            raw_width: 80,
            height: 24,
            ascii: true,
            colour_depth: ColourDepth::None,
        };
        let of = Sessions { page_views: 5, requests_per_page: 40 };
        let expected = expect![[r#"
            Sessions of 5 page views with 40 requests each: 200 requests
              percentile  sessions above
              p50              > 99.99 %
              p90              > 99.99 %
              p95              > 99.99 %
              p99                86.60 %
              p99.9              18.14 %
              p99.99              1.98 %

              sessions  slowest response at
              50 %                  p99.654
              95 %                 p99.9743
              99 %                p99.99497
              assumes independent requests; if slow ones cluster, fewer sessions meet more of them
        "#]];
        expected.assert_eq(&text(of, None, &terminal));
    }
}
