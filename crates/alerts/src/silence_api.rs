//! `/v1/silences`: silences and maintenance windows.

use std::collections::BTreeMap;

use notify::{AlertMatcher, Recurrence, SLO_CORRECTION_ANNOTATION, Silence, SilenceState};
use role::json::Json::{self, Bool, Integer, List, Null, Object};
use role::json::integer;
use role::{
    Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec, WriteMethod, WriteRequest,
    WriteRouteSpec, WriteScope,
};
use serde::Deserialize;

use crate::json_body::{
    bad_request, parse_duration, parse_matchers, parse_time, read_body, text, value_json,
};
use crate::prometheus_api::map_json;
use crate::published_alerts::PublishedAlerts;
use crate::silence_store::{SilenceStore, SilenceStoreError};

/// End of a maintenance window without one.
const NEVER_NS: i64 = i64::MAX;
/// Author, if neither the request nor a token names one.
pub(crate) const AUTHOR_DEFAULT: &str = "unknown";

/// List.
pub(crate) static SILENCES: RouteSpec = RouteSpec {
    name: "silences",
    path: "/v1/silences",
    about: "Silences and maintenance windows: active, pending, and expired for at most 5 days; \
            those that correct SLOs for 400 days.",
    parameters: &[Parameter::text("state", "active, pending or expired; default: all")],
    format: RouteFormat::Json,
};

/// Creation.
pub(crate) static CREATE_SILENCE: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Post,
    path: "/v1/silences",
    about: "Creates a silence or a maintenance window, or changes the one with the id.",
    parameters: &[],
    body: Some(
        "{\"matchers\": [\"host=\\\"db1\\\"\"], \"for\": \"2h\" or \"ends_at\": time, \
         \"starts_at\": time, \"time_intervals\": [{\"times\": [{\"start_time\": \"02:00\", \
         \"end_time\": \"04:00\"}], \"weekdays\": [\"sunday\"], \"location\": \"Europe/Berlin\"}], \
         \"corrects_slos\": true to take its time out of the budgets of the SLOs whose alerts it \
         matches, \"author\": …, \"comment\": …, \"annotations\": {…}, \"id\": …}; default start: \
         now; without time_intervals an end is required",
    ),
    response: "the silence; stored durably",
};

/// Expiry.
pub(crate) static EXPIRE_SILENCE: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Delete,
    path: "/v1/silences/{id}",
    about: "Ends a silence now. It is listed for 5 more days.",
    parameters: &[Parameter::text("id", "id of the silence")],
    body: None,
    response: "the silence; stored durably",
};

const EXAMPLE: &str = "an object such as {\"matchers\": [\"host=\\\"db1\\\"\"], \"for\": \"2h\", \
                       \"comment\": \"upgrade\"}";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SilenceBody {
    matchers: Vec<String>,
    #[serde(rename = "for")]
    length: Option<String>,
    starts_at: Option<String>,
    ends_at: Option<String>,
    #[serde(default)]
    time_intervals: Vec<serde_json::Value>,
    author: Option<String>,
    #[serde(default)]
    corrects_slos: bool,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    id: String,
}

impl From<SilenceStoreError> for RouteError {
    fn from(error: SilenceStoreError) -> RouteError {
        let what = error.to_string();
        match error {
            SilenceStoreError::NotFound(_) => RouteError::NotFound(what),
            SilenceStoreError::Invalid(_) => RouteError::BadRequest(what),
            SilenceStoreError::Count | SilenceStoreError::Size => RouteError::Limit(what),
            SilenceStoreError::Write(_) => RouteError::Unavailable(what),
        }
    }
}

/// Response of `/v1/silences`.
pub(crate) fn list(published: &PublishedAlerts, query: &RouteQuery) -> Result<Json, RouteError> {
    let states = [SilenceState::Active, SilenceState::Pending, SilenceState::Expired];
    let wanted = match query.get("state") {
        None => None,
        Some(name) => match states.into_iter().find(|state| state.name() == name) {
            Some(state) => Some(state),
            None => {
                return Err(RouteError::Parameter {
                    name: "state".to_owned(),
                    found: name.to_owned(),
                    expected: "active, pending or expired".to_owned(),
                });
            }
        },
    };
    let state = published.read();
    let mut found: Vec<&Silence> = state.silences.as_slice().iter().collect();
    found.retain(|one| wanted.is_none_or(|wanted| one.state(state.now_ns) == wanted));
    sort_silences(&mut found, state.now_ns);
    let silences = found.into_iter().map(|silence| silence_json(silence, state.now_ns));
    Ok(Object(vec![("schema", integer(1)), ("silences", List(silences.collect()))]))
}

/// Orders silences as Alertmanager does: active ones by end, pending ones by start, then expired
/// ones, the latest first.
pub(crate) fn sort_silences(silences: &mut [&Silence], now_ns: i64) {
    model::sort::by_key(silences, |silence| {
        let state = silence.state(now_ns);
        let time_ns = match state {
            SilenceState::Active => silence.ends_ns,
            SilenceState::Pending => silence.starts_ns,
            SilenceState::Expired => silence.ends_ns.saturating_neg(),
        };
        (state, time_ns, silence.id.clone())
    });
}

/// Creates or changes a silence.
pub(crate) fn create(
    store: &SilenceStore,
    request: &WriteRequest,
    now_ns: i64,
) -> Result<Json, RouteError> {
    let body: SilenceBody = read_body(&request.body, EXAMPLE)?;
    let starts_ns = optional_time("starts_at", body.starts_at.as_deref())?.unwrap_or(now_ns);
    let ends_ns = match (&body.length, optional_time("ends_at", body.ends_at.as_deref())?) {
        (Some(_), Some(_)) => return Err(bad_request("expected for or ends_at, found both")),
        (Some(length), None) => {
            starts_ns.max(now_ns).saturating_add(parse_duration("for", length)?)
        }
        (None, Some(ends_ns)) => ends_ns,
        (None, None) if !body.time_intervals.is_empty() => NEVER_NS,
        (None, None) => {
            let what = "a silence needs an end: add \"for\": \"2h\" or \"ends_at\": time";
            return Err(bad_request(what));
        }
    };
    let matchers: Vec<AlertMatcher> = parse_matchers(body.matchers.iter().map(String::as_str))?;
    let mut annotations = body.annotations;
    if body.corrects_slos {
        annotations.insert(SLO_CORRECTION_ANNOTATION.to_owned(), "true".to_owned());
    }
    let recurrences = body.time_intervals.into_iter().map(Recurrence::from_json);
    let silence = Silence {
        id: body.id,
        matchers,
        starts_ns,
        ends_ns,
        recurrences: recurrences.collect::<Result<_, _>>().map_err(bad_request)?,
        created_by: author(body.author, request),
        comment: body.comment,
        annotations,
        updated_ns: now_ns,
    };
    let id = store.set(silence, now_ns)?;
    Ok(changed_json(&store.find(&id)?, now_ns))
}

/// Ends a silence.
pub(crate) fn expire(
    store: &SilenceStore,
    request: &WriteRequest,
    now_ns: i64,
) -> Result<Json, RouteError> {
    let expired = store.expire(request.query.get("id").unwrap_or_default(), now_ns)?;
    Ok(changed_json(&expired, now_ns))
}

/// The author that a request names, or its token.
pub(crate) fn author(named: Option<String>, request: &WriteRequest) -> String {
    let named = named.filter(|name| !name.is_empty()).or_else(|| request.token_name.clone());
    named.unwrap_or_else(|| AUTHOR_DEFAULT.to_owned())
}

fn optional_time(name: &str, text: Option<&str>) -> Result<Option<i64>, RouteError> {
    text.map_or(Ok(None), |text| parse_time(name, text))
}

fn changed_json(silence: &Silence, now_ns: i64) -> Json {
    Object(vec![("schema", integer(1)), ("silence", silence_json(silence, now_ns))])
}

fn silence_json(silence: &Silence, now_ns: i64) -> Json {
    let ends = match silence.ends_ns {
        NEVER_NS => Null,
        ends_ns => Integer(ends_ns.into()),
    };
    let intervals = silence.recurrences.iter().map(|one| value_json(one.to_json()));
    let matchers = silence.matchers.iter().map(|matcher| text(matcher.to_string()));
    Object(vec![
        ("id", text(&*silence.id)),
        ("state", text(silence.state(now_ns).name())),
        ("matchers", List(matchers.collect())),
        ("starts_ns", Integer(silence.starts_ns.into())),
        ("ends_ns", ends),
        ("time_intervals", List(intervals.collect())),
        ("corrects_slos", Bool(silence.corrects_slos())),
        ("author", text(&*silence.created_by)),
        ("comment", text(&*silence.comment)),
        ("annotations", map_json(&silence.annotations)),
        ("updated_ns", Integer(silence.updated_ns.into())),
    ])
}
