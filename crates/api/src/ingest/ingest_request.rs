//! Ingest request: headers, parameters and the common decode and append path.

use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequest, FromRequestParts as _, Query, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use decode::Unit;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use intake::{
    IngestWriter, PendingAck, Producer, RejectedInput, SEQUENCE_JUMP_MAX,
    UNAUTHENTICATED_SEQUENCE_JUMP_MAX,
};
use journal::BatchIdentity;

use crate::access::Principal;
use crate::blocking::blocking;
use crate::body::BodyLimits;
use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::decompress::{ContentEncoding, decompress};
use crate::ingest::ingest_format::IngestFormat;
use crate::limits::DecodePermits;
use crate::route::Parameter;

/// Header with the sender's batch identity: `PRODUCER/EPOCH/SEQUENCE`, the producer in hex.
const BATCH_HEADER: &str = "topdeck-batch";
/// Header with the sender's secret.
const BATCH_SECRET: &str = "topdeck-batch-secret";
/// Valid length of a secret in bytes: hard to guess, and short enough for a header.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
/// Key-derivation context (domain separation) of the IDs of these producers.
const PRODUCERS: &str = "topdeck 2026 producers of HTTP batches";
/// Prefix of label parameters: `label.host=web-1`.
const LABEL_PREFIX: &str = "label.";

/// Metric name.
pub(crate) const METRIC: Parameter = Parameter::text("metric", "metric name");
/// Unit.
pub(crate) const UNIT: Parameter = Parameter::text("unit", "unit of the values, such as ms");
/// Start time of a log.
pub(crate) const START: Parameter =
    Parameter::text("start", "start of a log with relative times, in seconds since 1970");
/// Any parameter with the prefix.
pub(crate) const LABELS: Parameter =
    Parameter::text("label.NAME", "label added to all series, such as label.host=web-1");

/// A request with its body.
pub struct IngestRequest {
    /// Its headers.
    pub headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) content_encoding: ContentEncoding,
    path: String,
    path_parameters: Vec<(String, String)>,
    parameters: Vec<(String, String)>,
    identity: Option<SenderIdentity>,
    context: Context,
    decode_permits: DecodePermits,
    limits: Arc<BodyLimits>,
    principal: Principal,
}

/// Outcome of a decoded request whose batch is durable.
#[derive(Debug)]
pub struct IngestOutcome<T> {
    /// Summary of the decoder.
    pub summary: T,
    /// Number of stored measurements.
    pub values: u64,
    /// Whether the batch is a duplicate, which is not counted again.
    pub is_duplicate: bool,
}

impl FromRequest<Context> for IngestRequest {
    type Rejection = ErrorResponse;

    async fn from_request(
        request: Request,
        context: &Context,
    ) -> Result<IngestRequest, ErrorResponse> {
        let (mut parts, body) = request.into_parts();
        let path_parameters = path_parameters(&mut parts).await?;
        let permits = parts.extensions.get::<DecodePermits>().expect("BUG: no decode permits");
        let limits = parts.extensions.get::<Arc<BodyLimits>>().expect("BUG: a body without limits");
        let client = parts.extensions.get::<Principal>().expect("BUG: no principal");
        let encoding = header_text(&parts.headers, header::CONTENT_ENCODING.as_str())?;
        let content_encoding = ContentEncoding::parse(encoding.unwrap_or_default())?;
        let secret = secret(&parts.headers)?;
        let identity = header_text(&parts.headers, BATCH_HEADER)?;
        let identity =
            identity.map(|text| self::parse_identity(text, secret, client)).transpose()?;
        let Query(parameters) = Query::try_from_uri(&parts.uri).map_err(|error| {
            ErrorResponse::bad_request(format!("cannot parse the query string: {error}"))
        })?;
        let body = axum::body::to_bytes(body, limits.bytes_max()).await;
        // The middleware reports exceeded limits.
        let body = body.map_err(|error| ErrorResponse::bad_request(error.to_string()))?;
        Ok(IngestRequest {
            body,
            content_encoding,
            parameters,
            identity,
            path: parts.uri.path().to_owned(),
            path_parameters,
            context: context.clone(),
            decode_permits: permits.clone(),
            limits: Arc::clone(limits),
            principal: client.clone(),
            headers: parts.headers,
        })
    }
}

/// Path parameters by name.
async fn path_parameters(parts: &mut Parts) -> Result<Vec<(String, String)>, ErrorResponse> {
    match RawPathParams::from_request_parts(parts, &()).await {
        Ok(found) => {
            Ok(found.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
        }
        Err(RawPathParamsRejection::MissingPathParams(_)) => Ok(Vec::new()),
        Err(error) => Err(ErrorResponse::bad_request(error.to_string())),
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ErrorResponse> {
    let text = |value: &'a HeaderValue| value.to_str();
    let wrong = |_| ErrorResponse::bad_request(format!("header {name} is not printable text"));
    headers.get(name).map(text).transpose().map_err(wrong)
}

/// A sender's identity of a batch.
#[derive(Clone, Copy, Debug)]
struct SenderIdentity {
    identity: BatchIdentity,
    /// Maximum jump of the sequence.
    jump_max: u64,
    /// The identity of version 0.1.0.
    legacy_identity: Option<BatchIdentity>,
}

/// The sender's secret: without it no other sender can use the names of its producers.
fn secret(headers: &HeaderMap) -> Result<Option<&str>, ErrorResponse> {
    let secret = header_text(headers, BATCH_SECRET)?;
    match secret.map(str::len) {
        Some(length) if !SECRET_BYTES.contains(&length) => {
            Err(ErrorResponse::bad_request(format!(
                "invalid header {BATCH_SECRET}: {length} characters; send {} to {} random \
                 characters",
                SECRET_BYTES.start(),
                SECRET_BYTES.end()
            )))
        }
        _ => Ok(secret),
    }
}

/// Parses a batch identity. Producers of different tokens or secrets are different, even with equal
/// names.
fn parse_identity(
    text: &str,
    secret: Option<&str>,
    client: &Principal,
) -> Result<SenderIdentity, ErrorResponse> {
    let read = || {
        let mut parts = text.split('/');
        let producer = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (epoch, sequence) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        (parts.next().is_none() && sequence > 0).then_some((producer, epoch, sequence))
    };
    let (producer, epoch, sequence) = read().ok_or_else(|| {
        ErrorResponse::bad_request(format!(
            "invalid header {BATCH_HEADER}: expected PRODUCER/EPOCH/SEQUENCE, the producer in hex \
             and the sequence from 1, found {text:?}"
        ))
    })?;
    let client = client.name.as_deref().unwrap_or_default();
    let of = |producer| BatchIdentity { producer, epoch, sequence };
    Ok(SenderIdentity {
        identity: of(scoped_producer(PRODUCERS, client, producer, secret)),
        jump_max: if secret.is_some() {
            SEQUENCE_JUMP_MAX
        } else {
            UNAUTHENTICATED_SEQUENCE_JUMP_MAX
        },
        legacy_identity: secret.is_none().then(|| of(legacy_producer(PRODUCERS, client, producer))),
    })
}

/// The ID of a producer, from the client and the client's number of it: distinct for different
/// clients and different secrets. Its upper 16 bits are a hash of the client alone, the origin:
/// tables evict producers per origin, so that a client cannot evict those of other clients.
pub(crate) fn scoped_producer(
    context: &'static str,
    client: &str,
    producer: u64,
    secret: Option<&str>,
) -> u64 {
    let origin = hash_to_u64(blake3::Hasher::new_derive_key(context).update(client.as_bytes()));
    let mut hash = blake3::Hasher::new_derive_key(context);
    hash.update(client.as_bytes());
    hash.update(&producer.to_le_bytes());
    if let Some(secret) = secret {
        hash.update(secret.as_bytes());
    }
    journal::with_origin(origin, hash_to_u64(&hash))
}

/// The producer's ID in version 0.1.0: batches accepted under it are duplicates.
pub(crate) fn legacy_producer(context: &'static str, client: &str, producer: u64) -> u64 {
    let mut hash = blake3::Hasher::new_derive_key(context);
    hash.update(client.as_bytes());
    hash_to_u64(hash.update(&producer.to_le_bytes()))
}

fn hash_to_u64(hash: &blake3::Hasher) -> u64 {
    let hash = hash.finalize();
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("BUG: a hash has 32 bytes"))
}

impl IngestRequest {
    /// The path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A path parameter.
    pub fn path_parameter(&self, name: &str) -> Option<&str> {
        let found = self.path_parameters.iter().find(|parameter| parameter.0 == name);
        found.map(|parameter| parameter.1.as_str())
    }

    /// A query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|parameter| parameter.0 == name);
        found.map(|parameter| parameter.1.as_str())
    }

    /// The content type without parameters.
    pub fn content_type(&self) -> &str {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
    }

    /// Labels for all samples, from `label.NAME=VALUE`.
    pub fn labels(&self) -> Vec<(String, String)> {
        let label = |(name, value): &(String, String)| {
            Some((name.strip_prefix(LABEL_PREFIX)?.to_owned(), value.clone()))
        };
        self.parameters.iter().filter_map(label).collect()
    }

    /// The parameter `unit`.
    pub fn unit(&self) -> Result<Option<Unit>, ErrorResponse> {
        let Some(text) = self.parameter("unit") else { return Ok(None) };
        let known = || Unit::names().collect::<Vec<_>>().join(", ");
        let unit = Unit::parse(text);
        unit.map(Some).ok_or_else(|| {
            ErrorResponse::bad_request(format!("unit={text}: expected one of {}", known()))
        })
    }

    /// Rejects unknown parameters, so that a typo is not ignored.
    pub fn reject_unknown_parameters(&self, known: &[Parameter]) -> Result<(), ErrorResponse> {
        let is = |known: &Parameter, name: &str| {
            known.name == name || (known.name == LABELS.name && name.starts_with(LABEL_PREFIX))
        };
        let is_known = |name: &str| known.iter().any(|known| is(known, name));
        match self.parameters.iter().find(|parameter| !is_known(&parameter.0)) {
            None => Ok(()),
            Some((name, _)) => {
                let known: Vec<&str> = known.iter().map(|known| known.name).collect();
                let known = known.join(", ");
                Err(ErrorResponse::bad_request(format!(
                    "unknown parameter {name:?}; allowed: {known}"
                )))
            }
        }
    }

    /// Decompresses and decodes the body, and appends the result as one batch of the format's
    /// producer. Returns when the batch is durable. After an error nothing is stored.
    pub(crate) async fn ingest<F: IngestFormat>(
        self,
        format: Arc<F>,
    ) -> Result<IngestOutcome<F::Summary>, ErrorResponse> {
        let permit = self.decode_permits.acquire().await;
        let supervisor = self.context.intake.supervisor().clone();
        // Decoding takes time, and the append may wait for space: not on the threads that serve
        // connections.
        let work = blocking(&supervisor, move || {
            let _permit = permit;
            let intake = &self.context.intake;
            intake.supervisor().failpoint("decode");
            let source = self.source(F::NAME);
            let rejected = |error: ErrorResponse| {
                self.count_rejected::<F>(&error);
                error
            };
            let body = decompress(&self.body, self.content_encoding, &self.limits);
            let body = body.map_err(rejected)?;
            if let (false, BatchSource::Internal(producer)) = (F::SENDS_REGULARLY, &source) {
                producer.disable_absence_monitor();
            }
            let mut writer = intake.writer_for(source.producer_id(), format.key_encoding());
            let mut summary = format.decode(&body, intake.now(), &mut writer).map_err(rejected)?;
            if let Some(conflict) = writer.unit_conflict() {
                if F::REJECTS_OTHER_UNITS {
                    let what = format!("{conflict}; {}", conflict.remedy());
                    return Err(rejected(ErrorResponse::bad_request(what)));
                }
                intake.report_unit_conflict(&self.producer(F::NAME), &conflict);
            }
            self.limits.hold(writer.span_memory())?;
            F::exemplars_discarded(&mut summary, writer.discard_excess_exemplars());
            let (values, beyond_limit) = (writer.values(), writer.samples_beyond_limit());
            let pending_ack = self.append(&source, writer)?;
            let (rejected, reasons) = F::rejected(&summary);
            // Samples beyond a limit of series are counted there, with a gap.
            if rejected > beyond_limit {
                let input = RejectedInput::Samples(rejected - beyond_limit);
                intake.reject_input(&self.producer(F::NAME), input, &reasons.join("; "));
            }
            Ok::<_, ErrorResponse>((summary, values, pending_ack))
        });
        let bug = |what| ErrorResponse::new(StatusCode::INTERNAL_SERVER_ERROR, what);
        let (summary, values, pending_ack) = work.await.map_err(bug)??;
        let is_duplicate = pending_ack.as_ref().is_some_and(PendingAck::is_duplicate);
        if let Some(pending_ack) = pending_ack {
            pending_ack.until_durable().await?;
        }
        Ok(IngestOutcome { summary, values, is_duplicate })
    }

    /// Counts a request that is invalid. One that may be sent again is not.
    pub(crate) fn count_rejected<F: IngestFormat>(&self, error: &ErrorResponse) {
        if error.status.is_client_error() && error.status != StatusCode::TOO_MANY_REQUESTS {
            let producer = self.producer(F::NAME);
            self.context.intake.reject_input(&producer, RejectedInput::Request, &error.message);
        }
    }

    fn producer_name(&self, source: &str) -> String {
        match &self.principal.name {
            Some(name) => format!("{source} {name}"),
            None => source.to_owned(),
        }
    }

    /// The producer shared by all clients of a protocol and a token.
    fn producer(&self, source: &str) -> Producer {
        self.context.intake.producer(&self.producer_name(source))
    }

    fn source(&self, source: &str) -> BatchSource {
        match self.identity {
            Some(batch) => {
                let name = self.producer_name(source);
                BatchSource::Named(batch, format!("{name} {:016x}", batch.identity.producer))
            }
            None => BatchSource::Internal(self.producer(source)),
        }
    }

    fn append(
        &self,
        source: &BatchSource,
        writer: IngestWriter,
    ) -> intake::Result<Option<PendingAck>> {
        let intake = &self.context.intake;
        if writer.is_empty() {
            return Ok(None);
        }
        match source {
            BatchSource::Named(SenderIdentity { identity, jump_max, legacy_identity }, name) => {
                let repeat =
                    legacy_identity.map(|legacy| intake.find_duplicate(legacy)).transpose()?;
                match repeat.flatten() {
                    Some(pending_ack) => Ok(Some(pending_ack)),
                    None => {
                        intake.append_with_identity(*identity, *jump_max, name, writer).map(Some)
                    }
                }
            }
            BatchSource::Internal(producer) => intake.append(producer, writer).map(Some),
        }
    }
}

/// Source of a batch: sender identity or internal producer.
enum BatchSource {
    /// The sender's identity.
    Named(SenderIdentity, String),
    /// The producer shared by all clients of a protocol and a token.
    Internal(Producer),
}

impl BatchSource {
    fn producer_id(&self) -> u64 {
        match self {
            BatchSource::Named(batch, _) => batch.identity.producer,
            BatchSource::Internal(producer) => producer.id(),
        }
    }
}

/// A JSON response.
pub fn json_response(status: StatusCode, value: &serde_json::Value) -> Response {
    let mut response = (status, format!("{value}\n")).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(u64, u64)>) {
        let found =
            parse_identity(text, None, &Principal::default()).ok().map(|found| found.identity);
        assert_eq!(found.map(|found| (found.epoch, found.sequence)), expected);
    }

    #[test]
    fn batch_header_has_three_numbers() {
        check("ff/7/1", Some((7, 1)));
        check("ff/7/0", None);
        check("ff/7", None);
        check("ff/7/1/2", None);
        check("x/7/1", None);
    }

    #[test]
    fn a_secret_is_part_of_the_producer_id() {
        let producer = |secret| {
            parse_identity("1/1/1", secret, &Principal::default()).unwrap().identity.producer
        };
        let all = [None, Some("0123456789abcdef"), Some("0123456789abcdeg")].map(producer);
        let different: std::collections::HashSet<u64> = all.into_iter().collect();
        assert_eq!(different.len(), 3);
        let origins = all.map(journal::producer_origin);
        assert_eq!(origins, [origins[0]; 3], "secrets do not add origins");
    }

    #[test]
    fn producers_are_scoped_by_token() {
        let producer = |text: &str, name: Option<&str>| {
            let client = Principal { name: name.map(str::to_owned), ..Principal::default() };
            parse_identity(text, None, &client).unwrap().identity.producer
        };
        assert_eq!(producer("1/1/1", Some("a")), producer("1/9/9", Some("a")));
        let origin = |text, name| journal::producer_origin(producer(text, name));
        assert_eq!(origin("1/1/1", Some("a")), origin("2/1/1", Some("a")));
        assert_ne!(origin("1/1/1", Some("a")), origin("1/1/1", Some("b")));
        let all =
            [("1/1/1", None), ("1/1/1", Some("a")), ("1/1/1", Some("b")), ("2/1/1", Some("a"))];
        let all: std::collections::HashSet<u64> =
            all.into_iter().map(|(text, name)| producer(text, name)).collect();
        assert_eq!(all.len(), 4);
    }
}
