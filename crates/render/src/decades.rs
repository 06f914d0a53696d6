//! Table of counts per power of ten.

use hist::{Bracket, Scheme};

use crate::chart::axis::begins_at_zero;
use crate::merged_distribution::MergedDistribution;
use crate::terminal::{Terminal, TextStyle, column_widths};
use crate::value_formatter::{self, ValueFormatter};

/// Values between two powers of ten.
#[derive(Debug)]
pub struct Decade {
    /// Lower bound, in the unit of the values; minus infinity for values below zero.
    pub from: f64,
    /// Upper bound, in the unit of the values; included only if [`Self::closed`].
    pub below: f64,
    /// Whether `below` belongs to this decade and `from` to the previous one. This holds for
    /// explicit bounds, which belong to the bucket below them: 0.1 s is a common bound, and its
    /// count is exact only with closed decades.
    pub closed: bool,
    /// Number of values in the decade.
    pub count: Bracket<u64>,
}

/// Tables with more rows omit empty ones.
const ROWS_MAX: usize = 16;
const BAR_CELLS: usize = 24;

/// All decades with values. Values at or below zero come first.
pub fn split_decades(distribution: &MergedDistribution, formatter: &ValueFormatter) -> Vec<Decade> {
    let (mut least, mut greatest) = (f64::INFINITY, 0f64);
    for cell in distribution.cells().filter(|cell| cell.upper > 0.0 && cell.lower < f64::INFINITY) {
        let open = begins_at_zero(cell.lower, cell.upper);
        let lower = if open { cell.upper / 10.0 } else { cell.lower };
        let upper = if cell.upper.is_finite() { cell.upper } else { cell.lower };
        least = least.min(formatter.scale(lower));
        greatest = greatest.max(formatter.scale(upper));
    }
    let mut edges = Vec::new();
    if least <= greatest && greatest > 0.0 {
        let power = |value: f64| value.clamp(1e-300, 1e300).log10().floor() as i32;
        let (first, last) = (power(least), power(greatest) + 1);
        edges.extend((first..=last).map(|power| formatter.unscale(power_of_ten(power))));
    }
    let mut decades = Vec::new();
    let closed =
        distribution.components().iter().all(|part| matches!(part.scheme(), Scheme::Explicit(_)));
    let count_to = |edge: f64| {
        if closed { distribution.count_at_most(edge) } else { distribution.count_below(edge) }
    };
    let least = distribution.cells().map(|cell| cell.lower).fold(0.0, f64::min);
    let mut from = if least < 0.0 { f64::NEG_INFINITY } else { 0.0 };
    let mut below = Bracket::exact(0);
    // A power of ten may be a bucket edge or lie inside a bucket: the count between two powers is
    // bounded by the buckets that are inside completely or partly.
    let zero = count_to(0.0);
    // A bucket from minus infinity to a positive bound does not prove values below zero.
    if distribution
        .cells()
        .any(|cell| cell.lower < 0.0 && (cell.upper <= 0.0 || cell.lower.is_finite()))
    {
        decades.push(between(distribution, (from, 0.0, closed), below, zero));
        (from, below) = (0.0, zero);
    }
    for edge in edges.into_iter().filter(|&edge| edge > 0.0) {
        let next = count_to(edge);
        decades.push(between(distribution, (from, edge, closed), below, next));
        (from, below) = (edge, next);
    }
    let n = distribution.count();
    if below.lower < n {
        decades.push(between(
            distribution,
            (from, f64::INFINITY, closed),
            below,
            Bracket::exact(n),
        ));
    }
    let is_held = |decade: &Decade| decade.count.upper > 0;
    if decades.len() > ROWS_MAX {
        decades.retain(is_held);
    }
    let first = decades.iter().position(is_held).unwrap_or(0);
    let last = decades.iter().rposition(is_held).map_or(0, |at| at + 1);
    decades.truncate(last);
    decades.drain(..first.min(last));
    decades
}

/// Correctly rounded, which `powi` is not.
fn power_of_ten(power: i32) -> f64 {
    format!("1e{power}").parse().expect("BUG: a power of ten is a number")
}

fn between(
    distribution: &MergedDistribution,
    (from, below, closed): (f64, f64, bool),
    first: Bracket<u64>,
    next: Bracket<u64>,
) -> Decade {
    let (mut lower, mut upper) = (0u64, 0u64);
    for cell in distribution.cells() {
        // The last decade has no upper bound and includes infinity.
        let before_end =
            |value: f64| value < below || below == f64::INFINITY || closed && value == below;
        let after_start =
            |value: f64| value > from || value == from && !(closed && from.is_finite());
        if after_start(cell.lower) && before_end(cell.upper) {
            lower += cell.count;
        }
        if after_start(cell.upper) && before_end(cell.lower) {
            upper += cell.count;
        }
    }
    // The difference of two cumulative counts uses declared thresholds; bucket counts bound the
    // rest.
    let lower = lower.max(next.lower.saturating_sub(first.upper));
    let upper = upper.min(next.upper.saturating_sub(first.lower));
    let estimate = next.estimate.saturating_sub(first.estimate).clamp(lower, upper);
    Decade { from, below, closed, count: Bracket { lower, estimate, upper } }
}

/// Lines of the table.
pub fn lines(
    distribution: &MergedDistribution,
    formatter: &ValueFormatter,
    terminal: &Terminal,
) -> Vec<String> {
    let n = distribution.count();
    let decades = split_decades(distribution, formatter);
    let rows: Vec<[String; 4]> = decades
        .iter()
        .map(|decade| {
            let name = if decade.below.is_infinite() {
                let word = if decade.closed { ">" } else { "from" };
                format!("{word} {}", formatter.exact(decade.from))
            } else {
                let word = if decade.closed { "<=" } else { "<" };
                format!("{word} {}", formatter.exact(decade.below))
            };
            [
                name,
                value_formatter::count_estimate(decade.count),
                value_formatter::share(decade.count.estimate, n),
                value_formatter::count_bounds(decade.count),
            ]
        })
        .collect();
    let most = decades.iter().map(|decade| decade.count.estimate).max().unwrap_or(0).max(1);
    let [names, counts, shares, _] = column_widths(&rows);
    let (names, counts, shares) = (names.max(5), counts.max(6), shares.max(5));
    let heading = format!("  {:>names$}  {:>counts$}  {:>shares$}", "value", "count", "share");
    let mut lines = vec![terminal.paint(TextStyle::Faint, &heading)];
    for ([name, count, share, bounds], decade) in rows.iter().zip(&decades) {
        let bar = draw_bar(decade.count.estimate, most, terminal);
        let bar_room = BAR_CELLS - bar.chars().count();
        let bounds =
            if bounds.is_empty() { String::new() } else { format!("{:bar_room$}  {bounds}", "") };
        let bar = terminal.paint(TextStyle::Bar, &bar);
        let line = format!("  {name:>names$}  {count:>counts$}  {share:>shares$}  {bar}{bounds}");
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Horizontal bar in eighths of a cell; a count above 0 gets at least one eighth.
fn draw_bar(part: u64, most: u64, terminal: &Terminal) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part as f64 / most as f64 * (BAR_CELLS * 8) as f64).round() as usize;
    let eighths = if part > 0 { eighths.max(1) } else { 0 };
    if terminal.ascii {
        "#".repeat(eighths.div_ceil(8))
    } else {
        format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
    }
}
