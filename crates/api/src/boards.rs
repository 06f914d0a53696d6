//! Boards: what people put together in the page, kept as they wrote it, one file of JSON each in a folder of their own.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use axum::body::Bytes;
use axum::extract::Path as Named;
use axum::response::IntoResponse;
use axum::routing;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH};
use serde_json::Value;

use crate::context::Context;
use crate::desk::Written;
use crate::folder::{entries, failed, is_name};
use crate::json::Json::{List, Object, Text};
use crate::json::integer;
use crate::openapi::{JSON, Parameter, Route};
use crate::refusal::Refusal;
use crate::tag;
use crate::token::Scope;

/// Bytes of a board.
const BYTES_MAX: usize = 256 << 10;
/// Boards there may be.
const BOARDS_MAX: usize = 1_000;
/// What a name may be.
const NAME: &str =
    "a name of up to 64 letters, digits, '-' and '_', that begins with a letter or digit";
/// How files of boards end.
const SUFFIX: &str = ".json";

const ONE: &[Parameter] = &[Parameter::text("name", "what it is called")];

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/boards", "Boards that there are.", &[], || routing::get(list)),
    Route::get("/v1/boards/{name}", "A board, as it was written.", ONE, || routing::get(read)),
    Route {
        method: "put",
        body: Some((JSON, "the board: an object with a title and panels; up to 256 KiB")),
        ..Route::get("/v1/boards/{name}", "Keeps a board. With `If-Match` and the `ETag` that it was read with, only if nobody else changed it meanwhile; with `If-None-Match: *`, only a new one. Otherwise the answer is 412.", ONE, || routing::put(write))
    }
    .with_scope(Some(Scope::Admin))
    .answers(200, JSON, "it is kept, and on disk"),
    Route {
        method: "delete",
        ..Route::get("/v1/boards/{name}", "Removes a board.", ONE, || routing::delete(remove))
    }
    .with_scope(Some(Scope::Admin))
    .answers(200, JSON, "it is gone"),
];

fn folder(context: &Context) -> Result<PathBuf, Refusal> {
    let none = "boards are not kept here: no folder is set for them";
    context.desk.settings.boards.clone().ok_or_else(|| Refusal::Missing(none.to_owned()))
}

fn checked(name: &str) -> Result<&str, Refusal> {
    match is_name(name, b"") {
        true => Ok(name),
        false => Err(Refusal::parameter("name", name, NAME)),
    }
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{SUFFIX}"))
}

/// Names, in order.
fn names(folder: &Path) -> Result<Vec<String>, Refusal> {
    let found = entries(folder)?;
    let names = found.iter().filter_map(|entry| entry.strip_suffix(SUFFIX));
    Ok(names.filter(|name| checked(name).is_ok()).map(str::to_owned).collect())
}

async fn list(context: Context) -> Result<Written, Refusal> {
    let (folder, desk) = (folder(&context)?, context.desk.clone());
    let work = move |_: &_| {
        let told = names(&folder)?.into_iter().map(|name| {
            let text = fs::read(file(&folder, &name)).unwrap_or_default();
            let board: Value = serde_json::from_slice(&text).unwrap_or_default();
            let title = board["title"].as_str().unwrap_or(&name).to_owned();
            Object(vec![("name", Text(name)), ("title", Text(title))])
        });
        let boards = List(told.collect());
        desk.answer(&Object(vec![("schema", integer(1)), ("boards", boards)]))
    };
    context.light("boards", None, work).await
}

/// A board as it is now, if there is one.
fn held(folder: &Path, name: &str) -> Result<Option<String>, Refusal> {
    let path = file(folder, name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&path, &error)),
    }
}

fn missing(name: &str) -> Refusal {
    Refusal::Missing(format!("there is no board {name:?}"))
}

/// Refuses to change what is not as the asker saw it: somebody else's change would be lost.
fn unchanged(headers: &HeaderMap, name: &str, now: Option<&str>) -> Result<(), Refusal> {
    let now = now.map(|text| tag::of(text.as_bytes()));
    if tag::names(headers, &IF_MATCH, now.as_deref()) == Some(false) {
        let why = "was changed or removed by somebody else since it was read; read it again";
        return Err(Refusal::Changed(format!("the board {name:?} {why}")));
    }
    if tag::names(headers, &IF_NONE_MATCH, now.as_deref()) == Some(true) {
        let why = "there is already; keep this one by another name";
        return Err(Refusal::Changed(format!("a board {name:?} {why}")));
    }
    Ok(())
}

/// An answer about a board, by whose tag it can be changed.
fn tagged(tag: String, answer: Written) -> impl IntoResponse + use<> {
    ([(ETAG, tag), (CACHE_CONTROL, "no-cache".to_owned())], answer)
}

async fn read(context: Context, Named(name): Named<String>) -> Result<impl IntoResponse, Refusal> {
    let folder = folder(&context)?;
    checked(&name)?;
    let work = move |_: &_| {
        let text = held(&folder, &name)?.ok_or_else(|| missing(&name))?;
        Ok(tagged(tag::of(text.as_bytes()), Written(text)))
    };
    context.light("boards", None, work).await
}

async fn write(
    context: Context,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<impl IntoResponse, Refusal> {
    let (folder, desk) = (folder(&context)?, context.desk.clone());
    let name = checked(&name)?.to_owned();
    if body.len() > BYTES_MAX {
        let bytes = body.len();
        return Err(Refusal::Bad(format!("the board has {bytes} bytes, {BYTES_MAX} are the most")));
    }
    match serde_json::from_slice(&body) {
        Ok(Value::Object(_)) => {}
        Ok(_) => return Err(Refusal::Bad("the board: expected an object of JSON".to_owned())),
        Err(error) => return Err(Refusal::Bad(format!("the board is no JSON: {error}"))),
    }
    let work = move |_: &_| {
        let _alone = desk.boards.lock().unwrap_or_else(PoisonError::into_inner);
        unchanged(&headers, &name, held(&folder, &name)?.as_deref())?;
        let there = names(&folder)?;
        if there.len() >= BOARDS_MAX && !there.contains(&name) {
            return Err(Refusal::Bad(format!("there are {BOARDS_MAX} boards; remove one first")));
        }
        keep(&folder, &name, &body).map_err(|error| failed(&folder, &error))?;
        let answer = desk.answer(&Object(vec![("schema", integer(1)), ("kept", Text(name))]))?;
        Ok(tagged(tag::of(&body), answer))
    };
    context.light("boards", None, work).await
}

/// The old one stays until the new one is whole and on disk.
fn keep(folder: &Path, name: &str, board: &[u8]) -> io::Result<()> {
    if !folder.exists() {
        fs::create_dir_all(folder)?;
        // That it is there has to be on disk too.
        folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
    }
    let new = folder.join(format!("{name}.new"));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(board)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&new, file(folder, name))) {
        // A disk that is full shall not be filled by what nobody reads.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

async fn remove(
    context: Context,
    Named(name): Named<String>,
    headers: HeaderMap,
) -> Result<Written, Refusal> {
    let (folder, desk) = (folder(&context)?, context.desk.clone());
    let name = checked(&name)?.to_owned();
    let work = move |_: &_| {
        let _alone = desk.boards.lock().unwrap_or_else(PoisonError::into_inner);
        let now = held(&folder, &name)?;
        unchanged(&headers, &name, now.as_deref())?;
        now.ok_or_else(|| missing(&name))?;
        let path = file(&folder, &name);
        fs::remove_file(&path)
            .and_then(|()| File::open(&folder)?.sync_all())
            .map_err(|error| failed(&path, &error))?;
        desk.answer(&Object(vec![("schema", integer(1)), ("removed", Text(name))]))
    };
    context.light("boards", None, work).await
}
