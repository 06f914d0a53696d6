//! `topdeck query`, `compare` and `breakdown` as used from a shell. `docs/query.md` has more
//! output.

mod plots;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use expect_test::expect;
use serde_json::Value;

use crate::store::{check, json, run, run_ok};
use crate::test_dir::TestDir;

const START_NS: i64 = 1_794_225_600_000_000_000;

/// A store `s` of half an hour in its own directory: a copy of the one that `create_store` builds
/// once, because that takes 61 runs of the binary.
pub(crate) fn store_dir() -> TestDir {
    static STORE_FILES: OnceLock<Vec<(PathBuf, Option<Vec<u8>>)>> = OnceLock::new();
    let made = STORE_FILES.get_or_init(|| {
        let (dir, mut found) = (create_store(), Vec::new());
        read_tree(dir.path(), Path::new(""), &mut found);
        found
    });
    let dir = TestDir::new();
    for (path, bytes) in made {
        let path = dir.path().join(path);
        match bytes {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::create_dir(path).unwrap(),
        }
    }
    dir
}

/// Everything below a directory, each directory before its contents.
fn read_tree(root: &Path, below: &Path, found: &mut Vec<(PathBuf, Option<Vec<u8>>)>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            found.push((path.clone(), None));
            read_tree(root, &path, found);
        } else {
            found.push((path, Some(fs::read(entry.path()).unwrap())));
        }
    }
}

/// Two hosts with known latencies, a gauge and a counter.
fn create_store() -> TestDir {
    let dir = TestDir::new();
    for (host, slow) in [("a", 1), ("b", 40)] {
        for minute in 0..30 {
            let values: String = (0..20)
                .map(|n| {
                    format!(
                        "{}\n",
                        (n * 7 + minute * 3) % 20 + 1 + if n % 10 == 9 { slow } else { 0 }
                    )
                })
                .collect();
            fs::write(dir.path().join("values.txt"), values).unwrap();
            let at = format!("2026-11-09T12:{minute:02}:00Z");
            let line = format!(
                "--create --metric took --unit ms --label host={host} --start {at} values.txt"
            );
            run_ok(&dir, &format!("import s {line}"));
        }
    }
    let reading = |kind: &str, name: &str, minute: i64, number: f64| {
        let end = START_NS + minute * 60_000_000_000;
        let start = if kind == "gauge" { end } else { START_NS };
        format!(
            r#"{{"metric":"{name}","labels":{{}},"start_ns":{start},"end_ns":{end},"kind":"{kind}","number":{number}}}"#
        ) + "\n"
    };
    let readings: String = (0..30)
        .map(|minute| {
            reading("gauge", "depth", minute, (minute % 5) as f64)
                + &reading("counter", "jobs", minute, minute as f64 * 10.0)
        })
        .collect();
    fs::write(dir.path().join("readings.frames"), readings).unwrap();
    run_ok(&dir, "import s readings.frames");
    dir
}

const LAST: &str = "--to 2026-11-09T12:29:00Z";

#[test]
fn queries_have_results() {
    let dir = store_dir();
    let query = |rest: &str, expected| check(&dir, &format!("query s {rest}"), expected);
    query(
        &format!("'histogram_quantile(0.9, sum(exact_increase(took[10m])))' {LAST}"),
        expect![[r#"
            --- stdout
            at 2026-11-09 12:29:00Z
              stream     value  bounds               max
              all     19.11 ms  18.69 to 19.11 ms  60 ms
            --- exit status 0
        "#]],
    );
    query(
        &format!(
            "'histogram_quantile(0.5, sum by (host) (exact_increase(took[10m])))' --from \
             2026-11-09T12:09:00Z {LAST}"
        ),
        expect![[r#"
            --- stdout
            2026-11-09 12:09:00Z to 2026-11-09 12:29:00Z, every 10 min; 2 streams
            {host="a"}
              time                     value  bounds               max
              2026-11-09 12:09:00Z  10.90 ms  10.87 to 11.12 ms  21 ms
              2026-11-09 12:19:00Z  10.90 ms  10.87 to 11.12 ms  21 ms
              2026-11-09 12:29:00Z  10.90 ms  10.87 to 11.12 ms  21 ms
            {host="b"}
              time                     value  bounds               max
              2026-11-09 12:09:00Z  11.12 ms  10.87 to 11.12 ms  60 ms
              2026-11-09 12:19:00Z  11.89 ms  11.86 to 12.13 ms  60 ms
              2026-11-09 12:29:00Z  11.89 ms  11.86 to 12.13 ms  60 ms
            --- exit status 0
        "#]],
    );
    query(
        &format!("'took' {LAST}"),
        expect![[r#"
            --- stdout
            at 2026-11-09 12:29:00Z; 2 streams
            took
            {host="a"}
                        value  bounds
              count        20
              min        1 ms
              mean   10.60 ms
              p50    10.09 ms  9.975 to 10.20 ms
              p90    18.83 ms  18.69 to 19.11 ms
              p99       20 ms
              p99.9     20 ms
              max       20 ms
            {host="b"}
                        value  bounds
              count        20
              min        1 ms
              mean   14.50 ms
              p50    11.00 ms  10.87 to 11.12 ms
              p90    20.17 ms  19.95 to 20.39 ms
              p99       58 ms
              p99.9     58 ms
              max       58 ms
            --- exit status 0
        "#]],
    );
    query(
        &format!("'depth[3m]' {LAST}"),
        expect![[r#"
        --- stdout
        at 2026-11-09 12:29:00Z; unit unknown
        depth
          time                  value
          2026-11-09 12:27:00Z      2
          2026-11-09 12:28:00Z      3
          2026-11-09 12:29:00Z      4
        --- exit status 0
    "#]],
    );
    query(
        &format!("'increase(jobs[10m])' {LAST}"),
        expect![[r#"
        --- stdout
        at 2026-11-09 12:29:00Z; unit unknown
          stream  value
          all       100
        --- stderr
        topdeck: PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "jobs"
        --- exit status 0
    "#]],
    );
    query(
        &format!("'quantile_over_time(0.5, depth[10m])' {LAST}"),
        expect![[r#"
        --- stdout
        at 2026-11-09 12:29:00Z; unit unknown
          stream  value  max
          all         2    4
        --- exit status 0
    "#]],
    );
    query(
        &format!("'1 + 1' {LAST}"),
        expect![[r#"
        --- stdout
        2
        --- exit status 0
    "#]],
    );
    query(
        &format!("'\"text\"' {LAST}"),
        expect![[r#"
        --- stdout
        text
        --- exit status 0
    "#]],
    );
    query(
        &format!("'depth / 0' --from 2026-11-09T12:24:00Z {LAST} --step 1m"),
        expect![[r#"
        --- stdout
        2026-11-09 12:24:00Z to 2026-11-09 12:29:00Z, every 1 min; unit unknown
          time                     value
          2026-11-09 12:24:00Z  infinity
          2026-11-09 12:25:00Z   unknown
          2026-11-09 12:26:00Z  infinity
          2026-11-09 12:27:00Z  infinity
          2026-11-09 12:28:00Z  infinity
          2026-11-09 12:29:00Z  infinity
        --- exit status 0
    "#]],
    );
    query(
        &format!("'depth > 3' --from 2026-11-09T12:15:00Z {LAST} --step 1m"),
        expect![[r#"
        --- stdout
        2026-11-09 12:15:00Z to 2026-11-09 12:29:00Z, every 1 min; unit unknown
        depth
          time                  value
          (no value for 4 min)
          2026-11-09 12:19:00Z      4
          (no value for 4 min)
          2026-11-09 12:24:00Z      4
          (no value for 4 min)
          2026-11-09 12:29:00Z      4
        --- exit status 0
    "#]],
    );
}

#[test]
fn query_errors_are_reported() {
    let dir = store_dir();
    let query = |rest: &str, expected| check(&dir, &format!("query s {rest}"), expected);
    query(
        "'sum(took'",
        expect![[r#"
        --- stderr
        topdeck: 1:9: unclosed left parenthesis
          sum(took
                  ^
        --- exit status 1
    "#]],
    );
    query(
        "tock",
        expect![[r#"
        --- stdout
        no data: no series has a value in the range
        --- stderr
        topdeck: s: tock matches no series; did you mean the metric "took"?
        --- exit status 0
    "#]],
    );
    query(
        "took --to 2026-11-08",
        expect![[r#"
        --- stdout
        no data: no series has a value in the range
        --- stderr
        topdeck: samples exist from 2026-11-09 12:00:00Z to 2026-11-09 12:29:00.000Z
        --- exit status 0
    "#]],
    );
    query(
        "'histogram_count(took)' --max-series 1",
        expect![[r#"
        --- stderr
        topdeck: limit of 1 series (--max-series) exceeded (2); select fewer series, or raise --max-series
        --- exit status 1
    "#]],
    );
    // The amount may change with every improvement of reading.
    for limit in ["--max-samples", "--max-bytes"] {
        let line = "query s 'sum(exact_increase(took[5m]))' --from 2026-11-09T12:00:00Z";
        let run = run(&dir, &format!("{line} {limit} 10"));
        assert_eq!((run.status, run.stdout.as_str()), (1, ""));
        assert!(run.stderr.contains("limit of 10 "), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("({limit}) exceeded")), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("or raise {limit}")), "{}", run.stderr);
    }
    query(
        "depth --from 2026-11-09T12:00:00Z --step 1s --max-steps 10",
        expect![[r#"
        --- stderr
        topdeck: limit of 10 steps (--max-steps) exceeded (1741); increase the step, reduce the range, or raise --max-steps
        --- exit status 1
    "#]],
    );
    query(
        "--caql 'find:histogram(\"took\") | histogram:percentle(99)'",
        expect![[r#"
        --- stderr
        topdeck: 1:26: unknown function histogram:percentle; did you mean histogram:percentile?
          find:histogram("took") | histogram:percentle(99)
                                   ^^^^^^^^^^^^^^^^^^^
        --- exit status 1
    "#]],
    );
}

#[test]
fn documents_have_bounds_and_maxima() {
    let dir = store_dir();
    let line = format!(
        "query s 'histogram_quantile(0.9, sum by (host) (exact_increase(took[10m])))' {LAST} --json"
    );
    let document = json(&run_ok(&dir, &line));
    assert_eq!(
        (&document["kind"], &document["unit"]),
        (&Value::from("vector"), &Value::from("ns"))
    );
    for (host, at) in [("a", 0), ("b", 1)] {
        let maxima = &document["maxima"][0];
        assert_eq!(
            maxima["expression"],
            "histogram_max(sum by (host) (exact_increase(took[10m])))"
        );
        for data in [&document["data"], &maxima["data"]] {
            assert_eq!(data[at]["labels"]["host"], host);
        }
    }
    let all = json(&run_ok(
        &dir,
        "query s 'sum(exact_increase(took[1h]))' --to 2026-11-09T12:30:00Z --json",
    ));
    assert_eq!(all["data"][0]["points"][0]["value"]["count"], 1200);
}

#[test]
fn two_hosts_are_compared() {
    let dir = store_dir();
    check(
        &dir,
        r#"compare s 'took{host="a"}' 'took{host="b"}'"#,
        expect![[r#"
            --- stdout
            A  took{host="a"}
               600 values in 1 series, 30 intervals, 2026-11-09 12:00:00Z to 2026-11-09 12:29:00.000Z
            B  took{host="b"}
               600 values in 1 series, 30 intervals, 2026-11-09 12:00:00Z to 2026-11-09 12:29:00.000Z

                                A  bounds                    B  bounds             B / A
              p1         1.001 ms  1.000 to 1.005 ms  1.001 ms  1.000 to 1.005 ms  1.000
              p5         1.969 ms  1.965 to 2.009 ms  1.970 ms  1.965 to 2.009 ms  1.000
              p10        2.972 ms  2.965 to 3.031 ms  2.980 ms  2.965 to 3.031 ms  1.003
              p25        5.944 ms  5.931 to 6.062 ms  6.001 ms  5.931 to 6.062 ms  1.010
              p50     *  10.90 ms  10.87 to 11.12 ms  11.89 ms  11.86 to 12.13 ms  1.091
              p75     *  15.75 ms  15.72 to 16.07 ms  17.01 ms  16.77 to 17.15 ms  1.080
              p90     *  18.74 ms  18.69 to 19.11 ms  20.37 ms  19.95 to 20.39 ms  1.087
              p95     *  19.99 ms  19.95 to 20.39 ms  50.37 ms  49.55 to 50.64 ms  2.519
              p99     *  20.33 ms  19.95 to 20.39 ms  58.61 ms  57.66 to 58.94 ms  2.883
              p99.5   *  20.37 ms  19.95 to 20.39 ms  59.39 ms  58.93 to 60.00 ms  2.915
              p99.9   *     21 ms                        60 ms                     2.857
              p99.99  *     21 ms                        60 ms                     2.857
              max     *     21 ms                        60 ms                     2.857
              * differs: the bounds do not overlap

                     B
                      │                              9M       ···
                      │                              ●     ···
                      │                                 ···
                      │                             ●···
                      │                          ●●●·
                      │                       ●5●·
                10 ms ┤                   ● ●●·
                      │                ● ●●·
                      │              ●·●·
                      │           ●··●
                      │       ● ··●
                      │      ·●·
                      │   ···
                 1 ms ┤●··
                      └┬──────────────────────┬──────────────────
                     1 ms                   10 ms                 A
              ● the same quantile of A and B: above the diagonal B is greater; 5=median,
              9=p99, M=maximum

              Wasserstein         3.903 ms  3.656 to 4.173 ms
                mean distance between the distributions
              Kolmogorov-Smirnov   10.00 %  9.99 to 14.01 %
                maximum difference of the cumulative shares
              P(B > A)             54.56 %  52.32 to 56.80 %
                probability that a value of B exceeds one of A; 50 % if equal
              p-value             0.05 %
                of 2,000 random splits of all 60 intervals, 1 split (the actual one
                included) reached this distance. Significant: the sides differ
            --- exit status 0
        "#]],
    );
    check(
        &dir,
        r#"compare s 'took{host="a"}' --to 2026-11-09T12:14:00Z --from-b 2026-11-09T12:14:00Z --to-b 2026-11-09T12:29:00Z"#,
        expect![[r#"
            --- stdout
            A  took{host="a"}
               280 values in 1 series, 14 intervals, 2026-11-09 12:00:00Z to 2026-11-09 12:14:00Z
            B  took{host="a"}
               300 values in 1 series, 15 intervals, 2026-11-09 12:14:00Z to 2026-11-09 12:29:00Z

                                A  bounds                    B  bounds             B / A
              p1         1.001 ms  1.000 to 1.005 ms  1.001 ms  1.000 to 1.005 ms  1.000
              p5         1.968 ms  1.965 to 2.009 ms  1.968 ms  1.965 to 2.009 ms  1.000
              p10        2.970 ms  2.965 to 3.031 ms  2.973 ms  2.965 to 3.031 ms  1.001
              p25        5.940 ms  5.931 to 6.062 ms  5.948 ms  5.931 to 6.062 ms  1.001
              p50        10.91 ms  10.87 to 11.12 ms  10.89 ms  10.87 to 11.12 ms  0.999
              p75        15.74 ms  15.72 to 16.07 ms  15.76 ms  15.72 to 16.07 ms  1.001
              p90        18.72 ms  18.69 to 19.11 ms  18.75 ms  18.69 to 19.11 ms  1.001
              p95        19.98 ms  19.95 to 20.39 ms  20.00 ms  19.95 to 20.39 ms  1.001
              p99        20.36 ms  19.95 to 20.39 ms  20.31 ms  19.95 to 20.39 ms  0.998
              p99.5   *  20.89 ms  20.83 to 21.00 ms  20.36 ms  19.95 to 20.39 ms  0.975
              p99.9         21 ms                        21 ms                     1.000
              p99.99        21 ms                        21 ms                     1.000
              max           21 ms                        21 ms                     1.000
              * differs: the bounds do not overlap

                     B
                      │                                       ●●M
                      │                                    ●●●
                      │                                 ·●●
                10 ms ┤                              ●●5
                      │                           ·●·
                      │                        ●·●
                      │                     ·●·
                      │                  ●●·
                      │               ●··
                      │            ···
                      │         ●··
                      │      ···
                      │   ···
                 1 ms ┤●··
                      └┬──────────────────────────────┬──────────
                     1 ms                           10 ms         A
              ● the same quantile of A and B: above the diagonal B is greater; 5=median,
              9=p99, M=maximum

              Wasserstein         57.07 us  46.61 to 280.9 us
                mean distance between the distributions
              Kolmogorov-Smirnov    0.38 %  0.38 to 5.39 %
                maximum difference of the cumulative shares
              P(B > A)             50.01 %  47.53 to 52.48 %
                probability that a value of B exceeds one of A; 50 % if equal
              p-value             100 %
                of 2,000 random splits of all 29 intervals, 2,000 splits (the actual one
                included) reached this distance. Not significant: the intervals of one side
                differ as much among each other
            --- exit status 0
        "#]],
    );
    check(
        &dir,
        "compare s took; topdeck compare s took tock; topdeck compare s took depth",
        expect![[r#"
            --- stderr
            topdeck: side B is missing; add a second selector, or another time with --from-b and --to-b
            topdeck: s: tock matches no series; did you mean the metric "took"?
            topdeck: depth matches no histograms, but 1 series of other kinds
            --- exit status 1
        "#]],
    );
    let document = json(&run_ok(&dir, r#"compare s 'took{host="a"}' 'took{host="b"}' --json"#));
    assert_eq!(document["a"]["count"], 600);
    assert_eq!(document["quantiles"][12]["q"], 1.0);
    assert_eq!(document["quantiles"][12]["significant"], true);
}

#[test]
fn breakdown_names_the_slow_label() {
    let dir = store_dir();
    check(
        &dir,
        "breakdown s took --above 25ms",
        expect![[r#"
        --- stdout
        took
          inside   60 values above 25 ms, 2026-11-09 12:00:00Z to 2026-11-09 12:29:00.000Z
          outside  1,140 others, 2026-11-09 12:00:00Z to 2026-11-09 12:29:00.000Z

        host  Jensen-Shannon divergence 0.332 bits (0 to 1)
          value  inside  share  outside    share  ratio
          b          60  100 %      540  47.37 %   2.11
          a           0    0 %      600  52.63 %   0.00
        --- exit status 0
    "#]],
    );
    check(
        &dir,
        "breakdown s took --above 5ms --up-to 10ms --from 2026-11-09T12:10:00Z --to \
         2026-11-09T12:20:00Z",
        expect![[r#"
            --- stdout
            took
              inside   76 to 114 values above 5 ms, up to 10 ms, 2026-11-09 12:10:00Z to 2026-11-09 12:20:00Z
              outside  1,086 to 1,124 others, 2026-11-09 12:00:00Z to 2026-11-09 12:29:00.000Z

            No difference (below 0.005 bits) in: host
            --- exit status 0
        "#]],
    );
    check(
        &dir,
        "breakdown s took --above 10B; topdeck breakdown s took --above 1h; topdeck breakdown s \
         depth --above 1",
        expect![[r#"
            --- stderr
            topdeck: --above 10 B: the values are in ns
            topdeck: the rectangle contains no values
            topdeck: depth matches no histograms, but 1 series of other kinds
            --- exit status 1
        "#]],
    );
    let document = json(&run_ok(&dir, "breakdown s took --above 25ms --json"));
    assert_eq!(document["labels"][0]["values"][0]["value"], "b");
    assert_eq!(run(&dir, "breakdown s took --above 25").status, 0, "in the unit of the values");
}

/// A baseline of own rules, and an input of `topdeck hist`.
#[test]
fn distributions_are_printed_as_frames() {
    let dir = store_dir();
    let minutes = "'sum by (host) (exact_increase(took[10m]))' --from 2026-11-09T12:09:00Z";
    let lines = run_ok(&dir, &format!("query s {minutes} {LAST} --frames"));
    let first: Value = json(lines.lines().next().expect("a line"));
    assert_eq!(first["labels"], serde_json::json!({"host": "a"}));
    let end_ns = first["end_ns"].as_i64().expect("an end");
    assert_eq!(end_ns, START_NS + 9 * 60_000_000_000);
    assert_eq!(first["start_ns"].as_i64(), Some(end_ns - 600_000_000_000));
    assert_eq!(lines.lines().count(), 6);
    fs::write(dir.path().join("day.frames"), lines).unwrap();
    // 29 of the 30 minutes of two hosts.
    let values: Value = json(&run_ok(&dir, "hist day.frames --json"));
    assert_eq!(values["groups"][0]["count"].as_u64(), Some(1160));
    check(
        &dir,
        &format!("query s 'depth' {LAST} --frames"),
        expect![[r#"
            --- stderr
            topdeck: cannot write the result as frames: it has numbers; query distributions, such as exact_increase(latency[5m])
            --- exit status 1
        "#]],
    );
}
