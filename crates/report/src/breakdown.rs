//! Breakdown as text: the selection, and a table per label with a divergence.

use hist::Bracket;
use query::breakdown::{Breakdown, HeatmapSelection, LabelBreakdown, ValueBreakdown};

use render::number_formatter::NumberFormatter;
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;
use render::time::precise_time_text;
use render::value_formatter;

/// Minimum divergence of a label that is shown, in bits: below this the shares look equal.
const BITS_MIN: f64 = 0.005;

/// The selection, and a table per label with a divergence. `selector` is the text of the user;
/// `top` limits the values shown per label.
pub fn breakdown_text(
    selector: &str,
    selection: &HeatmapSelection,
    unit: Option<String>,
    breakdown: &Breakdown,
    top: usize,
    terminal: &Terminal,
) -> String {
    let numbers = NumberFormatter::new(unit.as_deref());
    let span = |range: &std::ops::Range<i64>| {
        format!("{} to {}", precise_time_text(range.start), precise_time_text(range.end))
    };
    let values = match selection.up_to {
        f64::INFINITY => format!("above {}", numbers.exact(selection.above)),
        up_to => {
            format!("above {}, up to {}", numbers.exact(selection.above), numbers.exact(up_to))
        }
    };
    let mut text = terminal.paint(TextStyle::Heading, &escape_control(selector));
    text.push_str(&format!(
        "\n  inside   {} values {values}, {}\n",
        count_text(breakdown.inside),
        span(&selection.time)
    ));
    text.push_str(&format!(
        "  outside  {} others, {}\n",
        count_text(breakdown.outside),
        span(&selection.baseline)
    ));
    text.push_str(finer_buckets_hint(breakdown));
    let (telling, silent): (Vec<&LabelBreakdown>, Vec<&LabelBreakdown>) =
        breakdown.labels.iter().partition(|label| label.divergence >= BITS_MIN);
    for label in &telling {
        let name = escape_control(&label.label);
        let heading = format!("\n{}", terminal.paint(TextStyle::Heading, &name));
        text.push_str(&format!(
            "{heading}  Jensen-Shannon divergence {:.3} bits (0 to 1)\n",
            label.divergence
        ));
        text.push_str(&label_table(label, breakdown, top).text(terminal));
    }
    let names =
        silent.iter().map(|label| escape_control(&label.label)).collect::<Vec<_>>().join(", ");
    if !telling.is_empty() && !breakdown.inside.is_exact() {
        let about = "\n~ is an estimate: the threshold lies within a bucket; --json has the bounds";
        text.push_str(&terminal.paint(TextStyle::Faint, about));
        text.push('\n');
    }
    match (breakdown.labels.is_empty(), names.is_empty()) {
        (true, _) => {
            text.push_str("\nAll series have the same labels: there is nothing to break down by.\n")
        }
        (false, false) => {
            text.push_str(&format!(
                "\nNo difference (below {BITS_MIN} bits) in: \
                                    {names}\n"
            ));
        }
        (false, true) => {}
    }
    text
}

/// What helps if the bucket at the threshold is too wide to tell how many values are above, as on
/// the page.
fn finer_buckets_hint(Breakdown { inside, outside, .. }: &Breakdown) -> &'static str {
    let all = inside.estimate.saturating_add(outside.estimate);
    let width = inside.upper.saturating_sub(inside.lower);
    let is_wide = inside.upper / 2 > inside.lower && width > all / 400;
    match is_wide {
        true => {
            "The threshold lies within a wide bucket. For finer ones, add a bound at the \
             threshold, use\n\
             native histograms (Prometheus), or set in the program (OpenTelemetry)\n  \
             OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=\
             base2_exponential_bucket_histogram\n"
        }
        false => "",
    }
}

/// The most over-represented values first; the rest in one row.
fn label_table(label: &LabelBreakdown, breakdown: &Breakdown, top: usize) -> TextTable {
    let columns = [
        ("value", false),
        ("inside", true),
        ("share", true),
        ("outside", true),
        ("share", true),
        ("ratio", true),
    ];
    let mut table = TextTable::new(&columns);
    let row = |name: String, inside: Bracket<u64>, outside: Bracket<u64>| {
        let [a, b] = [(inside, breakdown.inside), (outside, breakdown.outside)];
        let shares = [a, b].map(|(part, of)| value_formatter::share(part.estimate, of.estimate));
        let share = |(part, of): (Bracket<u64>, Bracket<u64>)| {
            part.estimate as f64 / of.estimate.max(1) as f64
        };
        let ratio = share(a) / share(b);
        let ratio = match ratio {
            ratio if ratio.is_nan() => String::new(),
            ratio if ratio.is_infinite() => "only inside".to_owned(),
            ratio if ratio >= 100.0 => format!("{ratio:.0}"),
            ratio => format!("{ratio:.2}"),
        };
        let [inside_share, outside_share] = shares;
        let [inside, outside] = [inside, outside].map(value_formatter::count_estimate);
        vec![name, inside, inside_share, outside, outside_share, ratio]
    };
    let values = label.values.iter();
    for ValueBreakdown { value, inside, outside, .. } in values.clone().take(top) {
        let name = if value.is_empty() { "(no label)".to_owned() } else { escape_control(value) };
        table.row(row(name, *inside, *outside));
    }
    let rest: Vec<&ValueBreakdown> = values.skip(top).collect();
    if !rest.is_empty() {
        let sum = |of: fn(&ValueBreakdown) -> Bracket<u64>| {
            rest.iter().map(|value| of(value)).fold(Bracket::exact(0), |sum: Bracket<u64>, n| {
                Bracket {
                    lower: sum.lower.saturating_add(n.lower),
                    estimate: sum.estimate.saturating_add(n.estimate),
                    upper: sum.upper.saturating_add(n.upper),
                }
            })
        };
        let name = format!("({} more)", value_formatter::count(rest.len() as u64));
        table.row(row(name, sum(|value| value.inside), sum(|value| value.outside)));
    }
    table
}

/// Count, or both bounds if the threshold lies within a bucket.
fn count_text(n: Bracket<u64>) -> String {
    match n.is_exact() {
        true => value_formatter::count(n.estimate),
        false => value_formatter::count_bounds(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Default buckets of OpenTelemetry gave a range without what to do; the page had it.
    #[test]
    fn range_of_wide_buckets_says_how_to_get_finer_ones() {
        let hint = |lower, upper| {
            finer_buckets_hint(&Breakdown {
                inside: Bracket { lower, estimate: upper / 2, upper },
                outside: Bracket::exact(10_000),
                values: None,
                labels: Vec::new(),
                gaps: Vec::new(),
            })
        };
        assert!(hint(0, 3_137).contains("base2_exponential_bucket_histogram"));
        assert_eq!([hint(3_000, 3_137), hint(5, 15)], [""; 2]);
    }
}
