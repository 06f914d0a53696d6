//! What a site says to a parcel: how far everything is durable there, and what it will not take.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use net::parcels::{ACCEPTED, REFUSED};

/// Bytes of an answer that are shown.
const SHOWN_BYTES_MAX: usize = 500;

/// What became of a parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Everything up to this sequence is durable at the site.
    pub(crate) accepted: Option<u64>,
    pub(crate) verdict: Verdict,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// To go on.
    Taken,
    /// To ask again, after a while. `slowly`: somebody has to do something first.
    Later { why: String, after: Option<Duration>, slowly: bool },
    /// The site names a batch that it will not take.
    Refused { sequence: u64, why: String },
}

impl Answer {
    /// There was none.
    pub(crate) fn none(why: String) -> Answer {
        Answer { accepted: None, verdict: Verdict::Later { why, after: None, slowly: false } }
    }

    /// Reads the answer to a parcel with sequences above `committed`, up to `last`. What it says of others is not
    /// believed: it is not about this parcel.
    pub(crate) fn of(response: &Response<Bytes>, committed: u64, last: u64) -> Answer {
        let status = response.status();
        let said = number(response.headers(), ACCEPTED);
        let accepted = said.filter(|accepted| (committed + 1..=last).contains(accepted));
        let refused = number(response.headers(), REFUSED)
            .filter(|refused| (accepted.unwrap_or(committed) + 1..=last).contains(refused));
        let why = format!("{}: {}", status.as_u16(), shown(response.body()));
        let after =
            number(response.headers(), header::RETRY_AFTER.as_str()).map(Duration::from_secs);
        let later = |slowly| Verdict::Later { why: why.clone(), after, slowly };
        let verdict = match (status, refused) {
            (status, _) if status.is_success() && accepted == Some(last) => Verdict::Taken,
            (status, _) if status.is_success() => {
                let told = said.map_or("nothing".to_owned(), |said| said.to_string());
                let why = format!(
                    "{}: it says {told} where {last} was the last sent; is it a topdeck?",
                    status.as_u16()
                );
                Verdict::Later { why, after, slowly: accepted.is_none() }
            }
            (
                StatusCode::BAD_REQUEST
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::UNPROCESSABLE_ENTITY,
                Some(sequence),
            ) => Verdict::Refused { sequence, why },
            (
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS,
                _,
            ) => later(false),
            (status, _) => later(!status.is_server_error()),
        };
        Answer { accepted, verdict }
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The beginning of what was answered, in one line.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() { "no reason given".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to a parcel of 11 to 20.
    fn answer(status: u16, headers: &[(&str, &str)]) -> Answer {
        let mut response = Response::builder().status(status);
        for &(name, value) in headers {
            response = response.header(name, value);
        }
        Answer::of(&response.body(Bytes::from_static(b"because\n")).unwrap(), 10, 20)
    }

    #[track_caller]
    fn check(status: u16, headers: &[(&str, &str)], expected: (Option<u64>, &str)) {
        let Answer { accepted, verdict } = answer(status, headers);
        let verdict = match verdict {
            Verdict::Taken => "taken".to_owned(),
            Verdict::Later { after, slowly, .. } => {
                let after = after.map_or(String::new(), |after| format!(" {}", after.as_secs()));
                format!("{}{after}", if slowly { "slowly" } else { "later" })
            }
            Verdict::Refused { sequence, .. } => format!("refused {sequence}"),
        };
        assert_eq!((accepted, verdict.as_str()), expected);
    }

    #[test]
    fn only_a_full_acceptance_goes_on() {
        check(200, &[(ACCEPTED, "20")], (Some(20), "taken"));
        check(200, &[(ACCEPTED, "15")], (Some(15), "later"));
        check(200, &[(ACCEPTED, "10")], (None, "slowly"));
        check(200, &[(ACCEPTED, "21")], (None, "slowly"));
        check(200, &[(ACCEPTED, "x")], (None, "slowly"));
        check(204, &[], (None, "slowly"));
    }

    #[test]
    fn failures_are_tried_again_and_named_batches_are_refused() {
        check(429, &[(ACCEPTED, "12"), ("retry-after", "7")], (Some(12), "later 7"));
        check(500, &[], (None, "later"));
        check(503, &[("retry-after", "soon")], (None, "later"));
        check(401, &[], (None, "slowly"));
        check(404, &[(REFUSED, "11")], (None, "slowly"));
        check(400, &[], (None, "slowly"));
        check(400, &[(ACCEPTED, "12"), (REFUSED, "13")], (Some(12), "refused 13"));
        check(413, &[(REFUSED, "11")], (None, "refused 11"));
        check(400, &[(ACCEPTED, "12"), (REFUSED, "12")], (Some(12), "slowly"));
        check(400, &[(REFUSED, "21")], (None, "slowly"));
    }

    #[test]
    fn the_reason_is_shown_in_a_line() {
        let Verdict::Later { why, .. } = answer(500, &[]).verdict else { panic!("taken") };
        assert_eq!(why, "500: because");
        assert_eq!(shown(b" \n"), "no reason given");
        assert_eq!(shown(&[b'x'; 1000]).len(), SHOWN_BYTES_MAX);
    }
}
