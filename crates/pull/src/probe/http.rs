//! HTTP probe: one request over a new connection.

use bytes::Bytes;
use http::{Request, header};
use net::dial::{HttpResponse, ResponseLimits};
use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use serde::de::{Deserialize, Deserializer, Error as _};

use crate::probe::{Attempt, Probe};
use crate::settings::MISSED_STARTS_MAX;

/// Size limit of the response body that is read.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;

/// `http = "https://…"`.
#[derive(Clone, Debug, Default, serde::Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct HttpProbe {
    /// `http://` or `https://`.
    pub http: String,
    /// Expected statuses, such as 200 or 200-299; default: `200-299`.
    #[serde(default)]
    pub status: Statuses,
    /// Text expected in the first MiB of the response body.
    pub body: Option<String>,
}

impl Probe for HttpProbe {
    const KEY: &'static str = "http";
    const KEYS: &'static [&'static str] = &["http", "status", "body"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.url(table, "http", &self.http);
    }

    fn url(&self) -> String {
        self.http.clone()
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(&self.http)
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let answer = get(attempt, "*/*").await?;
        let status = answer.response.status();
        if !self.status.holds(status.as_u16()) {
            return Err(format!("HTTP {status}"));
        }
        let bytes = answer.response.body();
        match &self.body {
            Some(text) if !contains(bytes, text.as_bytes()) => {
                Err(format!("{text:?} not found in the response body"))
            }
            _ => Ok(()),
        }
    }
}

/// Sends a GET request over a new connection, and reads the first MiB of the response.
pub(super) async fn get(
    attempt: &mut Attempt<'_>,
    accept: &'static str,
) -> Result<HttpResponse, String> {
    let mut connection = attempt.connect_http().await?;
    let request = Request::get(&attempt.target.path)
        .header(header::USER_AGENT, concat!("topdeck/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, accept)
        .body(Bytes::new())
        .map_err(|error| error.to_string())?;
    let limits =
        ResponseLimits { timeout: attempt.timeout * MISSED_STARTS_MAX, max_bytes: BODY_BYTES_MAX };
    let answer = connection.send_and_truncate(request, limits).await;
    let answer = answer.map_err(|error| error.to_string())?;
    attempt.report.phases.extend([("wait", answer.time_to_headers), ("read", answer.body_time)]);
    attempt.report.add("probe_http_status_code", "", answer.response.status().as_u16().into());
    Ok(answer)
}

pub(super) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

/// Ranges of HTTP statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<(u16, u16)>);

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses(vec![(200, 299)])
    }
}

impl Statuses {
    /// Parses `200`, `200-299` or `200,301-302`.
    pub fn parse(text: &str) -> std::result::Result<Statuses, String> {
        let expected =
            || format!("invalid statuses {text:?}: expected 200, 200-299 or 200,301-302");
        let status = |text: &str| {
            text.trim().parse::<u16>().ok().filter(|status| (100..=599).contains(status))
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = status(first).zip(status(last)).filter(|(first, last)| first <= last);
            range.ok_or_else(expected)
        };
        text.split(',').map(range).collect::<std::result::Result<_, _>>().map(Statuses)
    }

    pub(super) fn holds(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Statuses, D::Error> {
        Statuses::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_ranges_are_parsed() {
        let holds = |text: &str, status| Statuses::parse(text).unwrap().holds(status);
        assert!(holds("200", 200) && !holds("200", 201) && holds("200-299", 299));
        assert!(holds("200, 301-302", 302) && !holds("200,301-302", 300));
        for wrong in ["", "20", "600", "300-200", "200,,201", "ok"] {
            assert!(Statuses::parse(wrong).is_err(), "{wrong}");
        }
    }
}
