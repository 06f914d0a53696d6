//! Commands with `--server`: the same answers as from the directory of the store.

use std::process::Command;

use serde_json::Value;

use crate::query::store_dir;
use crate::scripted_relay::{RelayAction, ScriptedRelay};
use crate::serve::client::request_at;
use crate::serve::server_process::ServerProcess;
use crate::store::{json, run, run_ok};
use crate::test_dir::TestDir;

/// A server with a copy of the store `s` of a directory.
fn server_of(dir: &TestDir) -> ServerProcess {
    let mut server = ServerProcess::new("serve", "");
    // Its own metrics are not part of the answers.
    let settings = std::fs::read_to_string(server.settings()).unwrap();
    let settings =
        settings.replace("collection_interval = \"1s\"", "collection_interval = \"60s\"");
    std::fs::write(server.settings(), settings).unwrap();
    let data = server.dir.path("data");
    std::fs::create_dir(&data).unwrap();
    let (from, to) = (dir.path().join("s"), data.join("store"));
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    server.start();
    server
}

fn url(server: &ServerProcess) -> String {
    format!("http://{}", server.address())
}

/// Runs a command on the store `s` and on the server, and compares all that they print.
#[track_caller]
fn check_same(dir: &TestDir, server: &ServerProcess, command: &str, arguments: &str) {
    let url = url(server);
    for json in ["", " --json"] {
        if json.is_empty() || !arguments.contains("--plot") {
            let offline = run(dir, &format!("{command} s {arguments}{json}"));
            let online = run(dir, &format!("{command} --server {url} {arguments}{json}"));
            let online = online.all().replace(&url, "s");
            assert_eq!(online, offline.all(), "{command} {arguments}{json}");
            assert!(offline.status == 0 && !offline.stdout.is_empty(), "{}", offline.all());
        }
    }
}

const RANGE: &str = "--from 2026-11-09T12:00:00Z --to 2026-11-09T12:29:00Z";
const LAST: &str = "--to 2026-11-09T12:29:00Z";

#[test]
fn a_server_answers_queries_like_its_store() {
    let dir = store_dir();
    let server = server_of(&dir);
    let same = |arguments: &str| check_same(&dir, &server, "query", arguments);
    same(&format!("'took' {LAST}"));
    same(&format!("'took{{host=\"a\"}}[10m]' {LAST}"));
    same(&format!("'depth[3m]' {LAST}"));
    same(&format!("'depth' {RANGE} --step 5m"));
    same(&format!("'1 + 1' {LAST}"));
    same(&format!("'\"text\"' {LAST}"));
    same(&format!("'0 / 0' {RANGE} --step 10m"));
    same(&format!("'sum(exact_increase(took[10m]))' {RANGE}"));
    same(&format!("'sum(rate(took[10m]))' {RANGE}"));
    same(&format!("'histogram_quantile(0.99, sum by (host) (exact_increase(took[5m])))' {RANGE}"));
    same(&format!(
        "--experimental 'histogram_quantiles(sum(exact_increase(took[5m])), \"q\", 0.5, 0.99)' {LAST}"
    ));
    same(&format!("'histogram_count_above(30, exact_increase(took[29m]))' {LAST}"));
    same(&format!(
        "--caql 'find:histogram(\"took\") | histogram:merge() | histogram:percentile(99)' {RANGE}"
    ));
    same(&format!("'sum(exact_increase(took[1m]))' {RANGE} --plot"));
    same(&format!("'depth' {RANGE} --step 1m --plot --ascii"));
}

#[test]
fn a_server_compares_and_breaks_down_like_its_store() {
    let dir = store_dir();
    let server = server_of(&dir);
    check_same(&dir, &server, "compare", "'took{host=\"a\"}' 'took{host=\"b\"}'");
    let times = "--to 2026-11-09T12:15:00Z --from-b 2026-11-09T12:15:00Z --to-b \
                 2026-11-09T12:29:00Z";
    check_same(&dir, &server, "compare", &format!("took {times}"));
    check_same(&dir, &server, "breakdown", "took --above 30ms");
    let selection = "--from 2026-11-09T12:05:00Z --to 2026-11-09T12:10:00Z --up-to 50ms";
    check_same(&dir, &server, "breakdown", &format!("took --above 30ms {selection}"));
}

/// A point of an OTLP metric: start, end and value.
fn otlp_point(start: i64, end: i64, value: Value, label: [&str; 2]) -> Value {
    let mut point = value;
    point["startTimeUnixNano"] = start.to_string().into();
    point["timeUnixNano"] = end.to_string().into();
    let [name, text] = label;
    point["attributes"] = serde_json::json!([{"key": name, "value": {"stringValue": text}}]);
    point
}

/// Sends two exports of a program: the histogram `expo` with 1,000 values, 500 of them above
/// 250 ms, and the same as counters of buckets, `rw_seconds_bucket`, as remote write 1 has them.
fn send_cumulative(server: &ServerProcess) {
    let start = 1_795_000_000_000_000_000;
    let end = |export: i64| start + export * 10_000_000_000;
    let histogram = |export: i64| {
        let each = (250 * export).to_string();
        let count = (500 * export).to_string();
        let value = serde_json::json!({
            "count": count, "bucketCounts": [each, each], "explicitBounds": [250.0],
            "min": 1.0, "max": 400.0,
        });
        otlp_point(start, end(export), value, ["host", "a"])
    };
    let bucket = |export: i64, (bound, rate): (&str, i64)| {
        let value = serde_json::json!({ "asDouble": rate * export });
        otlp_point(start, end(export), value, ["le", bound])
    };
    for export in [1, 2] {
        let buckets: Vec<Value> =
            [("0.25", 250), ("1", 500), ("+Inf", 500)].map(|of| bucket(export, of)).into();
        let mut metrics = serde_json::json!([
            {"name": "expo", "unit": "ms", "histogram": {
                "aggregationTemporality": 2, "dataPoints": [histogram(export)]}},
            {"name": "rw_seconds_bucket", "sum": {
                "aggregationTemporality": 2, "isMonotonic": true, "dataPoints": buckets}},
        ]);
        if export == 1 {
            let mut once = metrics[0].clone();
            once["name"] = "one.shot".into();
            metrics.as_array_mut().unwrap().push(once);
        }
        let body =
            serde_json::json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]});
        let headers = [("Content-Type", "application/json")];
        let body = body.to_string();
        let answer =
            request_at(server.address(), "POST", "/v1/metrics", &headers, body.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.text().trim()), (200, "{}"));
    }
}

/// A user saw 400 of 800 values where the API had 500 of 1,000, and "matches no series" for
/// classic histograms, of a server and in its directory.
#[test]
fn commands_without_from_count_the_first_export_and_classic_buckets_as_the_api_does() {
    let dir = TestDir::new();
    let mut server = ServerProcess::new("serve", "");
    server.start();
    send_cumulative(&server);
    let api = |path: &str| request_at(server.address(), "GET", path, &[], b"").unwrap().json();
    let counts = |breakdown: &Value| {
        [&breakdown["inside"], &breakdown["outside"]].map(|of| of["estimate"].as_u64().unwrap())
    };
    for metric in ["expo", "rw_seconds"] {
        let answer = api(&format!("/v1/breakdown?selector={metric}&above=250ms"));
        assert_eq!(counts(&answer), [500, 500], "{metric}: {answer}");
        assert_eq!(api(&format!("/v1/heatmap?selector={metric}"))["total"]["count"], 1_000);
    }
    let check = |source: &str| {
        for metric in ["expo", "rw_seconds"] {
            let breakdown = format!("breakdown {source} {metric} --above 250ms --json");
            assert_eq!(counts(&json(&run_ok(&dir, &breakdown))), [500, 500], "{breakdown}");
            let heatmap = run_ok(&dir, &format!("heatmap {source} {metric} --json"));
            let columns = json(&heatmap)["columns"].clone();
            let columns = columns.as_array().unwrap().iter();
            let count: u64 = columns.map(|column| column["count"].as_u64().unwrap()).sum();
            assert_eq!(count, 1_000, "{source} {metric}: {heatmap}");
            let compared = run_ok(&dir, &format!("compare {source} {metric} {metric}"));
            assert_eq!(compared.matches("1,000 values in 1 series").count(), 2, "{compared}");
        }
        // A user read "no rows between T and T; it has rows from T to T".
        for range in ["", " --from -3000d", " --baseline-from -3000d"] {
            let breakdown = format!("breakdown {source} one.shot --above 250ms --json{range}");
            assert_eq!(counts(&json(&run_ok(&dir, &breakdown))), [250, 250], "{breakdown}");
        }
        for range in ["", " --from -3000d"] {
            let compared = run_ok(&dir, &format!("compare {source} one.shot one.shot{range}"));
            assert_eq!(compared.matches("500 values in 1 series").count(), 2, "{compared}");
        }
    };
    check(&format!("--server {}", url(&server)));
    // An instant query by the name of the histogram says how PromQL reads the buckets.
    let found = run(&dir, &format!("query --server {} rw_seconds", url(&server)));
    assert!(found.stderr.contains("rw_seconds: stored as buckets"), "{}", found.all());
    server.stop();
    check(server.dir.path("data/store").to_str().unwrap());
}

#[test]
fn a_server_draws_heatmaps_like_its_store() {
    let dir = store_dir();
    let server = server_of(&dir);
    check_same(&dir, &server, "heatmap", "took");
    check_same(&dir, &server, "heatmap", "'took{host=\"a\"}' --above 15ms --columns 7");
    check_same(&dir, &server, "heatmap", &format!("took {RANGE} --ascii"));
}

#[test]
fn tables_of_a_server_are_those_of_its_store() {
    let dir = store_dir();
    let server = server_of(&dir);
    let same = |command: &str, arguments: &str| {
        let offline = run_ok(&dir, &format!("{command} s {arguments} --csv"));
        let line = format!("{command} --server {} {arguments} --csv", url(&server));
        assert_eq!(run_ok(&dir, &line), offline);
        assert!(offline.lines().count() > 1, "{offline}");
    };
    same("query", &format!("'histogram_avg(took)' {LAST}"));
    same("heatmap", "took");
    same("breakdown", "took --above 30ms");
    same("compare", "'took{host=\"a\"}' 'took{host=\"b\"}'");
}

#[test]
fn a_syntax_error_is_marked_in_the_expression_with_a_server_too() {
    let dir = store_dir();
    let server = server_of(&dir);
    let offline = run(&dir, &format!("query s 'sum(took' {LAST}"));
    let online = run(&dir, &format!("query --server {} 'sum(took' {LAST}", url(&server)));
    assert_eq!((online.status, online.stderr.as_str()), (1, offline.stderr.as_str()));
    assert!(online.stderr.ends_with("^\n"), "{}", online.stderr);
}

#[test]
fn series_without_a_unit_are_left_out_and_named() {
    let dir = store_dir();
    std::fs::write(dir.path().join("plain.txt"), "12\n15\n").unwrap();
    run_ok(&dir, "import s --metric took --start 2026-11-09T12:03:00Z plain.txt");
    let server = server_of(&dir);
    for (command, arguments) in [("heatmap", "took"), ("breakdown", "took --above 30ms")] {
        let found = run(&dir, &format!("{command} s {arguments}")).all();
        assert!(found.contains("1 series without a unit left out, such as took"), "{found}");
        check_same(&dir, &server, command, arguments);
    }
}

#[test]
fn cardinality_of_a_server_is_that_of_its_store() {
    let dir = store_dir();
    let server = server_of(&dir);
    let offline = json(&run_ok(&dir, "cardinality s --json"));
    let online = run_ok(&dir, &format!("cardinality --server {} --top 999 --json", url(&server)));
    let online = json(&online);
    // The server may have stored its own metrics.
    let is_self_metric = |name: &str| name.starts_with("topdeck_") || name.starts_with("process_");
    let without_self_metrics = |document: &Value| -> Vec<Value> {
        let metrics = document["by_metric"].as_array().unwrap().iter();
        let others = metrics.filter(|of| !is_self_metric(of["metric"].as_str().unwrap()));
        others.cloned().collect()
    };
    assert_eq!(without_self_metrics(&online), without_self_metrics(&offline));
    // A table for a spreadsheet, offline and of the server.
    let metrics = |csv: &str| -> Vec<String> {
        assert!(csv.starts_with("metric,label,value,values,series\n"), "{csv}");
        let rows = csv.lines().skip(1).filter(|row| !row.starts_with(','));
        rows.filter(|row| !is_self_metric(row)).map(str::to_owned).collect()
    };
    let offline = metrics(&run_ok(&dir, "cardinality s --csv"));
    let online = format!("cardinality --server {} --top 999 --csv", url(&server));
    assert_eq!(metrics(&run_ok(&dir, &online)), offline);
    assert!(!offline.is_empty());
    let text = run_ok(&dir, &format!("cardinality --server {}", url(&server)));
    assert!(text.starts_with(&format!("{}\n  ", url(&server))), "{text}");
}

#[test]
fn a_store_in_use_names_the_server_that_uses_it() {
    let dir = store_dir();
    let mut server = server_of(&dir);
    let store = server.dir.path("data/store");
    let found = run(&dir, &format!("query {} took", store.display()));
    let expected = format!(
        "a server uses this store at {url}; use --server {url} instead of the directory",
        url = url(&server)
    );
    assert!(found.status == 1 && found.stderr.contains(&expected), "{}", found.stderr);
    assert!(
        run(&dir, &format!("query s took --server {}", url(&server)))
            .stderr
            .contains("omit the directory or --server")
    );
    server.stop();
    assert_eq!(run(&dir, &format!("query {} took {LAST}", store.display())).status, 0);
}

#[test]
fn a_server_that_does_not_answer_is_named_with_a_remedy() {
    let dir = TestDir::new();
    let port = crate::environment::free_port();
    let start = format!("topdeck: cannot reach the server at http://127.0.0.1:{port}: ");
    // The same, as curl takes it.
    let found = run(&dir, &format!("cardinality --server 127.0.0.1:{port}"));
    assert!(found.stderr.starts_with(&start), "{}", found.stderr);
    let found = run(&dir, &format!("cardinality --server http://127.0.0.1:{port}"));
    assert!(found.stderr.starts_with(&start), "{}", found.stderr);
    assert!(found.stderr.contains("start it with `topdeck serve`"), "{}", found.stderr);
    assert_eq!(found.status, 1);
}

/// Without a server and a directory, a command finds the server that uses the default directory.
#[test]
fn a_command_asks_the_local_server_by_itself() {
    let dir = store_dir();
    let server = server_of(&dir);
    let data = server.dir.path("data");
    std::os::unix::fs::symlink(data, dir.path().join("topdeck")).unwrap();
    let of_default = |command: &str| {
        let home = format!("env XDG_DATA_HOME={} topdeck", dir.path().display());
        run(&dir, &format!("--version >/dev/null; {home} {command}"))
    };
    let found = of_default(&format!("query 'took' {LAST}"));
    let expected = run_ok(&dir, &format!("query --server {} 'took' {LAST}", url(&server)));
    assert_eq!((found.status, found.stdout.as_str()), (0, expected.as_str()), "{}", found.stderr);
    // It is found by its address, not by the default port.
    assert!(!url(&server).ends_with(":7717"));
}

#[test]
fn a_command_sends_the_token_of_a_file() {
    let dir = store_dir();
    let mut server = server_of(&dir);
    server.stop();
    let settings = std::fs::read_to_string(server.settings()).unwrap();
    let settings = settings.replace("[http]\n", "[http]\ntokens_required = true\n");
    std::fs::write(server.settings(), settings).unwrap();
    let data = server.dir.path("data");
    let token = run_ok(&dir, &format!("token {} add reader read", data.display()));
    std::fs::write(dir.path().join("token"), token).unwrap();
    server.spawn();
    let health = || request_at(server.address(), "GET", "/-/healthy", &[], b"");
    crate::environment::wait_until("it responds", || health().is_ok());
    let query = format!("query 'took' {LAST}");
    for command in
        [&query, "heatmap took", "cardinality", "overview", "breakdown took --above 30ms"]
    {
        let line = format!("{command} --server {}", url(&server));
        let refused = run(&dir, &line);
        assert!(refused.status == 1 && refused.stderr.contains("token"), "{}", refused.all());
        let answered = run(&dir, &format!("{line} --token-file token"));
        assert!(answered.status == 0 && !answered.stdout.is_empty(), "{}", answered.all());
    }
}

/// Runs a command on a terminal until it has printed a text; `None` if the program `script` is
/// missing.
fn on_terminal(dir: &TestDir, line: &str, text: &str) -> Option<String> {
    let binary = env!("CARGO_BIN_EXE_topdeck");
    let mut child = Command::new("script")
        .args(["-qec", &format!("{binary} {line}"), "/dev/null"])
        .current_dir(dir.path())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    let mut output = child.stdout.take().unwrap();
    let (mut printed, mut bytes) = (String::new(), [0; 4096]);
    while !printed.contains(text) {
        match std::io::Read::read(&mut output, &mut bytes) {
            Ok(read @ 1..) => printed.push_str(&String::from_utf8_lossy(&bytes[..read])),
            _ => break,
        }
    }
    drop(output);
    let _ = child.kill();
    let _ = child.wait();
    Some(printed)
}

#[test]
fn a_terminal_has_colours_and_progress_of_a_server_too() {
    let dir = store_dir();
    let server = server_of(&dir);
    let line = format!("heatmap --server {} took", url(&server));
    let Some(coloured) = on_terminal(&dir, &line, "\x1b[0m") else {
        println!("skipped: the program script (Debian package bsdutils) is missing");
        return;
    };
    assert!(coloured.contains("\x1b["), "{coloured}");
    // A server that takes its time.
    let relay = ScriptedRelay::new(server.port, &[RelayAction::Hold]);
    let slow = format!("http://127.0.0.1:{}", relay.port);
    let waiting = format!("{slow}, ");
    let shown = on_terminal(&dir, &format!("query --server {slow} took"), &waiting).unwrap();
    relay.release();
    assert!(shown.contains(&waiting), "{shown}");
}

/// The table, CSV, and the exit status for scripts.
#[test]
fn a_target_that_is_down_is_listed_and_is_the_exit_status() {
    let dir = TestDir::new();
    // Nothing listens on port 1.
    let job = "[[scrape]]\nname = \"gone\"\nurl = \"http://127.0.0.1:1/metrics\"\n\
               interval = \"1s\"\ntimeout = \"1s\"\n";
    let mut server = ServerProcess::new("serve", job);
    server.start();
    let line = format!("targets --server {}", url(&server));
    let status = || run(&dir, &line).status;
    crate::environment::wait_until("the target is down", || status() == 3);
    let table = run(&dir, &line).stdout;
    let row = table.lines().find(|row| row.contains("job=gone")).unwrap_or_default();
    assert!(table.contains("down") && row.contains("scrape"), "{table}");
    assert!(row.contains("0.00 %") && row.contains("refused"), "{table}");
    let csv = run(&dir, &format!("{line} --csv"));
    assert_eq!(csv.status, 3);
    // `topdeck status` was unknown: it says what needs action.
    let status = run(&dir, &format!("status --server {}", url(&server)));
    assert_eq!(status.status, 3, "{}", status.stdout);
    let (first, rest) = status.stdout.split_once('\n').unwrap();
    assert!(first == "1 problem needs action" && rest.contains("Target scrape gone"), "{rest}");
    let rows: Vec<&str> = csv.stdout.lines().collect();
    assert!(rows[0].starts_with("state,kind,target,"), "{}", csv.stdout);
    assert!(rows[1].starts_with("down,scrape,"), "{}", csv.stdout);
}

#[test]
fn files_are_imported_into_a_server_once() {
    let dir = store_dir();
    let server = server_of(&dir);
    std::fs::write(dir.path().join("new.txt"), "12\n15\n480\n").unwrap();
    let import = "--metric added --unit ms --start 2026-11-09T12:00:00Z new.txt";
    let online = format!("import --server {} {import}", url(&server));
    let first = run_ok(&dir, &online);
    assert_eq!(first, run_ok(&dir, &format!("import s {import}")));
    let again = run_ok(&dir, &online);
    assert_eq!(again, "new.txt: already in the store; nothing is counted twice\n");
    check_same(&dir, &server, "query", "added --to 2026-11-09T12:01:00Z");
}

/// Four imported numbers were "4 of 4 requests above 0 s", with a threshold "declared by the
/// program".
#[test]
fn imported_numbers_have_no_threshold_in_the_overview() {
    let dir = store_dir();
    let server = server_of(&dir);
    std::fs::write(dir.path().join("lat.txt"), "12.5\n480\n2100\n13\n").unwrap();
    let server = url(&server);
    run_ok(&dir, &format!("import --server {server} --metric lat --unit ms --start now lat.txt"));
    let page = json(&run_ok(&dir, &format!("overview --server {server} --json")));
    let rows = page["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "lat").unwrap();
    assert_eq!((&row["threshold"], &row["state"]), (&Value::Null, &"unknown".into()), "{row}");
}

#[test]
fn rows_of_a_server_are_deleted_after_a_dry_run() {
    let dir = store_dir();
    let server = server_of(&dir);
    let line = format!("--server {} 'took{{host=\"a\"}}' {RANGE}", url(&server));
    let dry = run(&dir, &format!("delete {line}"));
    assert_eq!(dry.status, 0);
    assert_eq!(dry.stdout, run_ok(&dir, &format!("delete s 'took{{host=\"a\"}}' {RANGE}")));
    assert!(dry.stdout.ends_with("; --yes deletes\n"), "{}", dry.stdout);
    check_same(&dir, &server, "query", &format!("'took' {LAST}"));
    let deleted = run_ok(&dir, &format!("delete {line} --yes"));
    // The dry run has the number of rows that are deleted then.
    let rows = |text: &str, verb: &str| {
        let rest = text.strip_prefix(verb).unwrap_or_else(|| panic!("{text}"));
        rest.split(" of 1 series between").next().unwrap_or_default().to_owned()
    };
    assert_eq!(rows(&dry.stdout, "would delete "), rows(&deleted, "deleted "));
    assert_eq!(deleted, run_ok(&dir, &format!("delete s 'took{{host=\"a\"}}' {RANGE} --yes")));
    check_same(&dir, &server, "query", &format!("'took' {LAST}"));
}

#[test]
fn annotations_are_added_and_listed() {
    let dir = store_dir();
    let server = server_of(&dir);
    let server = format!("--server {}", url(&server));
    let added = run_ok(
        &dir,
        &format!("annotate {server} 'deployed 1.2' --at 2026-11-09T12:10:00Z --tag service=cart"),
    );
    assert_eq!(added, "annotated 2026-11-09 12:10:00Z  deployed 1.2\n");
    let list = run_ok(&dir, &format!("annotate {server} --from 2026-11-09 --to 2026-11-10"));
    assert!(list.contains("2026-11-09 12:10:00Z  deployed 1.2  service=cart"), "{list}");
}

#[test]
fn new_points_are_printed_as_they_arrive() {
    let dir = store_dir();
    let server = server_of(&dir);
    let line = format!("tail --server {} --limit 1 arrived", url(&server));
    let (tailed, sent) = std::thread::scope(|scope| {
        let tail = scope.spawn(|| run_ok(&dir, &line));
        let mut sent = 0;
        // Points from before the subscription are not shown.
        while !tail.is_finished() {
            let path = "/v1/record?metric=arrived&unit=ms";
            let answer = request_at(server.address(), "POST", path, &[], b"250");
            sent += u32::from(answer.is_ok_and(|answer| answer.status == 200));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        (tail.join().unwrap(), sent)
    });
    assert!(sent > 0 && tailed.contains("  arrived  1 value, min 250 ms, max 250 ms"), "{tailed}");
}
