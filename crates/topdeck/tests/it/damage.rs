//! Invalid input: error messages, and no report unless requested.

use expect_test::{Expect, expect};

use crate::{counts, hist, hist_with_stdin, topdeck};

#[track_caller]
fn check(line: &str, expected: Expect) {
    let run = hist(line);
    assert_eq!(run.stdout, "", "nothing is reported");
    expected.assert_eq(&format!("{}{}\n", run.stderr, run.status));
}

#[test]
fn damage_is_reported_with_its_position() {
    check(
        "testdata/cli/damaged.txt",
        expect![[r#"
        topdeck: testdata/cli/damaged.txt: line 2: expected a number, found "13,1"
        topdeck: nothing reported; repair the input, or report the readable part with --keep-going
        1
    "#]],
    );
    check(
        "testdata/cli/damaged.json",
        expect![[r#"
        topdeck: testdata/cli/damaged.json: byte 78: expected a comma or ], found "}}"
        topdeck: nothing reported; repair the input, or report the readable part with --keep-going
        1
    "#]],
    );
    check(
        "testdata/cli/unknown.txt",
        expect![[r#"
        topdeck: testdata/cli/unknown.txt: line 1: expected a known format, found "GET /index.html 200"
        topdeck: nothing reported; set the format with --format: numbers, hlog, circllhist, ddsketch, httptrap, prometheus, frames
        1
    "#]],
    );
    check(
        "--format hlog testdata/cli/web.txt",
        expect![[r#"
            topdeck: testdata/cli/web.txt: line 2: expected one more field: the line ends here (interval length), found nothing
            topdeck: nothing reported; repair the input, or report the readable part with --keep-going
            1
        "#]],
    );
    check(
        "testdata/cli/no-such-file",
        expect![[r#"
        topdeck: cannot read testdata/cli/no-such-file: No such file or directory (os error 2)
        1
    "#]],
    );
    check(
        "testdata/cli",
        expect![[r#"
        topdeck: cannot read testdata/cli: Is a directory (os error 21)
        1
    "#]],
    );
}

#[test]
fn empty_input_is_a_failure() {
    check(
        "testdata/cli/empty.txt",
        expect![[r#"
        topdeck: testdata/cli/empty.txt: no values
        1
    "#]],
    );
    check(
        "--metric nope testdata/cli/page.prom",
        expect![[r#"
        topdeck: testdata/cli/page.prom: no metric "nope"; available: http_request_duration_seconds, rpc_seconds
        1
    "#]],
    );
}

#[test]
fn invalid_options_are_rejected() {
    check(
        "--above 1.5s testdata/cli/damaged.txt --keep-going",
        expect![[r#"
        topdeck: testdata/cli/damaged.txt: line 2: expected a number, found "13,1"
        topdeck: testdata/cli/damaged.txt: line 5: expected a number, found "12 ms"
        topdeck: reporting the readable part
        topdeck: --above 1.5 s: the values have no unit; set it with --unit
        1
    "#]],
    );
    check(
        "--above 1.5s --unit B testdata/cli/web.txt",
        expect![[r#"
        topdeck: --above 1.5 s: the values are in B
        1
    "#]],
    );
    check(
        "--interval 10s --unit ms testdata/cli/web.txt",
        expect![[r#"
        topdeck: --interval 10 s: the input has no timestamps
        1
    "#]],
    );
    check(
        "--heatmap --unit ms testdata/cli/web.txt",
        expect![[r#"
        topdeck: --heatmap: the input has no timestamps
        1
    "#]],
    );
    check(
        "--columns 10 x",
        expect![[r#"
        error: the following required arguments were not provided:
          --heatmap

        Usage: topdeck hist --heatmap --columns <N> <FILE>...

        For more information, try '--help'.
        2
    "#]],
    );
    check(
        "--heatmap --columns 0 x",
        expect![[r#"
        error: invalid value '0' for '--columns <N>': 0 is not in 1..=2000

        For more information, try '--help'.
        2
    "#]],
    );
    check(
        "--heatmap --json x",
        expect![[r#"
        error: the argument '--heatmap' cannot be used with '--json'

        Usage: topdeck hist --heatmap <FILE>...

        For more information, try '--help'.
        2
    "#]],
    );
    check(
        "--unit parsecs x",
        expect![[r#"
        error: invalid value 'parsecs' for '--unit <UNIT>': the units are ns, us, ms, s, min, h, d, B

        For more information, try '--help'.
        2
    "#]],
    );
    check(
        "--quantile 99 x",
        expect![[r#"
        error: invalid value '99' for '--quantile <Q>': expected a share from 0 to 1, as in 0.999, p99.9 or 99.9%

        For more information, try '--help'.
        2
    "#]],
    );
    check(
        "--compare x",
        expect![[r#"
        error: --compare requires two files, got 1

        Usage: topdeck hist [OPTIONS] <FILE>...

        For more information, try '--help'.
        2
    "#]],
    );
    check(
        "--interval 10 x",
        expect![[r#"
            error: --interval 10: expected a duration with a unit, such as 10s

            Usage: topdeck hist [OPTIONS] <FILE>...

            For more information, try '--help'.
            2
        "#]],
    );
    check(
        "--compare --unit ms testdata/cli/web.txt testdata/hist/hdr/ycsb.logV1.hlog --metric x",
        expect![[r#"
            topdeck: testdata/hist/hdr/ycsb.logV1.hlog: no values to compare
            1
        "#]],
    );
}

#[test]
fn readable_part_is_reported_with_keep_going() {
    let run = hist("--keep-going --unit ms testdata/cli/damaged.txt");
    assert_eq!(counts(&run), ["3"]);
    assert_eq!(run.status, 1);
    expect![[r#"
        topdeck: testdata/cli/damaged.txt: line 2: expected a number, found "13,1"
        topdeck: testdata/cli/damaged.txt: line 5: expected a number, found "12 ms"
        topdeck: reporting the readable part
    "#]]
    .assert_eq(&run.stderr);

    let run = hist("--keep-going testdata/cli/damaged.json");
    assert_eq!(counts(&run), ["3"]);
    assert_eq!(run.status, 1);

    let run = hist("--keep-going --unit ms testdata/cli/no-such-file testdata/cli/web.txt");
    assert_eq!(counts(&run), ["2,000"]);
    assert_eq!(run.status, 1);
}

#[test]
fn long_and_binary_lines_are_quoted_briefly() {
    for input in ["9".repeat(1 << 22).into_bytes(), vec![0u8; 1 << 20], b"1\n\xff\xfe\x00".to_vec()]
    {
        let run = hist_with_stdin("--format numbers -", &input);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""));
        assert!(run.stderr.lines().all(|line| line.len() < 300), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 2, "{}", run.stderr);
    }
}

#[test]
fn closed_pipe_is_not_a_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn help_names_units_and_exit_statuses() {
    let help = topdeck(&["hist", "--help"], b"").stdout;
    for word in
        ["Exit status:", "Examples:", "ns, us, ms, s, min, h, d or B", "--keep-going", "COLUMNS"]
    {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
    assert_eq!(topdeck(&["-V"], b"").stdout, format!("topdeck {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(topdeck(&["hits"], b"").status, 2);
}

#[test]
fn version_says_whether_the_binary_has_its_web_page() {
    let page = match page::IS_EMBEDDED {
        true => "included",
        false => "not included; `cargo xtask page` builds it",
    };
    assert_eq!(
        topdeck(&["--version"], b"").stdout,
        format!("topdeck {}\nweb page: {page}\n", env!("CARGO_PKG_VERSION"))
    );
}

/// Runs with output and errors redirected to files.
#[cfg(target_os = "linux")]
#[track_caller]
fn check_full(stdout: &str, stderr: &str, arguments: &[&str], expected: Expect) {
    use std::fs::OpenOptions;
    use std::process::{Command, Stdio};
    let to = |path: &str| match path {
        "" => Stdio::piped(),
        path => OpenOptions::new().write(true).open(path).expect("the device is there").into(),
    };
    let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(arguments)
        .current_dir(crate::root())
        .env_clear()
        .stdout(to(stdout))
        .stderr(to(stderr))
        .output()
        .expect("the binary starts");
    let said = String::from_utf8(output.stderr).expect("stderr is UTF-8");
    expected.assert_eq(&format!("{said}{}\n", output.status.code().expect("no signal")));
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_error_names_the_output() {
    const FULL: &str = "/dev/full";
    let web = "testdata/cli/web.txt";
    let stdout = || {
        expect![[r#"
            topdeck: cannot write to standard output: No space left on device (os error 28)
            1
        "#]]
    };
    check_full(FULL, "", &["hist", web], stdout());
    check_full(FULL, "", &["hist", "--json", web], stdout());
    check_full(FULL, "", &["completions", "bash"], stdout());
    check_full(
        "",
        "",
        &["hist", web, "--svg", FULL],
        expect![[r#"
            topdeck: cannot write /dev/full: No space left on device (os error 28)
            1
        "#]],
    );
    // The message cannot be written: the exit status still shows the failure and not a crash.
    let untold = || {
        expect![[r#"
            1
        "#]]
    };
    check_full("", FULL, &["hist", "testdata/cli/no-such-file"], untold());
    check_full("", FULL, &["hist", "testdata/cli/damaged.txt"], untold());
    check_full("", FULL, &["hist", "testdata/cli/empty.txt"], untold());
}

#[test]
fn times_at_the_end_of_the_calendar_have_a_row() {
    let page = "# TYPE a histogram\na_bucket{le=\"1\"} 1 -9223372036854\na_bucket{le=\"+Inf\"} 1 \
                -9223372036854\na_bucket{t=\"b\",le=\"1\"} 1 \
                9223372036854\na_bucket{t=\"b\",le=\"+Inf\"} 1 9223372036854\n";
    for interval in ["7s", "1ns", "200000h"] {
        let run = hist_with_stdin(&format!("--interval {interval} -"), page.as_bytes());
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{interval}");
    }
    let run = hist_with_stdin("--heatmap -", page.as_bytes());
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
}

#[test]
fn names_are_escaped_for_the_terminal() {
    let run = hist("no\u{1b}[31msuch");
    assert!(run.stderr.contains("no file \"no\\u{1b}[31msuch\""), "{}", run.stderr);

    let page = "a_bucket{x=\"\u{1b}]0;t\u{7}\\n\",le=\"1\"} \
                1\na_bucket{x=\"\u{1b}]0;t\u{7}\\n\",le=\"+Inf\"} 1\n";
    for arguments in ["--by x -", "--by series -"] {
        let run = hist_with_stdin(arguments, page.as_bytes());
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        assert!(run.stdout.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", run.stdout);
    }
}

#[test]
fn a_limit_in_the_wrong_unit_names_the_metric() {
    let page = "# TYPE a_seconds histogram\na_seconds_bucket{le=\"1\"} \
                1\na_seconds_bucket{le=\"+Inf\"} 1\n# TYPE b_bytes \
                histogram\nb_bytes_bucket{le=\"1\"} 1\nb_bytes_bucket{le=\"+Inf\"} 1\n";
    let run = hist_with_stdin("--above 1s -", page.as_bytes());
    expect![[r#"
        topdeck: --above 1 s: the values of b_bytes are in B; select another metric with --metric
    "#]]
    .assert_eq(&run.stderr);
    assert_eq!(run.status, 1);
}
