//! Cassandra with a client of its own that has 128 streams in flight (CQL 4).

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::java_server::JavaPackage;
use super::load_pace::LoadPace;
use super::load_truth::{LoadTruth, OperationSelector};
use super::server_process::{ADDRESS, ServerDir, free_port};
use super::{ObservedServer, ProvidedServer, ServerLoad};
use crate::part_log::PartLog;

const PACKAGE: JavaPackage =
    JavaPackage { group: "org.apache.cassandra", name: "cassandra-all", version: "5.0.6" };
/// Packages of Java that Cassandra opens.
const OPENED: [&str; 18] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.ref",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.nio.charset",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
];
/// Packages of Java that Cassandra exports.
const EXPORTED: [&str; 8] = [
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];
/// Warnings only: without a configuration, everything is logged.
const LOGGING: &str = "<configuration><appender name=\"out\" \
                       class=\"ch.qos.logback.core.ConsoleAppender\"><encoder><pattern>%msg%n\
                       </pattern></encoder></appender><root level=\"WARN\"><appender-ref \
                       ref=\"out\"/></root></configuration>";
const STREAMS: u16 = 128;
/// Opcodes.
const STARTUP: u8 = 1;
const READY: u8 = 2;
const QUERY: u8 = 7;
const RESULT: u8 = 8;
const PREPARE: u8 = 9;
const EXECUTE: u8 = 10;

pub(super) fn start(log: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let classes = match PACKAGE.provide(log)? {
        Ok(classes) => classes,
        Err(reason) => return Ok(Err(reason)),
    };
    let dir = ServerDir::of_this_user(dir, "cassandra")?;
    let (port, storage) = (free_port()?, free_port()?);
    let settings = format!(
        "cluster_name: topdeck\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
         commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\nendpoint_snitch: \
         SimpleSnitch\nlisten_address: {ADDRESS}\nrpc_address: {ADDRESS}\nstorage_port: \
         {storage}\nnative_transport_port: {port}\nstart_native_transport: true\n\
         num_tokens: 1\nauto_bootstrap: false\nseed_provider:\n- class_name: \
         org.apache.cassandra.locator.SimpleSeedProvider\n  parameters:\n  - seeds: \
         \"{ADDRESS}:{storage}\"\n"
    );
    let settings = dir.write("cassandra.yaml", &settings)?;
    let logging = dir.write("logback.xml", LOGGING)?;
    let agent = classes.archive("jamm-")?;
    let mut options = vec![
        format!("-javaagent:{}", agent.display()),
        format!("-Dcassandra.config=file://{}", settings.display()),
        format!("-Dcassandra.storagedir={}", dir.path.join("data").display()),
        format!("-Dlogback.configurationFile={}", logging.display()),
        "-Dcassandra-foreground=yes".to_owned(),
        "-Dcassandra.skip_wait_for_gossip_to_settle=0".to_owned(),
        "-Dcassandra.ring_delay_ms=0".to_owned(),
        "-Djava.security.manager=allow".to_owned(),
    ];
    options.extend(OPENED.map(|one| format!("--add-opens={one}=ALL-UNNAMED")));
    options.extend(EXPORTED.map(|one| format!("--add-exports={one}=ALL-UNNAMED")));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut command = classes.command(&dir, &options)?;
    command.arg("org.apache.cassandra.service.CassandraDaemon");
    let process = dir.start(command, port, "-TERM")?;
    Ok(Ok(ObservedServer {
        protocol: "cassandra",
        port,
        tls: None,
        loads: vec![
            ServerLoad::new("128 queries in flight", move || queries(port, 40)),
            ServerLoad::new("128 prepared statements in flight", move || prepared(port)),
        ],
        storm: Some(ServerLoad::new("128 queries in flight", move || queries(port, 80))),
        steady: Some(Box::new(move |pace| steady(port, pace))),
        _process: Some(process),
    }))
}

fn steady(port: u16, pace: LoadPace) -> Result<LoadTruth> {
    let (mut session, body) = (CassandraSession::connect(port)?, query_body("paced"));
    let count = pace.run(|portion| {
        let mut left = portion;
        while left > 0 {
            let streams = left.min(u64::from(STREAMS));
            session.ask(QUERY, &body, streams as u16)?;
            left -= streams;
        }
        Ok(())
    })?;
    Ok(LoadTruth::exact(count, OperationSelector::new("QUERY", "as paced")))
}

/// A query with consistency ONE and no flags.
fn query_body(name: &str) -> Vec<u8> {
    let text = format!("select rack as {name} from system.local where key = 'local'");
    [&long_string(&text)[..], &[0, 1, 0]].concat()
}

fn queries(port: u16, rounds: u64) -> Result<LoadTruth> {
    let (mut session, body) = (CassandraSession::connect(port)?, query_body("queried"));
    (0..rounds).try_for_each(|_| session.ask(QUERY, &body, STREAMS))?;
    let count = rounds * u64::from(STREAMS);
    Ok(LoadTruth::exact(count, OperationSelector::new("QUERY", "as queried")))
}

fn prepared(port: u16) -> Result<LoadTruth> {
    let mut session = CassandraSession::connect(port)?;
    let text = "select rack as chosen from system.local where key = ?";
    session.send(PREPARE, 0, &long_string(text))?;
    let (_, _, reply) = session.read_frame()?;
    // Kind of the result, then the id.
    let (id, _) =
        reply.get(4..).and_then(|id| id.split_first_chunk()).context("no statement id")?;
    let id = reply.get(4..6 + usize::from(u16::from_be_bytes(*id))).context("the id is cut")?;
    // Consistency ONE, values follow: one of 5 bytes.
    let body = [id, &[0, 1, 1, 0, 1, 0, 0, 0, 5], b"local"].concat();
    (0..40).try_for_each(|_| session.ask(EXECUTE, &body, STREAMS))?;
    let count = 40 * u64::from(STREAMS);
    Ok(LoadTruth::exact(count, OperationSelector::new("EXECUTE", "as chosen")))
}

fn long_string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A connection with frames of version 4.
struct CassandraSession {
    stream: BufReader<TcpStream>,
}

impl CassandraSession {
    fn connect(port: u16) -> Result<CassandraSession> {
        let stream = TcpStream::connect((ADDRESS, port)).context("cannot connect to Cassandra")?;
        stream.set_nodelay(true)?;
        let mut session = CassandraSession { stream: BufReader::new(stream) };
        session.send(STARTUP, 0, b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0")?;
        let (_, opcode, body) = session.read_frame()?;
        ensure!(opcode == READY, "Cassandra responds with opcode {opcode}: {body:?}");
        Ok(session)
    }

    fn send(&mut self, opcode: u8, stream: u16, body: &[u8]) -> Result<()> {
        let bytes = frame(opcode, stream, body);
        self.stream.get_mut().write_all(&bytes).context("cannot write to Cassandra")
    }

    /// Sends a request on each of the first `streams`, and reads the response of each.
    fn ask(&mut self, opcode: u8, body: &[u8], streams: u16) -> Result<()> {
        let all: Vec<u8> = (0..streams).flat_map(|stream| frame(opcode, stream, body)).collect();
        self.stream.get_mut().write_all(&all).context("cannot write to Cassandra")?;
        let mut is_answered = vec![false; usize::from(streams)];
        for _ in 0..streams {
            let (stream, opcode, body) = self.read_frame()?;
            ensure!(opcode == RESULT, "Cassandra responds with opcode {opcode}: {body:?}");
            let answered = is_answered.get_mut(usize::from(stream));
            let answered = answered.with_context(|| format!("a response on stream {stream}"))?;
            ensure!(!std::mem::replace(answered, true), "two responses on stream {stream}");
        }
        Ok(())
    }

    /// Stream, opcode and body of the next frame.
    fn read_frame(&mut self) -> Result<(u16, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).context("cannot read from Cassandra")?;
        let [_, _, high, low, opcode, length @ ..] = head;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut body)?;
        Ok((u16::from_be_bytes([high, low]), opcode, body))
    }
}

fn frame(opcode: u8, stream: u16, body: &[u8]) -> Vec<u8> {
    let [high, low] = stream.to_be_bytes();
    let length = (body.len() as u32).to_be_bytes();
    [&[4, 0, high, low, opcode][..], &length, body].concat()
}
