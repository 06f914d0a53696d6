//! Kafka in KRaft mode with a client of its own that has 100 requests in flight.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::java_server::JavaPackage;
use super::load_pace::LoadPace;
use super::load_truth::{LoadTruth, OperationSelector};
use super::server_process::{ADDRESS, ServerDir, free_port};
use super::{ObservedServer, ProvidedServer, ServerLoad};
use crate::part_log::PartLog;

const PACKAGE: JavaPackage =
    JavaPackage { group: "org.apache.kafka", name: "kafka_2.13", version: "4.1.2" };
const TOPIC: &str = "orders";
/// Time until the topic has a leader.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Keys and versions of requests.
const PRODUCE: (u16, u16) = (0, 3);
const FETCH: (u16, u16) = (1, 4);
const METADATA: (u16, u16) = (3, 4);

pub(super) fn start(log: &PartLog, dir: &Path) -> Result<ProvidedServer> {
    let classes = match PACKAGE.provide(log)? {
        Ok(classes) => classes,
        Err(reason) => return Ok(Err(reason)),
    };
    let dir = ServerDir::of_this_user(dir, "kafka")?;
    let (port, controller) = (free_port()?, free_port()?);
    let data = dir.path.join("data");
    let settings = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{ADDRESS}:\
         {controller}\nlisteners=PLAINTEXT://{ADDRESS}:{port},CONTROLLER://{ADDRESS}:{controller}\n\
         advertised.listeners=PLAINTEXT://{ADDRESS}:{port}\ncontroller.listener.names=CONTROLLER\n\
         log.dirs={}\noffsets.topic.replication.factor=1\n",
        data.display()
    );
    let settings = dir.write("server.properties", &settings)?;
    let mut format = classes.command(&dir, &[])?;
    format.args(["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c"]);
    dir.run(format.arg(&settings))?;
    let mut command = classes.command(&dir, &[])?;
    command.arg("kafka.Kafka").arg(&settings);
    let process = dir.start(command, port, "-TERM")?;
    await_topic(port).with_context(|| process.log_end())?;
    let storm = ServerLoad::new("100 Metadata in flight", move || metadata(port, 200));
    Ok(Ok(ObservedServer {
        protocol: "kafka",
        port,
        tls: None,
        loads: vec![
            ServerLoad::new("100 Metadata in flight", move || metadata(port, 100)),
            ServerLoad::new("100 Produce in flight", move || produce(port)),
            ServerLoad::new("Fetch without records", move || fetch(port)),
        ],
        storm: Some(storm),
        steady: Some(Box::new(move |pace| steady(port, pace))),
        _process: Some(process),
    }))
}

/// Creates the topic, and waits until it takes records.
fn await_topic(port: u16) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let mut session = KafkaSession::connect(port)?;
    loop {
        session.send(METADATA, &metadata_body(), 1)?;
        session.read_response()?;
        session.send(PRODUCE, &produce_body(), 1)?;
        let error = produce_error(&session.read_response()?);
        if error == Some(0) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no leader of the topic: error {error:?}");
        sleep(PAUSE);
    }
}

fn metadata(port: u16, rounds: u64) -> Result<LoadTruth> {
    let mut session = KafkaSession::connect(port)?;
    for _ in 0..rounds {
        session.send(METADATA, &metadata_body(), 100)?;
        for _ in 0..100 {
            session.read_response()?;
        }
    }
    Ok(LoadTruth::exact(rounds * 100, OperationSelector::new("Metadata", "")))
}

fn steady(port: u16, pace: LoadPace) -> Result<LoadTruth> {
    let mut session = KafkaSession::connect(port)?;
    let count = pace.run(|portion| {
        session.send(METADATA, &metadata_body(), portion as u32)?;
        (0..portion).try_for_each(|_| session.read_response().map(drop))
    })?;
    Ok(LoadTruth::exact(count, OperationSelector::new("Metadata", "")))
}

fn produce(port: u16) -> Result<LoadTruth> {
    let mut session = KafkaSession::connect(port)?;
    for _ in 0..20 {
        session.send(PRODUCE, &produce_body(), 100)?;
        for _ in 0..100 {
            let response = session.read_response()?;
            ensure!(produce_error(&response) == Some(0), "Kafka sent {response:?}");
        }
    }
    Ok(LoadTruth::exact(2_000, OperationSelector::new("Produce", TOPIC)))
}

/// The broker waits for records that nobody produces.
fn fetch(port: u16) -> Result<LoadTruth> {
    let mut session = KafkaSession::connect(port)?;
    // Replica, wait in ms, least and most bytes, isolation; topics: partitions: offset, bytes.
    let mut body = [-1_i32, 50, 1, 1 << 20].map(i32::to_be_bytes).concat();
    body.push(0);
    body.extend([&1_i32.to_be_bytes()[..], &string(TOPIC), &1_i32.to_be_bytes()].concat());
    // Far behind the end of the partition is an error without a wait; its end is not.
    body.extend([&0_i32.to_be_bytes()[..], &session.end_offset()?.to_be_bytes()].concat());
    body.extend((1_i32 << 20).to_be_bytes());
    for _ in 0..20 {
        session.send(FETCH, &body, 1)?;
        session.read_response()?;
    }
    let selector = OperationSelector { is_wait: true, ..OperationSelector::new("Fetch", TOPIC) };
    Ok(LoadTruth::exact(20, selector))
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// One topic, created if it is missing.
fn metadata_body() -> Vec<u8> {
    [&1_i32.to_be_bytes()[..], &string(TOPIC), &[1]].concat()
}

/// One record for partition 0; all replicas acknowledge it.
fn produce_body() -> Vec<u8> {
    let batch = record_batch(b"tea");
    let head = [&[0xff, 0xff, 0xff, 0xff][..], &30_000_i32.to_be_bytes()].concat();
    let topic = [&1_i32.to_be_bytes()[..], &string(TOPIC), &1_i32.to_be_bytes()].concat();
    let partition = [&0_i32.to_be_bytes()[..], &(batch.len() as u32).to_be_bytes()].concat();
    [head, topic, partition, batch].concat()
}

/// A batch of version 2 with one record without a key.
fn record_batch(value: &[u8]) -> Vec<u8> {
    // Attributes, time, offset, no key, value, no headers; numbers are zigzag varints of one byte.
    let record = [&[0, 0, 0, 1, value.len() as u8 * 2][..], value, &[0]].concat();
    let mut checked = [0; 2 + 4 + 8 + 8].to_vec();
    // Producer id, epoch and sequence: none.
    checked.extend([0xff; 8 + 2 + 4]);
    checked.extend(1_i32.to_be_bytes());
    checked.push(record.len() as u8 * 2);
    checked.extend(record);
    let length = (4 + 1 + 4 + checked.len() as u32).to_be_bytes();
    let head = [&[0; 8][..], &length, &[0xff; 4], &[2]].concat();
    [&head[..], &crc32c(&checked).to_be_bytes(), &checked].concat()
}

/// The error code of the only partition in a response to Produce 3.
fn produce_error(response: &[u8]) -> Option<u16> {
    let at = 4 + 4 + 2 + TOPIC.len() + 4 + 4;
    Some(u16::from_be_bytes(response.get(at..at + 2)?.try_into().ok()?))
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A connection to the broker.
struct KafkaSession {
    stream: BufReader<TcpStream>,
    /// Correlation ids of the next request and response.
    next: [u32; 2],
}

impl KafkaSession {
    fn connect(port: u16) -> Result<KafkaSession> {
        let stream = TcpStream::connect((ADDRESS, port)).context("cannot connect to Kafka")?;
        stream.set_nodelay(true)?;
        Ok(KafkaSession { stream: BufReader::new(stream), next: [0; 2] })
    }

    /// Sends equal requests at once.
    fn send(&mut self, (key, version): (u16, u16), body: &[u8], count: u32) -> Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let keys = [key.to_be_bytes(), version.to_be_bytes()].concat();
            let head = [&keys[..], &self.next[0].to_be_bytes(), &string("topdeck")].concat();
            bytes.extend(((head.len() + body.len()) as u32).to_be_bytes());
            bytes.extend(head);
            bytes.extend(body);
            self.next[0] += 1;
        }
        self.stream.get_mut().write_all(&bytes).context("cannot write to Kafka")
    }

    /// The next response, with its correlation id.
    fn read_response(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).context("cannot read from Kafka")?;
        let mut response = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut response)?;
        let id = response.first_chunk().map(|id| u32::from_be_bytes(*id));
        ensure!(id == Some(self.next[1]), "Kafka responds to {id:?}, not {}", self.next[1]);
        self.next[1] += 1;
        Ok(response)
    }

    /// Offset after the last record of partition 0 (ListOffsets 1).
    fn end_offset(&mut self) -> Result<i64> {
        let topic = [&1_i32.to_be_bytes()[..], &string(TOPIC), &1_i32.to_be_bytes()].concat();
        let latest = [&0_i32.to_be_bytes()[..], &(-1_i64).to_be_bytes()].concat();
        self.send((2, 1), &[&(-1_i32).to_be_bytes()[..], &topic, &latest].concat(), 1)?;
        let response = self.read_response()?;
        let offset = response.last_chunk().context("a response without an offset")?;
        Ok(i64::from_be_bytes(*offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
