//! gRPC probe: the health check of a server or of one of its services.
//!
//! Sources: the gRPC health checking protocol, `grpc.health.v1`; gRPC over HTTP/2.

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use net::dial::ResponseLimits;
use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;

use crate::probe::{Attempt, Probe};
use crate::settings::MISSED_STARTS_MAX;

const PATH: &str = "/grpc.health.v1.Health/Check";
const RESPONSE_BYTES_MAX: usize = 4096;
/// Longest name of a service.
const SERVICE_BYTES_MAX: usize = 127;
/// Before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// Tag of field 1 as bytes, and as a number.
const FIELD_1_BYTES: u8 = 0x0a;
const FIELD_1_NUMBER: u8 = 0x08;
/// `HealthCheckResponse.ServingStatus`, by number.
const SERVING_STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: u8 = 1;

/// `grpc = "host:port"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct GrpcProbe {
    /// `host:port`.
    pub grpc: String,
    /// Name of the service; default: the server as a whole.
    #[serde(default)]
    pub service: String,
    /// Whether the connection uses TLS.
    #[serde(default)]
    pub secure: bool,
}

impl GrpcProbe {
    fn request(&self) -> Result<Request<Bytes>, http::Error> {
        let mut message = Vec::new();
        if !self.service.is_empty() {
            // The length of the name fits in one byte.
            message.extend([FIELD_1_BYTES, self.service.len() as u8]);
            message.extend(self.service.as_bytes());
        }
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let body = [&[0][..], &length.to_be_bytes(), &message].concat();
        Request::post(PATH)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, concat!("topdeck/", env!("CARGO_PKG_VERSION")))
            .body(body.into())
    }
}

/// Whether the response says that the service is well. Without a message, the headers have the
/// status of the call.
fn judge(headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(status) = text("grpc-status").filter(|status| *status != "0") {
        let message = text("grpc-message").unwrap_or_default();
        return Err(match status {
            "5" => "the service is unknown to the server (gRPC status 5)".to_owned(),
            "12" => "the server has no health service (gRPC status 12)".to_owned(),
            _ => format!("gRPC status {status} {message}"),
        });
    }
    let message = body.get(PREFIX_BYTES..).ok_or("the response has no message")?;
    if body[0] != 0 {
        return Err("the response is compressed, though that was not allowed".to_owned());
    }
    // A field with its default value is not sent.
    let status = match message {
        [FIELD_1_NUMBER, status, ..] => *status,
        [] => 0,
        _ => return Err("the response is not that of a health check".to_owned()),
    };
    match SERVING_STATUSES.get(usize::from(status)) {
        Some(_) if status == SERVING => Ok(()),
        Some(name) => Err((*name).to_owned()),
        None => Err(format!("status {status} of the service is unknown")),
    }
}

impl Probe for GrpcProbe {
    const KEY: &'static str = "grpc";
    const KEYS: &'static [&'static str] = &["grpc", "service", "secure"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.host_and_port(table, "grpc", &self.grpc);
        if self.service.len() > SERVICE_BYTES_MAX {
            let what = format!("service has more than {SERVICE_BYTES_MAX} bytes");
            check.problem(table, "service", what);
        }
    }

    fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{PATH}", self.grpc)
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(&self.url())
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let mut connection = attempt.connect_http2().await?;
        let request = self.request().map_err(|error| error.to_string())?;
        let timeout = attempt.timeout * MISSED_STARTS_MAX;
        let limits = ResponseLimits { timeout, max_bytes: RESPONSE_BYTES_MAX };
        let answer = connection.send_and_truncate(request, limits).await;
        let answer = answer.map_err(|error| error.to_string())?;
        attempt
            .report
            .phases
            .extend([("wait", answer.time_to_headers), ("read", answer.body_time)]);
        let response = answer.response;
        attempt.report.add("probe_http_status_code", "", response.status().as_u16().into());
        match response.status().is_success() {
            true => judge(response.headers(), response.body()),
            false => Err(format!("HTTP {}", response.status())),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_request_names_the_service() {
        let probe = |service: &str| GrpcProbe { service: service.into(), ..GrpcProbe::default() };
        assert_eq!(&probe("").request().unwrap().body()[..], [0, 0, 0, 0, 0]);
        assert_eq!(&probe("a.B").request().unwrap().body()[..], b"\0\0\0\0\x05\x0a\x03a.B");
    }

    #[test]
    fn only_a_serving_service_is_well() {
        let judge_body = |body: &[u8]| judge(&HeaderMap::new(), body);
        assert_eq!(judge_body(&[0, 0, 0, 0, 2, 8, 1]), Ok(()));
        assert_eq!(judge_body(&[0, 0, 0, 0, 2, 8, 2]).unwrap_err(), "NOT_SERVING");
        assert_eq!(judge_body(&[0, 0, 0, 0, 0]).unwrap_err(), "UNKNOWN");
        assert_eq!(judge_body(&[]).unwrap_err(), "the response has no message");
        assert!(judge_body(&[0, 0, 0, 0, 2, 8, 9]).unwrap_err().contains("status 9"));
        assert!(judge_body(&[1, 0, 0, 0, 2, 8, 1]).unwrap_err().contains("compressed"));
        assert!(judge_body(&[0, 0, 0, 0, 2, 0x12, 1]).unwrap_err().contains("not that of"));
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static("grpc-status");
        headers.insert(name.clone(), HeaderValue::from_static("5"));
        assert!(judge(&headers, &[]).unwrap_err().contains("unknown to the server"));
        headers.insert(name, HeaderValue::from_static("14"));
        assert_eq!(judge(&headers, &[]).unwrap_err(), "gRPC status 14 ");
    }
}
