//! `POST /v1/batches`: forward requests from agents, see `docs/formats/forward.md`.
//!
//! Batches are appended in order, each after a complete check, and the response says up to which
//! sequence everything is durable here. The first rejected batch ends the request: earlier batches
//! are stored, later ones are sent again. A duplicate is detected by the sender's journal and its
//! position there. A signed request binds its journal to the key: afterwards no other sender can
//! use the journal's name.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use intake::{Intake, PendingAck};
use journal::BatchIdentity;
use model::{Batch, FORWARD_REQUEST_BYTES_MAX, ForwardRequest, Gap};
use net::forward_protocol::{
    ACKED_SEQUENCE_HEADER, AGENT_HEADER, CONTENT_TYPE, IMPORT_PREFIX, KEY_HEADER, PATH,
    REJECTED_SEQUENCE_HEADER, SIGNATURE_HEADER,
};
use net::signature::{PublicKey, SIGNATURE_BYTES, from_hex, verify_signature};
use tokio::sync::Semaphore;

use crate::access::Principal;
use crate::body::BodyLimits;
use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::decompress_zstd;
use crate::ingest::ingest_request::{legacy_producer, scoped_producer};
use crate::route::{ApiRoute, JSON};

/// Hash context that separates producer ids of agents' journals from others. It must not
/// change: a forward request was called a parcel in version 1.
const PRODUCERS: &str = "topdeck 2026 producers of parcels";
/// Maximum concurrent decompressions of forward requests.
const DECOMPRESSIONS_MAX: usize = 4;
/// Maximum window of a compressed request, as a power of two; decompression needs this much memory.
const WINDOW_LOG_MAX: u32 = 23;

/// Maximum time that an import waits for memory; then the limit of all senders applies.
const IMPORT_WAIT_MAX: Duration = Duration::from_secs(20);
/// Interval of its polls.
const IMPORT_POLL_INTERVAL: Duration = Duration::from_millis(20);

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

/// Whether a batch was ever forwarded with a token, as far as the ledger of the journal tells.
pub(crate) fn has_forwarded(intake: &Intake, token: &str) -> intake::Result<bool> {
    let origin = token_origin(token);
    let is_own = |id: Option<u64>| id.is_some_and(|id| journal::producer_origin(id) == origin);
    Ok(intake.audit()?.producers.iter().any(|account| is_own(account.id)))
}

fn token_origin(token: &str) -> u64 {
    journal::producer_origin(scoped_producer(PRODUCERS, token, 0, None))
}

/// Time of the last batch that was forwarded with a token since the start of this process.
pub(crate) fn last_batch(intake: &Intake, token: &str) -> Option<i64> {
    let origin = token_origin(token);
    let sources = intake.sources().into_iter();
    let own = sources.filter(|source| {
        source.name.starts_with("agent ") && journal::producer_origin(source.id) == origin
    });
    own.map(|source| source.last).max()
}

/// The routes.
pub(crate) fn routes() -> Router<Context> {
    let permits = Arc::new(Semaphore::new(DECOMPRESSIONS_MAX));
    let take = |context: Context, request: Request| async move {
        match handle_batches(&context, &permits, request).await {
            Ok(answer) => answer.into_response(),
            Err(problem) => problem.into_response(),
        }
    };
    Router::new().route(PATH, post(take)).layer(DefaultBodyLimit::disable())
}

async fn handle_batches(
    context: &Context,
    permits: &Semaphore,
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
    // A header that is not text counts as no name; the ledger limits the name's length.
    let agent = headers.get(AGENT_HEADER).and_then(|name| name.to_str().ok()).unwrap_or_default();
    let is_import = agent.starts_with(IMPORT_PREFIX);
    // Imports of an earlier topdeck are neither signed nor named.
    if is_import || seal.is_none() && agent.is_empty() {
        let _ = tokio::time::timeout(IMPORT_WAIT_MAX, wait_for_flush(&context.intake)).await;
    }
    let permit = permits.acquire().await.expect("BUG: the semaphore is never closed");
    // Producer ids are scoped by token: the same journal with another token is another
    // producer.
    let client = parts.extensions.get::<Principal>().and_then(|client| client.name.clone());
    let intake = Arc::clone(&context.intake);
    // A prefix distinguishes agents and imports from other producers.
    let agent = match agent {
        agent if agent.is_empty() || is_import => agent.to_owned(),
        agent => format!("agent {agent}"),
    };
    let limits =
        parts.extensions.get::<Arc<BodyLimits>>().expect("BUG: a body without limits").clone();
    // Decompression uses CPU time, and the append may wait for the disk.
    let work = move || {
        let request = if packed { decompress(&body, &limits)?.into() } else { body };
        append_batches(&intake, client.as_deref(), &agent, seal.as_ref(), &request)
    };
    let mut answer = match role::run_blocking(work).await {
        Ok(answer) => answer?,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    // Other requests need not wait for the disk.
    drop(permit);
    if let Some(pending_ack) = answer.pending_ack.take() {
        // One wait for all: batches before the last one are durable with it.
        pending_ack.until_durable().await?;
    }
    Ok(answer)
}

/// Waits until the rows in memory are within the limit of one head. Live data may fill several
/// heads; the data of an import exist already, and can wait for the disk.
async fn wait_for_flush(intake: &Intake) {
    let Some(store) = intake.write_target().store() else { return };
    while store.head_and_pending_bytes() > store.options().head_bytes_max {
        tokio::time::sleep(IMPORT_POLL_INTERVAL).await;
    }
}

/// Signature of a forward request.
struct RequestSignature {
    key: PublicKey,
    signature: [u8; SIGNATURE_BYTES],
}

impl RequestSignature {
    /// `None` for an earlier topdeck, which does not sign.
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
                "invalid headers {KEY_HEADER} and {SIGNATURE_HEADER}: expected 64 and 128 \
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
            let what = format!("unsupported content-encoding {other:?}; send zstd or none");
            Err(ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
        }
    }
}

fn too_large() -> ErrorResponse {
    let what =
        format!("size limit ({FORWARD_REQUEST_BYTES_MAX} bytes) exceeded; send smaller requests");
    ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

/// Reads the body; the server enforces size and time limits.
async fn read_body(body: Body) -> Result<Bytes, ErrorResponse> {
    let body = axum::body::to_bytes(body, FORWARD_REQUEST_BYTES_MAX).await;
    // Aborted, or longer than its Content-Length.
    body.map_err(|error| {
        ErrorResponse::bad_request(format!("cannot read the request body: {error}"))
    })
}

fn decompress(body: &[u8], limits: &BodyLimits) -> Result<Vec<u8>, ErrorResponse> {
    let request = decompress_zstd(body, WINDOW_LOG_MAX, limits)?;
    if request.len() > FORWARD_REQUEST_BYTES_MAX { Err(too_large()) } else { Ok(request) }
}

/// Outcome of a forward request.
#[derive(Debug, Default)]
struct ForwardOutcome {
    /// Pending acknowledgement of the last appended batch.
    pending_ack: Option<PendingAck>,
    accepted: Option<u64>,
    appended: u64,
    duplicates: u64,
    /// The batch that ended the request, and the reason.
    failure: Option<BatchFailure>,
}

#[derive(Debug)]
struct BatchFailure {
    sequence: u64,
    response: ErrorResponse,
}

/// Appends batches until one is rejected.
fn append_batches(
    intake: &Intake,
    client: Option<&str>,
    agent: &str,
    seal: Option<&RequestSignature>,
    bytes: &[u8],
) -> Result<ForwardOutcome, ErrorResponse> {
    let request = ForwardRequest::decode(bytes)
        .map_err(|error| ErrorResponse::bad_request(format!("invalid forward request: {error}")))?;
    let (producer, epoch) = request.producer_and_epoch();
    // Keys of version 0.1.0 are stored under its producer ids, and batches accepted under these ids
    // are duplicates.
    let legacy = client.map_or(producer, |client| legacy_producer(PRODUCERS, client, producer));
    let producer = scoped_producer(PRODUCERS, client.unwrap_or_default(), producer, None);
    if seal.is_some_and(|seal| !verify_signature(bytes, &seal.key, &seal.signature)) {
        let what =
            "cannot accept the request: the signature does not match body and key; send it again";
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, what));
    }
    intake.check_key(producer, legacy, agent, seal.map(|seal| &seal.key))?;
    let mut answer = ForwardOutcome::default();
    if request.entries.is_empty() {
        // The sender asks where to continue.
        let found = [producer, legacy].map(|producer| intake.find_last_sequence(producer, epoch));
        for found in found {
            if let Some((last, pending_ack)) =
                found?.filter(|found| Some(found.0) > answer.accepted)
            {
                (answer.accepted, answer.pending_ack) = (Some(last), Some(pending_ack));
            }
        }
    }
    for &(sequence, batch) in &request.entries {
        let identity = BatchIdentity { producer, epoch, sequence };
        let legacy_identity = BatchIdentity { producer: legacy, ..identity };
        match append_batch(intake, agent, (identity, legacy_identity), batch) {
            Ok(pending_ack) => {
                match pending_ack.is_duplicate() {
                    true => answer.duplicates += 1,
                    false => answer.appended += 1,
                }
                answer.accepted = Some(sequence);
                answer.pending_ack = Some(pending_ack);
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
    (identity, legacy_identity): (BatchIdentity, BatchIdentity),
    batch: &[u8],
) -> Result<PendingAck, ErrorResponse> {
    let refuse = |error: model::Error| ErrorResponse::bad_request(error.to_string());
    let batch = Batch::decode(batch.to_owned()).map_err(refuse)?;
    if let Some(pending_ack) = intake.find_duplicate(legacy_identity)? {
        return Ok(pending_ack);
    }
    // Here all series of the agent are of one producer; its gaps name producers of its own.
    let batch = batch
        .with_mapped_gaps(&mut |gap| {
            if gap.reason == Gap::UNCLEAN_SHUTDOWN {
                gap.producer = Some(identity.producer);
            }
        })
        .map_err(refuse)?;
    Ok(intake.append_encoded(identity, agent, &batch)?)
}

impl BatchFailure {
    /// Whether the batch is the cause, not the state of this server.
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
