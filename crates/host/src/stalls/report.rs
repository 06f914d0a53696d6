//! Hiccup report as text and JSON.

use hist::Histogram;
use serde::Serialize;

use super::delay_stats::{DelayStats, STALL_BOUNDS_NS};
use super::joined_scope::JoinedScope;
use render::text::escape_control;
use render::value_formatter::{count, quantile_name};
use render::{table::format_table, time::format_ns};

const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// Quantiles that this number of samples supports.
fn significant_quantiles(of: &Histogram) -> Vec<(f64, f64)> {
    let quantiles = QUANTILES.iter().filter(|q| of.count_beyond_quantile(**q) > 0);
    quantiles.filter_map(|q| Some((*q, of.quantile(*q)?.estimate))).collect()
}

fn max_ns(of: &Histogram) -> f64 {
    of.max().map_or(0.0, |max| max.estimate)
}

/// Scope, quantiles of the delay, stalls, and the delay over time.
pub fn stalls_text(stats: &DelayStats, joined: &JoinedScope) -> String {
    let mut text = format!(
        "hiccups of {}: {}, {} samples every {}\n",
        escape_control(&joined.scope),
        format_ns(stats.duration_ns() as f64),
        count(stats.delays.count()),
        format_ns(stats.period_ns as f64)
    );
    for (what, all) in [("inherited", &joined.inherited), ("not inherited", &joined.not_inherited)]
    {
        for one in all {
            text.push_str(&format!("  {what}: {}\n", escape_control(one)));
        }
    }
    text.push_str("\nwake-up delay\n");
    let mut rows: Vec<[String; 2]> = significant_quantiles(&stats.delays)
        .iter()
        .map(|(q, ns)| [quantile_name(*q), format_ns(*ns)])
        .collect();
    rows.push(["max".to_owned(), format_ns(max_ns(&stats.delays))]);
    text.push_str(&format_table(&rows, [false, true]));
    text.push_str("\nstalls\n");
    let mut rows: Vec<[String; 2]> = STALL_BOUNDS_NS
        .iter()
        .zip(stats.stall_counts)
        .map(|(limit, n)| [format!("longer than {}", format_ns(*limit as f64)), count(n)])
        .collect();
    let longest = stats
        .longest
        .iter()
        .map(|(after, late)| [format!("at {}", format_ns(*after as f64)), format_ns(*late as f64)]);
    rows.extend(longest);
    text.push_str(&format_table(&rows, [false, true]));
    text.push_str("\nover time\n");
    let mut rows = vec![["from", "samples", "p99", "max"].map(str::to_owned)];
    for (number, row) in stats.intervals.iter().enumerate() {
        let p99 = row.quantile(0.99).map_or(0.0, |found| found.estimate);
        rows.push([
            format_ns((number as u64 * stats.interval_ns) as f64),
            count(row.count()),
            format_ns(p99),
            format_ns(max_ns(row)),
        ]);
    }
    text.push_str(&format_table(&rows, [true; 4]));
    if stats.dropped > 0 {
        let left_out = count(stats.dropped);
        text.push_str(&format!("\n{left_out} samples of an unfinished stall dropped\n"));
    }
    text
}

/// JSON document, described in docs/hiccup.md.
#[derive(Serialize)]
struct HiccupDocument<'a> {
    schema: u32,
    scope: &'a str,
    inherited: &'a [String],
    not_inherited: &'a [String],
    duration_ns: u64,
    period_ns: u64,
    samples: u64,
    dropped: u64,
    mean_ns: f64,
    quantiles: Vec<QuantileDto>,
    max_ns: f64,
    stalls: Vec<StallCountDto>,
    longest: Vec<StallDto>,
    interval_ns: u64,
    intervals: Vec<IntervalDto>,
}

#[derive(Serialize)]
struct QuantileDto {
    q: f64,
    ns: f64,
}

#[derive(Serialize)]
struct StallCountDto {
    longer_than_ns: u64,
    count: u64,
}

#[derive(Serialize)]
struct StallDto {
    start_offset_ns: u64,
    delay_ns: u64,
}

#[derive(Serialize)]
struct IntervalDto {
    samples: u64,
    p99_ns: f64,
    max_ns: f64,
}

/// The same as a JSON document: docs/hiccup.md.
pub fn stalls_json(stats: &DelayStats, joined: &JoinedScope) -> serde_json::Result<String> {
    let document = HiccupDocument {
        schema: 2,
        scope: &joined.scope,
        inherited: &joined.inherited,
        not_inherited: &joined.not_inherited,
        duration_ns: stats.duration_ns(),
        period_ns: stats.period_ns,
        samples: stats.delays.count(),
        dropped: stats.dropped,
        mean_ns: stats.delays.mean().map_or(0.0, |mean| mean.estimate),
        quantiles: significant_quantiles(&stats.delays)
            .into_iter()
            .map(|(q, ns)| QuantileDto { q, ns })
            .collect(),
        max_ns: max_ns(&stats.delays),
        stalls: STALL_BOUNDS_NS
            .iter()
            .zip(stats.stall_counts)
            .map(|(limit, count)| StallCountDto { longer_than_ns: *limit, count })
            .collect(),
        longest: stats
            .longest
            .iter()
            .map(|(after, delay)| StallDto { start_offset_ns: *after, delay_ns: *delay })
            .collect(),
        interval_ns: stats.interval_ns,
        intervals: stats
            .intervals
            .iter()
            .map(|row| IntervalDto {
                samples: row.count(),
                p99_ns: row.quantile(0.99).map_or(0.0, |found| found.estimate),
                max_ns: max_ns(row),
            })
            .collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::hiccup::WakeUp;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/hiccup.md");

    fn field_names(json: &serde_json::Value, found: &mut BTreeSet<String>) {
        match json {
            serde_json::Value::Object(fields) => {
                found.extend(fields.keys().cloned());
                fields.values().for_each(|value| field_names(value, found));
            }
            serde_json::Value::Array(all) => all.iter().for_each(|one| field_names(one, found)),
            _ => {}
        }
    }

    #[test]
    fn a_quantile_is_reported_if_a_value_is_above_it() {
        let quantiles = |n: u64| {
            let mut delays = Histogram::default();
            delays.record_n(1000.0, n);
            significant_quantiles(&delays).into_iter().map(|(q, _)| q).collect::<Vec<_>>()
        };
        assert_eq!(quantiles(9), [0.5]);
        assert_eq!(quantiles(10), [0.5, 0.9]);
        assert_eq!(quantiles(10_000), [0.5, 0.9, 0.99, 0.999, 0.9999]);
    }

    #[test]
    fn format_page_documents_every_field() {
        let mut stats = DelayStats::new(1_000_000);
        for n in 1..=100 {
            stats.record(WakeUp::new(n * 1_000_000, n * 1_050_000, 1_000_000));
        }
        let text = stalls_json(&stats, &JoinedScope::empty()).unwrap();
        let mut found = BTreeSet::new();
        field_names(&serde_json::from_str(&text).unwrap(), &mut found);
        let section = PAGE.split_once("## JSON").unwrap().1.trim_start();
        let section = section.split("\n\n").next().unwrap();
        let quoted = section.split('`').skip(1).step_by(2).filter(|word| *word != "--json");
        assert_eq!(quoted.map(str::to_owned).collect::<BTreeSet<String>>(), found);
    }
}
