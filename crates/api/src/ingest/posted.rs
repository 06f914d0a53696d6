//! A request that brings measurements: what it says beside its body, and what all of them have done with that.

use std::sync::Arc;

use axum::extract::{FromRequest, Query, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use collect::Unit;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use intake::{OPEN_SEQUENCE_JUMP_MAX, Producer, Receipt, SEQUENCE_JUMP_MAX, Way, Writer};
use journal::Identity;

use crate::access::Client;
use crate::blocking::blocking;
use crate::body::Bound;
use crate::context::Context;
use crate::gate::Gate;
use crate::ingest::LABELS;
use crate::ingest::unpack::{Packing, unpack};
use crate::openapi::Parameter;
use crate::problem::Problem;

/// The header by which a sender makes a batch of its request: `PRODUCER/BOOT/SEQUENCE`, the producer in hex.
const BATCH: &str = "topdeck-batch";
/// The header with a sender's secret.
const BATCH_SECRET: &str = "topdeck-batch-secret";
/// Bytes of a secret: as many as nobody guesses, and no more than a header should have.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
/// Tells numbers of these producers from others.
const PRODUCERS: &str = "topdeck 2026 producers of HTTP batches";
/// Parameters with labels begin so: `label.host=web-1`.
const LABEL: &str = "label.";

/// A request with its body.
pub(crate) struct Posted {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) packing: Packing,
    parameters: Vec<(String, String)>,
    identity: Option<BatchIdentity>,
    context: Context,
    gate: Arc<Gate>,
    bound: Arc<Bound>,
    client: Client,
}

/// What a decoder did, and what became of it.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) found: T,
    /// Single measurements that were taken.
    pub(crate) values: u64,
    /// The same batch had come before, and was not counted again.
    pub(crate) is_repeated: bool,
}

impl FromRequest<Context> for Posted {
    type Rejection = Problem;

    async fn from_request(request: Request, context: &Context) -> Result<Posted, Problem> {
        let (parts, body) = request.into_parts();
        let gate = parts.extensions.get::<Arc<Gate>>().expect("BUG: no gate was passed");
        let bound = parts.extensions.get::<Arc<Bound>>().expect("BUG: a body without bounds");
        let client = parts.extensions.get::<Client>().expect("BUG: nobody was let in");
        let encoding = text(&parts.headers, header::CONTENT_ENCODING.as_str())?;
        let packing = Packing::parse(encoding.unwrap_or_default())?;
        let secret = secret(&parts.headers)?;
        let identity = text(&parts.headers, BATCH)?;
        let identity = identity.map(|text| self::identity(text, secret, client)).transpose()?;
        let Query(parameters) = Query::try_from_uri(&parts.uri)
            .map_err(|error| Problem::bad(format!("the query of the address: {error}")))?;
        let body = axum::body::to_bytes(body, bound.bytes_max()).await;
        // What is beyond a bound is told by the gate.
        let body = body.map_err(|error| Problem::bad(error.to_string()))?;
        Ok(Posted {
            body,
            packing,
            parameters,
            identity,
            context: context.clone(),
            gate: Arc::clone(gate),
            bound: Arc::clone(bound),
            client: client.clone(),
            headers: parts.headers,
        })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let text = |value: &'a HeaderValue| value.to_str();
    let wrong = |_| Problem::bad(format!("the header {name} is no printable text"));
    headers.get(name).map(text).transpose().map_err(wrong)
}

/// The identity that a sender gives a batch.
#[derive(Clone, Copy, Debug)]
struct BatchIdentity {
    identity: Identity,
    /// How many sequences may be left out before it.
    jump_max: u64,
    /// What it was up to version 0.1.0.
    earlier: Option<Identity>,
}

/// The secret of a sender, which only it knows: nobody else can send in the name of its producers.
fn secret(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let secret = text(headers, BATCH_SECRET)?;
    match secret.map(str::len) {
        Some(length) if !SECRET_BYTES.contains(&length) => Err(Problem::bad(format!(
            "cannot use the header {BATCH_SECRET}: it has {length} characters; send {} to {}, \
             chosen at random",
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        ))),
        _ => Ok(secret),
    }
}

/// The identity that a sender gives a batch. Producers of different tokens and secrets are
/// different, whatever they call themselves.
fn identity(text: &str, secret: Option<&str>, client: &Client) -> Result<BatchIdentity, Problem> {
    let read = || {
        let mut parts = text.split('/');
        let producer = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (boot, sequence) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        (parts.next().is_none() && sequence > 0).then_some((producer, boot, sequence))
    };
    let (producer, boot, sequence) = read().ok_or_else(|| {
        Problem::bad(format!(
            "expected {BATCH}: PRODUCER/BOOT/SEQUENCE, the producer in hex and the sequence from 1, found {text:?}"
        ))
    })?;
    let client = client.name.as_deref().unwrap_or_default();
    let of = |producer| Identity { producer, boot, sequence };
    Ok(BatchIdentity {
        identity: of(own_producer(PRODUCERS, client, producer, secret)),
        jump_max: if secret.is_some() { SEQUENCE_JUMP_MAX } else { OPEN_SEQUENCE_JUMP_MAX },
        earlier: secret.is_none().then(|| of(earlier_producer(PRODUCERS, client, producer))),
    })
}

/// The number of what a client calls a producer: those of different clients are different, and so
/// are those with different secrets. The context tells kinds of numbers apart. All numbers of a
/// client have one origin, so that it cannot push others out of tables of producers.
pub(crate) fn own_producer(
    context: &'static str,
    client: &str,
    producer: u64,
    secret: Option<&str>,
) -> u64 {
    let origin = number(blake3::Hasher::new_derive_key(context).update(client.as_bytes()));
    let mut hash = blake3::Hasher::new_derive_key(context);
    hash.update(client.as_bytes());
    hash.update(&producer.to_le_bytes());
    if let Some(secret) = secret {
        hash.update(secret.as_bytes());
    }
    journal::with_origin(origin, number(&hash))
}

/// The number that the same producer had up to version 0.1.0: what was taken under it is not taken
/// again.
pub(crate) fn earlier_producer(context: &'static str, client: &str, producer: u64) -> u64 {
    let mut hash = blake3::Hasher::new_derive_key(context);
    hash.update(client.as_bytes());
    number(hash.update(&producer.to_le_bytes()))
}

fn number(hash: &blake3::Hasher) -> u64 {
    let hash = hash.finalize();
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("BUG: a hash has 32 bytes"))
}

impl Posted {
    /// A parameter of the address.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|parameter| parameter.0 == name);
        found.map(|parameter| parameter.1.as_str())
    }

    /// A header that says what the body is, without what it says beside that.
    pub(crate) fn content_type(&self) -> &str {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
    }

    /// Labels for all that is sent, as `label.NAME=VALUE` says.
    pub(crate) fn labels(&self) -> Vec<(String, String)> {
        let label = |(name, value): &(String, String)| {
            Some((name.strip_prefix(LABEL)?.to_owned(), value.clone()))
        };
        self.parameters.iter().filter_map(label).collect()
    }

    /// The parameter `unit`.
    pub(crate) fn unit(&self) -> Result<Option<Unit>, Problem> {
        let Some(text) = self.parameter("unit") else { return Ok(None) };
        let known = || Unit::names().collect::<Vec<_>>().join(", ");
        let unit = Unit::parse(text);
        unit.map(Some)
            .ok_or_else(|| Problem::bad(format!("unit={text}: expected one of {}", known())))
    }

    /// Refuses parameters that are not read, so that a slip of the pen is not taken for nothing.
    pub(crate) fn only(&self, known: &[Parameter]) -> Result<(), Problem> {
        let is = |known: &Parameter, name: &str| {
            known.name == name || (known.name == LABELS.name && name.starts_with(LABEL))
        };
        let is_known = |name: &str| known.iter().any(|known| is(known, name));
        match self.parameters.iter().find(|parameter| !is_known(&parameter.0)) {
            None => Ok(()),
            Some((name, _)) => {
                let known: Vec<&str> = known.iter().map(|known| known.name).collect();
                let known = known.join(", ");
                Err(Problem::bad(format!("{name:?} is no parameter here: there are {known}")))
            }
        }
    }

    /// Unpacks the body, has it decoded, and takes what was decoded as one batch of `source`. Returns when that is
    /// durable. After an error of `read` nothing is taken.
    pub(crate) async fn take<T: Send + 'static>(
        self,
        source: &'static str,
        way: Way,
        read: impl FnOnce(&Posted, &[u8], i64, &mut Writer) -> Result<T, Problem> + Send + 'static,
    ) -> Result<Taken<T>, Problem> {
        let slots = Arc::clone(&self.gate.decoding);
        let slot = slots.acquire_owned().await.expect("BUG: the semaphore is never closed");
        let supervisor = self.context.intake.supervisor().clone();
        // Decoding takes a while, and appending may wait for room: not among those who serve connections.
        let work = blocking(&supervisor, move || {
            let _slot = slot;
            let intake = &self.context.intake;
            intake.supervisor().fault_point("decode");
            let body = unpack(&self.body, self.packing, &self.bound)?;
            let source = self.source(source);
            let mut writer = intake.writer_of(source.number(), way);
            let found = read(&self, &body, intake.now(), &mut writer)?;
            let values = writer.values();
            Ok::<_, Problem>((found, values, self.append(&source, writer)?))
        });
        let bug = |what| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what);
        let (found, values, receipt) = work.await.map_err(bug)??;
        let is_repeated = receipt.as_ref().is_some_and(Receipt::is_repeated);
        if let Some(receipt) = receipt {
            receipt.settled().await?;
        }
        Ok(Taken { found, values, is_repeated })
    }

    fn source(&self, source: &str) -> Source {
        let name = match &self.client.name {
            Some(name) => format!("{source} {name}"),
            None => source.to_owned(),
        };
        match self.identity {
            Some(batch) => Source::Named(batch, format!("{name} {:016x}", batch.identity.producer)),
            None => Source::Own(self.context.intake.producer(&name)),
        }
    }

    fn append(&self, source: &Source, writer: Writer) -> intake::Result<Option<Receipt>> {
        let intake = &self.context.intake;
        if writer.is_empty() {
            return Ok(None);
        }
        match source {
            Source::Named(BatchIdentity { identity, jump_max, earlier }, name) => {
                let repeat = earlier.map(|earlier| intake.repeat_of(earlier)).transpose()?;
                match repeat.flatten() {
                    Some(receipt) => Ok(Some(receipt)),
                    None => intake.take_as(*identity, *jump_max, name, writer).map(Some),
                }
            }
            Source::Own(producer) => intake.take(producer, writer).map(Some),
        }
    }
}

/// Whose batch a request is.
enum Source {
    /// The sender's, which gave it an identity.
    Named(BatchIdentity, String),
    /// That of all clients of a protocol and a token.
    Own(Producer),
}

impl Source {
    fn number(&self) -> u64 {
        match self {
            Source::Named(batch, _) => batch.identity.producer,
            Source::Own(producer) => producer.id(),
        }
    }
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Response {
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
        let found = identity(text, None, &Client::default()).ok().map(|found| found.identity);
        assert_eq!(found.map(|found| (found.boot, found.sequence)), expected);
    }

    #[test]
    fn a_batch_has_three_numbers() {
        check("ff/7/1", Some((7, 1)));
        check("ff/7/0", None);
        check("ff/7", None);
        check("ff/7/1/2", None);
        check("x/7/1", None);
    }

    #[test]
    fn a_secret_makes_a_producer_its_senders_own() {
        let producer =
            |secret| identity("1/1/1", secret, &Client::default()).unwrap().identity.producer;
        let all = [None, Some("0123456789abcdef"), Some("0123456789abcdeg")].map(producer);
        let different: std::collections::HashSet<u64> = all.into_iter().collect();
        assert_eq!(different.len(), 3);
        let origins = all.map(journal::producer_origin);
        assert_eq!(origins, [origins[0]; 3], "secrets are no way to have more origins");
    }

    #[test]
    fn producers_of_different_tokens_are_different() {
        let producer = |text: &str, name: Option<&str>| {
            let client = Client { name: name.map(str::to_owned) };
            identity(text, None, &client).unwrap().identity.producer
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
