//! Forward requests to journals and stores of this process, in one call and over a connection.

use std::path::PathBuf;
use std::time::Duration;

use disk::{Disk, OsDisk};
use hist::Histogram;
use hist::codec::header::Temporality;
use http::Request;
use intake::WriteTarget;
use journal::{Journal, ReadItem, StartPosition};
use model::{BatchWriter, ForwardRequestWriter, Sample, SampleValue, Series, SeriesKind};
use net::Endpoint;
use net::dial::{Dialer, ResponseLimits};
use net::signature::{Signer, to_hex};
use tower::ServiceExt;

use super::*;
use crate::limits::{BodyBudget, BodyReservation, RejectCounters};

/// An agent's journal or a store in a temporary directory, removed on drop.
struct TestNode {
    dir: PathBuf,
    context: Context,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn dir() -> PathBuf {
    std::env::temp_dir().join(format!("topdeck-batches-{:x}", journal::random_id()))
}

fn open_node(dir: PathBuf, target: WriteTarget) -> TestNode {
    // The journal gets no own metrics: tests count only what they send.
    let settings = intake::Settings { interval: Duration::MAX, ..Default::default() };
    let intake = Arc::new(Intake::new(target, settings).unwrap());
    TestNode { dir, context: Context::new(intake, crate::QueryServiceSettings::default()) }
}

fn agent_node(settings: &journal::Settings) -> TestNode {
    let dir = dir();
    Journal::create(&OsDisk, &dir, journal::random_id(), 0, settings).unwrap();
    let options =
        journal::Options { append_timeout: Duration::from_millis(50), ..Default::default() };
    let journal = Journal::open(Arc::new(OsDisk), &dir, &options).unwrap();
    open_node(dir, WriteTarget::Journal(Arc::new(journal)))
}

fn store_node() -> TestNode {
    let (dir, disk): (_, Arc<dyn Disk>) = (dir(), Arc::new(OsDisk));
    store::Store::create(&disk, &dir, &journal::Settings::default()).unwrap();
    let store = store::Store::open(disk, &dir, &store::Options::default()).unwrap();
    open_node(dir, WriteTarget::Store(Arc::new(store)))
}

fn batch(by_id: bool, values: u64) -> Vec<u8> {
    let kind = SeriesKind::Histogram(Temporality::Delta);
    let series = Series::new("latency", kind).with_unit("ns").validate().unwrap();
    let mut writer = BatchWriter::default();
    if by_id {
        writer.series_by_id(series.id(), &series)
    } else {
        writer.series(&series)
    }
    let mut histogram = Histogram::default();
    (0..values).for_each(|n| histogram.record(n as f64));
    let value = SampleValue::Histogram(Box::new(histogram));
    writer.sample(&Sample { start: 1, end: 2, value }).unwrap();
    writer.finish().bytes().to_owned()
}

/// A batch of 2 kB, with its sequence.
fn text_batch(sequence: u64) -> (u64, Vec<u8>) {
    let series = Series::new("text", SeriesKind::Text).validate().unwrap();
    let mut writer = BatchWriter::default();
    writer.series(&series);
    let value = SampleValue::Text(format!("{sequence:02000}"));
    writer.sample(&Sample { start: 1, end: 2, value }).unwrap();
    (sequence, writer.finish().bytes().to_owned())
}

fn forward_body(entries: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ForwardRequestWriter::new(99);
    entries.iter().for_each(|(sequence, batch)| writer.push(*sequence, batch));
    writer.finish()
}

fn forward_request(entries: &[(u64, Vec<u8>)]) -> Request<Body> {
    let body = zstd::bulk::compress(&forward_body(entries), 1).unwrap();
    Request::post(PATH).header("content-encoding", "zstd").body(body.into()).unwrap()
}

/// Status, accepted sequence, rejected sequence, body.
type ResponseParts = (u16, Option<u64>, Option<u64>, String);

/// The route behind the middleware's body limits.
fn service(here: &TestNode) -> Router {
    let budget = BodyBudget::new(3 * FORWARD_REQUEST_BYTES_MAX);
    let rejects = Arc::new(RejectCounters::new(here.context.intake.meter()));
    let limits = BodyLimits::new(
        BodyReservation::new(&budget),
        &rejects,
        FORWARD_REQUEST_BYTES_MAX,
        Duration::from_secs(60),
    );
    routes().with_state(here.context.clone()).layer(axum::Extension(Arc::new(limits)))
}

async fn submit(here: &TestNode, request: Request<Body>) -> ResponseParts {
    let response = service(here).oneshot(request).await.unwrap();
    let number =
        |name| response.headers().get(name).map(|it| it.to_str().unwrap().parse().unwrap());
    let (accepted, rejected) = (number(ACKED_SEQUENCE_HEADER), number(REJECTED_SEQUENCE_HEADER));
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
    (status, accepted, rejected, String::from_utf8(body.to_vec()).unwrap())
}

#[track_caller]
fn check(said: ResponseParts, expected: (u16, Option<u64>, Option<u64>, &str)) {
    assert_eq!((said.0, said.1, said.2, said.3.trim_end()), expected);
}

/// Sizes of the durable journal records.
fn durable(here: &TestNode) -> Vec<usize> {
    let mut reader =
        here.context.intake.write_target().journal().reader(StartPosition::First).unwrap();
    reader.set_level(journal::Level::Disk);
    let mut sizes = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        match item {
            ReadItem::Batch(batch) => {
                sizes.extend(batch.records().map(|record| record.bytes.len()))
            }
            ReadItem::Gap(gap) => panic!("{gap:?}"),
        }
    }
    sizes
}

#[tokio::test]
async fn acknowledged_requests_are_durable_and_duplicates_count_once() {
    for here in [agent_node(&journal::Settings::default()), store_node()] {
        let (one, two, three) = (batch(false, 1), batch(false, 20), batch(false, 300));
        let first = [(4, one.clone()), (7, two.clone())];
        let said = r#"{"accepted":7,"appended":2,"duplicates":0}"#;
        check(submit(&here, forward_request(&first)).await, (200, Some(7), None, said));
        assert_eq!(durable(&here), [one.len(), two.len()]);
        let again = [(7, two.clone()), (8, three.clone())];
        let said = r#"{"accepted":8,"appended":1,"duplicates":1}"#;
        check(submit(&here, forward_request(&again)).await, (200, Some(8), None, said));
        let plain = Request::post(PATH).body(forward_body(&first).into()).unwrap();
        let said = r#"{"accepted":7,"appended":0,"duplicates":2}"#;
        check(submit(&here, plain).await, (200, Some(7), None, said));
        assert_eq!(durable(&here), [one.len(), two.len(), three.len()]);
    }
}

#[tokio::test]
async fn an_empty_request_says_where_to_continue() {
    for here in [agent_node(&journal::Settings::default()), store_node()] {
        let nothing = r#"{"accepted":null,"appended":0,"duplicates":0}"#;
        check(submit(&here, forward_request(&[])).await, (200, None, None, nothing));
        let batches = [(4, batch(false, 1)), (7, batch(false, 20))];
        assert_eq!(submit(&here, forward_request(&batches)).await.0, 200);
        let position = r#"{"accepted":7,"appended":0,"duplicates":0}"#;
        check(submit(&here, forward_request(&[])).await, (200, Some(7), None, position));
        // That of another journal is another one.
        let other = ForwardRequestWriter::new(8).finish();
        let other = Request::post(PATH).body(other.into()).unwrap();
        check(submit(&here, other).await, (200, None, None, nothing));
    }
}

#[tokio::test]
async fn rejected_batch_is_named_and_earlier_ones_are_accepted() {
    let unsound = [(1, batch(false, 1)), (2, b"no batch".to_vec()), (3, batch(false, 1))];
    let here = agent_node(&journal::Settings::default());
    let reason =
        r#"{"error":"batch 2: magic at byte 0 is 110, expected 211 (0xd3), the magic of a batch"}"#;
    check(submit(&here, forward_request(&unsound)).await, (400, Some(1), Some(2), reason));
    assert_eq!(durable(&here).len(), 1);
    let (status, accepted, rejected, said) =
        submit(&here, forward_request(&[(5, batch(true, 1))])).await;
    assert_eq!((status, accepted, rejected), (400, None, Some(5)));
    assert!(said.contains("its canonical key was not sent"), "{said}");
    // A store rejected an unknown series id, and accepts a known one.
    let here = store_node();
    let (status, accepted, rejected, _) =
        submit(&here, forward_request(&[(5, batch(true, 1))])).await;
    assert_eq!((status, accepted, rejected), (400, None, Some(5)));
    let known = [(6, batch(false, 1)), (7, batch(true, 1))];
    assert_eq!(submit(&here, forward_request(&known)).await.1, Some(7));
}

#[tokio::test]
async fn invalid_request_is_rejected_without_a_sequence() {
    let here = agent_node(&journal::Settings::default());
    let sound = forward_body(&[(1, batch(false, 1))]);
    let mut flipped = sound.clone();
    flipped[40] ^= 1;
    let post = |body: Vec<u8>| Request::post(PATH).body(Body::from(body)).unwrap();
    for body in [flipped, b"hello".to_vec(), Vec::new()] {
        let (status, accepted, rejected, _) = submit(&here, post(body)).await;
        assert_eq!((status, accepted, rejected), (400, None, None));
    }
    let mut unknown = post(sound.clone());
    unknown.headers_mut().insert("content-encoding", HeaderValue::from_static("br"));
    assert_eq!(submit(&here, unknown).await.0, 415);
    let mut torn = forward_request(&[(1, batch(false, 1))]);
    *torn.body_mut() = Body::from(sound);
    assert_eq!(submit(&here, torn).await.0, 400);
    // A few bytes that decompress to more than the limit.
    let bomb = zstd::bulk::compress(&vec![0; FORWARD_REQUEST_BYTES_MAX + 1], 1).unwrap();
    let bomb = Request::post(PATH).header("content-encoding", "zstd").body(bomb.into()).unwrap();
    assert_eq!(submit(&here, bomb).await.0, 413);
    let mut large = post(Vec::new());
    let length = HeaderValue::from(FORWARD_REQUEST_BYTES_MAX as u64 + 1);
    large.headers_mut().insert("content-length", length);
    assert_eq!(submit(&here, large).await.0, 413);
    assert!(durable(&here).is_empty());
}

#[tokio::test]
async fn full_journal_returns_retry_after_and_position() {
    let small = journal::Settings {
        buffer_bytes: 4096,
        segment_bytes: 16 << 10,
        limits: journal::Limits {
            bytes_max: Some(32 << 10),
            age_max: None,
            on_full: journal::LimitPolicy::Reject,
        },
        compression: journal::Compression::None,
        ..journal::Settings::default()
    };
    let here = agent_node(&small);
    here.context
        .intake
        .write_target()
        .journal()
        .add_subscriber("slow", StartPosition::First, true)
        .unwrap();
    let entries: Vec<_> = (1..=40).map(text_batch).collect();
    let response = service(&here).oneshot(forward_request(&entries)).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    assert!(!response.headers().contains_key(REJECTED_SEQUENCE_HEADER));
    let accepted: usize =
        response.headers()[ACKED_SEQUENCE_HEADER].to_str().unwrap().parse().unwrap();
    assert_eq!(durable(&here).len(), accepted);
    assert!((1..40).contains(&accepted), "{accepted}");
    // The request continues from there: batches sent again count once.
    assert_eq!(submit(&here, forward_request(&entries[..accepted])).await.1, Some(accepted as u64));
    assert_eq!(durable(&here).len(), accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_is_accepted_over_a_connection() {
    let here = agent_node(&journal::Settings::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = hyper_util::service::TowerToHyperService::new(service(&here));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = hyper_util::rt::TokioIo::new(stream);
        drop(hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await);
    });
    let target = Endpoint::parse(&url).unwrap();
    let (mut connection, _) = Dialer::default().dial(&target).await.unwrap();
    // More than axum's default limit of 2 MB.
    let entries: Vec<_> = (1..=1500).map(text_batch).collect();
    let body = forward_body(&entries);
    assert!(body.len() > 2 << 20, "{}", body.len());
    let request = Request::post(PATH).body(Bytes::from(body)).unwrap();
    let allowed = ResponseLimits { timeout: Duration::from_secs(60), max_bytes: 1 << 16 };
    let answer = connection.send(request, allowed).await.unwrap();
    assert_eq!(answer.response.status(), StatusCode::OK);
    assert_eq!(answer.response.headers()[ACKED_SEQUENCE_HEADER], "1500");
    assert_eq!(durable(&here).len(), 1500);
}

fn signed_request(entries: &[(u64, Vec<u8>)], signer: &Signer) -> Request<Body> {
    let request = forward_body(entries);
    let signature = signer.sign(&request);
    request_with_signature(request, signer, &signature)
}

fn request_with_signature(request: Vec<u8>, signer: &Signer, signature: &[u8]) -> Request<Body> {
    Request::post(PATH)
        .header(KEY_HEADER, to_hex(&signer.public_key()))
        .header(SIGNATURE_HEADER, to_hex(signature))
        .body(request.into())
        .unwrap()
}

fn test_signer() -> Signer {
    Signer::from_seed(&[1; 32])
}

/// Requests rejected because the producer id belongs to another sender.
fn identity_rejections(here: &TestNode, reason: &str) -> u64 {
    let name = "topdeck_intake_identity_rejections_total";
    here.context.intake.meter().counter(name, "", &[("reason", reason)]).get()
}

/// The same journal, opened by another process.
fn reopened(mut here: TestNode) -> TestNode {
    let dir = std::mem::take(&mut here.dir);
    here.context.intake.stop();
    drop(here);
    let journal = Journal::open(Arc::new(OsDisk), &dir, &Default::default()).unwrap();
    self::open_node(dir, WriteTarget::Journal(Arc::new(journal)))
}

#[track_caller]
fn check_forbidden(said: &ResponseParts, reason: &str) {
    assert_eq!((said.0, said.1, said.2), (403, None, None), "{said:?}");
    assert!(said.3.contains(reason), "{said:?}");
}

#[tokio::test]
async fn forged_sequence_does_not_block_an_agent() {
    let here = agent_node(&journal::Settings::default());
    assert_eq!(submit(&here, signed_request(&[text_batch(1)], &test_signer())).await.1, Some(1));
    // Another sender with the same token knows the journal's number.
    let forged = [text_batch(1 << 40)];
    check_forbidden(
        &submit(&here, forward_request(&forged)).await,
        "is not signed, but a key is bound",
    );
    let other = Signer::from_seed(&[2; 32]);
    let said = submit(&here, signed_request(&forged, &other)).await;
    check_forbidden(&said, "is signed with a key other than the bound key");
    assert!(said.3.contains("remove the producer's line from"), "{said:?}");
    let stolen = request_with_signature(
        forward_body(&forged),
        &test_signer(),
        &test_signer().sign(&forward_body(&[text_batch(1)])),
    );
    check_forbidden(&submit(&here, stolen).await, "the signature does not match");
    assert_eq!(
        submit(&here, signed_request(&[text_batch(2)], &test_signer())).await.1,
        Some(2),
        "the agent goes on"
    );
    assert_eq!(durable(&here).len(), 2);
    assert_eq!(identity_rejections(&here, "key"), 2);
    let notes = here.context.intake.audit().unwrap().warnings;
    assert!(notes.iter().any(|note| note.contains("signed with a key other")), "{notes:?}");
}

#[tokio::test]
async fn replayed_request_is_a_duplicate() {
    let here = agent_node(&journal::Settings::default());
    let entries = [text_batch(1), text_batch(2)];
    assert_eq!(submit(&here, signed_request(&entries, &test_signer())).await.0, 200);
    let said = submit(&here, signed_request(&entries, &test_signer())).await;
    assert!(said.0 == 200 && said.3.contains("\"duplicates\":2"), "{said:?}");
    assert_eq!(durable(&here).len(), 2);
}

#[tokio::test]
async fn restarted_server_knows_the_key() {
    let here = agent_node(&journal::Settings::default());
    assert_eq!(submit(&here, signed_request(&[text_batch(1)], &test_signer())).await.0, 200);
    let here = reopened(here);
    check_forbidden(&submit(&here, forward_request(&[text_batch(2)])).await, "is not signed");
    assert_eq!(submit(&here, signed_request(&[text_batch(2)], &test_signer())).await.1, Some(2));
}

#[tokio::test]
async fn unsigned_agent_is_accepted_until_it_signs() {
    let here = agent_node(&journal::Settings::default());
    assert_eq!(submit(&here, forward_request(&[text_batch(1)])).await.0, 200);
    assert_eq!(submit(&here, forward_request(&[text_batch(2)])).await.0, 200);
    assert_eq!(submit(&here, signed_request(&[text_batch(3)], &test_signer())).await.0, 200);
    check_forbidden(&submit(&here, forward_request(&[text_batch(4)])).await, "is not signed");
}

#[tokio::test]
async fn implausible_sequence_jump_is_rejected() {
    let here = agent_node(&journal::Settings::default());
    assert_eq!(submit(&here, forward_request(&[text_batch(5)])).await.0, 200);
    let far = 6 + intake::JOURNAL_SEQUENCE_JUMP_MAX + 1;
    let said = submit(&here, forward_request(&[text_batch(6), text_batch(far)])).await;
    assert_eq!((said.0, said.1, said.2), (409, Some(6), None), "{said:?}");
    assert!(said.3.contains(&format!("cannot take sequence {far} of producer")), "{said:?}");
    assert_eq!(
        submit(&here, forward_request(&[text_batch(far - 1)])).await.0,
        200,
        "as far as one may be"
    );
    assert_eq!(identity_rejections(&here, "sequence"), 1);
    assert!(here.context.intake.audit().unwrap().warnings[0].contains("cannot take sequence"));
    // Also after a restart.
    let here = reopened(here);
    assert_eq!(submit(&here, forward_request(&[text_batch(2 * far)])).await.0, 409);
}

#[tokio::test]
async fn malformed_signature_headers_are_rejected() {
    let here = agent_node(&journal::Settings::default());
    let request = Request::post(PATH)
        .header(KEY_HEADER, "ab")
        .body(forward_body(&[text_batch(1)]).into())
        .unwrap();
    let said = submit(&here, request).await;
    assert!(said.0 == 400 && said.3.contains("expected 64 and 128 hexadecimal digits"), "{said:?}");
}
