//! Requests that a capture has measured, as a report to the node that compares both ends.
//!
//! A report has the addresses and sequence numbers of requests and handshakes, and their times; no
//! statement and no payload. `docs/formats/wire-ends.md` describes the bytes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use protocol::PROTOCOLS;
use protocol::observer::ObservedProtocol;

use crate::request_log::{HandshakeRecord, RequestLog, RequestRecord, fnv1a};

const MAGIC: &[u8; 4] = b"TDE1";
/// Longest name of a host or service, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Requests and handshakes of a report. Its bytes are below the limit of the server's bodies.
const RECORDS_MAX: usize = 64 << 10;
/// Services of a report: those of a capture with the most servers, and of other servers.
const SERVICES_MAX: usize = 4_096;

const IS_WAIT: u8 = 1;
const BEGINS_AT_SERVER: u8 = 2;
const IS_IN_ORDER: u8 = 4;
const IS_FIRST: u8 = 8;

/// Which end of a connection a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConnectionEnd {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

/// Requests and handshakes of a capture since they were last taken.
pub struct EndRecords {
    log: RequestLog,
    /// Names and protocols of the services of the records, by their index in the tracker.
    services: HashMap<u32, (String, &'static ObservedProtocol)>,
}

/// What became of the requests that a capture has measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndReportCounts {
    /// Requests in reports.
    pub reported: u64,
    /// Requests that are not in the sample.
    pub outside_sample: u64,
    /// Requests of connections of which this host is neither end, or both.
    pub unknown_end: u64,
    /// Requests without known sequence numbers.
    pub missing_sequence: u64,
    /// Requests beyond the limit of memory.
    pub dropped: u64,
}

/// Requests of one host.
pub struct EndReport {
    pub(crate) sender: u64,
    pub(crate) sequence: u64,
    pub(crate) host: String,
    pub(crate) services: Vec<(String, &'static ObservedProtocol)>,
    pub(crate) connections: Vec<ReportedConnection>,
    pub(crate) requests: Vec<ReportedRequest>,
    pub(crate) handshakes: Vec<HandshakeRecord>,
    index: ReportIndex,
}

/// Indexes of the services and connections of a report that is being filled.
#[derive(Default)]
struct ReportIndex {
    services: HashMap<(String, &'static str), u16>,
    connections: HashMap<ReportedConnection, u32>,
}

/// A connection of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReportedConnection {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) end: ConnectionEnd,
    /// Index of the service in the report.
    pub(crate) service: u16,
}

/// Requests with the same numbers and times.
#[derive(Clone, Copy)]
pub(crate) struct ReportedRequest {
    /// `connection` is an index in the report.
    pub(crate) record: RequestRecord,
    pub(crate) requests: u16,
}

/// Bytes that are no report.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("byte {offset} of the report of requests: expected {expected}")]
pub struct EndReportError {
    /// Position in the report.
    pub offset: usize,
    /// What the format requires.
    pub expected: &'static str,
}

impl EndRecords {
    pub(crate) fn new(
        log: RequestLog,
        service: impl Fn(u32) -> (String, &'static ObservedProtocol),
    ) -> EndRecords {
        let mut services = HashMap::new();
        let of_requests = log.requests.iter().map(|of| of.service);
        for index in of_requests.chain(log.handshakes.iter().map(|of| of.service)) {
            services.entry(index).or_insert_with(|| service(index));
        }
        EndRecords { log, services }
    }

    /// Number of requests and handshakes.
    pub fn records(&self) -> usize {
        self.log.requests.len() + self.log.handshakes.len()
    }

    /// Number of requests that were measured, reported or not.
    pub fn requests(&self) -> u64 {
        self.log.requests.len() as u64
            + self.log.dropped_requests
            + self.log.missing_sequence_requests
    }
}

impl EndReport {
    /// An empty report of a host. A sender has an id of its own, and numbers its reports.
    pub fn new(host: &str, sender: u64, sequence: u64) -> EndReport {
        let end = host.floor_char_boundary(NAME_BYTES_MAX);
        EndReport {
            sender,
            sequence,
            host: host[..end].to_owned(),
            services: Vec::new(),
            connections: Vec::new(),
            requests: Vec::new(),
            handshakes: Vec::new(),
            index: ReportIndex::default(),
        }
    }

    /// Whether records have space in the report.
    pub fn has_space_for(&self, records: &EndRecords) -> bool {
        let used = self.requests.len() + self.handshakes.len();
        used == 0 || used + records.records() <= RECORDS_MAX
    }

    /// Whether there is neither a request nor a handshake.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.handshakes.is_empty()
    }

    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.requests.iter().map(|of| u64::from(of.requests)).sum()
    }

    /// Adds records: one of `one_in` requests, by their connection and first sequence number, so
    /// that both ends choose the same. `end_of` tells the end of a connection by the addresses of
    /// client and server.
    pub fn add(
        &mut self,
        records: EndRecords,
        one_in: u32,
        end_of: &mut dyn FnMut(SocketAddr, SocketAddr) -> Option<ConnectionEnd>,
    ) -> EndReportCounts {
        let EndRecords { log, services } = records;
        let mut counts = EndReportCounts {
            missing_sequence: log.missing_sequence_requests,
            dropped: log.dropped_requests,
            ..EndReportCounts::default()
        };
        let mut addresses = vec![None; log.connections.len()];
        for (of, number) in &log.connections {
            addresses[*number as usize] = end_of(of.0, of.1).map(|end| (of.0, of.1, end));
        }
        for mut record in log.requests {
            let Some(of) = addresses[record.connection as usize] else {
                counts.unknown_end += 1;
                continue;
            };
            let space = self.requests.len() + self.handshakes.len() < RECORDS_MAX;
            match (is_in_sample(of.0, of.1, record.numbers[0], one_in), space) {
                (false, _) => counts.outside_sample += 1,
                (true, false) => counts.dropped += 1,
                (true, true) => {
                    counts.reported += 1;
                    record.connection = self.connection_index(of, &services[&record.service]);
                    self.add_request(record);
                }
            }
        }
        for mut handshake in log.handshakes {
            let has_space = self.requests.len() + self.handshakes.len() < RECORDS_MAX;
            let of = addresses[handshake.connection as usize].filter(|_| has_space);
            let Some(of) = of.filter(|of| is_in_sample(of.0, of.1, handshake.numbers[0], one_in))
            else {
                continue;
            };
            handshake.connection = self.connection_index(of, &services[&handshake.service]);
            self.handshakes.push(handshake);
        }
        counts
    }

    fn connection_index(
        &mut self,
        (client, server, end): (SocketAddr, SocketAddr, ConnectionEnd),
        (name, protocol): &(String, &'static ObservedProtocol),
    ) -> u32 {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        let (services, connections) = (&mut self.services, &mut self.connections);
        let key = (name.to_owned(), protocol.name);
        let service = *self.index.services.entry(key).or_insert_with(|| {
            services.push((name.to_owned(), protocol));
            (services.len() - 1) as u16
        });
        let connection = ReportedConnection { client, server, end, service };
        *self.index.connections.entry(connection).or_insert_with(|| {
            connections.push(connection);
            (connections.len() - 1) as u32
        })
    }

    fn add_request(&mut self, record: RequestRecord) {
        let is_same = |last: &&mut ReportedRequest| {
            let RequestRecord { connection, numbers, boundary_hash, times, .. } = last.record;
            (connection, numbers, boundary_hash)
                == (record.connection, record.numbers, record.boundary_hash)
                && times == record.times
                && flags(&last.record) == flags(&record)
                && last.requests < u16::MAX
        };
        match self.requests.last_mut().filter(is_same) {
            Some(last) => last.requests += 1,
            None => self.requests.push(ReportedRequest { record, requests: 1 }),
        }
    }

    /// The report as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + 63 * self.requests.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.sender.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        put_name(&mut bytes, &self.host);
        put_count(&mut bytes, self.services.len());
        for (name, protocol) in &self.services {
            put_name(&mut bytes, name);
            put_name(&mut bytes, protocol.name);
        }
        put_count(&mut bytes, self.connections.len());
        for connection in &self.connections {
            let ReportedConnection { client, server, end, service } = connection;
            put_address(&mut bytes, *client);
            put_address(&mut bytes, *server);
            bytes.push(u8::from(*end == ConnectionEnd::Server));
            bytes.extend_from_slice(&service.to_le_bytes());
        }
        put_count(&mut bytes, self.requests.len());
        for ReportedRequest { record, requests } in &self.requests {
            bytes.extend_from_slice(&record.connection.to_le_bytes());
            put_all(&mut bytes, &record.numbers.map(u32::to_le_bytes));
            bytes.extend_from_slice(&record.boundary_hash.to_le_bytes());
            put_all(&mut bytes, &record.times.map(u64::to_le_bytes));
            bytes.push(flags(record));
            bytes.extend_from_slice(&requests.to_le_bytes());
        }
        put_count(&mut bytes, self.handshakes.len());
        for handshake in &self.handshakes {
            bytes.extend_from_slice(&handshake.connection.to_le_bytes());
            put_all(&mut bytes, &handshake.numbers.map(u32::to_le_bytes));
            put_all(&mut bytes, &handshake.times.map(u64::to_le_bytes));
            bytes.push(u8::from(handshake.is_repeated));
        }
        bytes
    }

    /// Reads a report.
    pub fn decode(bytes: &[u8]) -> Result<EndReport, EndReportError> {
        let mut reader = ReportReader { bytes, offset: 0 };
        if reader.array("the magic number TDE1")? != *MAGIC {
            return Err(EndReportError { offset: 0, expected: "the magic number TDE1" });
        }
        let (sender, sequence) = (reader.u64()?, reader.u64()?);
        let host = reader.name("a name of the host")?;
        let services = reader.list(SERVICES_MAX, |reader| {
            let name = reader.name("a name of a service")?;
            let protocol = reader.name("a known protocol")?;
            let known = PROTOCOLS.iter().find(|known| known.name == protocol);
            Ok((name, known.ok_or_else(|| reader.error("a known protocol"))?))
        })?;
        let connections = reader.list(RECORDS_MAX, |reader| {
            let (client, server) = (reader.address()?, reader.address()?);
            let end = match reader.u8()? {
                0 => ConnectionEnd::Client,
                1 => ConnectionEnd::Server,
                _ => return Err(reader.error("the end of a connection, 0 or 1")),
            };
            let service = u16::from_le_bytes(reader.array("a service")?);
            match usize::from(service) < services.len() {
                true => Ok(ReportedConnection { client, server, end, service }),
                false => Err(reader.error("a service of the report")),
            }
        })?;
        let requests = reader.list(RECORDS_MAX, |reader| reader.request(&connections))?;
        let handshakes = reader.list(RECORDS_MAX, |reader| reader.handshake(&connections))?;
        if reader.offset != bytes.len() {
            return Err(reader.error("the end of the report"));
        }
        let index = ReportIndex::default();
        Ok(EndReport { sender, sequence, host, services, connections, requests, handshakes, index })
    }
}

/// Whether a request is in a sample of one in `one_in`.
fn is_in_sample(client: SocketAddr, server: SocketAddr, number: u32, one_in: u32) -> bool {
    if one_in <= 1 {
        return true;
    }
    let mut bytes = Vec::with_capacity(42);
    put_address(&mut bytes, client);
    put_address(&mut bytes, server);
    bytes.extend_from_slice(&number.to_le_bytes());
    fnv1a(&bytes).is_multiple_of(one_in)
}

fn flags(record: &RequestRecord) -> u8 {
    let RequestRecord { is_wait, begins_at_server, is_in_order, is_first, .. } = *record;
    [
        (is_wait, IS_WAIT),
        (begins_at_server, BEGINS_AT_SERVER),
        (is_in_order, IS_IN_ORDER),
        (is_first, IS_FIRST),
    ]
    .into_iter()
    .map(|(is_set, flag)| if is_set { flag } else { 0 })
    .sum()
}

fn put_all<const N: usize>(bytes: &mut Vec<u8>, numbers: &[[u8; N]]) {
    bytes.extend_from_slice(numbers.as_flattened());
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&(count as u32).to_le_bytes());
}

/// Names have at most [`NAME_BYTES_MAX`] bytes.
fn put_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name.as_bytes());
}

fn put_address(bytes: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.push(4);
            bytes.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes.push(6);
            bytes.extend_from_slice(&ip.octets());
        }
    }
    bytes.extend_from_slice(&address.port().to_le_bytes());
}

/// Bytes of a report, and the position in them.
struct ReportReader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl ReportReader<'_> {
    fn error(&self, expected: &'static str) -> EndReportError {
        EndReportError { offset: self.offset, expected }
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], EndReportError> {
        let found = self.bytes.get(self.offset..).and_then(|rest| rest.first_chunk());
        let found = *found.ok_or_else(|| self.error(expected))?;
        self.offset += N;
        Ok(found)
    }

    fn u8(&mut self) -> Result<u8, EndReportError> {
        self.array("a byte").map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, EndReportError> {
        self.array("4 bytes").map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, EndReportError> {
        self.array("8 bytes").map(u64::from_le_bytes)
    }

    /// A name without control characters.
    fn name(&mut self, expected: &'static str) -> Result<String, EndReportError> {
        let length = usize::from(self.u8()?);
        let end = self.offset + length;
        let name = self.bytes.get(self.offset..end).and_then(|bytes| str::from_utf8(bytes).ok());
        let is_valid = |name: &&str| !name.is_empty() && !name.contains(char::is_control);
        let name = name.filter(is_valid).ok_or_else(|| self.error(expected))?.to_owned();
        self.offset = end;
        Ok(name)
    }

    /// Memory grows with the entries that exist, not with their count.
    fn list<T>(
        &mut self,
        count_max: usize,
        mut each: impl FnMut(&mut Self) -> Result<T, EndReportError>,
    ) -> Result<Vec<T>, EndReportError> {
        let count = self.u32()? as usize;
        if count > count_max {
            return Err(self.error("fewer entries"));
        }
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(each(self)?);
        }
        Ok(all)
    }

    fn address(&mut self) -> Result<SocketAddr, EndReportError> {
        let ip = match self.u8()? {
            4 => IpAddr::V4(Ipv4Addr::from(self.array::<4>("an address of IPv4")?)),
            6 => IpAddr::V6(Ipv6Addr::from(self.array::<16>("an address of IPv6")?)),
            _ => return Err(self.error("the version of IP, 4 or 6")),
        };
        Ok(SocketAddr::new(ip, u16::from_le_bytes(self.array("a port")?)))
    }

    fn connection(&mut self, all: &[ReportedConnection]) -> Result<(u32, u32), EndReportError> {
        let index = self.u32()?;
        let connection = all.get(index as usize);
        let connection = connection.ok_or_else(|| self.error("a connection of the report"))?;
        Ok((index, u32::from(connection.service)))
    }

    fn request(
        &mut self,
        connections: &[ReportedConnection],
    ) -> Result<ReportedRequest, EndReportError> {
        let (connection, service) = self.connection(connections)?;
        let numbers = [self.u32()?, self.u32()?, self.u32()?, self.u32()?];
        let boundary_hash = self.u32()?;
        let times = [self.u64()?, self.u64()?, self.u64()?, self.u64()?];
        if times[2] < times[0] || times[3] < times[2] {
            return Err(self.error("times in order"));
        }
        let flags = self.u8()?;
        if flags > IS_WAIT | BEGINS_AT_SERVER | IS_IN_ORDER | IS_FIRST {
            return Err(self.error("known flags"));
        }
        let requests = u16::from_le_bytes(self.array("a number of requests")?);
        if requests == 0 {
            return Err(self.error("a number of requests"));
        }
        let is_set = |flag: u8| flags & flag != 0;
        let record = RequestRecord {
            connection,
            service,
            numbers,
            boundary_hash,
            times,
            is_wait: is_set(IS_WAIT),
            begins_at_server: is_set(BEGINS_AT_SERVER),
            is_in_order: is_set(IS_IN_ORDER),
            is_first: is_set(IS_FIRST),
        };
        Ok(ReportedRequest { record, requests })
    }

    fn handshake(
        &mut self,
        connections: &[ReportedConnection],
    ) -> Result<HandshakeRecord, EndReportError> {
        let (connection, service) = self.connection(connections)?;
        let numbers = [self.u32()?, self.u32()?];
        let times = [self.u64()?, self.u64()?];
        let is_repeated = match self.u8()? {
            0 => false,
            1 => true,
            _ => return Err(self.error("whether a SYN was repeated, 0 or 1")),
        };
        Ok(HandshakeRecord { connection, service, numbers, times, is_repeated })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/formats/wire-ends.md");

    /// The bytes of the example on the page.
    fn example() -> Vec<u8> {
        let block = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
        let digits: Vec<u8> = block.unwrap().bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn the_example_of_the_page_is_a_report() {
        let report = EndReport::decode(&example()).unwrap();
        assert_eq!((report.sender, report.sequence, report.host.as_str()), (2, 1, "web"));
        assert_eq!((report.services[0].0.as_str(), report.services[0].1.name), ("shop", "http"));
        let connection = ReportedConnection {
            client: "10.0.0.1:40000".parse().unwrap(),
            server: "10.0.0.2:80".parse().unwrap(),
            end: ConnectionEnd::Client,
            service: 0,
        };
        assert_eq!(report.connections, [connection]);
        let ReportedRequest { record, requests } = report.requests[0];
        assert_eq!(
            (record.numbers, record.boundary_hash, requests),
            ([1_000, 1_100, 7_000, 7_050], 0, 1)
        );
        let times = record.times.map(|time| time - 1_700_000_000_000_000_000);
        assert_eq!(times, [0, 0, 250_000, 250_000]);
        assert!(record.is_first && record.is_in_order);
        assert!(!record.is_wait && !record.begins_at_server);
        let handshake = report.handshakes[0];
        assert_eq!((handshake.numbers, handshake.is_repeated), ([999, 6_999], false));
        assert_eq!(handshake.times[1] - handshake.times[0], 30_000);
        assert_eq!(report.encode(), example());
    }

    #[test]
    fn a_report_that_is_cut_or_longer_is_an_error() {
        let bytes = example();
        for length in 0..bytes.len() {
            assert!(EndReport::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        let expected = EndReportError { offset: bytes.len(), expected: "the end of the report" };
        assert_eq!(EndReport::decode(&longer).err(), Some(expected));
    }

    #[track_caller]
    fn check_error(change: impl FnOnce(&mut EndReport), expected: &str) {
        let mut report = EndReport::decode(&example()).unwrap();
        change(&mut report);
        let error = EndReport::decode(&report.encode()).err().unwrap().to_string();
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn what_contradicts_itself_is_an_error() {
        check_error(|report| report.host = "a\nb".to_owned(), "expected a name of the host");
        check_error(|report| report.host.clear(), "expected a name of the host");
        check_error(|report| report.connections[0].service = 1, "a service of the report");
        check_error(|report| report.requests[0].requests = 0, "a number of requests");
        let later = |report: &mut EndReport| report.requests[0].record.times[0] = u64::MAX;
        check_error(later, "expected times in order");
        let other = |report: &mut EndReport| report.requests[0].record.connection = 1;
        check_error(other, "a connection of the report");
        let mut bytes = example();
        // Four billion services.
        bytes[24..28].fill(0xff);
        let error = EndReport::decode(&bytes).err().unwrap();
        assert_eq!(error.to_string(), "byte 28 of the report of requests: expected fewer entries");
    }

    #[test]
    fn equal_requests_are_counted_in_one_entry() {
        let mut report = EndReport::decode(&example()).unwrap();
        let record = report.requests[0].record;
        report.add_request(record);
        report.add_request(RequestRecord { is_wait: true, ..record });
        let counts: Vec<u16> = report.requests.iter().map(|of| of.requests).collect();
        assert_eq!((counts, report.requests()), (vec![2, 1], 3));
        report.requests[1].requests = u16::MAX;
        report.add_request(RequestRecord { is_wait: true, ..record });
        assert_eq!(report.requests.len(), 3);
    }
}
