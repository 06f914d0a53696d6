//! Silences in Alertmanager's API.

use std::collections::BTreeMap;

use notify::{AlertMatcher, Silence};
use role::json::Json::{self, Bool, List, Null, Object};
use role::{
    Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec, WriteMethod, WriteRequest,
    WriteRouteSpec, WriteScope,
};
use serde::Deserialize;

use crate::json_body::{bad_request, parse_matchers, parse_time, read_body, rfc3339, text};
use crate::prometheus_api::map_json;
use crate::published_alerts::{PublishedAlerts, PublishedState};
use crate::silence_api::sort_silences;
use crate::silence_store::SilenceStore;

/// List.
pub(crate) static SILENCES: RouteSpec = RouteSpec {
    name: "alertmanager_silences",
    path: "/api/v2/silences",
    about: "Alertmanager API: silences.",
    parameters: &[
        Parameter::text("filter", "matcher that the silence has; all are needed").many(),
        Parameter::text("creator", "author of the silence; one of several").many(),
    ],
    format: RouteFormat::Json,
};

/// One silence.
pub(crate) static SILENCE: RouteSpec = RouteSpec {
    name: "alertmanager_silence",
    path: "/api/v2/silence/{silenceID}",
    about: "Alertmanager API: a silence.",
    parameters: &[Parameter::text("silenceID", "id of the silence")],
    format: RouteFormat::Json,
};

/// Creation.
pub(crate) static POST_SILENCE: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Post,
    path: "/api/v2/silences",
    about: "Alertmanager API: creates a silence, or changes the one with the id.",
    parameters: &[],
    body: Some(
        "{\"matchers\": [{\"name\": …, \"value\": …, \"isRegex\": false, \"isEqual\": true}], \
         \"startsAt\": time, \"endsAt\": time, \"createdBy\": …, \"comment\": …, \"annotations\": {…}, \"id\": …}",
    ),
    response: "the id; the silence is stored durably",
};

/// Expiry.
pub(crate) static DELETE_SILENCE: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Delete,
    path: "/api/v2/silence/{silenceID}",
    about: "Alertmanager API: ends a silence.",
    parameters: &[Parameter::text("silenceID", "id of the silence")],
    body: None,
    response: "empty; the change is stored durably",
};

const EXAMPLE: &str = "an object such as {\"matchers\": [{\"name\": \"host\", \"value\": \"db1\", \
                       \"isRegex\": false}], \"startsAt\": time, \"endsAt\": time, \
                       \"createdBy\": \"ann\", \"comment\": \"upgrade\"}";

/// `postableSilence`; fields of later versions are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostableSilence {
    #[serde(default)]
    id: String,
    matchers: Vec<PostableMatcher>,
    starts_at: String,
    ends_at: String,
    created_by: String,
    comment: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostableMatcher {
    name: String,
    value: String,
    is_regex: bool,
    is_equal: Option<bool>,
}

/// Creates or changes a silence.
pub(crate) fn post_silence(
    store: &SilenceStore,
    request: &WriteRequest,
    now_ns: i64,
) -> Result<Json, RouteError> {
    let mut silence = parse_alertmanager_silence(&request.body, now_ns)?;
    // The recurrences of a silence that is changed stay: this API does not have them.
    let known = store.find(&silence.id).ok();
    silence.recurrences = known.map(|known| known.recurrences).unwrap_or_default();
    let id = store.set(silence, now_ns)?;
    Ok(Object(vec![("silenceID", text(id))]))
}

/// The silence of a request, without a check of its limits.
pub fn parse_alertmanager_silence(body: &[u8], now_ns: i64) -> Result<Silence, RouteError> {
    let body: PostableSilence = read_body(body, EXAMPLE)?;
    let matcher = |one: PostableMatcher| {
        AlertMatcher::new(&one.name, &one.value, one.is_regex, one.is_equal.unwrap_or(true))
    };
    let matchers = body.matchers.into_iter().map(matcher);
    let ends = parse_time("endsAt", &body.ends_at)?;
    let ends_ns = ends.ok_or_else(|| bad_request("endsAt is missing, expected a time"))?;
    Ok(Silence {
        matchers: matchers.collect::<Result<_, _>>().map_err(bad_request)?,
        starts_ns: parse_time("startsAt", &body.starts_at)?.unwrap_or(now_ns),
        ends_ns,
        recurrences: Vec::new(),
        created_by: body.created_by,
        comment: body.comment,
        annotations: body.annotations,
        id: body.id,
        updated_ns: now_ns,
    })
}

/// Ends a silence.
pub(crate) fn delete_silence(
    store: &SilenceStore,
    request: &WriteRequest,
    now_ns: i64,
) -> Result<Json, RouteError> {
    store.expire(request.query.get("silenceID").unwrap_or_default(), now_ns)?;
    Ok(Null)
}

/// Response of `/api/v2/silence/{silenceID}`.
pub(crate) fn silence(published: &PublishedAlerts, query: &RouteQuery) -> Result<Json, RouteError> {
    let found = published.silence_store().find(query.get("silenceID").unwrap_or_default())?;
    Ok(silence_json(&found, published.now_ns()))
}

/// Response of `/api/v2/silences`.
pub(crate) fn silences(state: &PublishedState, query: &RouteQuery) -> Result<Json, RouteError> {
    let filters = parse_matchers(query.all("filter").filter(|text| !text.is_empty()))?;
    let creators: Vec<&str> = query.all("creator").filter(|name| !name.is_empty()).collect();
    // As in Alertmanager, a filter is one of the matchers of a silence.
    let has = |silence: &Silence, filter: &AlertMatcher| {
        silence.matchers.iter().any(|matcher| matcher.to_string() == filter.to_string())
    };
    let mut found: Vec<&Silence> = state.silences.as_slice().iter().collect();
    found.retain(|silence| {
        filters.iter().all(|filter| has(silence, filter))
            && (creators.is_empty() || creators.contains(&silence.created_by.as_str()))
    });
    sort_silences(&mut found, state.now_ns);
    Ok(List(found.into_iter().map(|silence| silence_json(silence, state.now_ns)).collect()))
}

fn silence_json(silence: &Silence, now_ns: i64) -> Json {
    let matcher = |matcher: &AlertMatcher| {
        Object(vec![
            ("isEqual", Bool(matcher.is_equal())),
            ("isRegex", Bool(matcher.is_regex())),
            ("name", text(matcher.name())),
            ("value", text(matcher.value())),
        ])
    };
    Object(vec![
        ("annotations", map_json(&silence.annotations)),
        ("id", text(&*silence.id)),
        ("status", Object(vec![("state", text(silence.state(now_ns).name()))])),
        ("updatedAt", rfc3339(silence.updated_ns)),
        ("comment", text(&*silence.comment)),
        ("createdBy", text(&*silence.created_by)),
        ("endsAt", rfc3339(silence.ends_ns)),
        ("matchers", List(silence.matchers.iter().map(matcher).collect())),
        ("startsAt", rfc3339(silence.starts_ns)),
    ])
}
