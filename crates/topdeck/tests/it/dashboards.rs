//! `topdeck dashboards import` with the Grafana dashboards of `testdata/dashboards/grafana`.

use std::fs;

use serde_json::Value;

use crate::root;
use crate::serve::server_process::ServerProcess;
use crate::store::run;
use crate::test_dir::TestDir;

const NAMES: [&str; 10] =
    ["go", "jvm", "kafka", "kubernetes-pods", "nginx", "node", "postgres", "red", "redis", "use"];

fn dir() -> TestDir {
    let dir = TestDir::new();
    for name in NAMES {
        let file = root().join(format!("testdata/dashboards/grafana/{name}.json"));
        fs::copy(file, dir.path().join(format!("{name}.json"))).unwrap();
    }
    dir
}

#[test]
fn dry_run_lists_what_is_imported_and_what_is_not() {
    let files = NAMES.map(|name| format!("{name}.json")).join(" ");
    let run = run(&dir(), &format!("dashboards import --dry-run {files}"));
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(run.stdout.matches(" would be dashboard ").count(), NAMES.len(), "{}", run.stdout);
    for part in [
        "use.json: \"USE: utilization, saturation, errors\" would be dashboard \
         use-utilization-saturation-errors, with 12 panels\n  variables: $instance is \
         \"web-1:9100\", $interval is \"4m\", $device is \"vd.+\"\n",
        "  not imported:\n    panel \"About\": type \"text\" has no query\n",
        "    panel \"In flight\": type \"stat\" is shown as lines\n",
    ] {
        assert!(run.stdout.contains(part), "{part} is not in\n{}", run.stdout);
    }
}

#[test]
fn imported_dashboard_is_on_the_server_with_its_panels() {
    let dir = dir();
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let url = format!("http://{}", server.address());
    let import =
        |options: &str| run(&dir, &format!("dashboards import node.json --server {url} {options}"));
    let first = import("");
    assert_eq!((first.status, first.stderr.as_str()), (0, ""));
    assert!(first.stdout.contains("is dashboard node-exporter-hosts, with"), "{}", first.stdout);
    let stored = server.get("/v1/dashboards/node-exporter-hosts").json();
    assert_eq!(stored["title"], "Node exporter: hosts");
    let panels = stored["panels"].as_array().unwrap();
    let panel = |title: &str| -> Value {
        panels.iter().find(|panel| panel["title"] == title).unwrap().clone()
    };
    assert_eq!(
        panel("CPU use")["text"],
        "100 - (avg by (instance) (rate(node_cpu_seconds_total{mode=\"idle\",job=\"node\",\
         instance=~\".+\"}[4m])) * 100)"
    );
    assert_eq!(panel("Load: 1m")["language"], "promql");
    assert_eq!(panel("Hosts")["size"], "wide");
    // A second import says that it exists; it is replaced on request only.
    let again = import("");
    assert_eq!(again.status, 1);
    assert!(again.stderr.contains("\"node-exporter-hosts\" exists"), "{}", again.stderr);
    let replaced = import("--replace --json");
    assert_eq!(replaced.status, 0, "{}", replaced.stderr);
    let document: Value = serde_json::from_str(&replaced.stdout).unwrap();
    assert_eq!(document["files"][0]["panels"], panels.len());
    assert_eq!(import("--name other").status, 0);
    let all = server.get("/v1/dashboards").json();
    assert_eq!(all["dashboards"].as_array().unwrap().len(), 2);
}

#[test]
fn file_that_is_no_dashboard_is_an_error_with_the_reason() {
    let dir = dir();
    fs::write(dir.path().join("bad.json"), "{").unwrap();
    fs::write(dir.path().join("other.json"), "{\"a\":1}").unwrap();
    let run = run(&dir, "dashboards import --dry-run bad.json other.json use.json");
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("bad.json: cannot parse the dashboard: EOF"), "{}", run.stderr);
    assert!(run.stderr.contains("other.json: cannot import the dashboard: it has no panels"));
    assert!(run.stdout.starts_with("use.json: "), "{}", run.stdout);
}
