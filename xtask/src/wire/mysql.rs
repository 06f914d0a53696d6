//! MariaDB with a client of its own, and with mysqlslap if it is installed.

use std::path::Path;

use anyhow::{Result, ensure};

use super::load_pace::LoadPace;
use super::load_truth::{LoadTruth, OperationSelector};
use super::mysql_session::{MysqlReply, MysqlSession};
use super::server_process::{ADDRESS, ServerDir, find_program, free_port};
use super::{ObservedServer, ProvidedServer, ServerLoad, client_output};
use crate::command_line::CommandLine;
use crate::part_log::PartLog;

pub(super) fn start(_: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let Some(program) = find_program("mariadbd") else {
        let reason = "mariadbd is not installed (Debian package mariadb-server-core)";
        return Ok(Err(reason.to_owned()));
    };
    let (dir, port) = (ServerDir::new(dir, "mariadb", "mysql")?, free_port()?);
    let mut command = dir.command(&program)?;
    // Without the tables of privileges it needs no installation.
    command.args(["--no-defaults", "--skip-grant-tables", "--datadir=."]);
    command.arg(format!("--bind-address={ADDRESS}")).arg(format!("--port={port}"));
    command.args(["--socket=socket", "--innodb-buffer-pool-size=16M"]);
    command.args(["--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0"]);
    let process = dir.start(command, port, "-TERM")?;
    let mut session = MysqlSession::connect(port)?;
    session.query("create database shop")?;
    session.query("create table shop.orders(id bigint primary key, item varchar(20))")?;
    session.query("insert into shop.orders values (1, 'tea'), (2, 'rye')")?;
    let mut loads = own_loads(port);
    if let Some(slap) = find_program("mysqlslap") {
        // It uses this database, and creates it only for statements of its own.
        session.query("create database mysqlslap")?;
        loads.push(ServerLoad::new("mysqlslap", move || run_slap(&slap, port)));
    }
    Ok(Ok(ObservedServer {
        protocol: "mysql",
        port,
        tls: None,
        loads,
        storm: Some(ServerLoad::new("4 connections", move || connections(port))),
        steady: Some(Box::new(move |pace| steady(port, pace))),
        _process: Some(process),
    }))
}

fn own_loads(port: u16) -> Vec<ServerLoad> {
    vec![
        ServerLoad::new("3 statements in one query", move || {
            let selector = OperationSelector::new("Query", "select $");
            repeat(port, 500, "select 1; select 'a', 'b'; select 2.5", 3, selector)
        }),
        ServerLoad::new("500 errors", move || {
            let mut session = MysqlSession::connect(port)?;
            for _ in 0..500 {
                let reply = session.query("select * from shop.absent where id = 3")?;
                ensure!(reply.error == Some(1146), "MariaDB sent {reply:?}");
            }
            let selector = OperationSelector::new("Query", "shop.absent");
            Ok(LoadTruth::exact(500, OperationSelector { error: Some("42"), ..selector }))
        }),
        ServerLoad::new("200 x 300 kB", move || {
            let selector = OperationSelector::new("Query", "large");
            repeat(port, 200, "select repeat('x', 300000) as large", 1, selector)
        }),
        ServerLoad::new("prepared statements", move || prepared(port, 5_000)),
        ServerLoad::new("4 connections", move || connections(port)),
    ]
}

/// Sends a query with `statements` statements `count` times.
fn repeat(
    port: u16,
    count: u64,
    text: &str,
    statements: u64,
    selector: OperationSelector,
) -> Result<LoadTruth> {
    let mut session = MysqlSession::connect(port)?;
    for _ in 0..count {
        let reply = session.query(text)?;
        let expected = MysqlReply { results: statements, rows: statements, error: None };
        ensure!(reply == expected, "MariaDB sent {reply:?}, expected {expected:?}");
    }
    Ok(LoadTruth::exact(count * statements, selector))
}

fn prepared(port: u16, count: u64) -> Result<LoadTruth> {
    let mut session = MysqlSession::connect(port)?;
    let id = session.prepare("select item as chosen from shop.orders where id = ?")?;
    for _ in 0..count {
        let reply = session.execute(id, 2)?;
        ensure!(reply.rows == 1, "MariaDB sent {reply:?}");
    }
    Ok(LoadTruth::exact(count, OperationSelector::new("Execute", "as chosen")))
}

fn steady(port: u16, pace: LoadPace) -> Result<LoadTruth> {
    let mut session = MysqlSession::connect(port)?;
    let count = pace.run(|portion| {
        (0..portion).try_for_each(|number| {
            let text = format!("select id as paced from shop.orders where id = {number}");
            session.query(&text).map(drop)
        })
    })?;
    Ok(LoadTruth::exact(count, OperationSelector::new("Query", "as paced")))
}

/// Queries of 4 connections at once.
fn connections(port: u16) -> Result<LoadTruth> {
    const CONNECTIONS: u64 = 4;
    const QUERIES: u64 = 8_000;
    let ask = || {
        let mut session = MysqlSession::connect(port)?;
        for number in 0..QUERIES {
            session.query(&format!("select item from shop.orders where id = {number}"))?;
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(ask)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().expect("BUG: a client panicked")
        };
        running.into_iter().try_for_each(join)
    })?;
    let selector = OperationSelector::new("Query", "select item from shop.orders");
    Ok(LoadTruth::exact(CONNECTIONS * QUERIES, selector))
}

fn run_slap(program: &Path, port: u16) -> Result<LoadTruth> {
    let query = "select item, id from shop.orders where id = 1";
    let line = CommandLine::from_path(program).arg("--no-defaults").arg("--protocol=tcp");
    let line = line.arg(&format!("--host={ADDRESS}")).arg(&format!("--port={port}"));
    let line = line.arg("--user=root").arg("--concurrency=4").arg("--number-of-queries=20000");
    client_output(line.arg(&format!("--query={query}")))?;
    Ok(LoadTruth::exact(20_000, OperationSelector::new("Query", "select item, id")))
}
