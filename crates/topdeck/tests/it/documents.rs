//! JSON, SVG, man pages, completions.

use std::fs;

use expect_test::expect_file;
use serde_json::Value;

use crate::test_dir::TestDir;
use crate::{hist, hist_with_stdin, root, topdeck};

#[track_caller]
fn json(line: &str) -> Value {
    let run = hist(line);
    assert_eq!(run.stderr, "");
    serde_json::from_str(&run.stdout).expect("JSON")
}

#[test]
fn json_of_numbers() {
    let run = hist("--json --unit ms --above 100ms --quantile 0.5,0.999 testdata/cli/web.txt");
    expect_file!["../../../../testdata/cli/numbers.json"].assert_eq(&run.stdout);
}

#[test]
fn json_of_a_log_over_time() {
    let line = "--json --interval 1min --quantile p99 testdata/hist/hdr/jHiccup-2.0.7S.logV2.hlog";
    expect_file!["../../../../testdata/cli/interval.json"].assert_eq(&hist(line).stdout);
}

#[test]
fn json_of_a_comparison() {
    let line =
        "--json --compare --quantile p99 --unit ms testdata/cli/web.txt testdata/cli/web-slow.txt";
    expect_file!["../../../../testdata/cli/compare.json"].assert_eq(&hist(line).stdout);
}

#[test]
fn json_is_valid_for_any_input() {
    for line in [
        "--json testdata/cli/page.prom --above 1.5s --by series",
        "--json testdata/cli/trap.json",
        "--json testdata/cli/circllhist.txt",
        "--json --by tag testdata/hist/hdr/tagged-Log.logV2.hlog",
        "--json --unit s testdata/cli/circllhist.txt testdata/cli/trap.json",
    ] {
        let document = json(line);
        assert_eq!(document["schema"], 2, "{line}");
        for group in document["groups"].as_array().unwrap() {
            check_bracket(&group["mean"]);
            group["quantiles"].as_array().unwrap().iter().for_each(check_bracket);
            let decades = group["decades"].as_array().unwrap();
            let total: u64 = decades.iter().map(|d| d["count"]["estimate"].as_u64().unwrap()).sum();
            assert_eq!(
                total,
                group["count"].as_u64().unwrap(),
                "{line}: every value is in one decade"
            );
        }
    }
    for input in ["-5\nnan\ninf\n0\n7\n", "inf\n", "-inf\n", "nan\n", "1e308\n1e308\n5e-324\n"] {
        let run = hist_with_stdin("--json -", input.as_bytes());
        serde_json::from_str::<Value>(&run.stdout)
            .unwrap_or_else(|error| panic!("{input:?}: {error}"));
    }
}

fn check_bracket(bracket: &Value) {
    let number = |name: &str| bracket[name].as_f64();
    let (lower, upper) = (number("lower").unwrap_or(f64::MIN), number("upper").unwrap_or(f64::MAX));
    let estimate = number("estimate").expect("an estimate");
    assert!(lower <= estimate && estimate <= upper, "{bracket}");
}

#[test]
fn json_numbers_read_back_to_the_same_bits() {
    let run = hist_with_stdin("--json --quantile 0 -", b"0.1\n0.30000000000000004\n1e22\n");
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let group = &document["groups"][0];
    assert_eq!(group["min"]["lower"].to_string().parse::<f64>(), Ok(0.1));
    assert_eq!(group["max"]["upper"].to_string().parse::<f64>(), Ok(1e22));
}

#[test]
fn svg_is_well_formed() {
    let dir = TestDir::new();
    for (name, line, input) in [
        ("numbers", "--unit ms --above 100ms --above 1ms testdata/cli/web.txt", ""),
        ("prometheus", "--above 1.5s testdata/cli/page.prom", ""),
        ("one", "-", "5\n"),
        ("odd", "--unit s -", "-5\nnan\ninf\n0\n7\n"),
        ("zero", "-", "0\n"),
        ("extreme", "-", "1e-320\n1e308\n"),
    ] {
        let path = dir.path().join(format!("{name}.svg"));
        let run = hist_with_stdin(&format!("--svg {} {line}", path.display()), input.as_bytes());
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{name}");
        let svg = fs::read_to_string(&path).unwrap();
        check_xml(&svg);
        assert!(svg.contains("<title id=\"title\">") && svg.contains("<desc id=\"desc\">"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        for nonsense in ["NaN", "inf ", "-inf", "infinity\""] {
            let in_numbers =
                svg.split('"').skip(1).step_by(2).any(|value| value.contains(nonsense));
            assert!(!in_numbers, "{name}: {nonsense}");
        }
    }
}

/// SVG of `docs/hist.md`.
#[test]
fn a_heatmap_as_svg() {
    let dir = TestDir::new();
    let path = dir.path().join("heatmap.svg");
    let line = "--heatmap --above 10us testdata/hist/hdr/ycsb.logV1.hlog";
    let run = hist(&format!("--svg {} {line}", path.display()));
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let svg = fs::read_to_string(&path).unwrap();
    check_xml(&svg);
    expect_file!["../../../../docs/heatmap.svg"].assert_eq(&svg);
}

/// Asserts nested elements, quoted attributes, and no unescaped `&`.
#[track_caller]
fn check_xml(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("every tag ends");
        let tag = &rest[start + 1..end];
        for entity in rest[..start].split('&').skip(1) {
            let name = entity.split(';').next().unwrap();
            assert!(["amp", "lt", "gt", "quot"].contains(&name), "&{name}");
        }
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn every_subcommand_has_a_page_and_completions() {
    let parent = TestDir::new();
    // The directory is created.
    let dir = parent.path().join("man");
    let run = topdeck(&["man", dir.to_str().unwrap()], b"");
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let mut pages: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let (journal, others): (Vec<String>, Vec<String>) =
        pages.into_iter().partition(|page| page.starts_with("topdeck-journal-"));
    let (store, others): (Vec<String>, Vec<String>) =
        others.into_iter().partition(|page| page.starts_with("topdeck-store-"));
    assert_eq!(store.len(), 11, "{store:?}");
    let (token, others): (Vec<String>, Vec<String>) =
        others.into_iter().partition(|page| page.starts_with("topdeck-token-"));
    let (doctor, others): (Vec<String>, Vec<String>) =
        others.into_iter().partition(|page| page.starts_with("topdeck-doctor-"));
    assert_eq!(
        doctor,
        ["checks", "clock", "overhead", "postgres", "readers"]
            .map(|name| format!("topdeck-doctor-{name}.1"))
    );
    let (load, others): (Vec<String>, Vec<String>) =
        others.into_iter().partition(|page| page.starts_with("topdeck-load-"));
    assert_eq!(load, ["compare", "sessions"].map(|name| format!("topdeck-load-{name}.1")));
    assert_eq!(
        token,
        ["add", "enroll", "list", "remove"].map(|name| format!("topdeck-token-{name}.1"))
    );
    let one = [
        "agent",
        "alerts-ack",
        "alerts-clear",
        "alerts-list",
        "alerts-unack",
        "alerts",
        "annotate",
        "audit",
        "breakdown",
        "cardinality",
        "cat",
        "changes",
        "check-config",
        "compare",
        "completions",
        "contacts-list",
        "contacts-test",
        "contacts",
        "crash-group",
        "crash-install",
        "crash-ls",
        "crash-read",
        "crash-show",
        "crash-status",
        "crash-uninstall",
        "crash",
        "damage",
        "dashboards-import",
        "dashboards",
        "delete",
        "demo",
        "diff",
        "doctor",
        "exemplars",
        "gen",
        "heatmap",
        "hiccup",
        "hist",
        "import",
        "in-flight",
        "install",
        "journal",
        "load",
        "ls",
        "man",
        "overview",
        "post-mortem",
        "query",
        "rename",
        "restore",
        "retire",
        "rules-check",
        "rules-list",
        "rules-replay",
        "rules-test",
        "rules",
        "serve",
        "silences-add",
        "silences-expire",
        "silences-list",
        "silences",
        "slo-list",
        "slo-show",
        "slo",
        "snapshot",
        "status",
        "store",
        "tail",
        "targets",
        "token",
        "top",
        "trace",
        "uninstall",
        "watch",
        "wire",
    ];
    let one = one.map(|name| format!("topdeck-{name}.1"));
    assert_eq!(others, [&one[..], &["topdeck.1".to_owned()]].concat());
    for name in ["append", "bench", "cat", "checkpoint", "create", "limit", "repair", "seek"] {
        assert!(journal.contains(&format!("topdeck-journal-{name}.1")), "{name}: {journal:?}");
    }
    let page = fs::read_to_string(dir.join("topdeck-hist.1")).unwrap();
    assert!(page.contains("Exit status"), "{page}");
    fs::remove_dir_all(&dir).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = topdeck(&["completions", shell], b"").stdout;
        assert!(script.contains("keep-going"), "{shell}");
    }
    assert!(root().join("Cargo.toml").exists());
}
