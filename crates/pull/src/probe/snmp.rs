//! SNMP probe: gets numbers of an agent, by version 2c.

use std::time::Instant;

use net::{Endpoint, EndpointError};
use protocol::snmp::{self, OBJECTS_MAX, ObjectId, SnmpValue};
use role::settings::{FilePath, SettingsCheck, TableRef};
use serde::Deserialize;

use crate::probe::{Attempt, Probe, ProbeValue, random_id};

/// Default port.
const PORT: u16 = 161;
/// Largest datagram.
const RESPONSE_BYTES_MAX: usize = 65_535;
/// Longest community.
const COMMUNITY_BYTES_MAX: usize = 255;
/// Responses to other requests that are ignored; a sender of more of them is no agent.
const OTHERS_MAX: usize = 100;

/// `snmp = "host"` or `"host:port"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SnmpProbe {
    /// `host` or `host:port`; the default port is 161.
    pub snmp: String,
    /// Objects, by their numbers: `1.3.6.1.2.1.1.3.0`.
    pub oids: Vec<String>,
    /// File with the community; default: `public`.
    pub community_file: Option<FilePath>,
}

impl SnmpProbe {
    fn objects(&self) -> Result<Vec<ObjectId>, String> {
        if self.oids.is_empty() || self.oids.len() > OBJECTS_MAX {
            return Err(format!("a check has 1 to {OBJECTS_MAX} objects"));
        }
        let parse = |text: &String| {
            ObjectId::parse(text)
                .ok_or_else(|| format!("invalid object {text:?}; expected 1.3.6.1.2.1.1.3.0"))
        };
        self.oids.iter().map(parse).collect()
    }

    fn community(&self) -> Result<String, String> {
        let Some(path) = &self.community_file else { return Ok("public".to_owned()) };
        let text = std::fs::read_to_string(path);
        let text = text
            .map_err(|error| format!("cannot read the community: {}: {error}", path.display()))?;
        let community = text.trim_end_matches(['\n', '\r']);
        match community.len() <= COMMUNITY_BYTES_MAX {
            true => Ok(community.to_owned()),
            false => Err("the community has more than 255 bytes".to_owned()),
        }
    }
}

impl Probe for SnmpProbe {
    const KEY: &'static str = "snmp";
    const KEYS: &'static [&'static str] = &["snmp", "oids", "community_file"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        if let Err(error) = self.endpoint() {
            check.problem(table, "snmp", format!("{}; expected host or host:port", error.reason));
        }
        if let Err(error) = self.objects() {
            check.problem(table, "oids", error);
        }
        check.file(table, "community_file", self.community_file.as_ref());
    }

    fn url(&self) -> String {
        format!("snmp://{}", self.snmp)
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse_as(&self.url(), false, Some(PORT))
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let (objects, community) = (self.objects()?, self.community()?);
        let id = random_id() as u32;
        let request = snmp::get_request(&community, id, &objects);
        let socket = attempt.connect_udp().await?;
        let began = Instant::now();
        socket.send(&request).await.map_err(|error| format!("cannot send: {error}"))?;
        let mut response = vec![0; RESPONSE_BYTES_MAX];
        let mut others = 0;
        let values = loop {
            let length = socket.recv(&mut response).await;
            let length = length.map_err(|error| format!("no response: {error}"))?;
            match snmp::read_response(&response[..length], id, &objects) {
                Some(values) => break values,
                None if others >= OTHERS_MAX => {
                    return Err("responses to other requests".to_owned());
                }
                None => others += 1,
            }
        };
        attempt.report.phases.push(("wait", began.elapsed()));
        let mut missing = Vec::new();
        for (oid, value) in self.oids.iter().zip(values?) {
            let (unit, value) = match value {
                SnmpValue::Number(number) => ("", number),
                SnmpValue::Seconds(seconds) => ("s", seconds),
                SnmpValue::Missing => {
                    missing.push(oid.as_str());
                    continue;
                }
                // The agent answers; a text is no value.
                SnmpValue::Text(_) | SnmpValue::Other(_) => continue,
            };
            let labels = vec![("oid", oid.trim_start_matches('.').to_owned())];
            attempt.report.add_labelled(ProbeValue {
                name: "probe_snmp_value",
                unit,
                labels,
                value,
            });
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("the agent has no object {}", missing.join(", "))),
        }
    }
}
