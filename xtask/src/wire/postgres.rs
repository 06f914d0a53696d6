//! PostgreSQL with pgbench, and with a client of its own for what pgbench does not do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::capture_process::ServiceReport;
use super::load_pace::LoadPace;
use super::load_truth::{LoadTruth, OperationSelector};
use super::postgres_session::{PostgresSession, extended_query};
use super::server_process::{ADDRESS, ServerDir, find_program, free_port, number_after};
use super::{ObservedServer, ProvidedServer, ServerLoad, client_output};
use crate::command_line::CommandLine;
use crate::part_log::PartLog;

/// Transactions of each of the 4 clients of pgbench.
const TRANSACTIONS: u64 = 8_000;
const CLIENTS: u64 = 4;
/// The module whose counts are compared with the observer's.
const STATEMENTS_MODULE: &str = "pg_stat_statements";

pub(super) fn start(_: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let programs = ["initdb", "postgres", "pgbench"].map(find_program);
    let [Some(initdb), Some(postgres), Some(pgbench)] = programs else {
        return Ok(Err("PostgreSQL is not installed (Debian package postgresql)".to_owned()));
    };
    let dir = ServerDir::new(dir, "postgres", "postgres")?;
    let data = dir.path.join("data");
    let mut make = dir.command(&initdb)?;
    make.arg("-D").arg(&data).args(["-U", "postgres", "--no-sync", "--locale=C", "-A", "trust"]);
    dir.run(make.args(["-E", "UTF8"]))?;
    let port = free_port()?;
    let start = |modules: &str| {
        let mut command = dir.command(&postgres)?;
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        let address = &*format!("listen_addresses={ADDRESS}");
        let modules = &*format!("shared_preload_libraries={modules}");
        let settings = [address, modules, "fsync=off", "unix_socket_directories="];
        command.args(settings.into_iter().flat_map(|setting| ["-c", setting]));
        let process = dir.start(command, port, "-INT")?;
        // It listens before it is ready.
        PostgresSession::await_server(port)?;
        anyhow::Ok(process)
    };
    let (process, has_counts) = match start(STATEMENTS_MODULE) {
        Ok(process) => (process, true),
        Err(_) => (start("")?, false),
    };
    let bench = PostgresBench { program: pgbench, port, dir: dir.path.clone() };
    bench.run("-i -q -s 1")?;
    let mut loads = own_loads(port);
    for (name, mode, verb) in [
        ("pgbench -S", "simple", "Query"),
        ("pgbench -S -M extended", "extended", "Execute"),
        ("pgbench -S -M prepared", "prepared", "Execute"),
    ] {
        let bench = bench.clone();
        loads.push(ServerLoad::new(name, move || bench.select_only(mode, verb)));
    }
    let updates = bench.clone();
    loads.push(ServerLoad::new("pgbench -N", move || updates.update()));
    if has_counts {
        PostgresSession::connect(port)?.query(&format!("create extension {STATEMENTS_MODULE}"))?;
        loads.push(ServerLoad::new(STATEMENTS_MODULE, move || compare_statements(port)));
    }
    let storm = ServerLoad::new("pgbench -S", move || bench.select_only("simple", "Query"));
    Ok(Ok(ObservedServer {
        protocol: "postgres",
        port,
        tls: None,
        loads,
        storm: Some(storm),
        steady: Some(Box::new(move |pace| steady(port, pace))),
        _process: Some(process),
    }))
}

fn steady(port: u16, pace: LoadPace) -> Result<LoadTruth> {
    let mut session = PostgresSession::connect(port)?;
    let count = pace.run(|portion| {
        (0..portion)
            .try_for_each(|number| session.query(&format!("select {number} as paced")).map(drop))
    })?;
    Ok(LoadTruth::exact(count, OperationSelector::new("Query", "as paced")))
}

/// pgbench, and where it writes the times of transactions.
#[derive(Clone)]
struct PostgresBench {
    program: PathBuf,
    port: u16,
    dir: PathBuf,
}

impl PostgresBench {
    fn run(&self, arguments: &str) -> Result<String> {
        let port = self.port.to_string();
        let line = arguments
            .split(' ')
            .fold(CommandLine::from_path(&self.program), |line, word| line.arg(word));
        let line = ["-h", ADDRESS, "-p", &port, "-U", "postgres", "postgres"]
            .iter()
            .fold(line, |line, word| line.arg(word));
        client_output(line)
    }

    /// Runs a built-in script. Returns the time of each transaction in nanoseconds.
    fn transactions(&self, arguments: &str) -> Result<Vec<u64>> {
        let prefix = self.dir.join("times");
        let prefix = prefix.to_str().context("the directory name is not UTF-8")?;
        ensure!(!prefix.contains(' '), "cannot pass the directory {prefix} to pgbench");
        let report = self.run(&format!(
            "-n -c {CLIENTS} -j 2 -t {TRANSACTIONS} -l --log-prefix={prefix} {arguments}"
        ))?;
        let count = number_after(&report, "transactions actually processed:")
            .with_context(|| format!("pgbench has no count: {report}"))?;
        let mut times = Vec::new();
        for file in fs::read_dir(&self.dir)? {
            let path = file?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("times.")) {
                let text = fs::read_to_string(&path)?;
                let us =
                    text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok());
                // It has rounded down.
                times.extend(us.map(|us| (us + 1) * 1_000));
                fs::remove_file(&path)?;
            }
        }
        ensure!(times.len() as u64 == count, "pgbench has {count} transactions, {}", times.len());
        Ok(times)
    }

    fn select_only(&self, mode: &str, verb: &'static str) -> Result<LoadTruth> {
        let times = self.transactions(&format!("-S -M {mode}"))?;
        let selector = OperationSelector::new(verb, "SELECT abalance FROM pgbench_accounts");
        let truth = LoadTruth::exact(times.len() as u64, selector);
        Ok(LoadTruth { client_ns: times, ..truth })
    }

    /// Transactions of five statements, of which two have the word.
    fn update(&self) -> Result<LoadTruth> {
        let times = self.transactions("-N")?;
        Ok(LoadTruth::exact(times.len() as u64 * 2, OperationSelector::new("Query", "abalance")))
    }
}

/// Loads of an own client.
fn own_loads(port: u16) -> Vec<ServerLoad> {
    // Longer than 4 KiB, without a literal.
    let columns: Vec<String> = (0..200).map(|at| format!("aid as column_{at:04}")).collect();
    let long = format!("select {} from pgbench_accounts limit 0", columns.join(", "));
    vec![
        ServerLoad::new("8 x (Execute, Sync) in flight", move || pipelines(port)),
        ServerLoad::new("3 statements in one Query", move || {
            let text = "select 1; select 'a' as b; select 2.5, 3";
            repeat(port, 500, text, 3, OperationSelector::new("Query", "select $"))
        }),
        ServerLoad::new("500 x select 1/0", move || failures(port)),
        ServerLoad::new("200 x 300 kB", move || {
            let text = "select repeat('x', 300000) as large";
            let mut truth = repeat(port, 200, text, 1, OperationSelector::new("Query", "large"))?;
            truth.check = Some(Box::new(|service: ServiceReport<'_>| -> Result<()> {
                let bytes = service.response_bytes("large");
                ensure!(bytes >= 200 * 300_000, "responses have {bytes} bytes");
                Ok(())
            }));
            Ok(truth)
        }),
        ServerLoad::new("statements of 4 KiB", move || {
            let text = long.replace("limit 0", "limit $1");
            repeat(port, 100, &long, 1, OperationSelector::new("Query", &text))
        }),
        ServerLoad::new("COPY in both directions", move || {
            let mut session = PostgresSession::connect(port)?;
            session.query("create temporary table copied(id int)")?;
            for _ in 0..50 {
                session.query("copy copied from stdin")?;
                session.query("copy copied to stdout")?;
            }
            Ok(LoadTruth::exact(100, OperationSelector::new("Query", "copy copied")))
        }),
    ]
}

fn pipelines(port: u16) -> Result<LoadTruth> {
    let mut session = PostgresSession::connect(port)?;
    let mut completed = 0;
    for _ in 0..100 {
        session.send(&extended_query("select 17 as pipelined").repeat(8))?;
        for _ in 0..8 {
            completed += session.read_reply()?.completed;
        }
    }
    Ok(LoadTruth::exact(completed, OperationSelector::new("Execute", "pipelined")))
}

fn failures(port: u16) -> Result<LoadTruth> {
    let mut session = PostgresSession::connect(port)?;
    let mut failed = 0;
    for _ in 0..500 {
        let errors = session.query("select 1/0")?.errors;
        failed += errors.iter().filter(|code| code.starts_with("22")).count() as u64;
    }
    let selector = OperationSelector::new("Query", "select $1/$2");
    let selector = OperationSelector { error: Some("22"), ..selector };
    Ok(LoadTruth::exact(failed, selector))
}

/// Sends a Query with `statements` statements `count` times.
fn repeat(
    port: u16,
    count: u64,
    text: &str,
    statements: u64,
    selector: OperationSelector,
) -> Result<LoadTruth> {
    let mut session = PostgresSession::connect(port)?;
    let mut completed = 0;
    for _ in 0..count {
        completed += session.query(text)?.completed;
    }
    ensure!(completed == count * statements, "PostgreSQL completed {completed} statements");
    Ok(LoadTruth::exact(completed, selector))
}

/// The observer must have the statements and counts of the server.
fn compare_statements(port: u16) -> Result<LoadTruth> {
    let mut session = PostgresSession::connect(port)?;
    session.query("select pg_stat_statements_reset()")?;
    let mut sent = 0;
    for number in 0..40 {
        let texts = [
            format!("select {number}, 'it''s {number}', -{number}.5e3, $${number}$$"),
            format!("/* of {number} */ select count(*) from pgbench_accounts where aid < {number}"),
            format!("update pgbench_tellers set tbalance = tbalance + {number} where tid = 1"),
            format!("insert into pgbench_history(tid, filler) values ({number}, E'a\\n{number}')"),
            format!("select aid from pgbench_accounts where aid between {number} and 50 limit 3"),
            format!("select 1 where 'x' like 'x%' and {number} > 3; select true, {number}"),
        ];
        for text in &texts {
            sent += session.query(text)?.completed;
        }
    }
    let query =
        "select query, calls from pg_stat_statements where query not like '%stat_statements%'";
    let rows = session.query(query)?.rows;
    let truth: BTreeMap<String, u64> = rows
        .into_iter()
        .filter_map(|row| <[String; 2]>::try_from(row).ok())
        .map(|[text, calls]| (text, calls.parse().unwrap_or(0)))
        .collect();
    let counted: u64 = truth.values().sum();
    ensure!(counted == sent, "{STATEMENTS_MODULE} has {counted} calls of {sent}");
    let check = move |service: ServiceReport<'_>| -> Result<()> {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for (text, operations) in service.operations_of("Query") {
            if !text.contains("stat_statements") {
                *found.entry(text.to_owned()).or_default() += operations;
            }
        }
        let truth = without_comments(&truth);
        ensure!(found == truth, "the server has the statements {truth:#?}, not {found:#?}");
        Ok(())
    };
    // The query of the counts has a literal, too.
    let truth = LoadTruth::exact(sent + 1, OperationSelector::new("Query", "$"));
    Ok(LoadTruth { check: Some(Box::new(check)), ..truth })
}

/// The server keeps comments, the observer drops them.
fn without_comments(statements: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let strip = |text: &str| match text.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) {
        Some((_, rest)) => rest.trim_start().to_owned(),
        None => text.to_owned(),
    };
    statements.iter().map(|(text, calls)| (strip(text), *calls)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_the_server_are_dropped() {
        let counts = [("/* a */ select $1", 3), ("select 'b'", 2)];
        let counts = counts.map(|(text, calls)| (text.to_owned(), calls)).into();
        let expected = [("select $1", 3), ("select 'b'", 2)];
        let expected = expected.map(|(text, calls)| (text.to_owned(), calls)).into();
        assert_eq!(without_comments(&counts), expected);
    }
}
