//! `/v1/alerts/clear`.

use role::json::Json::{self, List, Object};
use role::json::integer;
use role::{RouteError, WriteMethod, WriteRequest, WriteRouteSpec, WriteScope};
use rules::AlertClearance;
use serde::Deserialize;

use crate::acknowledgement_api::check_texts;
use crate::alert_selection::AlertSelection;
use crate::json_body::{read_body, text};
use crate::silence_api::author;
use crate::worker_control::{AlertChange, WorkerControl};

/// Clearance.
pub(crate) static CLEAR: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Post,
    path: "/v1/alerts/clear",
    about: "Ends alerts by hand, such as those of series that will not return: contacts are told \
            that they are resolved, and by whom. An alert whose condition holds at the next \
            evaluation begins anew.",
    parameters: &[],
    body: Some(
        "{\"fingerprint\": … or \"matchers\": [\"host=\\\"db7\\\"\"], \"author\": …, \"note\": …}; \
         the default author is the name of the token",
    ),
    response: "fingerprints of the alerts; stored durably",
};

const EXAMPLE: &str =
    "an object such as {\"fingerprint\": \"cbf29ce484222325\", \"note\": \"the host is gone\"}";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearBody {
    fingerprint: Option<String>,
    #[serde(default)]
    matchers: Vec<String>,
    author: Option<String>,
    #[serde(default)]
    note: String,
}

/// Ends alerts.
pub(crate) fn clear(
    control: &WorkerControl,
    request: &WriteRequest,
    now_ns: i64,
) -> Result<Json, RouteError> {
    let body: ClearBody = read_body(&request.body, EXAMPLE)?;
    let selection = AlertSelection::new(body.fingerprint, &body.matchers)?;
    let by = author(body.author, request);
    check_texts(&by, &body.note)?;
    let clearance = AlertClearance { at_ns: now_ns, by, note: body.note, origin: None };
    let fingerprints = control.change(selection, AlertChange::Clear(clearance))?;
    let fingerprints = List(fingerprints.into_iter().map(text).collect());
    Ok(Object(vec![("schema", integer(1)), ("fingerprints", fingerprints)]))
}
