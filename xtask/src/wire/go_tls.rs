//! A server and a client of HTTPS in Go, both with `crypto/tls`: the observer reads the plaintext
//! at the functions of the program, which both ends run.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::load_truth::{LoadTruth, OperationSelector};
use super::server_process::{ADDRESS, ServerDir, free_port};
use super::{ObservedServer, ProvidedServer, ServerLoad, client_output};
use crate::command_line::{CommandLine, target};
use crate::part_log::PartLog;

const SOURCE: &str = "testdata/clients/go-tls";

/// Requests of a load.
struct GoRequests {
    path: &'static str,
    /// The path as a route.
    route: &'static str,
    connections: u64,
    /// Of each connection.
    requests: u64,
    body_bytes: u64,
}

pub(super) fn start(log: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let loads = [
        ("20,000 requests", small(4, 5_000)),
        ("500 x 100 kB", GoRequests { path: "/bytes/100000", ..small(2, 250) }),
        ("500 x 50 kB sent", echo()),
        ("200 connections", closed()),
    ];
    serve(log, dir, "http", "go-tls", loads.into())
}

pub(super) fn start_http2(log: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let loads = [("20,000 requests", small(4, 5_000)), ("500 x 50 kB sent", echo())];
    serve(log, dir, "http2", "go-tls-http2", loads.into())
}

fn small(connections: u64, requests: u64) -> GoRequests {
    let (path, route) = ("/bytes/1000", "/bytes/{n}");
    GoRequests { path, route, connections, requests, body_bytes: 0 }
}

fn echo() -> GoRequests {
    let (path, route) = ("/echo", "/echo");
    GoRequests { path, route, connections: 2, requests: 250, body_bytes: 50_000 }
}

/// Each request has a connection of its own.
fn closed() -> GoRequests {
    GoRequests { path: "/close/3000", route: "/close/{n}", ..small(2, 100) }
}

fn serve(
    log: &PartLog,
    dir: &Path,
    protocol: &'static str,
    name: &str,
    loads: Vec<(&'static str, GoRequests)>,
) -> Result<ProvidedServer> {
    if !CommandLine::new("go version").succeeds() {
        return Ok(Err("Go is not installed (Debian package golang-go)".to_owned()));
    }
    let clients = target().join("clients");
    std::fs::create_dir_all(&clients)?;
    let program = clients.join("go-tls");
    let path = program.to_str().context("the path of the repository is not UTF-8")?;
    // Without symbols, as programs are deployed.
    let build = format!("go -C {SOURCE} build -ldflags=-s -o");
    CommandLine::new(&build).arg(path).arg(".").run(log)?;
    let (dir, port) = (ServerDir::of_this_user(dir, name)?, free_port()?);
    let mut command = dir.command(&program)?;
    command.arg("server").arg(format!("{ADDRESS}:{port}"));
    let process = dir.start(command, port, "-TERM")?;
    let load = |(name, requests): (&'static str, GoRequests)| {
        let program = program.clone();
        ServerLoad::new(name, move || run(&program, protocol, port, &requests))
    };
    Ok(Ok(ObservedServer {
        protocol,
        port,
        tls: Some(process.pid()),
        loads: loads.into_iter().map(load).collect(),
        storm: None,
        steady: None,
        _process: Some(process),
    }))
}

fn run(program: &Path, protocol: &str, port: u16, of: &GoRequests) -> Result<LoadTruth> {
    let url = format!("https://{ADDRESS}:{port}{}", of.path);
    let mut line = CommandLine::from_path(program).arg("client");
    if protocol == "http2" {
        line = line.arg("http2");
    }
    for argument in [url, of.connections.to_string(), of.requests.to_string()] {
        line = line.arg(&argument);
    }
    let report = client_output(line.arg(&of.body_bytes.to_string()))?;
    let client_ns: Vec<u64> = report.lines().map(str::parse).collect::<Result<_, _>>()?;
    let verb = if of.body_bytes > 0 { "POST" } else { "GET" };
    let selector = OperationSelector::new(verb, of.route);
    Ok(LoadTruth { client_ns, ..LoadTruth::exact(of.connections * of.requests, selector) })
}
