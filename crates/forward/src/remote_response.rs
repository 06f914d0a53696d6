//! Response of a remote: acknowledged sequence, rejected batch, retry.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use net::forward_protocol::{ACKED_SEQUENCE_HEADER, REJECTED_SEQUENCE_HEADER};

/// Length limit of a quoted response body.
const EXCERPT_BYTES_MAX: usize = 500;

/// Parsed response of a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteResponse {
    /// The remote has everything up to this sequence durably.
    pub(crate) accepted: Option<u64>,
    pub(crate) disposition: Disposition,
}

/// Disposition: accepted, retry, or rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Continue with the next request.
    Accepted,
    /// Retry after a delay.
    Retry { reason: String, retry_after: Option<Duration>, needs_operator: bool },
    /// The remote rejects the named batch.
    Rejected { sequence: u64, reason: String },
}

impl RemoteResponse {
    /// No response.
    pub(crate) fn no_response(reason: String) -> RemoteResponse {
        RemoteResponse {
            accepted: None,
            disposition: Disposition::Retry { reason, retry_after: None, needs_operator: false },
        }
    }

    /// Parses the response to a request with sequences above `committed`, up to `last`. Other
    /// sequences in it are ignored: they are not about this request.
    pub(crate) fn parse(response: &Response<Bytes>, committed: u64, last: u64) -> RemoteResponse {
        let status = response.status();
        let said = header_number(response.headers(), ACKED_SEQUENCE_HEADER);
        let accepted = said.filter(|accepted| (committed + 1..=last).contains(accepted));
        let rejected = header_number(response.headers(), REJECTED_SEQUENCE_HEADER)
            .filter(|rejected| (accepted.unwrap_or(committed) + 1..=last).contains(rejected));
        let reason = format!("{}: {}", status.as_u16(), body_excerpt(response.body()));
        let after = header_number(response.headers(), header::RETRY_AFTER.as_str())
            .map(Duration::from_secs);
        let later = |needs_operator| Disposition::Retry {
            reason: reason.clone(),
            retry_after: after,
            needs_operator,
        };
        let disposition = match (status, rejected) {
            (status, _) if status.is_success() && accepted == Some(last) => Disposition::Accepted,
            (status, _) if status.is_success() => {
                let acked = said.map_or("nothing".to_owned(), |said| said.to_string());
                let reason = format!(
                    "HTTP {}: acknowledged sequence is {acked}, expected {last}; the remote \
                     may not be topdeck",
                    status.as_u16()
                );
                Disposition::Retry {
                    reason,
                    retry_after: after,
                    needs_operator: accepted.is_none(),
                }
            }
            (
                StatusCode::BAD_REQUEST
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::UNPROCESSABLE_ENTITY,
                Some(sequence),
            ) => Disposition::Rejected { sequence, reason },
            (
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS,
                _,
            ) => later(false),
            (status, _) => later(!status.is_server_error()),
        };
        RemoteResponse { accepted, disposition }
    }
}

fn header_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Start of the response body, in one line.
fn body_excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(EXCERPT_BYTES_MAX)]);
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() { "no reason given".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Response to a request with sequences 11 to 20.
    fn parse_response(status: u16, headers: &[(&str, &str)]) -> RemoteResponse {
        let mut response = Response::builder().status(status);
        for &(name, value) in headers {
            response = response.header(name, value);
        }
        RemoteResponse::parse(&response.body(Bytes::from_static(b"because\n")).unwrap(), 10, 20)
    }

    #[track_caller]
    fn check(status: u16, headers: &[(&str, &str)], expected: (Option<u64>, &str)) {
        let RemoteResponse { accepted, disposition } = parse_response(status, headers);
        let disposition = match disposition {
            Disposition::Accepted => "accepted".to_owned(),
            Disposition::Retry { retry_after: after, needs_operator, .. } => {
                let after = after.map_or(String::new(), |after| format!(" {}", after.as_secs()));
                format!("{}{after}", if needs_operator { "needs_operator" } else { "later" })
            }
            Disposition::Rejected { sequence, .. } => format!("rejected {sequence}"),
        };
        assert_eq!((accepted, disposition.as_str()), expected);
    }

    #[test]
    fn only_full_acceptance_continues() {
        check(200, &[(ACKED_SEQUENCE_HEADER, "20")], (Some(20), "accepted"));
        check(200, &[(ACKED_SEQUENCE_HEADER, "15")], (Some(15), "later"));
        check(200, &[(ACKED_SEQUENCE_HEADER, "10")], (None, "needs_operator"));
        check(200, &[(ACKED_SEQUENCE_HEADER, "21")], (None, "needs_operator"));
        check(200, &[(ACKED_SEQUENCE_HEADER, "x")], (None, "needs_operator"));
        check(204, &[], (None, "needs_operator"));
    }

    #[test]
    fn failures_are_retried_and_named_batches_rejected() {
        check(429, &[(ACKED_SEQUENCE_HEADER, "12"), ("retry-after", "7")], (Some(12), "later 7"));
        check(500, &[], (None, "later"));
        check(503, &[("retry-after", "soon")], (None, "later"));
        check(401, &[], (None, "needs_operator"));
        check(404, &[(REJECTED_SEQUENCE_HEADER, "11")], (None, "needs_operator"));
        check(400, &[], (None, "needs_operator"));
        check(
            400,
            &[(ACKED_SEQUENCE_HEADER, "12"), (REJECTED_SEQUENCE_HEADER, "13")],
            (Some(12), "rejected 13"),
        );
        check(413, &[(REJECTED_SEQUENCE_HEADER, "11")], (None, "rejected 11"));
        check(
            400,
            &[(ACKED_SEQUENCE_HEADER, "12"), (REJECTED_SEQUENCE_HEADER, "12")],
            (Some(12), "needs_operator"),
        );
        check(400, &[(REJECTED_SEQUENCE_HEADER, "21")], (None, "needs_operator"));
    }

    #[test]
    fn reason_is_one_line() {
        let Disposition::Retry { reason, .. } = parse_response(500, &[]).disposition else {
            panic!("accepted")
        };
        assert_eq!(reason, "500: because");
        assert_eq!(body_excerpt(b" \n"), "no reason given");
        assert_eq!(body_excerpt(&[b'x'; 1000]).len(), EXCERPT_BYTES_MAX);
    }
}
