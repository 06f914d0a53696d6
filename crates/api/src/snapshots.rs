//! Snapshots of the store: copies of one moment that take no room, in a folder of their own each.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use axum::extract::Path as Named;
use axum::routing;
use disk::{Disk, OsDisk};
use http::StatusCode;

use crate::context::Context;
use crate::desk::Written;
use crate::folder::{entries, failed, is_name};
use crate::json::Json::{Bool, List, Object, Text};
use crate::json::integer;
use crate::openapi::{JSON, Parameter, Route};
use crate::parameters::Parameters;
use crate::refusal::Refusal;
use crate::token::Scope;

/// What a name may be.
const NAME: &str =
    "a name of up to 64 letters, digits, '-', '_' and '.', that begins with none of these";
/// Without one of them a folder is no snapshot, but what a crash left of one.
const MANIFESTS: [&str; 2] = ["manifest", "manifest.copy"];

const MAKE: &[Parameter] = &[Parameter::text("name", "what it is called; the time, if not said")];
const REMOVE: &[Parameter] = &[Parameter::text("name", "what it is called")];

/// Where they are made and removed. How long that takes is the store's size to say, not a limit of the server.
pub(crate) const PATH: &str = "/v1/snapshots";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(PATH, "Snapshots that there are.", &[], || routing::get(list))
        .with_scope(Some(Scope::Admin)),
    Route {
        method: "post",
        ..Route::get(PATH, "Makes a snapshot of the store.", MAKE, || routing::post(make))
    }
    .with_scope(Some(Scope::Admin))
    .answers(201, JSON, "the snapshot; all that was acknowledged before is in it"),
    Route {
        method: "delete",
        ..Route::get("/v1/snapshots/{name}", "Removes a snapshot.", REMOVE, || {
            routing::delete(remove)
        })
    }
    .with_scope(Some(Scope::Admin))
    .answers(200, JSON, "it is gone"),
];

fn folder(context: &Context) -> Result<PathBuf, Refusal> {
    let none = "snapshots are not made here: no folder is set for them";
    context.desk.settings.snapshots.clone().ok_or_else(|| Refusal::Missing(none.to_owned()))
}

fn checked(name: &str) -> Result<&str, Refusal> {
    match is_name(name, b".") {
        true => Ok(name),
        false => Err(Refusal::parameter("name", name, NAME)),
    }
}

fn is_complete(path: &Path) -> bool {
    MANIFESTS.iter().any(|name| path.join(name).exists())
}

async fn make(context: Context, parameters: Parameters) -> Result<(StatusCode, Written), Refusal> {
    let parameters = parameters.only(MAKE)?;
    let (folder, store) = (folder(&context)?, context.desk.store()?);
    let now = jiff::Timestamp::from_nanosecond(context.intake.now().into()).unwrap_or_default();
    let now = now.strftime("%Y%m%dT%H%M%S.%3fZ").to_string();
    let name = checked(parameters.get("name").unwrap_or(&now))?.to_owned();
    let desk = context.desk.clone();
    let work = move |_: &_| {
        let _alone = desk.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        let path = folder.join(&name);
        if is_complete(&path) {
            return Err(Refusal::Bad(format!(
                "parameter name: there is a snapshot {name:?} already"
            )));
        }
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let made = store.snapshot(&disk, &path)?;
        desk.answer(&Object(vec![
            ("schema", integer(1)),
            ("name", Text(name)),
            ("path", Text(path.display().to_string())),
            ("parts", integer(made.parts)),
            ("bytes", integer(made.bytes)),
            ("rows", integer(made.rows)),
            ("series", integer(made.series)),
        ]))
    };
    Ok((StatusCode::CREATED, context.heavy("snapshot", None, work).await?))
}

async fn list(context: Context) -> Result<Written, Refusal> {
    let (folder, desk) = (folder(&context)?, context.desk.clone());
    let work = move |_: &_| {
        let names = entries(&folder)?.into_iter().filter(|name| checked(name).is_ok());
        let snapshots = names.map(|name| {
            let is_complete = is_complete(&folder.join(&name));
            Object(vec![("name", Text(name)), ("complete", Bool(is_complete))])
        });
        let snapshots = List(snapshots.collect());
        desk.answer(&Object(vec![("schema", integer(1)), ("snapshots", snapshots)]))
    };
    context.light("snapshots", None, work).await
}

async fn remove(context: Context, Named(name): Named<String>) -> Result<Written, Refusal> {
    let (folder, desk) = (folder(&context)?, context.desk.clone());
    let name = checked(&name)?.to_owned();
    let work = move |_: &_| {
        let _alone = desk.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        let path = folder.join(&name);
        // The manifests first: what a crash leaves is no snapshot any more.
        for manifest in MANIFESTS {
            match std::fs::remove_file(path.join(manifest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&path, &error));
                }
                _ => {}
            }
        }
        match std::fs::remove_dir_all(&path) {
            Ok(()) => desk.answer(&Object(vec![("schema", integer(1)), ("removed", Text(name))])),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Refusal::Missing(format!("there is no snapshot {name:?}")))
            }
            Err(error) => Err(failed(&path, &error)),
        }
    };
    context.light("snapshots", None, work).await
}
