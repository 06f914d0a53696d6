//! `POST /v1/batches`: forward requests from agents, see `docs/formats/forward.md`.
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
use journal::BatchIdentity;
use model::{Batch, FORWARD_REQUEST_BYTES_MAX, ForwardRequest};
use net::forward_protocol::{
    ACKED_SEQUENCE_HEADER, AGENT_PRODUCER, CONTENT_TYPE, KEY_HEADER, PATH,
    REJECTED_SEQUENCE_HEADER, SIGNATURE_HEADER,
};
use net::signature::{PublicKey, SIGNATURE_BYTES, from_hex, verify_signature};
use tokio::sync::Semaphore;

use crate::access::Principal;
use crate::body::BodyLimits;
use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::ingest_request::{earlier_producer, scoped_producer};
use crate::ingest::unpack_zstd;
use crate::route::{ApiRoute, JSON};

/// Tells numbers of agents' journals from others.
const PRODUCERS: &str = "topdeck 2026 producers of parcels";
/// Parcels that are unpacked at the same time.
const DECOMPRESSIONS_MAX: usize = 4;
/// How far back a packed parcel may refer, as a power of two: what it is unpacked with takes as
/// much memory.
const WINDOW_LOG_MAX: u32 = 23;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute {
    takes_batches: false,
    ..ApiRoute::ingest(
        PATH,
        "Ingests batches forwarded by an agent (docs/formats/forward.md).",
        &[],
        (CONTENT_TYPE, "batches with their identities; zstd-compressed or plain"),
    )
    .with_response(200, JSON, "the acknowledged sequence; stored durably")
}];

/// The routes.
pub(crate) fn routes() -> Router<Context> {
    let turns = Arc::new(Semaphore::new(DECOMPRESSIONS_MAX));
    let take = |context: Context, request: Request| async move {
        match handle_batches(&context, &turns, request).await {
            Ok(answer) => answer.into_response(),
            Err(problem) => problem.into_response(),
        }
    };
    Router::new().route(PATH, post(take)).layer(DefaultBodyLimit::disable())
}

async fn handle_batches(
    context: &Context,
    turns: &Semaphore,
    request: Request,
) -> Result<ForwardOutcome, ErrorResponse> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let packed = is_compressed(headers)?;
    let seal = RequestSignature::from_headers(headers)?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    if length.is_some_and(|bytes: u64| bytes > FORWARD_REQUEST_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let body = read_body(body).await?;
    let turn = turns.acquire().await.expect("BUG: nobody closes it");
    // A parcel says itself whose it is: what comes with another token is somebody else's.
    let client = parts.extensions.get::<Principal>().and_then(|client| client.name.clone());
    let intake = Arc::clone(&context.intake);
    // What is no text is nobody's name; the books keep as much of it as they want.
    let agent = headers.get(AGENT_PRODUCER).and_then(|name| name.to_str().ok()).unwrap_or_default();
    // Beside names of other producers it is an agent's.
    let agent = if agent.is_empty() { String::new() } else { format!("agent {agent}") };
    let bound =
        parts.extensions.get::<Arc<BodyLimits>>().expect("BUG: a body without bounds").clone();
    // Unpacking takes the processor, and appending may wait for the disk.
    let work = move || {
        let parcel = if packed { decompress(&body, &bound)?.into() } else { body };
        append_batches(&intake, client.as_deref(), &agent, seal.as_ref(), &parcel)
    };
    let mut answer = match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer?,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    // Others need not wait for the disk.
    drop(turn);
    if let Some(receipt) = answer.receipt.take() {
        // One for all: what is before the last is durable with it.
        receipt.until_durable().await?;
    }
    Ok(answer)
}

/// Signature of a forward request.
struct RequestSignature {
    key: PublicKey,
    signature: [u8; SIGNATURE_BYTES],
}

impl RequestSignature {
    /// None of an earlier topdeck, which does not sign.
    fn from_headers(headers: &HeaderMap) -> Result<Option<RequestSignature>, ErrorResponse> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let (key, signature) = match (text(KEY_HEADER), text(SIGNATURE_HEADER)) {
            (None, None) => return Ok(None),
            (key, signature) => (key.unwrap_or_default(), signature.unwrap_or_default()),
        };
        let seal =
            || Some(RequestSignature { key: from_hex(key)?, signature: from_hex(signature)? });
        seal().map(Some).ok_or_else(|| {
            ErrorResponse::bad_request(format!(
                "cannot read the headers {KEY_HEADER} and {SIGNATURE_HEADER}: expected 64 and 128 \
                 hexadecimal digits; send both, or neither"
            ))
        })
    }
}

fn is_compressed(headers: &HeaderMap) -> Result<bool, ErrorResponse> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"zstd") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other).into_owned();
            let what = format!("content-encoding {other:?} is not known here; send zstd or none");
            Err(ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
        }
    }
}

fn too_large() -> ErrorResponse {
    let what = format!(
        "a parcel may have {FORWARD_REQUEST_BYTES_MAX} bytes, this one has more; send less"
    );
    ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

/// The body; how large all may be and how long one may take is the server's to say.
async fn read_body(body: Body) -> Result<Bytes, ErrorResponse> {
    let body = axum::body::to_bytes(body, FORWARD_REQUEST_BYTES_MAX).await;
    // Broken off, or longer than it said.
    body.map_err(|error| {
        ErrorResponse::bad_request(format!("the parcel did not come whole: {error}"))
    })
}

fn decompress(body: &[u8], bound: &BodyLimits) -> Result<Vec<u8>, ErrorResponse> {
    let parcel = unpack_zstd(body, WINDOW_LOG_MAX, bound)?;
    if parcel.len() > FORWARD_REQUEST_BYTES_MAX { Err(too_large()) } else { Ok(parcel) }
}

/// Outcome of a forward request.
#[derive(Debug, Default)]
struct ForwardOutcome {
    /// The last batch that is in the journal, and what says when it is durable.
    receipt: Option<Receipt>,
    accepted: Option<u64>,
    appended: u64,
    duplicates: u64,
    /// Where and why it ended early.
    failure: Option<BatchFailure>,
}

#[derive(Debug)]
struct BatchFailure {
    sequence: u64,
    response: ErrorResponse,
}

/// Takes batch after batch, until one cannot be taken.
fn append_batches(
    intake: &Intake,
    client: Option<&str>,
    agent: &str,
    seal: Option<&RequestSignature>,
    bytes: &[u8],
) -> Result<ForwardOutcome, ErrorResponse> {
    let parcel = ForwardRequest::decode(bytes)
        .map_err(|error| ErrorResponse::bad_request(format!("parcel: {error}")))?;
    let (producer, boot) = parcel.producer_and_epoch();
    // Keys of version 0.1.0 are kept by its numbers, and what was taken under them is not taken
    // again.
    let earlier = client.map_or(producer, |client| earlier_producer(PRODUCERS, client, producer));
    let producer = scoped_producer(PRODUCERS, client.unwrap_or_default(), producer, None);
    if seal.is_some_and(|seal| !verify_signature(bytes, &seal.key, &seal.signature)) {
        let what =
            "cannot take the parcel: its signature is not of its bytes and its key; send it again";
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, what));
    }
    intake.check_key(producer, earlier, agent, seal.map(|seal| &seal.key))?;
    let mut answer = ForwardOutcome::default();
    for &(sequence, batch) in &parcel.entries {
        let identity = BatchIdentity { producer, epoch: boot, sequence };
        let earlier = BatchIdentity { producer: earlier, ..identity };
        match append_batch(intake, agent, (identity, earlier), batch) {
            Ok(receipt) => {
                match receipt.is_duplicate() {
                    true => answer.duplicates += 1,
                    false => answer.appended += 1,
                }
                answer.accepted = Some(sequence);
                answer.receipt = Some(receipt);
            }
            Err(problem) => {
                answer.failure = Some(BatchFailure { sequence, response: problem });
                break;
            }
        }
    }
    Ok(answer)
}

fn append_batch(
    intake: &Intake,
    agent: &str,
    (identity, earlier): (BatchIdentity, BatchIdentity),
    batch: &[u8],
) -> Result<Receipt, ErrorResponse> {
    let refuse = |error: model::Error| ErrorResponse::bad_request(error.to_string());
    let batch = Batch::check(batch.to_owned()).map_err(refuse)?;
    if let Some(receipt) = intake.repeat_of(earlier)? {
        return Ok(receipt);
    }
    Ok(intake.append_encoded(identity, agent, &batch)?)
}

impl BatchFailure {
    /// Whether it is about the batch, and not about now or here.
    fn is_permanent(&self) -> bool {
        matches!(self.response.status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE)
    }
}

impl IntoResponse for ForwardOutcome {
    fn into_response(self) -> Response {
        let refused =
            self.failure.as_ref().filter(|it| it.is_permanent()).map(|stopped| stopped.sequence);
        let mut response = match self.failure {
            Some(BatchFailure { sequence, response: mut problem }) => {
                problem.message = format!("batch {sequence}: {}", problem.message);
                problem.into_response()
            }
            None => {
                let body = serde_json::json!({
                    "accepted": self.accepted,
                    "appended": self.appended,
                    "duplicates": self.duplicates,
                });
                let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
                (json, body.to_string() + "\n").into_response()
            }
        };
        for (name, number) in
            [(ACKED_SEQUENCE_HEADER, self.accepted), (REJECTED_SEQUENCE_HEADER, refused)]
        {
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
