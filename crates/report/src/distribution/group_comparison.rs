//! Comparison of two files.

use crate::error::{Result, bail};
use hist::{Bracket, Histogram, kolmogorov_smirnov, wasserstein};

use crate::distribution::DistributionOptions;
use crate::distribution::collected_input::{self, CollectedInput};
use crate::distribution::group::DistributionGroup;
use crate::distribution::threshold_count;
use render::merged_distribution::MergedDistribution;
use render::terminal::{Terminal, TextStyle, column_widths};
use render::text::escape_control;
use render::threshold_count::ThresholdCount;
use render::value_formatter::{self, ValueFormatter};

/// Groups of the same name in both files.
pub(crate) struct GroupPair<'a> {
    pub(crate) a: &'a DistributionGroup,
    pub(crate) b: &'a DistributionGroup,
}

/// Pairs of groups, or the reason why nothing can be compared.
pub(crate) fn pairs<'a>(
    options: &DistributionOptions,
    collected: &'a CollectedInput,
) -> Result<Vec<GroupPair<'a>>> {
    let of = |file: usize| {
        let groups = collected.groups.iter();
        groups
            .filter(|group| group.key.file == Some(file) && group.distribution.count() > 0)
            .collect::<Vec<_>>()
    };
    let (first, second) = (of(0), of(1));
    for (file, groups) in [(0, &first), (1, &second)] {
        if groups.is_empty() {
            bail!("{}: no values to compare", collected_input::display_name(&options.files[file]));
        }
    }
    let mut pairs = Vec::new();
    for &a in &first {
        let same = |b: &&&DistributionGroup| b.key.metric == a.key.metric && b.key.by == a.key.by;
        if let Some(b) = second.iter().find(same) {
            pairs.push(GroupPair { a, b });
        }
    }
    if pairs.is_empty() {
        // A single distribution on each side is compared regardless of the names.
        match (&first[..], &second[..]) {
            ([a], [b]) => pairs.push(GroupPair { a, b }),
            _ => bail!("the files have no metric of the same name"),
        }
    }
    for GroupPair { a, b } in &pairs {
        if a.key.unit != b.key.unit {
            let name = |group: &DistributionGroup| {
                group.key.unit.as_ref().map_or("no unit".into(), |u| u.to_string())
            };
            bail!("cannot compare values in {} with values in {}", name(a), name(b));
        }
    }
    Ok(pairs)
}

/// Distances of two distributions; mixtures are flattened (values move by at most 0.05 %).
pub(crate) struct Distances {
    pub(crate) wasserstein: Option<Bracket>,
    pub(crate) kolmogorov_smirnov: Option<Bracket>,
    /// Whether a side was flattened: its bounds are then those of the buckets of `flatten`.
    pub(crate) flattened: bool,
}

pub(crate) fn distances(a: &MergedDistribution, b: &MergedDistribution) -> Result<Distances> {
    let flat = |whole: &MergedDistribution| -> Result<Histogram> {
        Ok(whole.single_part().map_or_else(|| whole.flatten(), |only| Ok(only.clone()))?)
    };
    let (ha, hb) = (flat(a)?, flat(b)?);
    Ok(Distances {
        wasserstein: wasserstein(&ha, &hb),
        kolmogorov_smirnov: kolmogorov_smirnov(&ha, &hb),
        flattened: a.single_part().is_none() || b.single_part().is_none(),
    })
}

/// Ratio b / a; `None` unless a is above zero and b is not negative.
pub(crate) fn ratio(a: Bracket, b: Bracket) -> Option<Bracket> {
    (a.lower > 0.0 && b.lower >= 0.0).then(|| Bracket {
        lower: b.lower / a.upper,
        estimate: b.estimate / a.estimate,
        upper: b.upper / a.lower,
    })
}

/// Compared statistics by name.
pub(crate) fn rows(
    options: &DistributionOptions,
    pair: &GroupPair<'_>,
) -> Vec<(String, Option<Bracket>, Option<Bracket>)> {
    let (a, b) = (&pair.a.distribution, &pair.b.distribution);
    let mut rows =
        vec![("min".to_owned(), a.min(), b.min()), ("mean".to_owned(), a.mean(), b.mean())];
    for &q in options.quantiles() {
        rows.push((value_formatter::quantile_name(q), a.quantile(q), b.quantile(q)));
    }
    rows.push(("max".to_owned(), a.max(), b.max()));
    rows
}

/// A comparison per pair of groups.
pub fn comparison_text(
    options: &DistributionOptions,
    collected: &CollectedInput,
    terminal: &Terminal,
) -> Result<String> {
    let mut tables = Vec::new();
    for pair in pairs(options, collected)? {
        tables.push(table(options, &pair, terminal)?.join("\n"));
    }
    Ok(tables.join("\n\n") + "\n")
}

fn table(
    options: &DistributionOptions,
    pair: &GroupPair<'_>,
    terminal: &Terminal,
) -> Result<Vec<String>> {
    let mut lines = heading(options, pair, terminal);
    lines.push(String::new());
    lines.extend(statistics(options, pair, terminal)?);
    lines.push(String::new());
    lines.extend(distance_lines(pair, terminal)?);
    Ok(lines)
}

fn heading(
    options: &DistributionOptions,
    pair: &GroupPair<'_>,
    terminal: &Terminal,
) -> Vec<String> {
    let name = |file: usize| escape_control(&collected_input::display_name(&options.files[file]));
    let mut lines = vec![
        terminal.paint(TextStyle::Heading, &format!("A  {}", name(0))),
        terminal.paint(TextStyle::Heading, &format!("B  {}", name(1))),
    ];
    let same = [Some(&pair.a.key.metric), pair.a.key.by.as_ref()];
    let same: Vec<&str> = same.into_iter().flatten().map(String::as_str).collect();
    let same = escape_control(&same.join(" "));
    if !same.trim().is_empty() {
        lines.push(format!("   {}", same.trim()));
    }
    lines
}

/// Side by side, with ratios.
fn statistics(
    options: &DistributionOptions,
    pair: &GroupPair<'_>,
    terminal: &Terminal,
) -> Result<Vec<String>> {
    let (a, b) = (&pair.a.distribution, &pair.b.distribution);
    let formatter = ValueFormatter::new(pair.a.key.unit.as_ref());
    let mut cells: Vec<[String; 5]> = vec![["", "A", "B", "B / A", ""].map(str::to_owned)];
    let times = |ratio: f64| format!("{ratio:.3}");
    let of_counts = b.count() as f64 / a.count() as f64;
    cells.push([
        "count".into(),
        value_formatter::count(a.count()),
        value_formatter::count(b.count()),
        times(of_counts),
        String::new(),
    ]);
    for (name, va, vb) in rows(options, pair) {
        let (Some(va), Some(vb)) = (va, vb) else { continue };
        let (quotient, bounds) = match ratio(va, vb) {
            Some(r) if r.is_exact() => (times(r.estimate), String::new()),
            Some(r) => {
                let (low, high) = ((r.lower * 1e3).floor() / 1e3, (r.upper * 1e3).ceil() / 1e3);
                (times(r.estimate), format!("{low:.3} to {high:.3}"))
            }
            None => ("-".into(), String::new()),
        };
        cells.push([name, formatter.value(va), formatter.value(vb), quotient, bounds]);
    }
    // Shares, because the files may have different numbers of values.
    for (la, lb) in threshold_count::count_all(options, pair.a)?
        .iter()
        .zip(&threshold_count::count_all(options, pair.b)?)
    {
        let share = |above: &ThresholdCount, whole: &MergedDistribution| {
            let mark = if above.count.is_exact() { "" } else { "~" };
            format!("{mark}{}", value_formatter::share(above.count.estimate, whole.count()))
        };
        let name = format!("> {}", formatter.exact(la.threshold));
        cells.push([name, share(la, a), share(lb, b), String::new(), String::new()]);
    }
    let [w0, w1, w2, w3, _] = column_widths(&cells);
    let mut lines = Vec::new();
    for (at, [name, va, vb, quotient, bounds]) in cells.iter().enumerate() {
        let line = format!("  {name:<w0$}  {va:>w1$}  {vb:>w2$}  {quotient:>w3$}  {bounds}");
        let line = line.trim_end();
        lines.push(if at == 0 { terminal.paint(TextStyle::Faint, line) } else { line.to_owned() });
    }
    Ok(lines)
}

/// Distances of the distributions.
fn distance_lines(pair: &GroupPair<'_>, terminal: &Terminal) -> Result<Vec<String>> {
    let formatter = ValueFormatter::new(pair.a.key.unit.as_ref());
    let measured = distances(&pair.a.distribution, &pair.b.distribution)?;
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let moved = measured.wasserstein.map(|moved| {
        let about = "mean distance between the distributions";
        (["Wasserstein".to_owned(), formatter.value(moved), formatter.bounds(moved)], about)
    });
    let gap = measured.kolmogorov_smirnov.map(|gap| {
        let (low, high) = ((gap.lower * 1e4).floor() / 1e4, (gap.upper * 1e4).ceil() / 1e4);
        let bounds = format!("{:.2} to {}", low * 100.0, percent(high));
        let bounds = if gap.is_exact() { String::new() } else { bounds };
        let about = "maximum difference of the cumulative shares";
        (["Kolmogorov-Smirnov".to_owned(), percent(gap.estimate), bounds], about)
    });
    let (cells, abouts): (Vec<[String; 3]>, Vec<&str>) = moved.into_iter().chain(gap).unzip();
    let [w0, w1, _] = column_widths(&cells);
    let mut lines = Vec::new();
    for ([name, value, bounds], about) in cells.iter().zip(abouts) {
        let line = format!("  {name:<w0$}  {value:>w1$}  {bounds}");
        lines.push(line.trim_end().to_owned());
        lines.push(terminal.paint(TextStyle::Faint, &format!("    {about}")));
    }
    if measured.flattened {
        lines.push(
            "  One side has several grids: distances have an additional error of 0.05 % of the \
             values."
                .into(),
        );
    }
    Ok(lines)
}
