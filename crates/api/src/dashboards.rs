//! Dashboards: user-defined JSON, one file each.

mod migration;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use axum::body::Bytes;
use axum::extract::Path as Named;
use axum::response::IntoResponse;
use disk::OsDisk;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH};
use serde_json::Value;

use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::etag;
use crate::json::Json::{List, Object, Text};
use crate::json::integer;
use crate::named_dir::{io_error, is_valid_name, list_entries};
use crate::route::{ApiRoute, JSON, Parameter};
use crate::routing;
use crate::token::Scope;

/// Maximum size of a dashboard in bytes.
const BYTES_MAX: usize = 256 << 10;
/// Maximum number of dashboards.
const DASHBOARDS_MAX: usize = 1_000;
/// Description of valid names.
const NAME_SYNTAX: &str =
    "a name of up to 64 letters, digits, '-' and '_' that begins with a letter or digit";
/// Suffix of dashboard files.
const SUFFIX: &str = ".json";

const BY_NAME: &[Parameter] = &[Parameter::text("name", "name of the dashboard")];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/dashboards", "Lists the dashboards.", &[], || routing::get(list)),
    ApiRoute::get(
        "/v1/dashboards/{name}",
        "Returns a dashboard; one of schema 1 is migrated to schema 2.",
        BY_NAME,
        || routing::get(read),
    ),
    ApiRoute {
        method: "put",
        body: Some((JSON, "the dashboard: a JSON object with a title and panels, at most 256 KiB")),
        ..ApiRoute::get(
            "/v1/dashboards/{name}",
            "Stores a dashboard. `If-Match` with the ETag of a read fails with 412 if it was \
             changed since; `If-None-Match: *` fails with 412 if it exists.",
            BY_NAME,
            || routing::put(write),
        )
    }
    .with_scope(Some(Scope::Admin))
    .with_response(200, JSON, "stored and synced to disk"),
    ApiRoute {
        method: "delete",
        ..ApiRoute::get(
            "/v1/dashboards/{name}",
            "Deletes a dashboard. `If-Match` fails with 412 if it was changed since.",
            BY_NAME,
            || routing::delete(remove),
        )
    }
    .with_scope(Some(Scope::Admin))
    .with_response(200, JSON, "deleted"),
];

fn dashboards_dir(context: &Context) -> Result<PathBuf, ApiError> {
    let none = "dashboards are disabled: no directory is configured";
    context
        .queries
        .settings
        .dashboards_dir
        .clone()
        .ok_or_else(|| ApiError::NotFound(none.to_owned()))
}

fn checked_name(name: &str) -> Result<&str, ApiError> {
    match is_valid_name(name, b"") {
        true => Ok(name),
        false => Err(ApiError::invalid_parameter("name", name, NAME_SYNTAX)),
    }
}

fn dashboard_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{SUFFIX}"))
}

/// Names, sorted.
fn dashboard_names(dir: &Path) -> Result<Vec<String>, ApiError> {
    let found = list_entries(dir)?;
    let names = found.iter().filter_map(|entry| entry.strip_suffix(SUFFIX));
    Ok(names.filter(|name| checked_name(name).is_ok()).map(str::to_owned).collect())
}

async fn list(context: Context) -> Result<JsonBody, ApiError> {
    let (dir, queries) = (dashboards_dir(&context)?, context.queries.clone());
    let work = move |_: &_| {
        let told = dashboard_names(&dir)?.into_iter().map(|name| {
            let text = fs::read(dashboard_path(&dir, &name)).unwrap_or_default();
            let board: Value = serde_json::from_slice(&text).unwrap_or_default();
            let title = board["title"].as_str().unwrap_or(&name).to_owned();
            Object(vec![("name", Text(name)), ("title", Text(title))])
        });
        let boards = List(told.collect());
        queries.json_response(&Object(vec![("schema", integer(2)), ("dashboards", boards)]))
    };
    context.run_light("dashboards", None, work).await
}

/// Reads a dashboard, if it exists, migrated to the current schema, with the ETag of the result.
fn read_dashboard(dir: &Path, name: &str) -> Result<Option<String>, ApiError> {
    let path = dashboard_path(dir, name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(migration::migrate(text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(&path, &error)),
    }
}

fn not_found(name: &str) -> ApiError {
    ApiError::NotFound(format!("dashboard {name:?} does not exist"))
}

/// Rejects a write if the dashboard has changed since the client read it: another user's change
/// would be lost.
fn check_if_match(headers: &HeaderMap, name: &str, now: Option<&str>) -> Result<(), ApiError> {
    let now = now.map(|text| etag::etag(text.as_bytes()));
    if etag::matches_header(headers, &IF_MATCH, now.as_deref()) == Some(false) {
        let reason = "was changed or deleted since it was read; read it again";
        return Err(ApiError::PreconditionFailed(format!("the dashboard {name:?} {reason}")));
    }
    if etag::matches_header(headers, &IF_NONE_MATCH, now.as_deref()) == Some(true) {
        let reason = "exists; choose another name";
        return Err(ApiError::PreconditionFailed(format!("the dashboard {name:?} {reason}")));
    }
    Ok(())
}

/// A response with the dashboard's ETag, with which it can be changed.
fn with_etag(tag: String, answer: JsonBody) -> impl IntoResponse + use<> {
    ([(ETAG, tag), (CACHE_CONTROL, "no-cache".to_owned())], answer)
}

async fn read(context: Context, Named(name): Named<String>) -> Result<impl IntoResponse, ApiError> {
    let dir = dashboards_dir(&context)?;
    checked_name(&name)?;
    let work = move |_: &_| {
        let text = read_dashboard(&dir, &name)?.ok_or_else(|| not_found(&name))?;
        Ok(with_etag(etag::etag(text.as_bytes()), JsonBody(text)))
    };
    context.run_light("dashboards", None, work).await
}

async fn write(
    context: Context,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<impl IntoResponse, ApiError> {
    let (dir, queries) = (dashboards_dir(&context)?, context.queries.clone());
    let name = checked_name(&name)?.to_owned();
    if body.len() > BYTES_MAX {
        let bytes = body.len();
        return Err(ApiError::BadRequest(format!(
            "the dashboard has {bytes} bytes: the limit is {BYTES_MAX}"
        )));
    }
    match serde_json::from_slice(&body) {
        Ok(Value::Object(_)) => {}
        Ok(_) => {
            return Err(ApiError::BadRequest("the dashboard: expected a JSON object".to_owned()));
        }
        Err(error) => {
            return Err(ApiError::BadRequest(format!("the dashboard is not valid JSON: {error}")));
        }
    }
    let work = move |_: &_| {
        let _alone = queries.dashboards_lock.lock().unwrap_or_else(PoisonError::into_inner);
        check_if_match(&headers, &name, read_dashboard(&dir, &name)?.as_deref())?;
        let there = dashboard_names(&dir)?;
        if there.len() >= DASHBOARDS_MAX && !there.contains(&name) {
            return Err(ApiError::BadRequest(format!(
                "limit of {DASHBOARDS_MAX} dashboards reached; delete one first"
            )));
        }
        write_file(&dir, &name, &body).map_err(|error| io_error(&dir, &error))?;
        // The body was parsed as JSON: it is UTF-8.
        let tag = etag::etag(migration::migrate(String::from_utf8_lossy(&body).into()).as_bytes());
        let answer =
            queries.json_response(&Object(vec![("schema", integer(2)), ("saved", Text(name))]))?;
        Ok(with_etag(tag, answer))
    };
    context.run_light("dashboards", None, work).await
}

/// The old file stays until the new one is complete and durable.
fn write_file(dir: &Path, name: &str, board: &[u8]) -> io::Result<()> {
    if !dir.exists() {
        fs::create_dir_all(dir)?;
        // The directory entry has to be durable too.
        dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
    }
    let path = dashboard_path(dir, name);
    disk::replace_file(&OsDisk, &path, board).map_err(|error| {
        // A failed write leaves no file on a full disk.
        let _ = fs::remove_file(path.with_added_extension("new"));
        error.source
    })
}

async fn remove(
    context: Context,
    Named(name): Named<String>,
    headers: HeaderMap,
) -> Result<JsonBody, ApiError> {
    let (dir, queries) = (dashboards_dir(&context)?, context.queries.clone());
    let name = checked_name(&name)?.to_owned();
    let work = move |_: &_| {
        let _alone = queries.dashboards_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let now = read_dashboard(&dir, &name)?;
        check_if_match(&headers, &name, now.as_deref())?;
        now.ok_or_else(|| not_found(&name))?;
        let path = dashboard_path(&dir, &name);
        fs::remove_file(&path)
            .and_then(|()| File::open(&dir)?.sync_all())
            .map_err(|error| io_error(&path, &error))?;
        queries.json_response(&Object(vec![("schema", integer(2)), ("deleted", Text(name))]))
    };
    context.run_light("dashboards", None, work).await
}
