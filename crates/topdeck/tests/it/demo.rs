//! `topdeck demo`, as a user sees it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::environment::wait_until;
use crate::journal_kills::KillOnDrop;
use crate::processes::MetricsDir;
use crate::store::{json, run, run_ok};
use crate::test_dir::TestDir;

const HOUR_NS: i64 = 3_600_000_000_000;

/// A demonstration whose temporary directory is in another one.
struct Demo {
    dir: TestDir,
    child: Child,
    url: String,
    /// What it printed.
    text: String,
    /// What it logged before that.
    log: String,
}

impl Demo {
    /// Starts it, on a host whose programs have their metrics in `shm`.
    fn start(shm: &Path) -> Demo {
        let dir = TestDir::new();
        let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .args(["demo", "--port", "0"])
            .env("TMPDIR", dir.path())
            .env("TOPDECK_SHM", shm)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Its log is read, so that it can be written.
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, logged) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while errors.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let _ = sender.send(std::mem::take(&mut line));
            }
        });
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut text, mut line) = (String::new(), String::new());
        while !line.contains("the same by command line") {
            line.clear();
            if out.read_line(&mut line).unwrap() == 0 {
                let log: String = logged.iter().collect();
                panic!("it ended after {text:?}: {log}");
            }
            text.push_str(&line);
        }
        let log = logged.try_iter().collect();
        let url = text.lines().next().unwrap().strip_prefix("topdeck demo: ").unwrap().to_owned();
        Demo { dir, child, url, text, log }
    }

    fn query(&self, expression: &str) -> Value {
        let line = format!("query --server {} '{expression}' --to now --json", self.url);
        json(&run_ok(&self.dir, &line))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Wire and Load runs were empty, and no budget had burnt: what each view of the page asks first.
fn each_view_has_something_to_show(demo: &Demo) {
    let server = format!("--server {}", demo.url);
    let ask = |line: &str| json(&run_ok(&demo.dir, line));
    // Overview, Explore, Spectrum, Compare.
    let rows = ask(&format!("overview {server} --json"));
    assert!(rows["total"].as_u64() >= Some(5), "{rows}");
    load_runs_are_no_services(&rows);
    the_incident_is_the_worst_hour(&rows);
    // Wire: a service, its statements, and the incident.
    let statements = demo.query("sum by (verb, statement) (exact_increase(wire_latency[6h]))");
    assert_eq!(statements["data"].as_array().map(Vec::len), Some(4), "{statements}");
    let slow = demo.query(
        "topk(1, sum by (statement) (histogram_count_above(800ms, exact_increase(wire_latency[6h]))))",
    );
    assert_eq!(slow["data"][0]["labels"]["statement"], "payments SET state = $1 WHERE id = $2");
    // Load runs: two, valid, with their requests.
    let runs = demo.query("sum by (run) (exact_increase(load_completed_requests_total[6h]))");
    let counts: Vec<(&str, f64)> = (runs["data"].as_array().unwrap().iter())
        .map(|of| {
            let value = &of["points"][0]["value"];
            let count = value.as_f64().or_else(|| value["estimate"].as_f64());
            (of["labels"]["run"].as_str().unwrap(), count.unwrap())
        })
        .collect();
    assert_eq!(
        counts.iter().map(|of| of.0).collect::<Vec<_>>(),
        ["payment 3.7.2", "payment 3.8.0"]
    );
    assert!(counts.iter().all(|of| of.1 > 10_000.0), "{counts:?}");
    // SLOs: the budget of payments burnt during the incident.
    let burn = "ALERTS{alertname=\"SloBudgetBurn\",slo=\"payments\",alertstate=\"firing\"}";
    let fired = demo.query(&format!("count_over_time({burn}[4h])"));
    assert_eq!(fired["data"].as_array().map(Vec::len), Some(1), "{fired}");
    // Host, Sources, Status and Loss audit are of the server itself.
    let audit = ask(&format!("audit {server} --json"));
    assert!(audit["producers"].as_array().is_some_and(|list| !list.is_empty()), "{audit}");
    // Until it is, the command warns of a metric that matches nothing.
    wait_until("the host is measured", || {
        let line = format!("query {server} 'count(host_cpu_seconds_total)' --to now --json");
        let found = json(&run(&demo.dir, &line).stdout);
        found["data"].as_array().is_some_and(|list| !list.is_empty())
    });
}

/// The headline of the overview named the database, whose day had more slow requests.
fn the_incident_is_the_worst_hour(overview: &Value) {
    let now_ns = overview["now_ns"].as_i64().unwrap();
    // Shortly after midnight the incident was yesterday.
    if now_ns.rem_euclid(24 * HOUR_NS) < 3 * HOUR_NS {
        return;
    }
    let burn_rate = |row: &Value| row["worst_hour"]["burn_rate"]["lower"].as_f64().unwrap_or(0.0);
    let rows = overview["rows"].as_array().unwrap().iter();
    let worst = rows.max_by(|a, b| burn_rate(a).total_cmp(&burn_rate(b))).unwrap();
    assert_eq!(worst["labels"]["service"], "payment", "{worst}");
    assert!(burn_rate(worst) > 3.0, "{worst}");
}

/// Load tests that ended were three services in state unknown.
fn load_runs_are_no_services(overview: &Value) {
    let rows = overview["rows"].as_array().unwrap();
    let is_load = |row: &&Value| row["name"].as_str().unwrap().starts_with("load_");
    assert_eq!(rows.iter().find(is_load), None);
    let unranked = overview["unranked"].as_array().unwrap();
    let names = "load_queue_time, load_response_time, load_service_time";
    let reason = unranked.iter().find(|of| of["name"] == names);
    let reason = reason.map(|of| &of["reason"]);
    assert_eq!(
        reason,
        Some(&"2 load runs, which end and do not fall silent: see Load runs".into()),
        "{unranked:?}"
    );
}

/// It said nothing for many seconds.
fn it_says_what_it_makes(demo: &Demo) {
    let mut rest = &demo.log[..];
    for expected in [
        "creating a server with a made-up shop",
        "made-up shop: writing a week of requests",
        "made-up shop: writing load tests",
        "made-up shop: writing alerts, as the rules would have fired",
    ] {
        let (_, after) = rest.split_once(expected).unwrap_or_else(|| {
            panic!("{expected}: {}", demo.log);
        });
        rest = after;
    }
}

/// The page drew the alerts of the incident, and the command said `no changes`.
fn the_history_of_alerts_is_that_of_the_page(demo: &Demo) {
    let ask = |line: &str| json(&run_ok(&demo.dir, &format!("{line} --server {}", demo.url)));
    let history = ask("alerts --history --from -1d --limit 1000 --json");
    let changes = history["history"].as_array().unwrap();
    for alert in ["PaymentsSlow", "OrdersSlow", "PaymentQueueLong", "SloBudgetBurn"] {
        let of = changes.iter().filter(|change| change["name"] == alert);
        let events: Vec<&str> = of.map(|change| change["event"].as_str().unwrap()).collect();
        assert!(["firing", "resolved"].iter().all(|it| events.contains(it)), "{alert}: {events:?}");
    }
}

#[test]
fn a_demonstration_shows_an_incident_and_leaves_nothing_behind() {
    // A foreign program, whose metrics were rows of the shop.
    let Some(host) = MetricsDir::new() else { return };
    let _program = host.start("sample-foreign", "--requests 100");
    let mut demo = Demo::start(&host.memory.path);
    it_says_what_it_makes(&demo);
    let server = format!("--server {}", demo.url);
    for part in [
        "/#/explore?from=-6h&selector=request_duration{service=%22payment%22}&threshold=800ms&v=2",
        "/#/dashboards?dashboard=shop&from=-6h",
        "/#/alerts?from=-6h",
        "/#/slos",
        "/#/host",
        "version 3.8.0 on host pay-2 in region eu",
        &server,
    ] {
        assert!(demo.text.contains(part), "{part}: {}", demo.text);
    }
    // The first link, and Who?, show what its hint says. It opened the orders, which have neither.
    let line = "'request_duration{service=\"payment\"}' --above 800ms --from -6h --json";
    let found = json(&run_ok(&demo.dir, &format!("breakdown {server} {line}")));
    let first = |label: &str| -> Value {
        let labels = found["labels"].as_array().unwrap();
        labels.iter().find(|of| of["label"] == label).unwrap()["values"][0]["value"].clone()
    };
    assert_eq!(
        (first("version"), first("host"), first("region")),
        ("3.8.0".into(), "pay-2".into(), "eu".into()),
        "{found}"
    );
    // The printed command finds the cause.
    let (_, printed) = demo.text.split_once("  topdeck breakdown ").expect("a command");
    let line = format!("{} --json", printed.lines().next().unwrap().replace(&server, ""));
    let found = json(&run_ok(&demo.dir, &format!("breakdown {server} {line}")));
    let first = &found["labels"][0];
    let value = first["values"][0]["value"].as_str().unwrap();
    assert!(value == "3.8.0" || value == "pay-2", "{first}");
    // A week, counters, gauges, texts, annotations, a dashboard, scrape targets and checks.
    let week = demo.query("sum(exact_increase(request_duration[7d]))");
    assert!(week["data"][0]["points"][0]["value"]["count"].as_u64() > Some(1_000_000), "{week}");
    for (series, streams) in
        [("sum by (region) (exact_increase(orders_total[1d]))", 2), ("payment_queue_depth", 2)]
    {
        assert_eq!(demo.query(series)["data"].as_array().map(Vec::len), Some(streams), "{series}");
    }
    let list = run_ok(&demo.dir, &format!("annotate {server}"));
    assert!(list.contains("deployed payment 3.8.0 on pay-2"), "{list}");
    let targets = || json(&run(&demo.dir, &format!("targets {server} --json")).stdout);
    wait_until("a scrape and a check have succeeded", || {
        let found = targets();
        let up = found["targets"].as_array().unwrap().iter().filter(|of| of["state"] == "up");
        up.count() == 2
    });
    each_view_has_something_to_show(&demo);
    the_history_of_alerts_is_that_of_the_page(&demo);
    // The alerts of the incident fired and ended; the rules find the same without the history.
    for alert in ["PaymentsSlow", "OrdersSlow", "PaymentQueueLong"] {
        let firing = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
        let evaluations = demo.query(&format!("count_over_time({firing}[4h])"));
        let streams = evaluations["data"].as_array().unwrap();
        assert_eq!(streams.len(), 1, "{alert} fires in one region: {evaluations}");
        let count = streams[0]["points"][0]["value"].as_f64().unwrap();
        // 45 minutes, less the time until it fires, and the window of the rule after it. Numbers
        // depend on the time of day.
        assert!((25.0..=55.0).contains(&count), "{alert}: {count}");
        let now = demo.query(&format!("absent({firing})"));
        assert_eq!(now["data"].as_array().map(Vec::len), Some(1), "{alert} ended: {now}");
    }
    let replayed = demo.dir.path().join("shop.yaml");
    let rules = std::fs::read_dir(demo.dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(rules.join("rules/shop.yaml"), &replayed).unwrap();
    let line = format!("rules replay {server} shop.yaml --last 5h --json");
    let replay = json(&run_ok(&demo.dir, &line));
    std::fs::remove_file(replayed).unwrap();
    for rule in replay["rules"].as_array().unwrap() {
        // Not exactly once: the requests depend on the time of day, and where they are few the
        // share of slow ones may cross the limit again at the edges of the incident.
        assert!(rule["fired"].as_u64() >= Some(1), "{rule}");
        assert_eq!(rule["failures"], 0, "{rule}");
    }
    wait_until("budgets are known", || {
        let slos = json(&run_ok(&demo.dir, &format!("slo {server} --json")));
        let states: Vec<&str> =
            slos["slos"].as_array().unwrap().iter().filter_map(|of| of["state"].as_str()).collect();
        states == ["remaining", "remaining"]
    });
    // New data arrive.
    let tailed = run_ok(&demo.dir, &format!("tail {server} --limit 1 request_duration"));
    assert!(tailed.contains("request_duration{"), "{tailed}");
    // Nothing was printed for a misspelt name; the server is that of the environment, too.
    let mut tail = Command::new(env!("CARGO_BIN_EXE_topdeck"));
    tail.args(["tail", "request_duratoin"]).current_dir(demo.dir.path());
    let url = server.trim_start_matches("--server").trim();
    let tail = tail.env("TOPDECK_SERVER", url).stderr(Stdio::piped()).spawn().unwrap();
    let mut tail = KillOnDrop(tail);
    let mut line = String::new();
    BufReader::new(tail.0.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let expected = "topdeck: request_duratoin matches no series so far; did you mean the metric \
                    \"request_duration\"?\n";
    assert_eq!(line, expected);
    let rows = json(&run_ok(&demo.dir, &format!("overview {server} --json")));
    let rows = rows["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["name"] != "answer_duration"), "{rows:?}");
    let dirs = || std::fs::read_dir(demo.dir.path()).unwrap().count();
    assert_eq!(dirs(), 1);
    kill_process(Pid::from_child(&demo.child), Signal::INT).unwrap();
    let ended = demo.child.wait().unwrap();
    assert!(ended.success(), "{ended}");
    assert_eq!(std::fs::read_dir(demo.dir.path()).unwrap().count(), 0);
}
