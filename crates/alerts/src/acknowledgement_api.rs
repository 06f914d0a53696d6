//! `/v1/alerts/acknowledge` and `/v1/alerts/unacknowledge`.

use role::json::Json::{self, Integer, List, Object};
use role::json::integer;
use role::{RouteError, WriteMethod, WriteRequest, WriteRouteSpec, WriteScope};
use rules::{AcknowledgementChange, AlertAcknowledgement};
use serde::Deserialize;

use crate::alert_selection::AlertSelection;
use crate::json_body::{bad_request, parse_duration, parse_time, read_body, text};
use crate::silence_api::author;
use crate::worker_control::{AlertChange, WorkerControl};

/// Expiry, if none is given.
const LENGTH_NS: i64 = 3600 * 1_000_000_000;

/// Acknowledgement.
pub(crate) static ACKNOWLEDGE: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Post,
    path: "/v1/alerts/acknowledge",
    about: "Acknowledges alerts: escalations and reminders of them stop.",
    parameters: &[],
    body: Some(
        "{\"fingerprint\": … or \"matchers\": [\"alertname=\\\"Slow\\\"\"], \"for\": \"2h\" or \
         \"until\": time, \"author\": …, \"note\": …}; default: for 1h, at most 31 days; the \
         default author is the name of the token",
    ),
    response: "fingerprints of the acknowledged alerts; stored durably",
};

/// Its removal.
pub(crate) static UNACKNOWLEDGE: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Post,
    path: "/v1/alerts/unacknowledge",
    about: "Removes the acknowledgement of alerts: contacts are notified of those that fire.",
    parameters: &[],
    body: Some("{\"fingerprint\": … or \"matchers\": [\"alertname=\\\"Slow\\\"\"]}"),
    response: "fingerprints of the alerts; stored durably",
};

const EXAMPLE: &str = "an object such as {\"fingerprint\": \"cbf29ce484222325\", \"for\": \"2h\", \
                       \"note\": \"on it\"}";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AcknowledgeBody {
    fingerprint: Option<String>,
    #[serde(default)]
    matchers: Vec<String>,
    #[serde(rename = "for")]
    length: Option<String>,
    until: Option<String>,
    author: Option<String>,
    #[serde(default)]
    note: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnacknowledgeBody {
    fingerprint: Option<String>,
    #[serde(default)]
    matchers: Vec<String>,
}

/// Acknowledges alerts.
pub(crate) fn acknowledge(
    control: &WorkerControl,
    request: &WriteRequest,
    now_ns: i64,
) -> Result<Json, RouteError> {
    let body: AcknowledgeBody = read_body(&request.body, EXAMPLE)?;
    let selection = AlertSelection::new(body.fingerprint, &body.matchers)?;
    let until = body.until.as_deref().map_or(Ok(None), |text| parse_time("until", text))?;
    let until_ns = match (body.length, until) {
        (Some(_), Some(_)) => return Err(bad_request("expected for or until, found both")),
        (Some(length), None) => now_ns.saturating_add(parse_duration("for", &length)?),
        (None, Some(until_ns)) => until_ns,
        (None, None) => now_ns.saturating_add(LENGTH_NS),
    };
    if until_ns <= now_ns {
        return Err(bad_request("until: the time is in the past, expected a later one"));
    }
    if until_ns > now_ns.saturating_add(AlertAcknowledgement::LENGTH_NS_MAX) {
        let what = "limit of 31 days of an acknowledgement exceeded; use a shorter time, or a \
                    silence";
        return Err(bad_request(what));
    }
    let by = author(body.author, request);
    check_texts(&by, &body.note)?;
    let (at_ns, note) = (now_ns, body.note);
    let acknowledgement = AlertAcknowledgement { at_ns, until_ns, by, note, origin: None };
    let mut fields = vec![("schema", integer(1)), ("until_ns", Integer(until_ns.into()))];
    fields.push(change(control, selection, AcknowledgementChange::Set(acknowledgement))?);
    Ok(Object(fields))
}

/// Rejects names and notes that are too long.
pub(crate) fn check_texts(by: &str, note: &str) -> Result<(), RouteError> {
    let (author_max, note_max) =
        (AlertAcknowledgement::BY_BYTES_MAX, AlertAcknowledgement::NOTE_BYTES_MAX);
    for (what, found, max) in [("author", by.len(), author_max), ("note", note.len(), note_max)] {
        if found > max {
            let error = format!("limit of {max} bytes of {what} exceeded ({found}); shorten it");
            return Err(bad_request(error));
        }
    }
    Ok(())
}

/// Removes acknowledgements.
pub(crate) fn unacknowledge(
    control: &WorkerControl,
    request: &WriteRequest,
) -> Result<Json, RouteError> {
    let body: UnacknowledgeBody = read_body(&request.body, EXAMPLE)?;
    let selection = AlertSelection::new(body.fingerprint, &body.matchers)?;
    let all = AcknowledgementChange::RemoveAll;
    Ok(Object(vec![("schema", integer(1)), change(control, selection, all)?]))
}

fn change(
    control: &WorkerControl,
    selection: AlertSelection,
    change: AcknowledgementChange,
) -> Result<(&'static str, Json), RouteError> {
    let fingerprints = control.change(selection, AlertChange::Acknowledge(change))?;
    Ok(("fingerprints", List(fingerprints.into_iter().map(text).collect())))
}
