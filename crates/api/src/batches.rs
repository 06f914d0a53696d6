//! `POST /v1/batches`: parcels from the journals of agents, see `docs/formats/forward.md`.
//!
//! Batches are taken one after the other, each checked whole before it is taken, and the sender is
//! told how far everything is durable here. At the first that cannot be taken it ends: those before
//! it are taken, those behind it come again. A repeat is known by the sender's journal and its
//! position there. A parcel that is signed binds its journal to the key: from then on nobody else
//! sends in its name.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use intake::{Intake, Receipt};
use journal::Identity;
use model::{Batch, PARCEL_BYTES_MAX, Parcel};
use net::parcels::{ACCEPTED, AGENT, CONTENT_TYPE, KEY, PATH, REFUSED, SIGNATURE};
use net::signature::{PublicKey, SIGNATURE_BYTES, is_signed, unhex};
use tokio::sync::Semaphore;

use crate::access::Client;
use crate::body::Bound;
use crate::context::Context;
use crate::ingest::{earlier_producer, own_producer, unpack_zstd};
use crate::openapi::{JSON, Route};
use crate::problem::Problem;

/// Tells numbers of agents' journals from others.
const PRODUCERS: &str = "topdeck 2026 producers of parcels";
/// Parcels that are unpacked at the same time.
const UNPACKED_MAX: usize = 4;
/// How far back a packed parcel may refer, as a power of two: what it is unpacked with takes as much memory.
const WINDOW_LOG_MAX: u32 = 23;

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    PATH,
    "Takes batches of an agent (docs/formats/forward.md).",
    &[],
    (CONTENT_TYPE, "batches with their identities; packed with zstd, or not"),
)
.answers(200, JSON, "how far they are taken; that is durable")];

/// The routes.
pub(crate) fn routes() -> Router<Context> {
    let turns = Arc::new(Semaphore::new(UNPACKED_MAX));
    let take = |context: Context, request: Request| async move {
        match take(&context, &turns, request).await {
            Ok(answer) => answer.into_response(),
            Err(problem) => problem.into_response(),
        }
    };
    Router::new().route(PATH, post(take)).layer(DefaultBodyLimit::disable())
}

async fn take(context: &Context, turns: &Semaphore, request: Request) -> Result<Answer, Problem> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let packed = is_packed(headers)?;
    let seal = Seal::of(headers)?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    if length.is_some_and(|bytes: u64| bytes > PARCEL_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let body = receive(body).await?;
    let turn = turns.acquire().await.expect("BUG: nobody closes it");
    // A parcel says itself whose it is: what comes with another token is somebody else's.
    let client = parts.extensions.get::<Client>().and_then(|client| client.name.clone());
    let intake = Arc::clone(&context.intake);
    // What is no text is nobody's name; the books keep as much of it as they want.
    let agent = headers.get(AGENT).and_then(|name| name.to_str().ok()).unwrap_or_default();
    // Beside names of other producers it is an agent's.
    let agent = if agent.is_empty() { String::new() } else { format!("agent {agent}") };
    let bound = parts.extensions.get::<Arc<Bound>>().expect("BUG: a body without bounds").clone();
    // Unpacking takes the processor, and appending may wait for the disk.
    let work = move || {
        let parcel = if packed { unpack(&body, &bound)?.into() } else { body };
        append(&intake, client.as_deref(), &agent, seal.as_ref(), &parcel)
    };
    let mut answer = match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer?,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    // Others need not wait for the disk.
    drop(turn);
    if let Some(receipt) = answer.receipt.take() {
        // One for all: what is before the last is durable with it.
        receipt.settled().await?;
    }
    Ok(answer)
}

/// What shows whose a parcel is.
struct Seal {
    key: PublicKey,
    signature: [u8; SIGNATURE_BYTES],
}

impl Seal {
    /// None of an earlier topdeck, which does not sign.
    fn of(headers: &HeaderMap) -> Result<Option<Seal>, Problem> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let (key, signature) = match (text(KEY), text(SIGNATURE)) {
            (None, None) => return Ok(None),
            (key, signature) => (key.unwrap_or_default(), signature.unwrap_or_default()),
        };
        let seal = || Some(Seal { key: unhex(key)?, signature: unhex(signature)? });
        seal().map(Some).ok_or_else(|| {
            Problem::bad(format!(
                "cannot read the headers {KEY} and {SIGNATURE}: expected 64 and 128 hexadecimal \
                 digits; send both, or neither"
            ))
        })
    }
}

fn is_packed(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"zstd") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other).into_owned();
            let what = format!("content-encoding {other:?} is not known here; send zstd or none");
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
        }
    }
}

fn too_large() -> Problem {
    let what = format!("a parcel may have {PARCEL_BYTES_MAX} bytes, this one has more; send less");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

/// The body; how large all may be and how long one may take is the server's to say.
async fn receive(body: Body) -> Result<Bytes, Problem> {
    let body = axum::body::to_bytes(body, PARCEL_BYTES_MAX).await;
    // Broken off, or longer than it said.
    body.map_err(|error| Problem::bad(format!("the parcel did not come whole: {error}")))
}

fn unpack(body: &[u8], bound: &Bound) -> Result<Vec<u8>, Problem> {
    let parcel = unpack_zstd(body, WINDOW_LOG_MAX, bound)?;
    if parcel.len() > PARCEL_BYTES_MAX { Err(too_large()) } else { Ok(parcel) }
}

/// How far it came.
#[derive(Debug, Default)]
struct Answer {
    /// The last batch that is in the journal, and what says when it is durable.
    receipt: Option<Receipt>,
    accepted: Option<u64>,
    taken: u64,
    repeated: u64,
    /// Where and why it ended early.
    stopped: Option<Stopped>,
}

#[derive(Debug)]
struct Stopped {
    sequence: u64,
    problem: Problem,
}

/// Takes batch after batch, until one cannot be taken.
fn append(
    intake: &Intake,
    client: Option<&str>,
    agent: &str,
    seal: Option<&Seal>,
    bytes: &[u8],
) -> Result<Answer, Problem> {
    let parcel = Parcel::read(bytes).map_err(|error| Problem::bad(format!("parcel: {error}")))?;
    let (producer, boot) = parcel.source();
    // Keys are kept by the numbers of version 0.1.0, and what was taken under them is not taken
    // again.
    let earlier = client.map_or(producer, |client| earlier_producer(PRODUCERS, client, producer));
    let producer = own_producer(PRODUCERS, client.unwrap_or_default(), producer, None);
    if seal.is_some_and(|seal| !is_signed(bytes, &seal.key, &seal.signature)) {
        let what =
            "cannot take the parcel: its signature is not of its bytes and its key; send it again";
        return Err(Problem::new(StatusCode::FORBIDDEN, what));
    }
    intake.check_key(earlier, agent, seal.map(|seal| &seal.key))?;
    let mut answer = Answer::default();
    for &(sequence, batch) in &parcel.entries {
        let identity = Identity { producer, boot, sequence };
        let earlier = Identity { producer: earlier, ..identity };
        match append_one(intake, agent, (identity, earlier), batch) {
            Ok(receipt) => {
                match receipt.is_repeated() {
                    true => answer.repeated += 1,
                    false => answer.taken += 1,
                }
                answer.accepted = Some(sequence);
                answer.receipt = Some(receipt);
            }
            Err(problem) => {
                answer.stopped = Some(Stopped { sequence, problem });
                break;
            }
        }
    }
    Ok(answer)
}

fn append_one(
    intake: &Intake,
    agent: &str,
    (identity, earlier): (Identity, Identity),
    batch: &[u8],
) -> Result<Receipt, Problem> {
    let refuse = |error: model::Error| Problem::bad(error.to_string());
    let batch = Batch::check(batch.to_owned()).map_err(refuse)?;
    if let Some(receipt) = intake.repeat_of(earlier)? {
        return Ok(receipt);
    }
    Ok(intake.take_batch(identity, agent, &batch)?)
}

impl Stopped {
    /// Whether it is about the batch, and not about now or here.
    fn is_refusal(&self) -> bool {
        matches!(self.problem.status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let refused =
            self.stopped.as_ref().filter(|it| it.is_refusal()).map(|stopped| stopped.sequence);
        let mut response = match self.stopped {
            Some(Stopped { sequence, mut problem }) => {
                problem.what = format!("batch {sequence}: {}", problem.what);
                problem.into_response()
            }
            None => {
                let body = serde_json::json!({
                    "accepted": self.accepted, "taken": self.taken, "repeated": self.repeated,
                });
                let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
                (json, body.to_string() + "\n").into_response()
            }
        };
        for (name, number) in [(ACCEPTED, self.accepted), (REFUSED, refused)] {
            if let Some(number) = number {
                let name = HeaderName::from_static(name);
                response.headers_mut().insert(name, HeaderValue::from(number));
            }
        }
        response
    }
}

#[cfg(test)]
mod tests;
