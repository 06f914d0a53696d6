//! Installation of agents from this server (docs/install.md): a shell script, programs, and the
//! enrollment of hosts.
//!
//! Script and programs contain no secret and need no token. The secret of an enrollment token is
//! only in the header `Authorization`; the script has it if the request for the script had it.

mod programs;

use std::sync::Arc;

use axum::extract::{Path as Named, Request};
use axum::response::{IntoResponse, Response};
use axum::{Extension, body};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde_json::Value;

use self::programs::{ARCHITECTURES, load_program, program_digest, program_name};
use crate::access::{AccessPolicy, ENROLL_PATH, Peer, Principal, host};
use crate::batches;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::json::Json::{Integer, Null, Object, Text};
use crate::response_buffers::SharedBody;
use crate::route::{ApiRoute, JSON, Parameter};
use crate::routing;
use crate::token::{EnrollmentError, Scope, is_secret};

/// Template of the script: `@NAME@` is replaced.
const SCRIPT: &str = include_str!("install/install.sh");
/// Maximum size of the body of an enrollment in bytes.
const BODY_BYTES_MAX: usize = 4 << 10;
const CHECKSUMS: &str = "SHA256SUMS";

const FILE: &[Parameter] =
    &[Parameter::text("file", "topdeck-x86_64, topdeck-aarch64 or SHA256SUMS")];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/install.sh", "Script that installs the agent on a host.", &[], || {
        routing::get(script)
    })
    .with_scope(None)
    .with_response(200, "text/x-shellscript", "the script, for /bin/sh"),
    ApiRoute::get("/v1/install/{file}", "Programs for hosts and their checksums.", FILE, || {
        routing::get(file)
    })
    .with_scope(None)
    .with_response(200, "application/octet-stream", "the file"),
    ApiRoute {
        method: "post",
        body: Some((JSON, "`name`: name of the host")),
        ..ApiRoute::get(
            ENROLL_PATH,
            "Exchanges an enrollment token for a token of a host, with the scope ingest.",
            &[],
            || routing::post(enroll),
        )
    }
    .with_scope(Some(Scope::Enroll))
    .with_response(201, JSON, "name and secret of the token"),
    ApiRoute::get(
        ENROLL_PATH,
        "Name of the token of the request, and the time of the last batch forwarded with it.",
        &[],
        || routing::get(enrollment),
    )
    .with_scope(Some(Scope::Ingest)),
    ApiRoute {
        method: "delete",
        ..ApiRoute::get(
            ENROLL_PATH,
            "Removes the token of the request, if a host got it by enrollment. If nothing was \
             sent with it, the use of the enrollment token is given back.",
            &[],
            || routing::delete(unenroll),
        )
    }
    .with_scope(Some(Scope::Ingest))
    .with_response(200, JSON, "removed"),
];

async fn script(
    context: Context,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ErrorResponse> {
    let host = host(&uri, &headers).filter(|host| is_plain_host(host)).ok_or_else(|| {
        ErrorResponse::bad_request(
            "cannot write the script: the header Host is missing or has characters other than \
             letters, digits, \".\", \":\", \"-\"",
        )
    })?;
    let is_forwarded_tls =
        headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes() == b"https");
    let scheme = if peer.tls.is_some() || is_forwarded_tls { "https" } else { "http" };
    let url = format!("{scheme}://{host}");
    let token = bearer(&headers).filter(|token| is_secret(token)).unwrap_or_default().to_owned();
    let dir = context.queries.settings.programs_dir.clone();
    let text = context
        .run_light("install_script", None, move |_| {
            // The settings were valid at the start; without a pin, the CAs of the host decide, as
            // behind a proxy, whose key is another one.
            let tls = peer.tls.as_ref().filter(|_| !is_forwarded_tls);
            let pin = tls.and_then(|tls| tls.public_key_pin().ok());
            let pin = pin.map_or_else(String::new, |pin| pin.to_string());
            let sums = checksums(dir.as_deref());
            let fields =
                [("@SERVER@", url), ("@PIN@", pin), ("@TOKEN@", token), ("@SHA256SUMS@", sums)];
            let fill = |text: String, (name, value): (&str, String)| text.replace(name, &value);
            Ok(fields.into_iter().fold(SCRIPT.to_owned(), fill))
        })
        .await?;
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/x-shellscript"));
    // It may contain the token of the request.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Whether a host can be written between single quotes of the shell.
fn is_plain_host(host: &str) -> bool {
    !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]_".contains(&byte))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (kind, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    kind.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A line for each program, as sha256sum writes it.
fn checksums(dir: Option<&std::path::Path>) -> String {
    let line = |machine| {
        let digest = program_digest(machine, dir).ok()?;
        Some(format!("{digest}  {}\n", program_name(machine)))
    };
    ARCHITECTURES.into_iter().filter_map(line).collect()
}

async fn file(context: Context, Named(file): Named<String>) -> Result<Response, ErrorResponse> {
    let dir = context.queries.settings.programs_dir.clone();
    if file == CHECKSUMS {
        let work = move |_: &_| Ok(checksums(dir.as_deref()));
        return Ok(context.run_light("install_checksums", None, work).await?.into_response());
    }
    let known = ARCHITECTURES.into_iter().find(|machine| program_name(machine) == file);
    let Some(machine) = known else {
        let what =
            format!("no file {file:?}: expected topdeck-x86_64, topdeck-aarch64, {CHECKSUMS}");
        return Err(ErrorResponse::new(StatusCode::NOT_FOUND, what));
    };
    let work = move |_: &_| Ok(load_program(machine, dir.as_deref()));
    let loaded = context.run_light("install_program", None, work).await?;
    let program = loaded.map_err(|error| {
        ErrorResponse::new(StatusCode::NOT_FOUND, format!("no program for {machine}: {error}"))
    })?;
    let mut response = program.into_response();
    // All clients share one copy.
    response.extensions_mut().insert(SharedBody);
    Ok(response)
}

async fn enroll(
    context: Context,
    Extension(policy): Extension<Arc<AccessPolicy>>,
    request: Request,
) -> Result<(StatusCode, JsonBody), ErrorResponse> {
    let secret = bearer(request.headers()).map(str::to_owned).ok_or_else(|| {
        ErrorResponse::new(
            StatusCode::UNAUTHORIZED,
            "enrollment token required: send `Authorization: Bearer TOKEN`; create one on the \
             server with `topdeck token DIR enroll`",
        )
    })?;
    let body = body::to_bytes(request.into_body(), BODY_BYTES_MAX).await.map_err(|error| {
        ErrorResponse::bad_request(format!("cannot read the request body: {error}"))
    })?;
    let name = serde_json::from_slice(&body).ok();
    let name = name.and_then(|body: Value| Some(body["name"].as_str()?.to_owned()));
    let name = name.ok_or_else(|| {
        ErrorResponse::bad_request("invalid body: expected {\"name\": \"NAME OF THE HOST\"}")
    })?;
    let now_s = context.intake.now() / 1_000_000_000;
    let work = move |_: &_| Ok(policy.enroll(secret.as_bytes(), &name, now_s));
    let enrolled = context.run_light("enroll", None, work).await?.map_err(enrollment_error)?;
    let fields = vec![("name", Text(enrolled.name)), ("token", Text(enrolled.secret))];
    Ok((StatusCode::CREATED, context.queries.json_response(&Object(fields))?))
}

fn enrollment_error(error: EnrollmentError) -> ErrorResponse {
    let status = match &error {
        EnrollmentError::Unknown => StatusCode::UNAUTHORIZED,
        EnrollmentError::Expired(_) | EnrollmentError::UsedUp(_) => StatusCode::FORBIDDEN,
        EnrollmentError::File(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    ErrorResponse::new(status, error.to_string())
}

fn token_name(principal: Principal) -> Result<String, ErrorResponse> {
    principal.name.ok_or_else(|| {
        ErrorResponse::bad_request("token required: send `Authorization: Bearer TOKEN`")
    })
}

async fn enrollment(
    context: Context,
    Extension(principal): Extension<Principal>,
) -> Result<JsonBody, ErrorResponse> {
    let name = token_name(principal)?;
    let received = batches::last_batch(&context.intake, &name);
    let received = received.map_or(Null, |at| Integer(at.into()));
    let fields = vec![("name", Text(name)), ("received_ns", received)];
    Ok(context.queries.json_response(&Object(fields))?)
}

async fn unenroll(
    context: Context,
    Extension(policy): Extension<Arc<AccessPolicy>>,
    Extension(principal): Extension<Principal>,
) -> Result<JsonBody, ErrorResponse> {
    let name = token_name(principal)?;
    let (removed, intake) = (name.clone(), Arc::clone(&context.intake));
    let work = move |_: &_| {
        // Without the ledger nobody knows: a use that is spent is the safe answer.
        let has_forwarded = || batches::has_forwarded(&intake, &removed).unwrap_or(true);
        Ok(policy.unenroll(&removed, has_forwarded))
    };
    match context.run_light("unenroll", None, work).await? {
        Ok(true) => Ok(context.queries.json_response(&Object(vec![("removed", Text(name))]))?),
        Ok(false) => {
            let what = format!(
                "token {name} is not from an enrollment; remove it on the server with `topdeck \
                 token DIR remove {name}`"
            );
            Err(ErrorResponse::new(StatusCode::FORBIDDEN, what))
        }
        Err(error) => Err(ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}
