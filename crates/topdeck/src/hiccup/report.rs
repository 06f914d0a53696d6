//! What is told of hiccups: text, and JSON.

use anyhow::Result;
use hist::Histogram;
use serde::Serialize;

use super::join::Joined;
use super::seen::{LONGER_NS, Seen};
use crate::command::plain;
use crate::hist::show::{count, quantile_name};
use crate::journal::show::{nanoseconds, table};

const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// The quantiles that so many moments say something about.
fn quantiles(of: &Histogram) -> Vec<(f64, f64)> {
    let told = QUANTILES.iter().filter(|q| (1.0 - **q) * of.count() as f64 >= 1.0);
    told.filter_map(|q| Some((*q, of.quantile(*q)?.estimate))).collect()
}

fn max(of: &Histogram) -> f64 {
    of.max().map_or(0.0, |max| max.estimate)
}

pub(super) fn text(seen: &Seen, joined: &Joined) -> String {
    let mut text = format!(
        "hiccups of {}: {}, {} moments {} apart\n",
        plain(&joined.whose),
        nanoseconds(seen.length_ns() as f64),
        count(seen.all.count()),
        nanoseconds(seen.period_ns as f64)
    );
    for (what, all) in [("as it", &joined.joined), ("not as it", &joined.not_joined)] {
        for one in all {
            text.push_str(&format!("  {what}: {}\n", plain(one)));
        }
    }
    text.push_str("\nhow late\n");
    let mut rows: Vec<[String; 2]> =
        quantiles(&seen.all).iter().map(|(q, ns)| [quantile_name(*q), nanoseconds(*ns)]).collect();
    rows.push(["max".to_owned(), nanoseconds(max(&seen.all))]);
    text.push_str(&table(&rows, [false, true]));
    text.push_str("\nstalls\n");
    let mut rows: Vec<[String; 2]> = LONGER_NS
        .iter()
        .zip(seen.longer)
        .map(|(limit, n)| [format!("longer than {}", nanoseconds(*limit as f64)), count(n)])
        .collect();
    let longest = seen.longest.iter().map(|(after, late)| {
        [format!("at {}", nanoseconds(*after as f64)), nanoseconds(*late as f64)]
    });
    rows.extend(longest);
    text.push_str(&table(&rows, [false, true]));
    text.push_str("\nover time\n");
    let mut rows = vec![["from", "moments", "p99", "max"].map(str::to_owned)];
    for (number, row) in seen.rows.iter().enumerate() {
        let p99 = row.quantile(0.99).map_or(0.0, |found| found.estimate);
        rows.push([
            nanoseconds((number as u64 * seen.row_ns) as f64),
            count(row.count()),
            nanoseconds(p99),
            nanoseconds(max(row)),
        ]);
    }
    text.push_str(&table(&rows, [true; 4]));
    if seen.left_out > 0 {
        let left_out = count(seen.left_out);
        text.push_str(&format!("\n{left_out} moments of a stall without end are left out\n"));
    }
    text
}

/// As it is described in docs/hiccup.md.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    whose: &'a str,
    joined: &'a [String],
    not_joined: &'a [String],
    length_ns: u64,
    period_ns: u64,
    moments: u64,
    left_out: u64,
    mean_ns: f64,
    quantiles: Vec<Quantile>,
    max_ns: f64,
    stalls: Vec<Longer>,
    longest: Vec<Stall>,
    row_ns: u64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Quantile {
    q: f64,
    ns: f64,
}

#[derive(Serialize)]
struct Longer {
    longer_than_ns: u64,
    count: u64,
}

#[derive(Serialize)]
struct Stall {
    after_ns: u64,
    late_ns: u64,
}

#[derive(Serialize)]
struct Row {
    moments: u64,
    p99_ns: f64,
    max_ns: f64,
}

pub(super) fn json(seen: &Seen, joined: &Joined) -> Result<String> {
    let document = Document {
        schema: 1,
        whose: &joined.whose,
        joined: &joined.joined,
        not_joined: &joined.not_joined,
        length_ns: seen.length_ns(),
        period_ns: seen.period_ns,
        moments: seen.all.count(),
        left_out: seen.left_out,
        mean_ns: seen.all.mean().map_or(0.0, |mean| mean.estimate),
        quantiles: quantiles(&seen.all).into_iter().map(|(q, ns)| Quantile { q, ns }).collect(),
        max_ns: max(&seen.all),
        stalls: LONGER_NS
            .iter()
            .zip(seen.longer)
            .map(|(limit, count)| Longer { longer_than_ns: *limit, count })
            .collect(),
        longest: seen
            .longest
            .iter()
            .map(|(after_ns, late_ns)| Stall { after_ns: *after_ns, late_ns: *late_ns })
            .collect(),
        row_ns: seen.row_ns,
        rows: seen
            .rows
            .iter()
            .map(|row| Row {
                moments: row.count(),
                p99_ns: row.quantile(0.99).map_or(0.0, |found| found.estimate),
                max_ns: max(row),
            })
            .collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use host::Woken;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/hiccup.md");

    fn names(json: &serde_json::Value, found: &mut BTreeSet<String>) {
        match json {
            serde_json::Value::Object(fields) => {
                found.extend(fields.keys().cloned());
                fields.values().for_each(|value| names(value, found));
            }
            serde_json::Value::Array(all) => all.iter().for_each(|one| names(one, found)),
            _ => {}
        }
    }

    #[test]
    fn the_page_names_every_field() {
        let mut seen = Seen::new(1_000_000);
        for n in 1..=100 {
            seen.record(Woken::new(n * 1_000_000, n * 1_050_000, 1_000_000));
        }
        let text = json(&seen, &Joined::nothing()).unwrap();
        let mut found = BTreeSet::new();
        names(&serde_json::from_str(&text).unwrap(), &mut found);
        let section = PAGE.split_once("## JSON").unwrap().1.trim_start();
        let section = section.split("\n\n").next().unwrap();
        let quoted = section.split('`').skip(1).step_by(2).filter(|word| *word != "--json");
        assert_eq!(quoted.map(str::to_owned).collect::<BTreeSet<String>>(), found);
    }
}
