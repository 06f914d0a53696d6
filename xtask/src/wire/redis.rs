//! Redis with redis-benchmark; the server's own counts are the truth.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::load_pace::LoadPace;
use super::load_truth::{LoadTruth, OperationSelector};
use super::server_process::{ADDRESS, ServerDir, find_program, free_port, number_after};
use super::{ObservedServer, ProvidedServer, ServerLoad, client_output};
use crate::command_line::CommandLine;
use crate::part_log::PartLog;

pub(super) fn start(_: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let programs = ["redis-server", "redis-benchmark"].map(find_program);
    let [Some(server), Some(bench)] = programs else {
        return Ok(Err("Redis is not installed (Debian package redis)".to_owned()));
    };
    let (dir, port) = (ServerDir::new(dir, "redis", "redis")?, free_port()?);
    let mut command = dir.command(&server)?;
    command.args(["--port", &port.to_string(), "--bind", ADDRESS, "--save", ""]);
    let process = dir.start(command, port, "-TERM")?;
    let benchmark = |name, arguments: &'static str| {
        let bench = bench.clone();
        ServerLoad::new(name, move || run_benchmark(&bench, port, arguments))
    };
    Ok(Ok(ObservedServer {
        protocol: "redis",
        port,
        tls: None,
        loads: vec![
            benchmark("redis-benchmark", "-c 20 -n 60000"),
            benchmark("redis-benchmark -P 100", "-c 10 -P 100 -n 200000"),
            ServerLoad::new("BLPOP without elements", move || blocking(port)),
            ServerLoad::new("500 errors in pipelines of 50", move || errors(port)),
        ],
        storm: Some(benchmark("redis-benchmark", "-c 10 -n 100000")),
        steady: Some(Box::new(move |pace| steady(port, pace))),
        _process: Some(process),
    }))
}

fn run_benchmark(bench: &Path, port: u16, arguments: &str) -> Result<LoadTruth> {
    let before = calls(port, "incr")?;
    let line = ["-h", ADDRESS, "-p", &port.to_string(), "-t", "incr", "-q"]
        .iter()
        .fold(CommandLine::from_path(bench), |line, word| line.arg(word));
    client_output(arguments.split(' ').fold(line, CommandLine::arg))?;
    let count = calls(port, "incr")? - before;
    Ok(LoadTruth::exact(count, OperationSelector::new("INCR", "")))
}

/// Number of calls of a command since the start of the server.
fn calls(port: u16, command: &str) -> Result<u64> {
    let mut session = RedisSession::connect(port)?;
    let reply = session.ask(b"INFO commandstats\r\n")?;
    Ok(number_after(&reply, &format!("cmdstat_{command}:calls=")).unwrap_or(0))
}

fn steady(port: u16, pace: LoadPace) -> Result<LoadTruth> {
    let mut session = RedisSession::connect(port)?;
    let count =
        pace.run(|portion| (0..portion).try_for_each(|_| session.ask(b"ECHO tea\r\n").map(drop)))?;
    Ok(LoadTruth::exact(count, OperationSelector::new("ECHO", "")))
}

/// Waits are apart from work.
fn blocking(port: u16) -> Result<LoadTruth> {
    let mut session = RedisSession::connect(port)?;
    for _ in 0..20 {
        session.ask(b"BLPOP absent 0.01\r\n")?;
    }
    let selector = OperationSelector { is_wait: true, ..OperationSelector::new("BLPOP", "") };
    Ok(LoadTruth::exact(20, selector))
}

fn errors(port: u16) -> Result<LoadTruth> {
    let mut session = RedisSession::connect(port)?;
    session.ask(b"SET word x\r\n")?;
    let mut failed = 0;
    for _ in 0..10 {
        session.send(&b"LPUSH word y\r\n".repeat(50))?;
        for _ in 0..50 {
            failed += u64::from(session.read_reply()?.starts_with("-WRONGTYPE"));
        }
    }
    let selector = OperationSelector::new("LPUSH", "");
    Ok(LoadTruth::exact(failed, OperationSelector { error: Some("WRONGTYPE"), ..selector }))
}

/// A connection that sends inline commands.
struct RedisSession(BufReader<TcpStream>);

impl RedisSession {
    fn connect(port: u16) -> Result<RedisSession> {
        let stream = TcpStream::connect((ADDRESS, port)).context("cannot connect to Redis")?;
        stream.set_nodelay(true)?;
        Ok(RedisSession(BufReader::new(stream)))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.get_mut().write_all(bytes).context("cannot write to Redis")
    }

    fn ask(&mut self, command: &[u8]) -> Result<String> {
        self.send(command)?;
        self.read_reply()
    }

    /// A reply that is no array, or a null one.
    fn read_reply(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).context("cannot read from Redis")?;
        let length = match line.as_bytes().first() {
            Some(b'$') => line[1..].trim().parse::<i64>().context("a reply without a length")?,
            Some(b'+' | b'-' | b':' | b'*') => return Ok(line),
            _ => bail!("Redis sent {line:?}"),
        };
        let Ok(length) = u64::try_from(length) else { return Ok(String::new()) };
        let mut text = Vec::new();
        (&mut self.0).take(length + 2).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
