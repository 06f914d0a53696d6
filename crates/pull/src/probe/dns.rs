//! DNS probe: asks a name server one question.

mod message;

use std::io;
use std::time::Instant;

use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub use self::message::RecordType;
use self::message::{DnsResponse, encode_name, encode_query};
use crate::probe::{Attempt, Probe, random_id};

/// Default port.
const PORT: u16 = 53;
/// Bytes of the answer in the reason of a failure.
const ANSWER_BYTES_MAX: usize = 200;
/// Largest message over UDP that the query allows (RFC 6891).
const UDP_BYTES_MAX: u16 = 4096;

/// `dns = "server"` or `"server:port"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct DnsProbe {
    /// Name server: `host` or `host:port`; the default port is 53.
    pub dns: String,
    /// Name in the question.
    pub query: String,
    /// Type in the question; default: `A`.
    #[serde(default)]
    pub record_type: RecordType,
    /// Transport; default: `udp`.
    #[serde(default)]
    pub transport: DnsTransport,
    /// Expected response code; default: `NOERROR`.
    pub rcode: Option<String>,
    /// Data that one of the records in the answer must have, such as an address.
    pub answer: Option<String>,
}

/// Transport of DNS.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DnsTransport {
    /// One datagram each way.
    #[default]
    Udp,
    /// RFC 7766.
    Tcp,
}

impl DnsProbe {
    /// Sends the query and receives the response.
    async fn exchange(&self, attempt: &mut Attempt<'_>, query: &[u8]) -> Result<Vec<u8>, String> {
        let failure = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            _ => format!("no response: {error}"),
        };
        if self.transport == DnsTransport::Udp {
            let socket = attempt.connect_udp().await?;
            let began = Instant::now();
            socket.send(query).await.map_err(|error| format!("cannot send: {error}"))?;
            let mut response = vec![0; UDP_BYTES_MAX.into()];
            loop {
                let received = socket.recv(&mut response).await;
                let took = began.elapsed();
                let length = received.map_err(failure)?;
                // A late response to an earlier query of the same port has another id.
                if response[..length].starts_with(&query[..2]) {
                    attempt.report.phases.push(("wait", took));
                    response.truncate(length);
                    return Ok(response);
                }
            }
        }
        let mut stream = attempt.connect_tcp().await?;
        let began = Instant::now();
        let exchange = async {
            let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
            stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
            let length = stream.read_u16().await?;
            let mut response = vec![0; length.into()];
            stream.read_exact(&mut response).await?;
            Ok(response)
        };
        let response = exchange.await;
        attempt.report.phases.push(("wait", began.elapsed()));
        response.map_err(failure)
    }

    /// Whether the response is the expected one.
    fn judge(&self, response: &DnsResponse) -> Result<(), String> {
        let expected = self.rcode.as_deref().unwrap_or("NOERROR");
        if !response.rcode.eq_ignore_ascii_case(expected) {
            return Err(format!("response code {}, expected {expected}", response.rcode));
        }
        let Some(wanted) = &self.answer else { return Ok(()) };
        let is_it = |data: &String| data.eq_ignore_ascii_case(wanted);
        if response.answers.iter().any(is_it) {
            return Ok(());
        }
        if response.is_truncated {
            return Err(format!(
                "{wanted:?} not found in a truncated response; set transport = \"tcp\""
            ));
        }
        let found = match response.answers.is_empty() {
            true => "no record".to_owned(),
            false => response.answers.join(", "),
        };
        let found = &found[..found.floor_char_boundary(ANSWER_BYTES_MAX)];
        Err(format!("{wanted:?} not found in the answer, which has {found}"))
    }
}

impl Probe for DnsProbe {
    const KEY: &'static str = "dns";
    const KEYS: &'static [&'static str] =
        &["dns", "query", "record_type", "transport", "rcode", "answer"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        if let Err(error) = self.endpoint() {
            check.problem(
                table,
                "dns",
                format!("{}; expected server or server:port", error.reason),
            );
        }
        if encode_name(&self.query).is_none() {
            let what = format!(
                "invalid name {:?}: labels have 1 to 63 bytes, a name at most 253",
                self.query
            );
            check.problem(table, "query", what);
        }
        if let Some(rcode) = &self.rcode
            && !message::is_rcode(rcode)
        {
            let known = message::RCODES.join(", ");
            check.problem(table, "rcode", format!("unknown code {rcode:?}; one of {known}"));
        }
    }

    fn url(&self) -> String {
        format!("dns://{}", self.dns)
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse_as(&self.url(), false, Some(PORT))
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let name = encode_name(&self.query).ok_or("invalid name in the query")?;
        let query = encode_query(random_id() as u16, &name, self.record_type, UDP_BYTES_MAX);
        let bytes = self.exchange(attempt, &query).await?;
        let response = DnsResponse::read(&bytes, &query)?;
        let report = &mut *attempt.report;
        report.add("probe_dns_answer_rrs", "", response.answer_count.into());
        report.add("probe_dns_authority_rrs", "", response.authority_count.into());
        report.add("probe_dns_additional_rrs", "", response.additional_count.into());
        if let Some(ttl) = response.least_ttl {
            report.add("probe_dns_ttl", "s", ttl.into());
        }
        if let Some(serial) = response.serial {
            report.add("probe_dns_serial", "", serial.into());
        }
        self.judge(&response)
    }
}
