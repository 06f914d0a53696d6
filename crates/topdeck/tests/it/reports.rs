//! Reports of valid input.

use expect_test::{Expect, expect, expect_file};

use crate::{counts, hist, hist_with_stdin, topdeck};

macro_rules! check_file {
    ($name:literal, $line:expr) => {
        expect_file![concat!("../../../../testdata/cli/", $name)].assert_eq(&hist($line).all())
    };
}

#[test]
fn numbers() {
    check_file!("numbers.out", "--unit ms --above 100ms --above 0.0015s testdata/cli/web.txt");
}

#[test]
fn numbers_in_ascii() {
    check_file!("numbers-ascii.out", "--ascii --unit ms testdata/cli/web.txt");
}

#[test]
fn an_hlog_with_tags() {
    check_file!("hlog.out", "--above 10ms testdata/hist/hdr/tagged-Log.logV2.hlog");
}

#[test]
fn an_hlog_over_time() {
    check_file!(
        "interval.out",
        "--interval 15s --by tag --above 2ms testdata/hist/hdr/tagged-Log.logV2.hlog"
    );
}

#[test]
fn a_heatmap_of_an_hlog() {
    check_file!("heatmap.out", "--heatmap --above 2ms testdata/hist/hdr/jHiccup-2.0.6.logV1.hlog");
}

#[test]
fn heatmaps_by_tag_in_ascii() {
    check_file!(
        "heatmap-ascii.out",
        "--heatmap --ascii --columns 12 --by tag testdata/hist/hdr/tagged-Log.logV2.hlog"
    );
}

#[test]
fn prometheus_text() {
    check_file!(
        "prometheus.out",
        "--above 1.5s --metric http_request_duration_seconds testdata/cli/page.prom"
    );
}

#[test]
fn prometheus_text_by_label() {
    check_file!(
        "prometheus-by.out",
        "--metric rpc_seconds --by service --quantile p50,1 testdata/cli/page.prom"
    );
}

#[test]
fn httptrap() {
    check_file!("httptrap.out", "--unit s testdata/cli/trap.json");
}

#[test]
fn circllhist() {
    check_file!("circllhist.out", "testdata/cli/circllhist.txt");
}

#[test]
fn ddsketches_in_base64() {
    let run = hist("testdata/cli/ddsketch.txt");
    assert_eq!((counts(&run), run.status), (vec!["305"], 0), "{}", run.all());
}

/// The values 1 to 5 with exact statistics, as sketches-go writes them.
const SKETCH: &[u8] = b"\xa0\x05\x84\0\0\0\0\0\0\x2e\x40\x88\0\0\0\0\0\0\xf0\x3f\
    \x8c\0\0\0\0\0\0\x14\x40\x02\xfd\x4a\x81\x5a\xbf\x52\xf0\x3f\0\0\0\0\0\0\0\0\
    \x05\x05\0\x02\x44\x02\x28\x02\x1e\x02\x16\x02";

#[test]
fn a_binary_ddsketch() {
    let run = hist_with_stdin("--quantile p50 -", SKETCH);
    assert_eq!((counts(&run), run.status), (vec!["5"], 0), "{}", run.all());
    let run = hist_with_stdin("--format ddsketch -", &SKETCH[..SKETCH.len() - 1]);
    assert_ne!(run.status, 0);
    assert!(run.stderr.contains("expected a DDSketch: binary, protobuf"), "{}", run.all());
}

#[test]
fn several_grids_in_one_report() {
    check_file!(
        "mixture.out",
        "--unit ns --above 1ms testdata/cli/circllhist.txt testdata/cli/web.txt \
         testdata/hist/hdr/ycsb.logV1.hlog"
    );
}

#[test]
fn two_files_compared() {
    check_file!(
        "compare.out",
        "--unit ms --above 100ms --compare testdata/cli/web.txt testdata/cli/web-slow.txt"
    );
}

#[track_caller]
fn check(input: &str, line: &str, expected: Expect) {
    let run = hist_with_stdin(line, input.as_bytes());
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{input:?}");
    // Only the statistics; charts have their own golden files.
    let end = run.stdout.find("\n\n  Distribution").map_or(run.stdout.len(), |at| at + 1);
    expected.assert_eq(&run.stdout[..end]);
}

#[test]
fn unusual_numbers_are_counted() {
    check(
        "-5\nnan\n0\n7\n",
        "--quantile 0.5 -",
        expect![[r#"
            standard input

              count           3
              NaN             1
              zero            1

              min            -5
              mean    0.6666667
              stddev      4.889    4.855 to 4.922

              p50             0
              max             7

              value   count    share
                < 0       1  33.33 %  ████████████████████████
                < 1       1  33.33 %  ████████████████████████
               < 10       1  33.33 %  ████████████████████████
        "#]],
    );
    check(
        "inf\n1\n-inf\n",
        "--quantile 0.5 -",
        expect![[r#"
            standard input

              count                   3
              above the grid          1
              below the grid          1

              min             -infinity
              mean              unknown    -infinity to infinity

              p50                0.9893    0.9785 to 1
              max              infinity

                value   count    share
                  < 0       1  33.33 %  ████████████████████████
                < 0.1       0      0 %
                  < 1       0      0 %
                 < 10       1  33.33 %  ████████████████████████
              from 10       1  33.33 %  ████████████████████████
        "#]],
    );
    check(
        "nan\n",
        "-",
        expect![[r#"
            standard input

              count  0
              NaN    1

              The values have no unit; set it with --unit, as in --unit ms.
        "#]],
    );
}

#[test]
fn one_value_and_equal_values() {
    check(
        "17\n",
        "--unit us -",
        expect![[r#"
            standard input

              count     1

              min      17 us
              mean     17 us
              stddev    0 ns

              p50      17 us
              p75      17 us
              p90      17 us
              p95      17 us
              p99      17 us
              p99.9    17 us
              p99.99   17 us
              p99.999  17 us
              max      17 us

                 value   count  share
              < 100 us       1  100 %  ████████████████████████
        "#]],
    );
    check(
        "0\n0\n",
        "--quantile 1 -",
        expect![[r#"
            standard input

              count   2
              zero    2

              min     0
              mean    0
              stddev  0

              p100    0
              max     0

               value   count  share
              from 0       2  100 %  ████████████████████████
        "#]],
    );
}

#[test]
fn foreign_line_ends_and_byte_order_marks() {
    check(
        "\u{feff}1\r\n2\r\n# three\r\n\r\n3",
        "--quantile p50 --unit B -",
        expect![[r#"
            standard input

              count        3

              min          1 B
              mean         2 B
              stddev  0.8073 B   0.7977 to 0.8169 B

              p50      1.979 B   1.957 to 2 B
              max          3 B

               value   count  share
              < 10 B       3  100 %  ████████████████████████
        "#]],
    );
}

#[test]
fn thresholds_are_exact_for_numbers_and_bracketed_for_histograms() {
    let sentence = |line: &str, input: &str| {
        let run = hist_with_stdin(line, input.as_bytes());
        run.stdout.lines().nth(1).expect("a second line").trim().to_owned()
    };
    let numbers: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    assert_eq!(sentence("--above 997.5 -", &numbers), "3 of 1,000 (0.30 %) were above 997.5");
    assert_eq!(
        sentence("--unit ms --above 999 -", &numbers),
        "1 of 1,000 (0.10 %) took longer than 999 ms"
    );
    assert_eq!(sentence("--above 1000 -", &numbers), "0 of 1,000 (0 %) were above 1,000");
    assert_eq!(
        sentence("--above 1.05 -", "AAEKAAAB"),
        "between 0 and 1 of 1 (0 to 100 %) were above 1.05, likely 0"
    );
}

#[test]
fn files_are_merged_or_kept_apart() {
    let run = hist("--unit ms testdata/cli/web.txt testdata/cli/web-slow.txt");
    assert!(run.stdout.starts_with("2 files\n"), "{}", run.stdout);
    assert_eq!(counts(&run), ["4,000"]);
    let run = hist("--unit ms --by file testdata/cli/web.txt testdata/cli/web-slow.txt");
    assert_eq!(counts(&run), ["2,000", "2,000"]);
}

#[test]
fn colours_and_width_follow_the_screen() {
    let plain = hist("--unit ms testdata/cli/web.txt");
    assert!(!plain.stdout.contains('\x1b'), "no colour into a file");
    assert!(plain.stdout.lines().all(|line| line.chars().count() <= 80), "{}", plain.stdout);
    let ascii = hist("--ascii --unit ms testdata/cli/web.txt");
    assert!(ascii.stdout.is_ascii(), "{}", ascii.stdout);
}

#[test]
fn doctor_clock_reports_costs() {
    let run = topdeck(&["doctor", "clock", "--warmup", "1"], b"");
    assert_eq!(run.stderr, "topdeck: measuring for about 3 s\n");
    for call in [
        "system: CLOCK_MONOTONIC ",
        "topdeck: now ",
        "topdeck: now_bounded ",
        "pair: topdeck Stopwatch ",
    ] {
        let line = run.stdout.lines().find(|line| line.starts_with(call)).expect(call);
        let cost: f64 = line[32..].split_whitespace().next().unwrap().parse().unwrap();
        assert!(cost > 0.0, "{line}");
    }
    let last = match run.status {
        0 => "Clock source: CPU counter, ",
        _ => "Clock source: system clock (",
    };
    assert!(run.stdout.lines().any(|line| line.starts_with(last)), "{}", run.stdout);
}
