//! Pictures of messages: what shows them, and what happens if the receiver takes none.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use notify::{
    AttemptVerdict, ConfiguredContact, DeliveryContext, DeliveryReceipt, LogLimits, Notification,
    NotifiedState, Picture, PictureLinks, deliver_next,
};
use serde_json::Value;
use sim::SimDisk;

use crate::alerts::{COMPOSITION, START_NS, client, contacts, context, notification};
use crate::contact_faults::{PICTURE_KINDS, kind_of, send};
use crate::delivery_log::open;
use crate::http_receiver::{AnswerFunction, HttpMessage, HttpReceiver};
use crate::schemas;

const TIMEOUT: Duration = Duration::from_secs(60);

fn has_picture(request: &HttpMessage) -> bool {
    let base64 = STANDARD.encode(schemas::PNG);
    let has = |part: &[u8]| request.body.windows(part.len()).any(|bytes| bytes == part);
    has(schemas::PNG) || has(base64.as_bytes())
}

fn paths(requests: &[HttpMessage]) -> Vec<&str> {
    requests.iter().map(|request| request.path.as_str()).collect()
}

/// What a receiver answers to a picture, and to a message without.
fn rejects_pictures<const STATUS: u16>(request: &HttpMessage) -> (u16, &'static str) {
    match has_picture(request) {
        true => (STATUS, r#"{"ok": false, "description": "no rights to send photos"}"#),
        false => (200, r#"{"ok": true, "id": "1"}"#),
    }
}

#[tokio::test]
async fn a_message_has_a_picture_if_there_is_one() {
    let client = client(TIMEOUT);
    for name in PICTURE_KINDS {
        let (receiver, contact) = kind_of(name).start().await;
        let receipt = send(&contact, &notification("a1b2", 1), &client).await.unwrap();
        assert_eq!(receipt, DeliveryReceipt::default());
        let without = Notification { picture: None, ..notification("a1b2", 1) };
        send(&contact, &without, &client).await.unwrap();
        let requests = receiver.take_requests();
        assert_eq!(requests.iter().map(has_picture).collect::<Vec<_>>(), [true, false], "{name}");
    }
}

#[tokio::test]
async fn a_message_that_is_rejected_with_its_picture_is_sent_without() {
    let client = client(TIMEOUT);
    let answers: [AnswerFunction; 4] = [
        rejects_pictures::<400>,
        rejects_pictures::<401>,
        rejects_pictures::<404>,
        rejects_pictures::<413>,
    ];
    for name in PICTURE_KINDS {
        for answer in answers {
            let kind = kind_of(name);
            let (receiver, contact) = kind.connect(HttpReceiver::start(answer).await);
            let sent = send(&contact, &notification("a1b2", 1), &client).await;
            let requests = receiver.take_requests();
            let pictures: Vec<bool> = requests.iter().map(has_picture).collect();
            assert_eq!(pictures, [true, false], "{name}");
            requests.iter().for_each(kind.schema);
            if name == "teams" {
                // It confirms otherwise.
                continue;
            }
            let receipt = sent.unwrap();
            let [note] = &receipt.notes[..] else { panic!("{receipt:?}") };
            assert!(note.starts_with("sent without the picture: "), "{note}");
            assert!(note.contains("no rights to send photos"), "{note}");
        }
    }
}

/// The contact of a kind, with the receiver at `url`.
fn configured(name: &str, url: &str) -> ConfiguredContact {
    let keys = match name {
        "discord" => "webhook_url = 'URL/hook'",
        "ntfy" => "url = 'URL'\ntopic = 'alerts'\ntoken = 'tk'",
        "slack" => "url = 'URL/api'\ntoken = 'xoxb-1'\nchannel = '#alerts'",
        "teams" => "webhook_url = 'URL/workflow'",
        "telegram" => "url = 'URL'\ntoken = '123:abc'\nchat_id = '-100'\nmessage_thread_id = 7",
        other => panic!("{other}"),
    };
    let keys = keys.replace("URL", url);
    contacts(&format!("[[contact]]\nname = 'c'\nkind = '{name}'\n{keys}\n")).remove(0)
}

/// A receiver that takes no pictures, and no message in the first attempt.
fn is_busy(request: &HttpMessage) -> (u16, &'static str) {
    let is_upload = request.path.contains("/files.");
    match has_picture(request) || is_upload {
        true => (404, r#"{"ok": false, "error": "unknown_method"}"#),
        false => (503, "try later"),
    }
}

fn takes_messages(request: &HttpMessage) -> (u16, &'static str) {
    match request.path.as_str() {
        "/workflow" => (202, ""),
        _ => (200, r#"{"ok": true, "id": "1", "channel": "C1", "ts": "17.2"}"#),
    }
}

#[tokio::test]
async fn a_rejected_picture_is_not_tried_again_when_the_message_is() {
    for name in PICTURE_KINDS.into_iter().chain(["slack"]) {
        let log = Mutex::new(open(&SimDisk::new(1), LogLimits::default()));
        let mut now_ns = START_NS;
        let sent = notification("a1b2", 1);
        log.lock().unwrap().enqueue(&["c"], &sent, now_ns).unwrap();
        let mut attempts = Vec::new();
        for answer in [is_busy as AnswerFunction, takes_messages] {
            let receiver = HttpReceiver::start(answer).await;
            let contact = configured(name, &format!("http://{}", receiver.address));
            let client = client(TIMEOUT);
            let (dir, now) = (Path::new("/"), move || now_ns);
            let report =
                deliver_next(&log, &contact, &client, dir, &now, &COMPOSITION).await.unwrap();
            let requests = receiver.take_requests();
            let count = requests.iter().filter(|it| has_picture(it) || it.path.contains("/files."));
            attempts.push((report.map(|report| report.verdict), count.count(), requests.len()));
            now_ns += 600 * 1_000_000_000;
        }
        let expected =
            [(Some(AttemptVerdict::Retry), 1, 2), (Some(AttemptVerdict::Delivered), 0, 1)];
        assert_eq!(attempts, expected, "{name}");
    }
}

#[tokio::test]
async fn slack_shows_an_uploaded_picture_below_the_text() {
    let (receiver, contact) = kind_of("slack").start().await;
    let client = client(TIMEOUT);
    send(&contact, &notification("a1b2", 1), &client).await.unwrap();
    let requests = receiver.take_requests();
    let expected = [
        "/api/files.getUploadURLExternal",
        "/upload/v1/x",
        "/api/files.completeUploadExternal",
        "/api/files.info",
        "/api/chat.postMessage",
    ];
    assert_eq!(paths(&requests), expected);
    assert_eq!(requests[1].body, schemas::PNG);
    let message = schemas::json(&requests[4]);
    let image = &message["attachments"][1]["blocks"][0];
    assert_eq!((&image["slack_file"]["id"], &image["alt_text"]), (&"F1".into(), &"latency".into()));
}

/// Slack with a fault at one of the calls.
fn slack_without(path: &str, request: &HttpMessage) -> (u16, &'static str) {
    let has_image = request.body.windows(10).any(|bytes| bytes == b"slack_file");
    match request.path.as_str() {
        found if found == path => (200, r#"{"ok": false, "error": "missing_scope"}"#),
        "/api/chat.postMessage" if has_image && path == "image" => {
            (200, r#"{"ok": false, "error": "invalid_blocks"}"#)
        }
        "/api/files.getUploadURLExternal" => {
            (200, r#"{"ok": true, "upload_url": "URL/upload/v1/x", "file_id": "F1"}"#)
        }
        "/upload/v1/x" if path == "upload" => (404, "no such upload"),
        "/upload/v1/x" => (200, "OK"),
        "/api/files.info" => (200, r#"{"ok": true, "file": {"mimetype": "image/png"}}"#),
        _ => (200, r#"{"ok": true, "channel": "C1", "ts": "17.2"}"#),
    }
}

#[tokio::test]
async fn slack_gets_the_picture_after_a_temporary_failure() {
    let log = Mutex::new(open(&SimDisk::new(1), LogLimits::default()));
    let mut now_ns = START_NS;
    log.lock().unwrap().enqueue(&["c"], &notification("a1b2", 1), now_ns).unwrap();
    let mut attempts = Vec::new();
    let answers: [AnswerFunction; 2] = [|_| (503, "try later"), |it| slack_without("", it)];
    for answer in answers {
        let receiver = HttpReceiver::start(answer).await;
        let contact = configured("slack", &format!("http://{}", receiver.address));
        let client = client(TIMEOUT);
        let (dir, now) = (Path::new("/"), move || now_ns);
        let report = deliver_next(&log, &contact, &client, dir, &now, &COMPOSITION).await.unwrap();
        let requests = receiver.take_requests();
        let shows_picture = requests
            .last()
            .is_some_and(|request| request.body.windows(10).any(|bytes| bytes == b"slack_file"));
        attempts.push((report.map(|report| report.verdict), shows_picture));
        now_ns += 600 * 1_000_000_000;
    }
    let expected = [(Some(AttemptVerdict::Retry), false), (Some(AttemptVerdict::Delivered), true)];
    assert_eq!(attempts, expected);
}

/// Slack that takes the picture, and no message in the first two attempts.
fn takes_the_third_message(request: &HttpMessage) -> (u16, &'static str) {
    static MESSAGES: AtomicUsize = AtomicUsize::new(0);
    let is_message = request.path == "/api/chat.postMessage";
    match is_message.then(|| MESSAGES.fetch_add(1, Ordering::Relaxed)) {
        Some(0) => (200, r#"{"ok": false, "error": "ratelimited"}"#),
        Some(1) => (503, "try later"),
        _ => slack_without("", request),
    }
}

#[tokio::test]
async fn slack_gets_a_picture_once_however_often_its_message_is_tried() {
    let log = Mutex::new(open(&SimDisk::new(1), LogLimits::default()));
    let mut now_ns = START_NS;
    let receiver = HttpReceiver::start(takes_the_third_message).await;
    let contact = configured("slack", &format!("http://{}", receiver.address));
    let client = client(TIMEOUT);
    let mut uploads = Vec::new();
    // Of another alert, another picture.
    for (alert_id, attempts) in [("a1b2", 3), ("c3d4", 1)] {
        log.lock().unwrap().enqueue(&["c"], &notification(alert_id, 1), now_ns).unwrap();
        for attempt in 1..=attempts {
            let (dir, now) = (Path::new("/"), move || now_ns);
            let report =
                deliver_next(&log, &contact, &client, dir, &now, &COMPOSITION).await.unwrap();
            let is_last = attempt == attempts;
            let expected = if is_last { AttemptVerdict::Delivered } else { AttemptVerdict::Retry };
            assert_eq!(report.map(|report| report.verdict), Some(expected));
            let requests = receiver.take_requests();
            let image = &schemas::json(requests.last().unwrap())["attachments"][1]["blocks"][0];
            assert_eq!(image["slack_file"]["id"], "F1");
            uploads.push(requests.iter().filter(|request| has_picture(request)).count());
            now_ns += 600 * 1_000_000_000;
        }
    }
    assert_eq!(uploads, [1, 0, 0, 1]);
}

#[tokio::test]
async fn slack_gets_the_message_once_whatever_fails_about_the_picture() {
    let client = client(TIMEOUT);
    let cases: [(AnswerFunction, &str, usize); 5] = [
        (|it| slack_without("/api/files.getUploadURLExternal", it), "missing_scope", 2),
        (|it| slack_without("upload", it), "no such upload", 3),
        (|it| slack_without("/api/files.completeUploadExternal", it), "missing_scope", 4),
        (|it| slack_without("/api/files.info", it), "missing_scope", 5),
        (|it| slack_without("image", it), "invalid_blocks", 6),
    ];
    for (answer, cause, count) in cases {
        let kind = kind_of("slack");
        let (receiver, contact) = kind.connect(HttpReceiver::start(answer).await);
        let receipt = send(&contact, &notification("a1b2", 1), &client).await.unwrap();
        assert_eq!(receipt.message_id.as_deref(), Some("C1 17.2"));
        let [note] = &receipt.notes[..] else { panic!("{receipt:?}") };
        assert!(note.starts_with("sent without the picture: ") && note.contains(cause), "{note}");
        let requests = receiver.take_requests();
        assert_eq!(requests.len(), count, "{cause}: {:?}", paths(&requests));
        requests.iter().for_each(kind.schema);
    }
}

#[tokio::test]
async fn a_picture_too_large_for_teams_is_left_out() {
    let (receiver, contact) = kind_of("teams").start().await;
    let client = client(TIMEOUT);
    for (bytes, has_image) in [(15_000, true), (20_000, false)] {
        let picture = Some(Picture { png: vec![7; bytes], alt: "latency".to_owned() });
        let large = Notification { picture, ..notification("a1b2", 1) };
        send(&contact, &large, &client).await.unwrap();
        let [request] = &receiver.take_requests()[..] else { panic!("one request") };
        schemas::check_teams(request);
        let card = schemas::json(request)["attachments"][0]["content"].clone();
        let body = card["body"].as_array().unwrap();
        assert_eq!(body.iter().any(|block| block["type"] == "Image"), has_image, "{bytes} bytes");
    }
}

#[tokio::test]
async fn opsgenie_has_the_picture_as_an_attachment_of_the_alert() {
    let kind = kind_of("opsgenie");
    let (receiver, contact) = kind.start().await;
    let client = client(TIMEOUT);
    send(&contact, &notification("a1b2", 1), &client).await.unwrap();
    let requests = receiver.take_requests();
    let expected = ["/v2/alerts", "/v2/alerts/requests/r1", "/v2/alerts/alert%207/attachments"];
    assert_eq!(paths(&requests), expected);
    assert!(has_picture(&requests[2]));
    let mut reminder = notification("a1b2", 1);
    reminder.key.reminder = 1;
    send(&contact, &reminder, &client).await.unwrap();
    assert_eq!(paths(&receiver.take_requests()), expected[..1]);
}

#[tokio::test]
async fn opsgenie_gets_the_alert_once_whatever_fails_about_the_picture() {
    fn is_alert(request: &HttpMessage) -> bool {
        request.path == "/v2/alerts"
    }
    const ACCEPTED: (u16, &str) = (202, r#"{"requestId": "r1"}"#);
    let client = client(TIMEOUT);
    let cases: [(AnswerFunction, &str, usize); 3] = [
        // Not processed within the waits.
        (|it| if is_alert(it) { ACCEPTED } else { (404, "{}") }, "it is not processed", 5),
        (|it| if is_alert(it) { ACCEPTED } else { (401, "bad key") }, "401", 2),
        (
            |it| match it.method.as_str() {
                "GET" => (200, r#"{"data": {"alertId": "7"}}"#),
                _ if is_alert(it) => ACCEPTED,
                _ => (404, "no such alert"),
            },
            "404",
            3,
        ),
    ];
    for (answer, cause, count) in cases {
        let (receiver, contact) = kind_of("opsgenie").connect(HttpReceiver::start(answer).await);
        let receipt = send(&contact, &notification("a1b2", 1), &client).await.unwrap();
        let [note] = &receipt.notes[..] else { panic!("{receipt:?}") };
        assert!(note.starts_with("sent without the picture: ") && note.contains(cause), "{note}");
        let requests = receiver.take_requests();
        assert_eq!(requests.len(), count, "{cause}");
        assert_eq!(requests.iter().filter(|request| is_alert(request)).count(), 1);
    }
}

/// Directory of one test, removed on drop.
struct PictureDir(PathBuf);

impl PictureDir {
    fn new(name: &str) -> PictureDir {
        let name = format!("topdeck-pagerduty-{name}-{}", std::process::id());
        let dir = PictureDir(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&dir.0).unwrap();
        dir
    }
}

impl Drop for PictureDir {
    fn drop(&mut self) {
        // What is left is in a temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Event of PagerDuty and its receipt. The node is reached at `external_url`, the contact has more
/// keys.
async fn pagerduty_event(
    dir: &Path,
    external_url: &str,
    keys: &str,
    notification: &Notification,
) -> (Value, DeliveryReceipt) {
    let receiver = HttpReceiver::start(|_| (202, r#"{"status": "success"}"#)).await;
    let settings = format!(
        "[[contact]]\nname = 'p'\nkind = 'pagerduty'\nurl = 'http://{}'\nrouting_key = \
         '0123456789abcdef0123456789abcdef'\n{keys}\n",
        receiver.address
    );
    let contact = contacts(&settings).remove(0).contact;
    let (client, links) = (client(TIMEOUT), PictureLinks::new(dir.to_owned(), external_url));
    let context = DeliveryContext { pictures: Some(&links), ..context(&client) };
    let receipt = contact.send(notification, &context).await.unwrap();
    let [request] = &receiver.take_requests()[..] else { panic!("one request") };
    schemas::check_pagerduty(request);
    (schemas::json(request), receipt)
}

#[tokio::test]
async fn an_event_of_pagerduty_has_a_signed_link_to_the_picture() {
    let dir = PictureDir::new("link");
    let firing = notification("a1b2", 1);
    let (event, receipt) = pagerduty_event(&dir.0, "https://deck.example/", "", &firing).await;
    assert_eq!(receipt, DeliveryReceipt::default());
    let image = &event["images"][0];
    assert_eq!(
        (&image["alt"], image["href"].as_str()),
        (&"latency".into(), firing.link.as_deref())
    );
    let src = image["src"].as_str().unwrap();
    let rest = src.strip_prefix("https://deck.example/v1/alert-pictures/").unwrap();
    let (id, query) = rest.split_once("?expires=").unwrap();
    let (expires, signature) = query.split_once("&signature=").unwrap();
    let links = PictureLinks::new(dir.0.clone(), "");
    let read = |expires: &str, signature: &str| links.read(id, expires, signature, START_NS);
    let picture = firing.picture.as_ref().unwrap();
    assert_eq!(read(expires, signature).as_ref(), Some(&picture.png));
    assert_eq!(read(expires, &signature[1..]), None);
    assert_eq!(read("1", signature), None);
    // Another way leads there from outside.
    let keys = "picture_url = 'https://outside.example/deck'";
    let (event, _) = pagerduty_event(&dir.0, "https://deck.example/", keys, &firing).await;
    let src = event["images"][0]["src"].as_str().unwrap();
    assert!(src.starts_with("https://outside.example/deck/v1/alert-pictures/"), "{src}");
}

#[tokio::test]
async fn an_event_of_pagerduty_has_no_picture_without_a_public_url_or_an_incident() {
    let dir = PictureDir::new("none");
    let firing = notification("a1b2", 1);
    let https = "https://deck.example/";
    let state = |state| Notification { state, ..firing.clone() };
    let cases = [
        ("", "", firing.clone()),
        ("http://deck.example/", "", firing.clone()),
        (https, "picture_url = ''", firing.clone()),
        (https, "", Notification { picture: None, ..firing.clone() }),
        (https, "", state(NotifiedState::Acknowledged)),
        (https, "", state(NotifiedState::Resolved)),
    ];
    for (external_url, keys, notification) in cases {
        let (event, receipt) = pagerduty_event(&dir.0, external_url, keys, &notification).await;
        assert_eq!(event.get("images"), None, "{external_url} {keys}");
        assert_eq!(receipt, DeliveryReceipt::default());
    }
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0, "no key is made");
}

#[tokio::test]
async fn a_picture_that_cannot_be_stored_costs_no_event_of_pagerduty() {
    let dir = PictureDir::new("failed");
    let file = dir.0.join("file");
    std::fs::write(&file, "").unwrap();
    let firing = notification("a1b2", 1);
    let (event, receipt) = pagerduty_event(&file, "https://deck.example", "", &firing).await;
    assert_eq!(event.get("images"), None);
    let [note] = &receipt.notes[..] else { panic!("{receipt:?}") };
    assert!(note.starts_with("sent without the picture: "), "{note}");
}

#[tokio::test]
async fn a_webhook_of_slack_has_no_picture() {
    let receiver = HttpReceiver::start(|_| (200, "ok")).await;
    let settings = format!(
        "[[contact]]\nname = 's'\nkind = 'slack'\nwebhook_url = 'http://{}/hook'\n",
        receiver.address
    );
    let contact = contacts(&settings).remove(0).contact;
    send(&contact, &notification("a1b2", 1), &client(TIMEOUT)).await.unwrap();
    let [request] = &receiver.take_requests()[..] else { panic!("one request") };
    schemas::check_slack_webhook(request);
    let message: Value = schemas::json(request);
    assert_eq!(message["attachments"].as_array().unwrap().len(), 1);
    assert!(message["attachments"][0]["title_link"].is_string());
}
