//! The page of a histogram: a table of three windows, the last minute as a heatmap, the distribution and the percentile spectrum.
//! The pictures are those of `topdeck hist`.

use hist::Bracket;

use crate::heatmap::{self, Column, Heatmap};
use crate::hist::group::{Group, Key};
use crate::hist::plot;
use crate::hist::show::{self, Show};
use crate::hist::terminal::{Paint, Terminal};
use crate::hist::whole::Whole;
use crate::processes::values;
use crate::top::board::{Board, Moment, Window};
use crate::top::columns::age_text;
use crate::top::interval::Change;
use crate::top::series::Series;
use crate::top::table::{Cell, Heading, Table};

/// Narrower, nothing can be drawn; what is beyond the screen is cut off.
const WIDTH_MIN: usize = 30;
/// Lines above the heatmap.
const LINES_ABOVE: usize = 6;

/// All lines of the page, with colours as escape sequences.
pub(crate) fn lines(board: &Board, series: &Series, screen: &Terminal) -> Vec<String> {
    let screen = &Terminal {
        width: screen.width.max(WIDTH_MIN),
        wide: screen.wide.max(WIDTH_MIN),
        height: screen.height.saturating_sub(LINES_ABOVE),
        ..*screen
    };
    let windows: Vec<(Window, Whole, f64)> = [Window::Interval, Window::Minute, Window::Start]
        .into_iter()
        .map(|window| {
            let (values, seconds) = values(series, window);
            (window, values, seconds)
        })
        .collect();
    let mut lines = table(series, &windows).text(screen.width);
    lines.push(String::new());
    if let Some(moment) = board.moment.filter(|_| !series.past.is_empty()) {
        match heatmap::text(&map(series, moment), screen) {
            Ok(text) => lines.extend(text.lines().map(str::to_owned)),
            Err(error) => lines.push(format!("  no heatmap: {error}")),
        }
    } else {
        lines.push("  The heatmap begins with the next look.".to_owned());
    }
    let shown = windows.into_iter().find(|(window, ..)| *window == board.window);
    let Some((window, whole, _)) = shown else { return lines };
    let key = Key { file: None, metric: String::new(), by: None, unit: series.unit.clone() };
    let mut group = Group::new(key);
    group.whole = whole;
    let name = name(window);
    if group.whole.count() == 0 {
        lines
            .extend([String::new(), format!("  No values in the {name}; w shows another window.")]);
        return lines;
    }
    let heading = |title: &str, about: &str| {
        let about = screen.paint(Paint::Faint, &format!("({about})"));
        format!("  {} {about}", screen.paint(Paint::Heading, title))
    };
    let show = Show::new(series.unit.as_ref());
    lines.push(String::new());
    lines.push(heading(
        &format!("Distribution, {name}"),
        "share of the values by column; w: another window",
    ));
    lines.extend(plot::distribution(&group, &show, screen));
    lines.push(String::new());
    lines.push(heading(
        &format!("Percentile spectrum, {name}"),
        "each step right is ten times rarer",
    ));
    lines.extend(plot::spectrum(&group, &show, screen));
    lines
}

fn name(window: Window) -> &'static str {
    match window {
        Window::Minute => "last minute",
        Window::Start => "time since the start",
        Window::Interval => "last interval",
    }
}

/// What was recorded in a window, and how long that was; 0 where that is not known.
fn values(series: &Series, window: Window) -> (Whole, f64) {
    let mut whole = Whole::default();
    let mut seconds = 0.0;
    match window {
        Window::Interval => {
            if let Some(interval) = &series.interval
                && let Some(values) = interval.values()
            {
                seconds = interval.seconds();
                // The first part of a whole always fits.
                let _ = whole.add(values);
            }
        }
        Window::Minute => {
            for past in &series.past {
                if let Some(values) = past.interval.values() {
                    seconds += past.interval.seconds();
                    // All come from one series: beyond 2^64 values nothing is added, which nobody lives to see.
                    let _ = whole.add(values);
                }
            }
        }
        Window::Start => {
            if let Some(all) = series.histogram() {
                let _ = whole.add(all);
            }
        }
    }
    (whole, seconds)
}

fn table(series: &Series, windows: &[(Window, Whole, f64)]) -> Table {
    let heading = |text: &str, is_right, rank, least, most| Heading {
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
    let show = Show::new(series.unit.as_ref());
    let nothing = || "-".to_owned();
    let rows = windows.iter().map(|(window, whole, seconds)| {
        let value = |value: Option<Bracket>| {
            Cell::text(value.map_or_else(nothing, |value| show.estimate(value.estimate)))
        };
        let quantile = |q| value(whole.quantile(q));
        let max = whole.max();
        let name = match window {
            Window::Start => "since the start".to_owned(),
            Window::Minute if *seconds > 0.0 => {
                format!("last {}", age_text((*seconds * 1e9) as u64))
            }
            Window::Interval if *seconds > 0.0 => {
                format!("last {}", age_text((*seconds * 1e9) as u64))
            }
            Window::Minute => "last minute".to_owned(),
            Window::Interval => "last interval".to_owned(),
        };
        let rate = if *seconds > 0.0 {
            values::rate(None, whole.count() as f64 / seconds)
        } else {
            "?".into()
        };
        let rate = if *window == Window::Start { nothing() } else { rate };
        let greatest = max.map_or_else(nothing, |max| {
            let mark = if max.is_exact() { "" } else { "~" };
            format!("{mark}{}", show.value(max))
        });
        let bounds = max.map(|max| show.bounds(max)).filter(|bounds| !bounds.is_empty());
        let bounds =
            bounds.unwrap_or_else(|| if max.is_some() { "exact".to_owned() } else { nothing() });
        vec![
            Cell::text(name),
            Cell::text(show::count(whole.count())),
            Cell::text(rate),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            quantile(0.999),
            quantile(0.9999),
            Cell::text(greatest),
            Cell::text(bounds),
        ]
    });
    Table { rows: rows.collect(), headings }
}

fn map(series: &Series, moment: Moment) -> Heatmap {
    let unix = |ns: u64| {
        let age = i64::try_from(moment.at_ns.saturating_sub(ns)).unwrap_or(i64::MAX);
        moment.unix_ns.saturating_sub(age)
    };
    let columns = series.past.iter().map(|past| {
        let mut values = Whole::default();
        let gaps = match &past.interval.change {
            Change::Recorded(recorded) => {
                let _ = values.add(recorded);
                Vec::new()
            }
            Change::Unknown(why) => vec![(*why).to_owned()],
            Change::Counted(_) => vec!["only how many values there were was read".to_owned()],
            _ => Vec::new(),
        };
        Column {
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
        limits: Vec::new(),
        notes: Vec::new(),
    }
}
