//! JSON document of an overview.
//!
//! Bounds have four digits, rounded outwards, so that a page of 80 rows stays small. The
//! heatmap's `cells` has a hexadecimal digit per cell, minute by minute from the lowest bin to the
//! highest: 0 is empty, the others are logarithmic in the count.

use std::ops::Range;

use decode::Unit;
use hist::Bracket;
use query::overview::affected_users::AffectedUsers;
use query::overview::day_hours::{AffectedPeriod, WorstHour};
use query::overview::deviation::{DAYS_MIN, Deviation};
use query::overview::mini_heatmap::{BINS, COLUMNS, MiniHeatmap};
use query::overview::row_threshold::{RowThreshold, ThresholdOrigin, VALUES_MIN};
use query::overview::{
    OverviewPage, OverviewRow, OverviewSummary, PageRange, RECENT, RowKey, RowStatus,
};

use super::{count, gap, labels, unit_json};
use render::json::Json::{self, Integer, List, Null, Object, Text};
use render::json::{integer, number};

/// Significant digits of bounds.
const DIGITS: i32 = 4;
/// Maximum number of gaps of a row.
const GAPS_MAX: usize = 3;

/// The document.
pub fn to_json(page: &OverviewPage, range: PageRange) -> Json {
    let unranked = page.unranked.iter().map(|(name, reason)| {
        Object(vec![("name", Text(name.clone())), ("reason", Text(reason.clone()))])
    });
    Object(vec![
        ("schema", integer(1)),
        ("now_ns", Integer(page.times.now.into())),
        ("recent_start_ns", Integer((page.times.now - RECENT).into())),
        ("today_start_ns", Integer(page.times.today_start.into())),
        ("total", integer(page.total as u64)),
        ("offset", integer(range.offset as u64)),
        ("incomplete", integer(page.incomplete as u64)),
        ("summary", summary_json(&page.summary)),
        ("threshold_values_min", integer(VALUES_MIN)),
        ("unranked", List(unranked.collect())),
        ("rows", List(page.rows.iter().map(row_json).collect())),
    ])
}

fn summary_json(summary: &OverviewSummary) -> Json {
    let number = |of: usize| integer(of as u64);
    let rows = |of: &[OverviewRow]| List(of.iter().map(row_json).collect());
    Object(vec![
        ("affected", number(summary.affected)),
        ("uncertain", number(summary.uncertain)),
        ("usual", number(summary.usual)),
        ("unknown", number(summary.unknown)),
        ("without_threshold", number(summary.without_threshold)),
        ("affected_earlier", number(summary.affected_earlier)),
        ("usual_again", number(summary.usual_again)),
        ("worst_now", rows(&summary.worst_now)),
        ("worst_earlier", rows(&summary.worst_earlier)),
    ])
}

fn row_json(row: &OverviewRow) -> Json {
    let RowKey { name, unit, service } = &row.key;
    let service = service.iter().map(|(label, value)| (label.as_str(), value.as_str()));
    let recent = &row.recent;
    let of = |bracket: Option<Bracket>| bracket.map_or(Null, rounded);
    let gaps = row.gaps.iter().take(GAPS_MAX).map(gap);
    Object(vec![
        ("name", Text(name.clone())),
        ("labels", labels(service)),
        ("unit", unit_json(unit)),
        ("counts", Text(noun(unit).to_owned())),
        ("selector", Text(selector_text(&row.key, row.has_other_unit))),
        ("series", integer(row.series as u64)),
        ("state", Text(state_name(row.state()).to_owned())),
        ("affected_now", row.affected_now().map_or(Null, |n| number(n.round()))),
        ("affected_since", row.affected_since.as_ref().map_or(Null, range_json)),
        ("burn_rate_now", of(row.burn_rate_now())),
        ("expected_share", number(round(row.expected_share(), f64::round))),
        ("expected_now", number(round(row.expected_now(), f64::round))),
        ("above_now", row.above.0.map_or(Null, count)),
        ("above_today", row.above.1.map_or(Null, count)),
        ("users", row.users.as_ref().map_or(Null, users_json)),
        ("state_today", Text(state_name(row.state_today()).to_owned())),
        ("expected_today", number(round(row.expected_today(), f64::round))),
        ("worst_hour", row.worst_hour.as_ref().map_or(Null, hour_json)),
        ("count_now", integer(recent.count())),
        ("count_today", integer(row.count_today)),
        ("threshold", row.threshold.as_ref().map_or(Null, threshold_json)),
        ("unusual", row.deviation.as_ref().map_or(Null, deviation_json)),
        ("rate", number(round(recent.count() as f64 / (RECENT as f64 / 1e9), f64::round))),
        ("p50", of(recent.quantile(0.5))),
        ("p99", of(recent.quantile(0.99))),
        ("max", of(recent.max())),
        ("latest_ns", row.latest_end.map_or(Null, |at| Integer(at.into()))),
        ("read_ns", row.read_at.map_or(Null, |at| Integer(at.into()))),
        ("gaps", List(gaps.collect())),
        ("gaps_total", integer(row.gaps.len() as u64)),
        ("heatmap", row.heatmap.as_ref().map_or(Null, heatmap_json)),
    ])
}

/// A row of durations counts requests; of anything else, values.
fn noun(unit: &str) -> &'static str {
    match Unit::parse(unit).and_then(|unit| unit.in_nanoseconds()) {
        Some(_) => "requests",
        None => "values",
    }
}

fn state_name(state: RowStatus) -> &'static str {
    match state {
        RowStatus::Affected => "affected",
        RowStatus::Uncertain => "uncertain",
        RowStatus::Usual => "usual",
        RowStatus::Unknown => "unknown",
    }
}

/// The row's selector, as queries have it.
fn selector_text(key: &RowKey, has_unit: bool) -> String {
    let text = query::selector_text(&key.selector(has_unit));
    match text == key.name && key.name.contains('.') {
        true => format!("{{{text:?}}}"),
        false => text,
    }
}

fn threshold_json(threshold: &RowThreshold) -> Json {
    let learned = match &threshold.origin {
        ThresholdOrigin::Learned(range) | ThresholdOrigin::LearnedByHour(range) => Some(range),
        _ => None,
    };
    let origin = match &threshold.origin {
        ThresholdOrigin::User => "user",
        ThresholdOrigin::Slo(_) => "slo",
        ThresholdOrigin::SloOfPart(_) => "slo_of_part",
        ThresholdOrigin::Declared => "declared",
        ThresholdOrigin::Learned(_) => "p99",
        ThresholdOrigin::LearnedByHour(_) => "hourly_p99",
    };
    let mut fields = vec![("value", number(threshold.value)), ("origin", Text(origin.to_owned()))];
    if let ThresholdOrigin::Slo(name) = &threshold.origin {
        fields.push(("slo", Text(name.clone())));
    }
    if let ThresholdOrigin::SloOfPart(name) = &threshold.origin {
        fields.push(("slo_of_part", Text(name.clone())));
    }
    if let Some(range) = learned {
        fields.push(("start_ns", Integer(range.start.into())));
        fields.push(("end_ns", Integer(range.end.into())));
    }
    Object(fields)
}

fn users_json(users: &AffectedUsers) -> Json {
    let mut fields = vec![
        ("label", Text(users.label.clone())),
        ("now", users.now.map_or(Null, count)),
        ("today", users.today.map_or(Null, count)),
    ];
    fields.extend(users.reason.clone().map(|reason| ("reason", Text(reason))));
    Object(fields)
}

fn hour_json(hour: &WorstHour) -> Json {
    let mut fields = vec![
        ("start_ns", Integer(hour.range.start.into())),
        ("end_ns", Integer(hour.range.end.into())),
        ("above", count(hour.above)),
        ("count", integer(hour.count)),
        ("burn_rate", rounded(hour.burn_rate)),
    ];
    let AffectedPeriod { range, above, count: all } = &hour.period;
    if *range != hour.range {
        let period = vec![
            ("start_ns", Integer(range.start.into())),
            ("end_ns", Integer(range.end.into())),
            ("above", count(*above)),
            ("count", integer(*all)),
        ];
        fields.push(("period", Object(period)));
    }
    Object(fields)
}

fn range_json(range: &Range<i64>) -> Json {
    Object(vec![("start_ns", Integer(range.start.into())), ("end_ns", Integer(range.end.into()))])
}

fn deviation_json(deviation: &Deviation) -> Json {
    let unknown = |reason: &str, days: usize| {
        vec![("ratio", Null), ("reason", Text(reason.to_owned())), ("days", integer(days as u64))]
    };
    match deviation {
        Deviation::Ratio { ratio, distance, spread, days } => {
            let mut fields = vec![
                ("ratio", ratio.map_or(Null, rounded)),
                ("distance", rounded(*distance)),
                ("spread", rounded(*spread)),
                ("days", integer(*days as u64)),
            ];
            if ratio.is_none() {
                let reason = "the past days do not differ from each other";
                fields.push(("reason", Text(reason.to_owned())));
            }
            Object(fields)
        }
        Deviation::HistoryTooShort { days } => {
            let mut fields = unknown("history too short", *days);
            fields.push(("days_min", integer(DAYS_MIN as u64)));
            Object(fields)
        }
        Deviation::NoValues => Object(unknown("no values in the last hour", 0)),
    }
}

fn heatmap_json(heatmap: &MiniHeatmap) -> Json {
    let digit = |level: &u8| char::from_digit((*level).into(), 16).expect("BUG: 16 levels");
    let columns = |of: &[usize]| List(of.iter().map(|column| integer(*column as u64)).collect());
    Object(vec![
        ("start_ns", Integer(heatmap.start.into())),
        ("columns", integer(COLUMNS as u64)),
        ("bins", integer(BINS as u64)),
        ("lower", number(round(heatmap.values.start, f64::round))),
        ("upper", number(round(heatmap.values.end, f64::round))),
        ("max_count", integer(heatmap.most)),
        ("missing", columns(&heatmap.missing)),
        ("no_data", columns(&heatmap.no_data)),
        ("cells", Text(heatmap.levels.iter().map(digit).collect())),
    ])
}

/// The bracket with bounds rounded outwards.
fn rounded(of: Bracket) -> Json {
    let lower = round(of.lower, f64::floor);
    let upper = round(of.upper, f64::ceil);
    let estimate = round(of.estimate, f64::round).clamp(lower, upper);
    Object(vec![("lower", number(lower)), ("estimate", number(estimate)), ("upper", number(upper))])
}

/// `x` with `DIGITS` digits. The division by a power of ten gives the double that is nearest to the
/// short decimal.
fn round(x: f64, direction: fn(f64) -> f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let places = DIGITS - 1 - x.abs().log10().floor() as i32;
    match places {
        0..=300 => direction(x * 10f64.powi(places)) / 10f64.powi(places),
        -300..0 => direction(x / 10f64.powi(-places)) * 10f64.powi(-places),
        _ => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rounded_outwards() {
        let check = |of: (f64, f64, f64), expected: &str| {
            let (lower, estimate, upper) = of;
            assert_eq!(format!("{:#}", rounded(Bracket { lower, estimate, upper })), expected);
        };
        check(
            (0.0123456, 0.0123999, 0.0124561),
            r#"{"lower":0.01234,"estimate":0.0124,"upper":0.01246}"#,
        );
        check(
            (5e9, 5.0001e9, f64::INFINITY),
            r#"{"lower":5000000000.0,"estimate":5000000000.0,"upper":null}"#,
        );
        check((-0.99999, 0.0, 0.0), r#"{"lower":-1.0,"estimate":0.0,"upper":0.0}"#);
    }

    #[test]
    fn selectors_find_the_rows_series() {
        let check = |name: &str, unit: &str, service: Option<(&str, &str)>, expected: &str| {
            let service = service.map(|(label, value)| (label.to_owned(), value.to_owned()));
            let key = RowKey { name: name.to_owned(), unit: unit.to_owned(), service };
            let has_unit = !unit.is_empty();
            let text = selector_text(&key, has_unit);
            assert_eq!(text, expected);
            assert_eq!(model::Selector::parse(&text).unwrap(), key.selector(has_unit), "{text}");
        };
        check("latency", "", None, "latency");
        check("rpc.took", "", None, r#"{"rpc.took"}"#);
        check("latency", "ms", None, r#"latency{__unit="ms"}"#);
        check("x", "s", Some(("job", "a\"b")), r#"x{job="a\"b",__unit="s"}"#);
        check(
            "http.server.request.duration",
            "s",
            Some(("service.name", "cart")),
            r#"{"http.server.request.duration","service.name"="cart",__unit="s"}"#,
        );
    }
}
