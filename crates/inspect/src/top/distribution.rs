//! Page of a histogram: a table of three windows, the last minute as a heatmap, the distribution
//! and the percentile spectrum. The graphs are those of `topdeck hist`.

use hist::Bracket;

use crate::top::app_state::{AppState, HistogramWindow, SampleTime};
use crate::top::column_table::{ColumnHeading, ColumnTable, TableCell};
use crate::top::columns::age_text;
use crate::top::metric_interval::IntervalChange;
use crate::top::series_history::SeriesHistory;
use crate::values;
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::merged_distribution::MergedDistribution;
use render::terminal::heatmap as terminal_heatmap;
use render::terminal::plot;
use render::terminal::{Terminal, TextStyle};
use render::value_formatter::{self, ValueFormatter};

/// Minimum width of a graph; wider parts are cut off at the screen.
const WIDTH_MIN: usize = 30;
/// Lines above the heatmap.
const LINES_ABOVE: usize = 6;

/// All lines of the page, with colours as escape sequences.
pub(crate) fn page_lines(
    board: &AppState,
    series: &SeriesHistory,
    screen: &Terminal,
) -> Vec<String> {
    let screen = &Terminal {
        width: screen.width.max(WIDTH_MIN),
        raw_width: screen.raw_width.max(WIDTH_MIN),
        height: screen.height.saturating_sub(LINES_ABOVE),
        ..*screen
    };
    let windows: Vec<(HistogramWindow, MergedDistribution, f64)> =
        [HistogramWindow::Interval, HistogramWindow::Minute, HistogramWindow::Start]
            .into_iter()
            .map(|window| {
                let (values, seconds) = window_values(series, window);
                (window, values, seconds)
            })
            .collect();
    let mut lines = statistics_table(series, &windows).text(screen.width);
    lines.push(String::new());
    if let Some(sample_time) = board.last_sample.filter(|_| !series.points.is_empty()) {
        match terminal_heatmap::heatmap_text(&series_heatmap(series, sample_time), screen) {
            Ok(text) => lines.extend(text.lines().map(str::to_owned)),
            Err(error) => lines.push(format!("  no heatmap: {error}")),
        }
    } else {
        lines.push("  The heatmap starts with the next sample.".to_owned());
    }
    let shown = windows.into_iter().find(|(window, ..)| *window == board.window);
    let Some((window, merged, _)) = shown else { return lines };
    let name = window_name(window);
    if merged.count() == 0 {
        lines
            .extend([String::new(), format!("  No values in the {name}; w shows another window.")]);
        return lines;
    }
    let heading = |title: &str, about: &str| {
        let about = screen.paint(TextStyle::Faint, &format!("({about})"));
        format!("  {} {about}", screen.paint(TextStyle::Heading, title))
    };
    let formatter = ValueFormatter::new(series.unit.as_ref());
    lines.push(String::new());
    lines.push(heading(
        &format!("Distribution, {name}"),
        "percentage of values per column; w: another window",
    ));
    lines.extend(plot::distribution(&merged, &formatter, screen));
    lines.push(String::new());
    lines.push(heading(
        &format!("Percentile spectrum, {name}"),
        "each step right is ten times rarer",
    ));
    lines.extend(plot::spectrum(&merged, &formatter, screen));
    lines
}

fn window_name(window: HistogramWindow) -> &'static str {
    match window {
        HistogramWindow::Minute => "last minute",
        HistogramWindow::Start => "time since the start",
        HistogramWindow::Interval => "last interval",
    }
}

/// Values recorded in a window, and its duration; 0 if unknown.
fn window_values(series: &SeriesHistory, window: HistogramWindow) -> (MergedDistribution, f64) {
    let mut merged = MergedDistribution::default();
    let mut seconds = 0.0;
    match window {
        HistogramWindow::Interval => {
            if let Some(interval) = &series.interval
                && let Some(values) = interval.values()
            {
                seconds = interval.seconds();
                // Adding the first part cannot fail.
                let _ = merged.add(values);
            }
        }
        HistogramWindow::Minute => {
            for past in &series.points {
                if let Some(values) = past.interval.values() {
                    seconds += past.interval.seconds();
                    // All parts have the same scheme; adding fails only beyond 2^64 values.
                    let _ = merged.add(values);
                }
            }
        }
        HistogramWindow::Start => {
            if let Some(all) = series.histogram() {
                let _ = merged.add(all);
            }
        }
    }
    (merged, seconds)
}

fn statistics_table(
    series: &SeriesHistory,
    windows: &[(HistogramWindow, MergedDistribution, f64)],
) -> ColumnTable {
    let heading = |text: &str, is_right, rank, least, most| ColumnHeading {
        text: text.to_owned(),
        is_right,
        rank,
        least,
        most,
    };
    let headings = vec![
        heading("window", false, 0, 15, 24),
        heading("values", true, 4, 6, 20),
        heading("rate", true, 5, 8, 10),
        heading("p50", true, 3, 8, 12),
        heading("p90", true, 7, 8, 12),
        heading("p99", true, 2, 8, 12),
        heading("p99.9", true, 6, 8, 12),
        heading("p99.99", true, 8, 8, 12),
        heading("max", true, 1, 9, 14),
        heading("max lies in", true, 9, 24, 30),
    ];
    let formatter = ValueFormatter::new(series.unit.as_ref());
    let nothing = || "-".to_owned();
    let rows = windows.iter().map(|(window, whole, seconds)| {
        let value = |value: Option<Bracket>| {
            TableCell::text(value.map_or_else(nothing, |value| formatter.estimate(value.estimate)))
        };
        let quantile = |q| value(whole.quantile(q));
        let max = whole.max();
        let name = match window {
            HistogramWindow::Start => "since the start".to_owned(),
            HistogramWindow::Minute if *seconds > 0.0 => {
                format!("last {}", age_text((*seconds * 1e9) as u64))
            }
            HistogramWindow::Interval if *seconds > 0.0 => {
                format!("last {}", age_text((*seconds * 1e9) as u64))
            }
            HistogramWindow::Minute => "last minute".to_owned(),
            HistogramWindow::Interval => "last interval".to_owned(),
        };
        let rate = if *seconds > 0.0 {
            values::format_rate(None, whole.count() as f64 / seconds)
        } else {
            "?".into()
        };
        let rate = if *window == HistogramWindow::Start { nothing() } else { rate };
        let greatest = max.map_or_else(nothing, |max| {
            let mark = if max.is_exact() { "" } else { "~" };
            format!("{mark}{}", formatter.value(max))
        });
        let bounds = max.map(|max| formatter.bounds(max)).filter(|bounds| !bounds.is_empty());
        let bounds =
            bounds.unwrap_or_else(|| if max.is_some() { "exact".to_owned() } else { nothing() });
        vec![
            TableCell::text(name),
            TableCell::text(value_formatter::count(whole.count())),
            TableCell::text(rate),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            quantile(0.999),
            quantile(0.9999),
            TableCell::text(greatest),
            TableCell::text(bounds),
        ]
    });
    ColumnTable { rows: rows.collect(), headings }
}

fn series_heatmap(series: &SeriesHistory, sample_time: SampleTime) -> Heatmap {
    let unix = |ns: u64| {
        let age = i64::try_from(sample_time.at_ns.saturating_sub(ns)).unwrap_or(i64::MAX);
        sample_time.unix_ns.saturating_sub(age)
    };
    let columns = series.points.iter().map(|past| {
        let mut values = MergedDistribution::default();
        let gaps = match &past.interval.change {
            IntervalChange::Histogram(recorded) => {
                let _ = values.add(recorded);
                Vec::new()
            }
            IntervalChange::Unknown(reason) => vec![(*reason).to_owned()],
            IntervalChange::Counter(_) => {
                vec!["only how many values there were was read".to_owned()]
            }
            _ => Vec::new(),
        };
        HeatmapColumn {
            start: unix(past.interval.start_ns),
            end: unix(past.interval.end_ns),
            values,
            gaps,
        }
    });
    Heatmap {
        title: "Last minute".to_owned(),
        unit: series.unit.clone(),
        columns: columns.collect(),
        thresholds: Vec::new(),
        warnings: Vec::new(),
    }
}
