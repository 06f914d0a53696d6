//! Comparison as text: both sides, quantiles, distance, and significance.

use hist::Bracket;
use query::compare::{Comparison, ComparisonSide, PermutationTest, Selection};

use render::number_formatter::NumberFormatter;
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::{escape_control, plural, wrap_text};
use render::time::precise_time_text;
use render::value_formatter;

use render::terminal::quantile_plot::qq_plot;

/// p-value below which a difference is significant.
const SIGNIFICANT_P: f64 = 0.01;
/// p-value below which a difference is weak evidence: 1 in 20.
const WEAK_P: f64 = 0.05;

/// Both sides, quantiles, distance and significance. `written` are the selectors as typed.
pub fn comparison_text(
    written: [&str; 2],
    selections: &[Selection; 2],
    comparison: &Comparison,
    terminal: &Terminal,
) -> String {
    let unit = comparison.sides.iter().map(|side| &*side.unit).find(|unit| !unit.is_empty());
    let numbers = NumberFormatter::new(unit);
    let mut text = String::new();
    for (at, name) in ["A", "B"].into_iter().enumerate() {
        let (selection, side) = (&selections[at], &comparison.sides[at]);
        let heading = format!("{name}  {}", escape_control(written[at]));
        text.push_str(&terminal.paint(TextStyle::Heading, &heading));
        text.push('\n');
        let (from, to) =
            (precise_time_text(selection.range.start), precise_time_text(selection.range.end));
        text.push_str(&format!("   {}, {from} to {to}\n", side_line(side)));
    }
    if let Some(about) = numbers.unit_note(unit) {
        text.push_str(&format!("   {about}\n"));
    }
    text.push('\n');
    text + &comparison_body(comparison, &numbers, terminal)
}

/// Report without its heading.
pub fn comparison_body(
    comparison: &Comparison,
    numbers: &NumberFormatter,
    terminal: &Terminal,
) -> String {
    let parts = [
        quantile_table(comparison, numbers, terminal),
        qq_plot(
            comparison.sides.each_ref().map(|side| &side.mixture),
            numbers.formatter(),
            terminal,
        ),
        distance_lines(comparison, numbers, terminal),
    ];
    parts.join("\n")
}

fn side_line(side: &ComparisonSide) -> String {
    let values = plural(side.mixture.count(), "value", "values");
    let series = plural(side.series as u64, "series", "series");
    let intervals = plural(side.intervals as u64, "interval", "intervals");
    format!("{values} in {series}, {intervals}")
}

/// Quantiles side by side, or below each other if the terminal is too narrow.
fn quantile_table(
    comparison: &Comparison,
    numbers: &NumberFormatter,
    terminal: &Terminal,
) -> String {
    let columns = [
        ("", false),
        ("", false),
        ("A", true),
        ("bounds", false),
        ("B", true),
        ("bounds", false),
        ("B / A", true),
    ];
    let mut table = TextTable::new(&columns);
    let stacked_columns = [
        ("", false),
        ("", false),
        ("", false),
        ("value", true),
        ("bounds", false),
        ("B / A", true),
    ];
    let mut stacked = TextTable::new(&stacked_columns);
    let (mut differing, mut doubtful) = (0, 0);
    for pair in &comparison.quantiles {
        let name = match pair.share {
            1.0 => "max".to_owned(),
            share => value_formatter::quantile_name(share),
        };
        let [a, b] = pair.values;
        let mark = if pair.is_significant() { "*" } else { "" };
        match pair.is_significant() {
            true => differing += 1,
            false => doubtful += usize::from(a != b || !a.is_exact()),
        }
        let ratio =
            if a.estimate > 0.0 && b.estimate >= 0.0 { b.estimate / a.estimate } else { f64::NAN };
        let ratio = if ratio.is_finite() { format!("{ratio:.3}") } else { String::new() };
        let [a, b] = [a, b].map(|of| (numbers.value(of), numbers.bounds(of)));
        let empty = String::new;
        stacked.row(vec![
            name.clone(),
            mark.to_owned(),
            "A".to_owned(),
            a.0.clone(),
            a.1.clone(),
            empty(),
        ]);
        stacked.row(vec![
            empty(),
            empty(),
            "B".to_owned(),
            b.0.clone(),
            b.1.clone(),
            ratio.clone(),
        ]);
        table.row(vec![name, mark.to_owned(), a.0, a.1, b.0, b.1, ratio]);
    }
    let mut text = match table.width() > terminal.width {
        true => stacked.text(terminal),
        false => table.text(terminal),
    };
    let mark = match (differing, doubtful) {
        (0, _) => "no value differs: all bounds overlap".to_owned(),
        (_, 0) => "* differs".to_owned(),
        _ => "* differs: the bounds do not overlap".to_owned(),
    };
    text.push_str(&terminal.paint(TextStyle::Faint, &format!("  {mark}")));
    text.push('\n');
    text
}

/// Distances and p-value.
fn distance_lines(
    comparison: &Comparison,
    numbers: &NumberFormatter,
    terminal: &Terminal,
) -> String {
    let Comparison { distance, ks_statistic, probability_of_superiority: superiority, .. } =
        *comparison;
    let mut text = String::new();
    let rows = [
        (
            "Wasserstein",
            (numbers.value(distance), numbers.bounds(distance)),
            "mean distance between the distributions",
        ),
        (
            "Kolmogorov-Smirnov",
            share_cells(ks_statistic),
            "maximum difference of the cumulative shares",
        ),
        (
            "P(B > A)",
            share_cells(superiority),
            "probability that a value of B exceeds one of A; 50 % if equal",
        ),
    ];
    let width = rows.iter().map(|row| row.1.0.chars().count()).max().unwrap_or(0);
    for (name, (value, bounds), about) in rows {
        text.push_str(format!("  {name:<18}  {value:>width$}  {bounds}").trim_end());
        text.push('\n');
        text.push_str(&terminal.paint(TextStyle::Faint, &format!("    {about}")));
        text.push('\n');
    }
    let (chance, about) = significance_text(comparison.permutation_test, &comparison.sides);
    text.push_str(&format!("  p-value             {chance}\n"));
    for line in wrap_text(&about, terminal.width.saturating_sub(4)) {
        text.push_str(&terminal.paint(TextStyle::Faint, &format!("    {line}")));
        text.push('\n');
    }
    text
}

fn share_cells(of: Bracket) -> (String, String) {
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    let (lower, upper) = ((of.lower * 1e4).floor() / 1e4, (of.upper * 1e4).ceil() / 1e4);
    let bounds = match of.is_exact() {
        true => String::new(),
        false => format!("{} to {} %", percent(lower), percent(upper)),
    };
    (format!("{} %", percent(of.estimate)), bounds)
}

/// p-value and its interpretation.
fn significance_text(
    chance: Option<PermutationTest>,
    sides: &[ComparisonSide; 2],
) -> (String, String) {
    let intervals = [sides[0].intervals, sides[1].intervals];
    let Some(PermutationTest { value, splits }) = chance else {
        let about = "a side has only one interval, so the variation between intervals is unknown; \
                     compare a longer range";
        return ("unknown".to_owned(), about.to_owned());
    };
    let n = plural((value * f64::from(splits)).round() as u64, "split", "splits");
    let of = value_formatter::count(u64::from(splits));
    let mut about = format!(
        "of {of} random splits of all {} intervals, {n} (the actual one included) reached this \
         distance. ",
        intervals[0] + intervals[1]
    );
    about.push_str(match value {
        value if value <= SIGNIFICANT_P => "Significant: the sides differ",
        value if value <= WEAK_P => {
            "Weak evidence: one in twenty comparisons of equal sides gives this result"
        }
        _ => "Not significant: the intervals of one side differ as much among each other",
    });
    let least = min_p_value(intervals);
    if least > WEAK_P {
        about.push_str(
            "; with so few intervals no difference can be significant: compare a longer range",
        );
    }
    (format_p_value(value), about)
}

/// Smallest possible p-value of so many intervals: 1 in the number of splits.
fn min_p_value([a, b]: [usize; 2]) -> f64 {
    // Binomial coefficient a + b over a, as a float: large values only need to be approximate.
    let splits = (1..=a.min(b)).fold(1.0, |product, k| product * (a.max(b) + k) as f64 / k as f64);
    1.0 / splits
}

fn format_p_value(value: f64) -> String {
    let percent = value * 100.0;
    match percent {
        percent if percent >= 10.0 => format!("{percent:.0} %"),
        percent if percent >= 1.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.2} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_intervals_bound_the_p_value() {
        assert_eq!(min_p_value([2, 2]), 1.0 / 6.0);
        assert_eq!(min_p_value([3, 3]), 1.0 / 20.0);
        assert!(min_p_value([64, 64]) < 1e-30);
    }

    #[test]
    fn p_values_are_percent() {
        assert_eq!(format_p_value(0.0005), "0.05 %");
        assert_eq!(format_p_value(0.0335), "3.4 %");
        assert_eq!(format_p_value(0.5), "50 %");
    }
}
