//! Store snapshots: consistent copies, one directory each.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use axum::extract::Path as Named;
use disk::{Disk, OsDisk};
use http::StatusCode;

use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{Bool, List, Object, Text};
use crate::json::integer;
use crate::named_dir::{io_error, is_valid_name, list_entries};
use crate::parameters::Parameters;
use crate::route::{ApiRoute, JSON, Parameter, SNAPSHOTS_PATH};
use crate::routing;
use crate::token::Scope;

/// Description of valid names.
const NAME_SYNTAX: &str =
    "a name of up to 64 letters, digits, '-', '_' and '.', that begins with a letter or digit";
/// A directory without a manifest is an incomplete snapshot that a crash left.
const MANIFESTS: [&str; 2] = ["manifest", "manifest.copy"];

const CREATE: &[Parameter] = &[Parameter::text("name", "name; default: the current time")];
const REMOVE: &[Parameter] = &[Parameter::text("name", "name")];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(SNAPSHOTS_PATH, "Lists snapshots.", &[], || routing::get(list))
        .with_scope(Some(Scope::Admin)),
    ApiRoute {
        method: "post",
        ..ApiRoute::get(SNAPSHOTS_PATH, "Creates a snapshot of the store.", CREATE, || {
            routing::post(create)
        })
    }
    .with_scope(Some(Scope::Admin))
    .with_response(201, JSON, "the snapshot, with all data acknowledged before"),
    ApiRoute {
        method: "delete",
        ..ApiRoute::get("/v1/snapshots/{name}", "Deletes a snapshot.", REMOVE, || {
            routing::delete(remove)
        })
    }
    .with_scope(Some(Scope::Admin))
    .with_response(200, JSON, "deleted"),
];

fn snapshots_dir(context: &Context) -> Result<PathBuf, ApiError> {
    let none = "snapshots are disabled: no directory is configured";
    context
        .queries
        .settings
        .snapshots_dir
        .clone()
        .ok_or_else(|| ApiError::NotFound(none.to_owned()))
}

fn checked_name(name: &str) -> Result<&str, ApiError> {
    match is_valid_name(name, b".") {
        true => Ok(name),
        false => Err(ApiError::invalid_parameter("name", name, NAME_SYNTAX)),
    }
}

fn is_complete(path: &Path) -> bool {
    MANIFESTS.iter().any(|name| path.join(name).exists())
}

async fn create(
    context: Context,
    parameters: Parameters,
) -> Result<(StatusCode, JsonBody), ApiError> {
    let parameters = parameters.reject_unknown(CREATE)?;
    let (dir, store) = (snapshots_dir(&context)?, context.queries.store()?);
    let now = jiff::Timestamp::from_nanosecond(context.intake.now().into()).unwrap_or_default();
    let now = now.strftime("%Y%m%dT%H%M%S.%3fZ").to_string();
    let name = checked_name(parameters.get("name").unwrap_or(&now))?.to_owned();
    let queries = context.queries.clone();
    let work = move |_: &_| {
        let _alone = queries.snapshots_lock.lock().unwrap_or_else(PoisonError::into_inner);
        std::fs::create_dir_all(&dir).map_err(|error| io_error(&dir, &error))?;
        let path = dir.join(&name);
        if is_complete(&path) {
            return Err(ApiError::BadRequest(format!("parameter name: snapshot {name:?} exists")));
        }
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let made = store.snapshot(&disk, &path)?;
        queries.json_response(&Object(vec![
            ("schema", integer(1)),
            ("name", Text(name)),
            ("path", Text(path.display().to_string())),
            ("parts", integer(made.parts)),
            ("bytes", integer(made.bytes)),
            ("rows", integer(made.rows)),
            ("series", integer(made.series)),
        ]))
    };
    Ok((StatusCode::CREATED, context.run_heavy("snapshot", None, work).await?))
}

async fn list(context: Context) -> Result<JsonBody, ApiError> {
    let (dir, queries) = (snapshots_dir(&context)?, context.queries.clone());
    let work = move |_: &_| {
        let names = list_entries(&dir)?.into_iter().filter(|name| checked_name(name).is_ok());
        let snapshots = names.map(|name| {
            let is_complete = is_complete(&dir.join(&name));
            Object(vec![("name", Text(name)), ("complete", Bool(is_complete))])
        });
        let snapshots = List(snapshots.collect());
        queries.json_response(&Object(vec![("schema", integer(1)), ("snapshots", snapshots)]))
    };
    context.run_light("snapshots", None, work).await
}

async fn remove(context: Context, Named(name): Named<String>) -> Result<JsonBody, ApiError> {
    let (dir, queries) = (snapshots_dir(&context)?, context.queries.clone());
    let name = checked_name(&name)?.to_owned();
    let work = move |_: &_| {
        let _alone = queries.snapshots_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let path = dir.join(&name);
        // Manifests first: after a crash the rest is an incomplete snapshot.
        for manifest in MANIFESTS {
            match std::fs::remove_file(path.join(manifest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error(&path, &error));
                }
                _ => {}
            }
        }
        match std::fs::remove_dir_all(&path) {
            Ok(()) => queries
                .json_response(&Object(vec![("schema", integer(2)), ("deleted", Text(name))])),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ApiError::NotFound(format!("snapshot {name:?} does not exist")))
            }
            Err(error) => Err(io_error(&path, &error)),
        }
    };
    context.run_light("snapshots", None, work).await
}
