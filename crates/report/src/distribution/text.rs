//! Text report: counts, thresholds, quantiles, table by powers of ten, charts.

use crate::error::Result;
use hist::Bracket;

use crate::distribution::DistributionOptions;
use crate::distribution::collected_input::{self, CollectedInput};
use crate::distribution::group::DistributionGroup;
use crate::distribution::{intervals, threshold_count};
use render::decades;
use render::svg::distribution;
use render::terminal::plot;
use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;
use render::value_formatter::{self, ValueFormatter};

/// SVG file of `--svg`: a pair of charts per group.
pub fn distribution_svg(
    options: &DistributionOptions,
    groups: &[DistributionGroup],
) -> Result<String> {
    let pictures: Result<Vec<_>> = groups
        .iter()
        .map(|group| {
            Ok(distribution::DistributionPicture {
                title: title(options, group),
                distribution: &group.distribution,
                formatter: ValueFormatter::new(group.key.unit.as_ref()),
                thresholds: threshold_count::count_all(options, group)?,
            })
        })
        .collect();
    Ok(distribution::document(&pictures?))
}

/// One report per group.
pub fn distribution_text(
    options: &DistributionOptions,
    collected: &CollectedInput,
    terminal: &Terminal,
) -> Result<String> {
    let mut reports = Vec::new();
    for group in collected.groups.iter().filter(|group| !group.distribution.is_empty()) {
        reports.push(group_report(options, group, terminal)?.join("\n"));
    }
    let notes = report_notes(options, collected);
    if !notes.is_empty() {
        reports.push(notes.join("\n"));
    }
    Ok(reports.join("\n\n") + "\n")
}

fn group_report(
    options: &DistributionOptions,
    group: &DistributionGroup,
    terminal: &Terminal,
) -> Result<Vec<String>> {
    let formatter = ValueFormatter::new(group.key.unit.as_ref());
    let mut lines = vec![terminal.paint(TextStyle::Heading, &title(options, group))];
    for above in threshold_count::count_all(options, group)? {
        lines.push(format!("  {}", above.sentence(group.distribution.count(), &formatter)));
    }
    if options.interval.is_some() {
        lines.push(String::new());
        lines.extend(intervals::lines(options, group, &formatter, terminal)?);
        return Ok(lines);
    }
    lines.push(String::new());
    lines.extend(statistics(options, group, &formatter, terminal));
    if group.distribution.count() > 0 {
        lines.push(String::new());
        lines.extend(decades::lines(&group.distribution, &formatter, terminal));
        lines.push(String::new());
        lines.push(heading(terminal, "Distribution", "percentage of values per column"));
        lines.extend(plot::distribution(&group.distribution, &formatter, terminal));
        let spectrum = plot::spectrum(&group.distribution, &formatter, terminal);
        if !spectrum.is_empty() {
            lines.push(String::new());
            lines.push(heading(terminal, "Percentile spectrum", "each tick is ten times rarer"));
            lines.extend(spectrum);
        }
    }
    if group.tags.len() > 1 {
        lines.push(String::new());
        lines.push(format!("  {} tags are merged; --by tag separates them", group.tags.len()));
    }
    Ok(lines)
}

fn heading(terminal: &Terminal, name: &str, about: &str) -> String {
    let about = terminal.paint(TextStyle::Faint, &format!("({about})"));
    format!("  {} {about}", terminal.paint(TextStyle::Heading, name))
}

/// Title of a group: metric, group key, files.
pub(crate) fn title(options: &DistributionOptions, group: &DistributionGroup) -> String {
    let mut parts = Vec::new();
    if !group.key.metric.is_empty() {
        parts.push(group.key.metric.clone());
    }
    parts.extend(group.key.by.clone());
    match (group.key.file, &options.files[..]) {
        (Some(file), files) => parts.push(collected_input::display_name(&files[file])),
        (None, [file]) => parts.push(collected_input::display_name(file)),
        (None, files) => parts.push(format!("{} files", files.len())),
    }
    escape_control(&parts.join(", "))
}

/// Row: name, value, bounds.
type ReportRow = (String, String, String);

fn statistics(
    options: &DistributionOptions,
    group: &DistributionGroup,
    formatter: &ValueFormatter,
    terminal: &Terminal,
) -> Vec<String> {
    let distribution = &group.distribution;
    let mut rows: Vec<ReportRow> =
        vec![("count".into(), value_formatter::count(distribution.count()), String::new())];
    let odd = [
        ("NaN", distribution.nan()),
        ("zero", distribution.zero()),
        ("above the grid", distribution.overflow()),
        ("below the grid", distribution.underflow()),
    ];
    for (name, n) in odd {
        if n > 0 {
            rows.push((name.into(), value_formatter::count(n), String::new()));
        }
    }
    let split = rows.len();
    let row = |name: String, value: Option<Bracket>| {
        value.map(|value| (name, formatter.value(value), formatter.bounds(value)))
    };
    rows.extend(row("min".into(), distribution.min()));
    rows.extend(row("mean".into(), distribution.mean()));
    // The distance from infinity is undefined.
    let stddev = distribution.stddev().filter(|stddev| stddev.estimate.is_finite());
    rows.extend(row("stddev".into(), stddev));
    let quantiles_from = rows.len();
    for &q in options.quantiles() {
        rows.extend(row(value_formatter::quantile_name(q), distribution.quantile(q)));
    }
    rows.extend(row("max".into(), distribution.max()));

    let names = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    // Numbers are right-aligned and units left-aligned, so that decimal points of equal units
    // align.
    let number_and_unit = |text: &str| match text.rsplit_once(' ') {
        Some((number, unit)) => (number.to_owned(), unit.to_owned()),
        None => (text.to_owned(), String::new()),
    };
    let values: Vec<(String, String)> = rows.iter().map(|row| number_and_unit(&row.1)).collect();
    let numbers = values.iter().map(|value| value.0.len()).max().unwrap_or(0);
    let units = values.iter().map(|value| value.1.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (at, ((name, _, bounds), (number, unit))) in rows.iter().zip(values).enumerate() {
        if at == split || at == quantiles_from {
            lines.push(String::new());
        }
        let line = format!("  {name:<names$}  {number:>numbers$} {unit:<units$}");
        let line = if name == "max" { terminal.paint(TextStyle::Max, &line) } else { line };
        let bounds = terminal.paint(TextStyle::Faint, bounds);
        lines.push(format!("{line}   {bounds}").trim_end().to_owned());
    }
    lines
}

/// Notes below the numbers.
pub(crate) fn report_notes(
    options: &DistributionOptions,
    collected: &CollectedInput,
) -> Vec<String> {
    let mut notes = Vec::new();
    let unitless = collected.groups.iter().any(|group| group.key.unit.is_none());
    if unitless && options.unit.is_none() {
        notes.push("  The values have no unit; set it with --unit, as in --unit ms.".to_owned());
    }
    if collected.has_skipped() {
        notes.push(format!("  Skipped (not histograms): {}.", collected.skipped_text()));
    }
    notes
}
