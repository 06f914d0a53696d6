//! `[[postgres]]` with a real server: every metric of its version has data, and each fault is told
//! with its remedy.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::postgres_server::PostgresServer;
use super::server_process::{ServerProcess, free_port, wait_until};

const PAGE: &str = include_str!("../../../../../docs/postgres.md");

/// The dashboard that the page offers.
const DASHBOARD: &str = include_str!("../../../../postgres/dashboard.json");

/// Metrics that need what this server does not have: standbys, slots, an archive, checksums, a
/// limit of slots, a fault, and what is read a minute after a statement.
const ABSENT: &[&str] = &[
    "pg_stat_replication_pg_wal_lsn_diff",
    "pg_stat_replication_write_lag_seconds",
    "pg_stat_replication_flush_lag_seconds",
    "pg_stat_replication_replay_lag_seconds",
    "pg_replication_slot_safe_wal_size_bytes",
    "pg_stat_archiver_last_archive_age",
    "pg_stat_database_checksum_failures",
    "pg_stat_statements_query",
    "pg_stat_user_tables_last_autovacuum",
    "pg_stat_user_tables_last_autoanalyze",
];

/// The names of docs/postgres.md that a version has.
fn documented_metrics(version: u32) -> Vec<&'static str> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `pg_"));
    let is_of = |versions: &str| {
        let number = |text: &str| text.parse::<u32>().expect("a version");
        match (versions.strip_suffix('+'), versions.split_once('–')) {
            _ if versions == "all" => true,
            (Some(since), _) => version >= number(since),
            (_, Some((since, until))) => (number(since)..=number(until)).contains(&version),
            _ => panic!("{versions}"),
        }
    };
    let name = |line: &'static str| line.split('`').nth(1).expect("a name");
    let versions = |line: &'static str| line.trim_end_matches(" |").rsplit("| ").next();
    rows.filter(|line| versions(line).is_some_and(is_of)).map(name).collect()
}

/// The server of that name in the status.
fn status(deck: &ServerProcess, name: &str) -> Value {
    let status = deck.get("/v1/status").json();
    let servers = status["postgres"].as_array().expect("a section");
    servers.iter().find(|server| server["name"] == name).expect("it is configured").clone()
}

/// Reason of a collector; empty without one.
fn reason(deck: &ServerProcess, name: &str, collector: &str) -> String {
    let found = status(deck, name);
    let collectors = found["collectors"].as_array().expect("a list");
    let found = collectors.iter().find(|it| it["name"] == collector);
    found.and_then(|it| it["error"].as_str()).unwrap_or_default().to_owned()
}

/// Series of an expression.
fn query(deck: &ServerProcess, expression: &str) -> Value {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    deck.get(&format!("/api/v1/query?query={encoded}")).json()["data"]["result"].take()
}

/// Last value of an expression, or `None`.
fn value(deck: &ServerProcess, expression: &str) -> Option<f64> {
    query(deck, expression)[0]["value"][1].as_str()?.parse().ok()
}

/// A session that holds a lock on a row, and one that waits for it.
fn block(server: &PostgresServer) -> [Child; 2] {
    let update = "UPDATE stock SET n = n + 1;\n";
    let begin = |text: &str| {
        let mut command = server.session();
        let mut child = command.stdin(Stdio::piped()).spawn().expect("psql starts");
        let input = child.stdin.as_mut().expect("it is piped");
        input.write_all(text.as_bytes()).expect("psql reads");
        child
    };
    let holder = begin(&format!("BEGIN;\n{update}"));
    wait_until("a transaction holds the lock", || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
        server.sql(sql).trim() == "1"
    });
    [holder, begin(update)]
}

fn settings(server: &PostgresServer, hung: &TcpListener) -> String {
    let (dir, port) = (server.dir.0.display(), server.port);
    let hung = hung.local_addr().expect("it listens").port();
    let nobody = free_port();
    let times = "interval = \"1s\"\nsample_interval = \"20ms\"\n";
    let servers = [
        ("main", format!("host={dir} port={port}")),
        ("plain", format!("host={dir} port={port} user=plain")),
        ("right", format!("postgresql://secret@127.0.0.1:{port}/postgres")),
        ("wrong", format!("postgresql://secret@127.0.0.1:{port}/postgres")),
        ("unknown", format!("host={dir} port={port} user=nobody_knows")),
        ("absent", format!("host=127.0.0.1 port={nobody}")),
        ("hung", format!("host=127.0.0.1 port={hung}")),
    ];
    let mut text = String::new();
    for (name, dsn) in servers {
        text.push_str(&format!("[[postgres]]\nname = \"{name}\"\ndsn = \"{dsn}\"\n{times}"));
        if ["right", "wrong"].contains(&name) {
            text.push_str(&format!("password_file = \"{name}\"\n"));
        }
    }
    text
}

#[test]
fn a_postgres_server_is_read_and_each_fault_has_its_reason() {
    let Some(mut server) = PostgresServer::start_new() else { return };
    server.sql(
        "CREATE ROLE topdeck LOGIN; GRANT pg_monitor TO topdeck; CREATE ROLE plain LOGIN; \
         CREATE ROLE secret LOGIN PASSWORD 'right'; CREATE TABLE stock (id int PRIMARY KEY, n \
         int); INSERT INTO stock VALUES (1, 0)",
    );
    server.sql("VACUUM ANALYZE stock");
    server.sql("SELECT pg_create_physical_replication_slot('standby', true)");
    if server.has_statements {
        server.sql("CREATE EXTENSION pg_stat_statements");
    }
    let hung = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut deck = ServerProcess::new("serve", &settings(&server, &hung));
    for password in ["right", "wrong"] {
        std::fs::write(deck.dir.path(password), password).expect("a file can be written");
    }
    let sessions = block(&server);
    deck.start();

    // The blocked session is seen, and who blocks it.
    let blocked = "pg_blocked_sessions{instance=\"main\"}";
    wait_until("the blocked session is seen", || value(&deck, blocked) == Some(1.0));
    let tree = status(&deck, "main")["blocking_tree"].as_str().unwrap_or_default().to_owned();
    let lines: Vec<&str> = tree.lines().collect();
    assert_eq!(lines.len(), 2, "{tree}");
    assert!(lines[0].contains(" postgres@postgres idle in transaction, transaction "), "{tree}");
    assert!(lines[1].starts_with("  ") && lines[1].contains(" s for ShareLock"), "{tree}");
    let wait = "wait_event=\"transactionid\",instance=\"main\"";
    let waiting = format!("histogram_avg(pg_wait_sessions{{{wait}}})");
    wait_until("its wait is sampled", || value(&deck, &waiting).is_some_and(|mean| mean > 0.5));

    every_metric_has_data(&deck, &server);
    faults_are_told(&deck);
    every_panel_has_data(&deck, &server);
    checks_query_it(&deck, &server);

    // The end of the holder ends the wait.
    let [mut holder, mut waiter] = sessions;
    drop(holder.stdin.take());
    drop(waiter.stdin.take());
    assert!(waiter.wait().expect("psql ends").success() && holder.wait().is_ok());
    wait_until("no session waits", || value(&deck, blocked) == Some(0.0));

    server.stop();
    wait_until("the loss is seen", || status(&deck, "main")["state"] == "down");
    let error = status(&deck, "main")["last_error"]["reason"].as_str().map(str::to_owned);
    assert!(error.is_some_and(|it| it.contains("connect")), "no reason");
    server.start();
    wait_until("it is read again", || status(&deck, "main")["state"] == "up");
    assert!(deck.log().contains("postgres \"main\" (PostgreSQL "), "{}", deck.log());
    deck.stop();
}

/// Checks with `sql`: a login with SCRAM, results, and the reasons of failures.
fn checks_query_it(deck: &ServerProcess, server: &PostgresServer) {
    let check = |name: &str, user: &str, query: &str, more: &str| {
        let sql = format!("postgres://{user}@127.0.0.1:{}/postgres", server.port);
        format!("[[check]]\nname = \"{name}\"\nsql = \"{sql}\"\nquery = \"{query}\"\n{more}\n")
    };
    let count = "SELECT count(*) FROM pg_roles WHERE rolname = 'secret' -- one";
    let right = "password_file = \"right\"\nexpect = \"1\"\nexpect_rows = 1";
    let many = "SELECT g FROM generate_series(1, 50000) g";
    let text = [
        check("right", "secret", count, right),
        check("many", "postgres", many, "expect = \"1\"\nexpect_rows = 50000"),
        check("wrong", "secret", "SELECT 1", "password_file = \"wrong\""),
        check("none", "secret", "SELECT 1", ""),
        check("write", "postgres", "INSERT INTO stock VALUES (2, 0)", ""),
        check("slow", "postgres", "SELECT pg_sleep(60)", "timeout = \"200ms\""),
        check("secure", "postgres", "SELECT 1", "secure = true"),
    ];
    let file = deck.dir.path("checks.toml");
    std::fs::write(&file, text.concat()).expect("a file can be written");
    let run = crate::topdeck(&["doctor", "checks", file.to_str().expect("UTF-8")], b"");
    let found = run.stdout.lines().filter(|line| !line.starts_with(' ') && !line.is_empty());
    let found: Vec<String> = found
        .map(|line| {
            let (name, outcome) = line.split_once(" (postgres://").expect("a check");
            format!("{name}: {}", outcome.split_once("): ").expect("an outcome").1)
        })
        .collect();
    let expected = [
        "right: success",
        "many: success",
        "wrong: FAILED: cannot log in: FATAL: password authentication failed for user \"secret\" \
         (28P01)",
        "none: FAILED: cannot log in: the server asks for a password; set password_file",
        "write: FAILED: the query failed: ERROR: cannot execute INSERT in a read-only transaction \
         (25006)",
        "slow: FAILED: no response within 200 ms",
        "secure: FAILED: the server has no TLS; set ssl = on there",
    ];
    assert_eq!(found, expected, "{}", run.all());
}

fn every_metric_has_data(deck: &ServerProcess, server: &PostgresServer) {
    let version = server.sql("SHOW server_version_num").trim().parse::<u32>().expect("a number");
    let is_here = |name: &str| server.has_statements || !name.starts_with("pg_stat_statements");
    let missing = || -> Vec<&str> {
        let names = deck.get("/v1/metric_names").text();
        let has = |name: &str| names.contains(&format!("\"{name}\""));
        let documented = documented_metrics(version / 10_000);
        let expected = documented.into_iter().filter(|name| !ABSENT.contains(name));
        expected.filter(|name| is_here(name) && !has(name)).collect()
    };
    let began = std::time::Instant::now();
    while !missing().is_empty() {
        let status = status(deck, "main");
        assert!(began.elapsed().as_secs() < 60, "without data: {:?}\n{status}", missing());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for collector in status(deck, "main")["collectors"].as_array().expect("a list") {
        let is_expected = collector["name"] == "statements" && !server.has_statements;
        assert!(collector["error"].is_null() || is_expected, "{collector}");
    }
}

fn faults_are_told(deck: &ServerProcess) {
    let check = |name: &str, collector: &str, part: &str| {
        wait_until(&format!("{name}: {part}"), || reason(deck, name, collector).contains(part));
    };
    let remedy = "plain may not see other sessions; GRANT pg_monitor TO plain";
    check("plain", "activity", remedy);
    check("plain", "connections", remedy);
    check("plain", "database_size", remedy);
    assert_eq!(reason(deck, "plain", "database"), "");
    assert_eq!(status(deck, "plain")["state"], "up");
    check("wrong", "connection", "(28P01); check the password (`password_file`)");
    let remedy = "CREATE ROLE nobody_knows LOGIN; GRANT pg_monitor TO nobody_knows;";
    check("unknown", "connection", remedy);
    check("absent", "connection", "Connection refused");
    for name in ["wrong", "unknown", "absent"] {
        assert_eq!(status(deck, name)["state"], "down", "{name}");
        wait_until("pg_up is 0", || {
            value(deck, &format!("pg_up{{instance=\"{name}\"}}")) == Some(0.0)
        });
    }
    for name in ["main", "plain", "right"] {
        assert_eq!(status(deck, name)["state"], "up", "{name}");
        assert_eq!(value(deck, &format!("pg_up{{instance=\"{name}\"}}")), Some(1.0), "{name}");
    }
}

fn every_panel_has_data(deck: &ServerProcess, server: &PostgresServer) {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    assert!(!panels.is_empty());
    for panel in panels {
        let text = panel["text"].as_str().expect("a query").replace("$instance", "main");
        if !server.has_statements && text.contains("pg_stat_statements") {
            continue;
        }
        // A heatmap shows the histograms of its range.
        let expression = match panel["language"].as_str() {
            Some("metric") => format!("histogram_count(sum_over_time({text}[5m]))"),
            _ => text,
        };
        wait_until(&format!("{} has data: {expression}", panel["title"]), || {
            query(deck, &expression).as_array().is_some_and(|series| !series.is_empty())
        });
    }
}
