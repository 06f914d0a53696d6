//! nginx with wrk, with and without TLS, and with a client of its own for pipelines and errors.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::http_session::{HttpSession, request};
use super::load_pace::LoadPace;
use super::load_truth::{LoadTruth, OperationSelector};
use super::observer_cost::PinnedCpu;
use super::server_process::{ADDRESS, ServerDir, find_program, free_port, number_after};
use super::{ObservedServer, ProvidedServer, ServerLoad, client_output};
use crate::command_line::CommandLine;
use crate::part_log::PartLog;

/// Connections of wrk.
const CONNECTIONS: u64 = 8;
const LARGE_BYTES: usize = 200_000;

/// nginx and wrk, if they are installed.
pub(super) struct HttpTools {
    pub(super) nginx: PathBuf,
    pub(super) wrk: PathBuf,
}

pub(super) fn tools() -> std::result::Result<HttpTools, String> {
    let find = |name: &str| find_program(name).ok_or(format!("{name} is not installed"));
    let tools = HttpTools { nginx: find("nginx")?, wrk: find("wrk")? };
    Ok(tools)
}

pub(super) fn start(_: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(reason) => return Ok(Err(reason)),
    };
    let (dir, port) = (ServerDir::new(dir, "nginx", "www-data")?, free_port()?);
    let command = configure(&dir, None, &tools.nginx, &format!("listen {ADDRESS}:{port};"))?;
    let process = dir.start(command, port, "-TERM")?;
    let wrk = move |wrk: &Path| {
        let (wrk, url) = (wrk.to_owned(), format!("http://{ADDRESS}:{port}/index.html"));
        move || run_wrk(&wrk, &url)
    };
    Ok(Ok(ObservedServer {
        protocol: "http",
        port,
        tls: None,
        loads: vec![
            ServerLoad::new("wrk", wrk(&tools.wrk)),
            ServerLoad::new("pipelines of 8", move || pipelines(port)),
            ServerLoad::new("HEAD and 404", move || errors(port)),
            ServerLoad::new("500 x 200 kB", move || large(port)),
        ],
        storm: Some(ServerLoad::new("wrk", wrk(&tools.wrk))),
        steady: Some(Box::new(move |pace| steady(port, pace))),
        _process: Some(process),
    }))
}

/// The observer reads the plaintext at nginx's library.
pub(super) fn start_tls(_: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(reason) => return Ok(Err(reason)),
    };
    let Some(openssl) = find_program("openssl") else {
        return Ok(Err("openssl is not installed".to_owned()));
    };
    let (dir, port) = (ServerDir::new(dir, "nginx-tls", "www-data")?, free_port()?);
    let mut make = dir.command(&openssl)?;
    make.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '));
    dir.run(make.args("-subj /CN=localhost -days 2 -keyout key.pem -out own.pem".split(' ')))?;
    let listen = format!(
        "listen {ADDRESS}:{port} ssl; ssl_certificate own.pem; ssl_certificate_key key.pem;"
    );
    let process = dir.start(configure(&dir, None, &tools.nginx, &listen)?, port, "-TERM")?;
    let url = format!("https://{ADDRESS}:{port}/index.html");
    Ok(Ok(ObservedServer {
        protocol: "http",
        port,
        tls: Some(process.pid()),
        loads: vec![ServerLoad::new("wrk over TLS", move || run_wrk(&tools.wrk, &url))],
        storm: None,
        steady: None,
        _process: Some(process),
    }))
}

/// nginx with two files and all of its own files in `dir`, perhaps on one CPU.
pub(super) fn configure(
    dir: &ServerDir,
    cpu: Option<&PinnedCpu>,
    nginx: &Path,
    listen: &str,
) -> Result<std::process::Command> {
    fs::create_dir(dir.path.join("html"))?;
    dir.write("html/index.html", &"tea ".repeat(250))?;
    dir.write("html/large.bin", &"x".repeat(LARGE_BYTES))?;
    let bodies = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let bodies: String = bodies.iter().map(|one| format!("{one}_temp_path {one};\n")).collect();
    let settings = format!(
        "daemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log errors;\nevents {{ \
         worker_connections 512; }}\nhttp {{\naccess_log off;\nkeepalive_requests \
         1000000000;\n{bodies}server {{ {listen} root html; }}\n}}\n"
    );
    let file = dir.write("nginx.conf", &settings)?;
    let mut command = match cpu {
        None => dir.command(nginx)?,
        Some(cpu) => {
            let [taskset, rest @ ..] = cpu.words(nginx);
            let mut command = dir.command(Path::new(&taskset))?;
            command.args(rest);
            command
        }
    };
    command.arg("-p").arg(&dir.path).arg("-c").arg(file).args(["-e", "errors"]);
    Ok(command)
}

fn run_wrk(wrk: &Path, url: &str) -> Result<LoadTruth> {
    let line = CommandLine::from_path(wrk);
    let line = line.arg("-t1").arg(&format!("-c{CONNECTIONS}")).arg("-d4s").arg(url);
    let report = client_output(line)?;
    // "  61208 requests in 4.00s, 20 MB read".
    let count = report.lines().find(|line| line.contains(" requests in "));
    let count = count.and_then(|line| number_after(line, "")).context("wrk has no count")?;
    let selector = OperationSelector::new("GET", "/index.html");
    Ok(LoadTruth::between(count..=count + CONNECTIONS, selector))
}

fn steady(port: u16, pace: LoadPace) -> Result<LoadTruth> {
    let (mut session, request) = (HttpSession::connect(port)?, request("GET", "/index.html"));
    let count = pace.run(|portion| {
        (0..portion).try_for_each(|_| {
            session.send(&request)?;
            session.read_response(false).map(drop)
        })
    })?;
    Ok(LoadTruth::exact(count, OperationSelector::new("GET", "/index.html")))
}

fn pipelines(port: u16) -> Result<LoadTruth> {
    let mut session = HttpSession::connect(port)?;
    let requests = request("GET", "/index.html").repeat(8);
    let mut count = 0;
    for _ in 0..100 {
        session.send(&requests)?;
        for _ in 0..8 {
            count += u64::from(session.read_response(false)? == 200);
        }
    }
    Ok(LoadTruth::exact(count, OperationSelector::new("GET", "/index.html")))
}

fn errors(port: u16) -> Result<LoadTruth> {
    let mut session = HttpSession::connect(port)?;
    let mut missing = 0;
    for number in 0..200 {
        session.send(&request("HEAD", "/large.bin"))?;
        session.read_response(true)?;
        session.send(&request("GET", &format!("/users/{number}")))?;
        missing += u64::from(session.read_response(false)? == 404);
    }
    let selector = OperationSelector::new("GET", "/users/{n}");
    Ok(LoadTruth::exact(missing, OperationSelector { error: Some("4xx"), ..selector }))
}

fn large(port: u16) -> Result<LoadTruth> {
    let mut session = HttpSession::connect(port)?;
    for _ in 0..500 {
        session.send(&request("GET", "/large.bin"))?;
        session.read_response(false)?;
    }
    Ok(LoadTruth::exact(500, OperationSelector::new("GET", "/large.bin")))
}
