//! Queries of stores as text: cost, accuracy, and growth of the cost.
//!
//! The stores are those of `store.rs`, loaded once for both comparisons. `range_query.rs` contains
//! the query texts, `contender.rs` runs the same queries for all contenders, `accuracy.rs` knows
//! the expected answers.

mod accuracy;
mod contender;
mod plot;
pub(crate) mod prometheus;
mod query_results;
mod range_query;
pub(crate) mod topdeck;

use self::accuracy::{ACCURACIES, Accuracy};
pub(crate) use self::query_results::QueryResults;
use self::query_results::samples;
use self::range_query::{QUERIES, Sweep};
use crate::report::{ReportPlot, ReportSection, ReportTable, ReportTarget, Samples, number};
use crate::store::StoreWork;

const METHOD: &str = "Data sets A and B of the section on stores, as loaded there, in the same \
                      run. All contenders get the text of an expression. topdeck runs in the \
                      process of the benchmark: it parses and plans the text, takes a snapshot \
                      of the store and evaluates the expression, in memory and on one thread; \
                      its figures exclude HTTP and JSON, those of Prometheus include them. “From \
                      the base” is a store without rollups. A query runs once to warm up and \
                      then five times; the figures are medians with minimum and maximum.\n\nCPU \
                      time is that of all threads of the process, as the scheduler counts it. \
                      Memory is the peak resident size during the query. For B, the memory of \
                      topdeck is that of a process that opened the store and ran one query; its \
                      other figures are those of the benchmark process, which also contained the \
                      expected values and other stores.\n\nThe generator of the data knows the \
                      exact counts, and for a quantile its bucket, which is up to 10 % wide. An \
                      estimate is compared with the middle of that bucket; it is *possible* if \
                      the exact value may be there, and a bracket *contains* the exact value if \
                      it contains the part of that bucket between minimum and maximum. Errors of \
                      counts are relative to the exact count of the window, errors of shares are \
                      differences. 12.3 ms is inside a bucket of the data, 12 ms is the closest \
                      bucket boundary.";

/// The report section of all query results.
pub(crate) fn section(work: &StoreWork, results: &[QueryResults]) -> ReportSection {
    let mut method = METHOD.to_owned();
    if work.quick {
        let (a, b) = (work.a.scale(), work.b.scale());
        method += &format!(
            "\n\nQuick run: {} minutes of A, {} series and {} minutes of B.",
            a.minutes, b.series, b.minutes
        );
    }
    for one in results {
        if let Some(why) = &one.skipped {
            method += &format!("\n\n{} did not run all queries: {why}.", one.name);
        }
    }
    ReportSection {
        name: crate::QUERY,
        title: "Queries in PromQL and CAQL",
        method,
        tables: vec![
            costs(results),
            accuracies(results),
            totals(results),
            sweeps(results),
            texts(results),
        ],
        targets: targets(results),
        samples: all_samples(results),
    }
}

fn targets(results: &[QueryResults]) -> Vec<ReportTarget> {
    let mut targets = Vec::new();
    for own in results.iter().filter(|one| topdeck::is_topdeck(one)) {
        let name = |what: &str| format!("{what}, {}", own.name);
        let mut cpu = |what: &str, key: &str, limit: f64| {
            targets.push(ReportTarget::at_most(&name(what), limit, "ms of CPU", own.cpu_ms(key)));
        };
        cpu("A: the week as 112 columns, from the base", "heat-base", 15.0);
        cpu("A: the same from rollups", "heat", 3.0);
        cpu("A: p99, p99.9 and the share at or below 12.3 ms every 4 min", "three", 40.0);
        cpu("B: p99.9 of all series every 5 min", "b-p99.9", 300.0);
        let memory = own.timed("b-p99.9").map(|timed| timed.query.memory_bytes as f64 / 1e6);
        let what = name("B: memory of that");
        targets.push(ReportTarget::at_most(&what, 256.0, "MB", memory));
        let total = own.total.map(|(found, truth)| (found - truth as f64).abs());
        targets.push(ReportTarget::at_most(
            &name("A: total of the heatmap"),
            0.0,
            "difference",
            total,
        ));
        let worst = |key: &str| own.accuracy(key).map(|accuracy| accuracy.worst * 100.0);
        let what = name("A: count above an edge of a bucket every 4 min, worst error");
        targets.push(ReportTarget::at_most(&what, 0.0, "%", worst("above-edge")));
        for key in ["p99", "p99.9", "above"] {
            let what = name(&format!("A: brackets that contain the exact value, {key}"));
            let held = own.accuracy(key).map(|accuracy| {
                accuracy.bracketed.unwrap_or_default() as f64 / accuracy.windows as f64 * 100.0
            });
            targets.push(ReportTarget::at_least(&what, 100.0, "%", held));
        }
    }
    targets
}

fn costs(results: &[QueryResults]) -> ReportTable {
    let header = ["query", "contender", "CPU ms", "wall ms", "memory MB"];
    let mut table = ReportTable::new("Cost of a query: median (min–max).", 2, &header);
    for (key, about) in QUERIES {
        for (one, query) in costs_of_key(results, key) {
            table.rows.push(vec![
                about.to_owned(),
                one.name.clone(),
                samples(&query.cpu_ms).cell(),
                samples(&query.wall_ms).cell(),
                number(query.memory_bytes as f64 / 1e6),
            ]);
        }
    }
    table
}

fn costs_of_key<'a>(
    results: &'a [QueryResults],
    key: &str,
) -> impl Iterator<Item = (&'a QueryResults, &'a crate::store::QueryCost)> {
    results.iter().filter_map(move |one| Some((one, &one.timed(key)?.query)))
}

fn accuracies(results: &[QueryResults]) -> ReportTable {
    let header = [
        "A, every 4 min",
        "contender",
        "median error",
        "worst error",
        "possible",
        "bracket contains the exact value",
        "no number",
    ];
    let mut table = ReportTable::new("Accuracy of the answers.", 2, &header);
    for (key, about) in ACCURACIES {
        for one in results {
            let Some(accuracy) = one.accuracy(key) else { continue };
            let Accuracy { windows, missing, possible, bracketed: held, .. } = *accuracy;
            let of_all = |count: usize| format!("{count} of {windows}");
            table.rows.push(vec![
                about.to_owned(),
                one.name.clone(),
                percent(accuracy.median),
                percent(accuracy.worst),
                // Not shown if the exact value is a single number rather than a range.
                if key.starts_with('p') { of_all(possible) } else { "–".to_owned() },
                held.map_or("no brackets".to_owned(), of_all),
                missing.to_string(),
            ]);
        }
    }
    table
}

fn percent(part: f64) -> String {
    format!("{:.4} %", part * 100.0)
}

fn totals(results: &[QueryResults]) -> ReportTable {
    let header = ["contender", "measurements", "exact", "difference"];
    let mut table = ReportTable::new("All columns of A's heatmap together.", 1, &header);
    for one in results {
        let Some((found, truth)) = one.total else { continue };
        let off = found - truth as f64;
        let off = if off == 0.0 { "0".to_owned() } else { format!("{off:.1}") };
        table.rows.push(vec![one.name.clone(), format!("{found:.1}"), truth.to_string(), off]);
    }
    table
}

fn sweeps(results: &[QueryResults]) -> ReportTable {
    let lanes: Vec<&QueryResults> =
        results.iter().filter(|one| !one.sweep_points.is_empty()).collect();
    let mut header = vec!["what is varied".to_owned(), "size".to_owned()];
    header.extend(lanes.iter().map(|one| format!("{}, CPU ms", one.name)));
    header.extend(lanes.iter().map(|one| format!("{}, wall ms", one.name)));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let caption = "How cost grows with span, series and step: medians.";
    let mut table = ReportTable::new(caption, 1, &header);
    for sweep in Sweep::ALL {
        let sizes = |one: &QueryResults| -> Vec<f64> {
            one.sweep_points
                .iter()
                .filter(|swept| swept.sweep == sweep)
                .map(|one| one.size)
                .collect()
        };
        for size in lanes.first().map(|one| sizes(one)).unwrap_or_default() {
            let cell = |one: &QueryResults, take: fn(&crate::store::QueryCost) -> &Vec<f64>| {
                let found = one
                    .sweep_points
                    .iter()
                    .find(|swept| swept.sweep == sweep && swept.size == size);
                found.map_or("–".to_owned(), |found| number(samples(take(&found.query)).median()))
            };
            let mut row = vec![sweep.description().to_owned(), sweep.size(size)];
            row.extend(lanes.iter().map(|one| cell(one, |query| &query.cpu_ms)));
            row.extend(lanes.iter().map(|one| cell(one, |query| &query.wall_ms)));
            table.rows.push(row);
        }
    }
    if !lanes.is_empty() {
        let alt = "CPU time of a query by span, number of series and step, as in the table above";
        let svg = plot::svg(&lanes);
        table.plot = Some(ReportPlot { file: "query-time.svg", alt: alt.to_owned(), svg });
    }
    table
}

fn texts(results: &[QueryResults]) -> ReportTable {
    let mut table = ReportTable::new("The queries.", 3, &["query", "contender", "text"]);
    for (key, about) in QUERIES {
        for one in results {
            let Some(timed) = one.timed(key) else { continue };
            let text = format!("`{}`", timed.text.replace('|', "\\|"));
            table.rows.push(vec![about.to_owned(), one.name.clone(), text]);
        }
    }
    table
}

fn all_samples(results: &[QueryResults]) -> Vec<(String, Vec<Samples>)> {
    let row =
        |one: &QueryResults, values: &[f64]| Samples { name: one.name.clone(), ..samples(values) };
    let mut sets = Vec::new();
    for (key, _) in QUERIES {
        let cpu = costs_of_key(results, key).map(|(one, query)| row(one, &query.cpu_ms)).collect();
        let wall =
            costs_of_key(results, key).map(|(one, query)| row(one, &query.wall_ms)).collect();
        sets.push((format!("{key}, CPU ms"), cpu));
        sets.push((format!("{key}, wall ms"), wall));
    }
    for one in results {
        for swept in &one.sweep_points {
            let what = format!("{}, {}", swept.sweep.description(), swept.sweep.size(swept.size));
            sets.push((format!("{what}, CPU ms"), vec![row(one, &swept.query.cpu_ms)]));
            sets.push((format!("{what}, wall ms"), vec![row(one, &swept.query.wall_ms)]));
        }
    }
    sets
}
