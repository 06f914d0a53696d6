//! Against journals and stores of this process, in one call and over a connection.

use std::path::PathBuf;
use std::time::Duration;

use disk::{Disk, OsDisk};
use hist::Histogram;
use hist::codec::header::Temporality;
use http::Request;
use intake::Home;
use journal::{Item, Journal, Start};
use model::{BatchWriter, Kind, ParcelWriter, Sample, Series, Value};
use net::Target;
use net::dial::{Allowance, Dialer};
use net::signature::{Signer, hex};
use tower::ServiceExt;

use super::*;
use crate::limits::{Held, Refused, Room};

/// An agent's journal or a store in a folder that goes when it is dropped.
struct Here {
    folder: PathBuf,
    context: Context,
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("topdeck-batches-{:x}", journal::random_id()))
}

fn here(folder: PathBuf, home: Home) -> Here {
    // Only what a test sends is counted: topdeck's own measurements do not go into the journal.
    let settings = intake::Settings { interval: Duration::MAX, ..Default::default() };
    let intake = Arc::new(Intake::new(home, settings).unwrap());
    Here { folder, context: Context::new(intake, crate::DeskSettings::default()) }
}

fn agent(settings: &journal::Settings) -> Here {
    let folder = folder();
    Journal::create(&OsDisk, &folder, journal::random_id(), 0, settings).unwrap();
    let options = journal::Options { wait_max: Duration::from_millis(50), ..Default::default() };
    let journal = Journal::open(Arc::new(OsDisk), &folder, &options).unwrap();
    here(folder, Home::Journal(Arc::new(journal)))
}

fn store() -> Here {
    let (folder, disk): (_, Arc<dyn Disk>) = (folder(), Arc::new(OsDisk));
    store::Store::create(&disk, &folder, &journal::Settings::default()).unwrap();
    let store = store::Store::open(disk, &folder, &store::Options::default()).unwrap();
    here(folder, Home::Store(Arc::new(store)))
}

fn batch(by_id: bool, values: u64) -> Vec<u8> {
    let kind = Kind::Histogram(Temporality::Delta);
    let series = Series::new("latency", kind).with_unit("ns").checked().unwrap();
    let mut writer = BatchWriter::default();
    if by_id {
        writer.known_series(series.id(), &series)
    } else {
        writer.series(&series)
    }
    let mut histogram = Histogram::default();
    (0..values).for_each(|n| histogram.record(n as f64));
    let value = Value::Histogram(Box::new(histogram));
    writer.sample(&Sample { start: 1, end: 2, value }).unwrap();
    writer.finish().bytes().to_owned()
}

/// A batch of 2 kB, with its sequence.
fn text(sequence: u64) -> (u64, Vec<u8>) {
    let series = Series::new("text", Kind::Text).checked().unwrap();
    let mut writer = BatchWriter::default();
    writer.series(&series);
    let value = Value::Text(format!("{sequence:02000}"));
    writer.sample(&Sample { start: 1, end: 2, value }).unwrap();
    (sequence, writer.finish().bytes().to_owned())
}

fn parcel(entries: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ParcelWriter::new(99);
    entries.iter().for_each(|(sequence, batch)| writer.push(*sequence, batch));
    writer.finish()
}

fn packed(entries: &[(u64, Vec<u8>)]) -> Request<Body> {
    let body = zstd::bulk::compress(&parcel(entries), 1).unwrap();
    Request::post(PATH).header("content-encoding", "zstd").body(body.into()).unwrap()
}

/// Status, accepted, refused, and what is said.
type Said = (u16, Option<u64>, Option<u64>, String);

/// The route as the gate has it, with bounds of bodies.
fn service(here: &Here) -> Router {
    let room = Room::new(3 * PARCEL_BYTES_MAX);
    let refused = Arc::new(Refused::new(here.context.intake.meter()));
    let bound = Bound::new(Held::new(&room), &refused, PARCEL_BYTES_MAX, Duration::from_secs(60));
    routes().with_state(here.context.clone()).layer(axum::Extension(Arc::new(bound)))
}

async fn ask(here: &Here, request: Request<Body>) -> Said {
    let response = service(here).oneshot(request).await.unwrap();
    let number =
        |name| response.headers().get(name).map(|it| it.to_str().unwrap().parse().unwrap());
    let (accepted, refused) = (number(ACCEPTED), number(REFUSED));
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
    (status, accepted, refused, String::from_utf8(body.to_vec()).unwrap())
}

#[track_caller]
fn check(said: Said, expected: (u16, Option<u64>, Option<u64>, &str)) {
    assert_eq!((said.0, said.1, said.2, said.3.trim_end()), expected);
}

/// Sizes of what is durably in the journal.
fn durable(here: &Here) -> Vec<usize> {
    let mut reader = here.context.intake.home().journal().reader(Start::Begin).unwrap();
    reader.set_level(journal::Level::Disk);
    let mut sizes = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Batch(batch) => sizes.extend(batch.records().map(|record| record.bytes.len())),
            Item::Gap(gap) => panic!("{gap:?}"),
        }
    }
    sizes
}

#[tokio::test]
async fn parcels_are_durable_when_it_says_so_and_repeats_count_once() {
    for here in [agent(&journal::Settings::default()), store()] {
        let (one, two, three) = (batch(false, 1), batch(false, 20), batch(false, 300));
        let first = [(4, one.clone()), (7, two.clone())];
        let said = r#"{"accepted":7,"repeated":0,"taken":2}"#;
        check(ask(&here, packed(&first)).await, (200, Some(7), None, said));
        assert_eq!(durable(&here), [one.len(), two.len()]);
        let again = [(7, two.clone()), (8, three.clone())];
        let said = r#"{"accepted":8,"repeated":1,"taken":1}"#;
        check(ask(&here, packed(&again)).await, (200, Some(8), None, said));
        let plain = Request::post(PATH).body(parcel(&first).into()).unwrap();
        let said = r#"{"accepted":7,"repeated":2,"taken":0}"#;
        check(ask(&here, plain).await, (200, Some(7), None, said));
        assert_eq!(durable(&here), [one.len(), two.len(), three.len()]);
        check(
            ask(&here, packed(&[])).await,
            (200, None, None, r#"{"accepted":null,"repeated":0,"taken":0}"#),
        );
    }
}

#[tokio::test]
async fn a_batch_that_is_not_taken_is_named_and_those_before_are_taken() {
    let unsound = [(1, batch(false, 1)), (2, b"no batch".to_vec()), (3, batch(false, 1))];
    let here = agent(&journal::Settings::default());
    let why = r#"{"error":"batch 2: magic at byte 0 is 110, expected 211 (0xd3), a batch"}"#;
    check(ask(&here, packed(&unsound)).await, (400, Some(1), Some(2), why));
    assert_eq!(durable(&here).len(), 1);
    let (status, accepted, refused, said) = ask(&here, packed(&[(5, batch(true, 1))])).await;
    assert_eq!((status, accepted, refused), (400, None, Some(5)));
    assert!(said.contains("is named by its number only"), "{said}");
    // A store refuses a number that it does not know, and takes one that it does.
    let here = store();
    let (status, accepted, refused, _) = ask(&here, packed(&[(5, batch(true, 1))])).await;
    assert_eq!((status, accepted, refused), (400, None, Some(5)));
    let known = [(6, batch(false, 1)), (7, batch(true, 1))];
    assert_eq!(ask(&here, packed(&known)).await.1, Some(7));
}

#[tokio::test]
async fn what_is_no_parcel_is_refused_without_a_name() {
    let here = agent(&journal::Settings::default());
    let sound = parcel(&[(1, batch(false, 1))]);
    let mut flipped = sound.clone();
    flipped[40] ^= 1;
    let post = |body: Vec<u8>| Request::post(PATH).body(Body::from(body)).unwrap();
    for body in [flipped, b"hello".to_vec(), Vec::new()] {
        let (status, accepted, refused, _) = ask(&here, post(body)).await;
        assert_eq!((status, accepted, refused), (400, None, None));
    }
    let mut unknown = post(sound.clone());
    unknown.headers_mut().insert("content-encoding", HeaderValue::from_static("br"));
    assert_eq!(ask(&here, unknown).await.0, 415);
    let mut torn = packed(&[(1, batch(false, 1))]);
    *torn.body_mut() = Body::from(sound);
    assert_eq!(ask(&here, torn).await.0, 400);
    // A few bytes that unpack to more than a parcel may have.
    let bomb = zstd::bulk::compress(&vec![0; PARCEL_BYTES_MAX + 1], 1).unwrap();
    let bomb = Request::post(PATH).header("content-encoding", "zstd").body(bomb.into()).unwrap();
    assert_eq!(ask(&here, bomb).await.0, 413);
    let mut large = post(Vec::new());
    let length = HeaderValue::from(PARCEL_BYTES_MAX as u64 + 1);
    large.headers_mut().insert("content-length", length);
    assert_eq!(ask(&here, large).await.0, 413);
    assert!(durable(&here).is_empty());
}

#[tokio::test]
async fn a_full_journal_says_when_to_come_again_and_how_far_it_came() {
    let small = journal::Settings {
        buffer_bytes: 4096,
        segment_bytes: 16 << 10,
        limits: journal::Limits {
            bytes_max: Some(32 << 10),
            age_max: None,
            at_limit: journal::AtLimit::Refuse,
        },
        codec: journal::Codec::None,
        ..journal::Settings::default()
    };
    let here = agent(&small);
    here.context.intake.home().journal().add_subscriber("slow", Start::Begin, true).unwrap();
    let entries: Vec<_> = (1..=40).map(text).collect();
    let response = service(&here).oneshot(packed(&entries)).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    assert!(!response.headers().contains_key(REFUSED));
    let accepted: usize = response.headers()[ACCEPTED].to_str().unwrap().parse().unwrap();
    assert_eq!(durable(&here).len(), accepted);
    assert!((1..40).contains(&accepted), "{accepted}");
    // It came that far, and goes on from there: what is sent again counts once.
    assert_eq!(ask(&here, packed(&entries[..accepted])).await.1, Some(accepted as u64));
    assert_eq!(durable(&here).len(), accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parcel_comes_over_a_connection() {
    let here = agent(&journal::Settings::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = hyper_util::service::TowerToHyperService::new(service(&here));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = hyper_util::rt::TokioIo::new(stream);
        drop(hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await);
    });
    let target = Target::parse(&url).unwrap();
    let (mut connection, _) = Dialer::default().dial(&target).await.unwrap();
    // More than axum's own limit of 2 MB.
    let entries: Vec<_> = (1..=1500).map(text).collect();
    let body = parcel(&entries);
    assert!(body.len() > 2 << 20, "{}", body.len());
    let request = Request::post(PATH).body(Bytes::from(body)).unwrap();
    let allowed = Allowance { time: Duration::from_secs(60), bytes: 1 << 16 };
    let answer = connection.send(request, allowed).await.unwrap();
    assert_eq!(answer.response.status(), StatusCode::OK);
    assert_eq!(answer.response.headers()[ACCEPTED], "1500");
    assert_eq!(durable(&here).len(), 1500);
}

fn signed(entries: &[(u64, Vec<u8>)], signer: &Signer) -> Request<Body> {
    let parcel = parcel(entries);
    let signature = signer.sign(&parcel);
    with_seal(parcel, signer, &signature)
}

fn with_seal(parcel: Vec<u8>, signer: &Signer, signature: &[u8]) -> Request<Body> {
    Request::post(PATH)
        .header(KEY, hex(&signer.public_key()))
        .header(SIGNATURE, hex(signature))
        .body(parcel.into())
        .unwrap()
}

fn ours() -> Signer {
    Signer::from_seed(&[1; 32])
}

/// What was refused because somebody else has the producer's number.
fn forgeries(here: &Here, reason: &str) -> u64 {
    let name = "topdeck_intake_forgeries_refused_total";
    here.context.intake.meter().counter(name, "", &[("reason", reason)]).get()
}

/// The same journal, opened by another process.
fn reopened(mut here: Here) -> Here {
    let folder = std::mem::take(&mut here.folder);
    here.context.intake.stop();
    drop(here);
    let journal = Journal::open(Arc::new(OsDisk), &folder, &Default::default()).unwrap();
    self::here(folder, Home::Journal(Arc::new(journal)))
}

#[track_caller]
fn check_forbidden(said: &Said, why: &str) {
    assert_eq!((said.0, said.1, said.2), (403, None, None), "{said:?}");
    assert!(said.3.contains(why), "{said:?}");
}

#[tokio::test]
async fn a_forged_sequence_does_not_silence_an_agent() {
    let here = agent(&journal::Settings::default());
    assert_eq!(ask(&here, signed(&[text(1)], &ours())).await.1, Some(1));
    // Somebody with the same token knows the journal's number.
    let forged = [text(1 << 40)];
    check_forbidden(&ask(&here, packed(&forged)).await, "is not signed, and an earlier one was");
    let other = Signer::from_seed(&[2; 32]);
    let said = ask(&here, signed(&forged, &other)).await;
    check_forbidden(&said, "is signed with another key than the first one");
    assert!(said.3.contains("remove the producer's line from"), "{said:?}");
    let stolen = with_seal(parcel(&forged), &ours(), &ours().sign(&parcel(&[text(1)])));
    check_forbidden(&ask(&here, stolen).await, "its signature is not of its bytes");
    assert_eq!(ask(&here, signed(&[text(2)], &ours())).await.1, Some(2), "the agent goes on");
    assert_eq!(durable(&here).len(), 2);
    assert_eq!(forgeries(&here, "key"), 2);
    let notes = here.context.intake.audit().unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("signed with another key")), "{notes:?}");
}

#[tokio::test]
async fn a_parcel_that_somebody_sends_again_is_a_repeat() {
    let here = agent(&journal::Settings::default());
    let entries = [text(1), text(2)];
    assert_eq!(ask(&here, signed(&entries, &ours())).await.0, 200);
    let said = ask(&here, signed(&entries, &ours())).await;
    assert!(said.0 == 200 && said.3.contains("\"repeated\":2"), "{said:?}");
    assert_eq!(durable(&here).len(), 2);
}

#[tokio::test]
async fn a_site_that_is_started_anew_knows_the_key() {
    let here = agent(&journal::Settings::default());
    assert_eq!(ask(&here, signed(&[text(1)], &ours())).await.0, 200);
    let here = reopened(here);
    check_forbidden(&ask(&here, packed(&[text(2)])).await, "is not signed");
    assert_eq!(ask(&here, signed(&[text(2)], &ours())).await.1, Some(2));
}

#[tokio::test]
async fn an_agent_without_a_key_is_understood_until_it_shows_one() {
    let here = agent(&journal::Settings::default());
    assert_eq!(ask(&here, packed(&[text(1)])).await.0, 200);
    assert_eq!(ask(&here, packed(&[text(2)])).await.0, 200);
    assert_eq!(ask(&here, signed(&[text(3)], &ours())).await.0, 200);
    check_forbidden(&ask(&here, packed(&[text(4)])).await, "is not signed");
}

#[tokio::test]
async fn a_jump_that_no_journal_makes_is_refused_and_noted() {
    let here = agent(&journal::Settings::default());
    assert_eq!(ask(&here, packed(&[text(5)])).await.0, 200);
    let far = 6 + intake::PARCEL_JUMP_MAX + 1;
    let said = ask(&here, packed(&[text(6), text(far)])).await;
    assert_eq!((said.0, said.1, said.2), (409, Some(6), None), "{said:?}");
    assert!(said.3.contains(&format!("cannot take sequence {far} of producer")), "{said:?}");
    assert_eq!(ask(&here, packed(&[text(far - 1)])).await.0, 200, "as far as one may be");
    assert_eq!(forgeries(&here, "sequence"), 1);
    assert!(here.context.intake.audit().unwrap().notes[0].contains("cannot take sequence"));
    // Also behind a restart.
    let here = reopened(here);
    assert_eq!(ask(&here, packed(&[text(2 * far)])).await.0, 409);
}

#[tokio::test]
async fn headers_that_are_no_signature_are_refused() {
    let here = agent(&journal::Settings::default());
    let request = Request::post(PATH).header(KEY, "ab").body(parcel(&[text(1)]).into()).unwrap();
    let said = ask(&here, request).await;
    assert!(said.0 == 400 && said.3.contains("expected 64 and 128 hexadecimal digits"), "{said:?}");
}
