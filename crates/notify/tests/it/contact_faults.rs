//! Every contact against every fault of its receiver, and what its messages contain.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use net::tls::{ClientTls, ServerTls};
use notify::{
    AnyContact, DeliveryContext, DeliveryError, DeliveryReceipt, HttpClient, Notification,
    NotifiedState, contact_kinds,
};
use tokio_rustls::TlsAcceptor;

use crate::alerts::{client, contacts, context, huge_notification, notification};
use crate::http_receiver::{AnswerFunction, HttpMessage, HttpReceiver, ReceiverFault};
use crate::mail_receiver::MailReceiver;
use crate::schemas;

/// Long enough that only a missing response exceeds it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Expected result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Delivered,
    /// The receiver does not have the message; seconds of `Retry-After`.
    Temporary(Option<u64>),
    /// The receiver may have the message.
    Unconfirmed,
    Permanent,
}

impl Verdict {
    fn of(result: &Result<DeliveryReceipt, DeliveryError>) -> Verdict {
        match result {
            Ok(_) => Verdict::Delivered,
            Err(DeliveryError::Temporary { may_have_arrived: true, .. }) => Verdict::Unconfirmed,
            Err(DeliveryError::Temporary { retry_after, .. }) => {
                Verdict::Temporary(retry_after.map(|delay| delay.as_secs()))
            }
            Err(_) => Verdict::Permanent,
        }
    }
}

/// A kind of contact over HTTP.
pub(crate) struct HttpKind {
    pub(crate) kind: &'static str,
    /// Other keys; `URL` is the address of the receiver.
    settings: &'static str,
    pub(crate) schema: fn(&HttpMessage),
    pub(crate) answer: AnswerFunction,
    /// Verdict on `{"ok": false}` with status 200.
    not_ok: Verdict,
}

pub(crate) const HTTP_KINDS: &[HttpKind] = &[
    HttpKind {
        kind: "discord",
        settings: "webhook_url = 'URL/hook'",
        schema: schemas::check_discord,
        answer: |_| (200, r#"{"id": "1"}"#),
        not_ok: Verdict::Unconfirmed,
    },
    HttpKind {
        kind: "heartbeat",
        settings: "url = 'URL/ping'",
        schema: schemas::check_heartbeat,
        answer: |_| (200, "OK"),
        not_ok: Verdict::Delivered,
    },
    HttpKind {
        kind: "ntfy",
        settings: "url = 'URL'\ntopic = 'alerts'\ntoken = 'tk'",
        schema: schemas::check_ntfy,
        answer: |_| (200, r#"{"id": "x", "event": "message"}"#),
        not_ok: Verdict::Unconfirmed,
    },
    HttpKind {
        kind: "opsgenie",
        settings: "url = 'URL'\napi_key = 'key'\nteams = ['a']",
        schema: schemas::check_opsgenie,
        answer: answer_opsgenie,
        not_ok: Verdict::Unconfirmed,
    },
    HttpKind {
        kind: "pagerduty",
        settings: "url = 'URL'\nrouting_key = '0123456789abcdef0123456789abcdef'",
        schema: schemas::check_pagerduty,
        answer: |_| (202, r#"{"status": "success", "dedup_key": "a1b2"}"#),
        not_ok: Verdict::Unconfirmed,
    },
    HttpKind {
        kind: "slack",
        settings: "webhook_url = 'URL/services/T/B/x'",
        schema: schemas::check_slack_webhook,
        answer: |_| (200, "ok"),
        not_ok: Verdict::Permanent,
    },
    HttpKind {
        kind: "slack",
        settings: "url = 'URL/api'\ntoken = 'xoxb-1'\nchannel = '#alerts'",
        schema: schemas::check_slack_api,
        answer: answer_slack,
        not_ok: Verdict::Permanent,
    },
    HttpKind {
        kind: "teams",
        settings: "webhook_url = 'URL/workflow'",
        schema: schemas::check_teams,
        answer: |_| (202, ""),
        not_ok: Verdict::Unconfirmed,
    },
    HttpKind {
        kind: "telegram",
        settings: "url = 'URL'\ntoken = '123:abc'\nchat_id = '-100'\nmessage_thread_id = 7",
        schema: schemas::check_telegram,
        answer: |_| (200, r#"{"ok": true, "result": {"message_id": 1}}"#),
        not_ok: Verdict::Permanent,
    },
    HttpKind {
        kind: "twilio",
        settings: "url = 'URL'\naccount_sid = 'AC1'\nauth_token = 'tok'\nfrom = '+1555'\n\
                   to = '+4930123'",
        schema: schemas::check_twilio,
        answer: |_| (201, r#"{"sid": "SM1", "status": "queued"}"#),
        not_ok: Verdict::Unconfirmed,
    },
    HttpKind {
        kind: "victorops",
        settings: "url = 'URL'\napi_key = 'key'\nrouting_key = 'team a'",
        schema: schemas::check_victorops,
        answer: |_| (200, r#"{"result": "success", "entity_id": "a1b2"}"#),
        not_ok: Verdict::Unconfirmed,
    },
    HttpKind {
        kind: "webhook",
        settings: "url = 'URL/hook?a=b'\nhmac_key = 'hush'\ntoken = 't'",
        schema: schemas::check_webhook,
        answer: |_| (204, ""),
        not_ok: Verdict::Delivered,
    },
];

/// Opsgenie: an alert, which is created at once, and its attachment.
fn answer_opsgenie(request: &HttpMessage) -> (u16, &'static str) {
    match request.path.as_str() {
        "/v2/alerts/requests/r1" => {
            (200, r#"{"data": {"isSuccess": true, "alertId": "alert 7"}, "requestId": "s"}"#)
        }
        "/v2/alerts/alert%207/attachments" => {
            (201, r#"{"result": "Attachment added", "data": {"id": "1"}, "requestId": "a"}"#)
        }
        _ => (202, r#"{"result": "Request will be processed", "requestId": "r1"}"#),
    }
}

/// Slack: the Web API, and the URL for a picture.
fn answer_slack(request: &HttpMessage) -> (u16, &'static str) {
    match request.path.as_str() {
        "/api/files.getUploadURLExternal" => {
            (200, r#"{"ok": true, "upload_url": "URL/upload/v1/x", "file_id": "F1"}"#)
        }
        "/upload/v1/x" => (200, "OK - 15"),
        "/api/files.completeUploadExternal" => (200, r#"{"ok": true, "files": [{"id": "F1"}]}"#),
        "/api/files.info" => (200, r#"{"ok": true, "file": {"mimetype": "image/png"}}"#),
        _ => (200, r#"{"ok": true, "channel": "C1", "ts": "17.2"}"#),
    }
}

/// Kinds whose messages have the picture in the request with the text.
pub(crate) const PICTURE_KINDS: [&str; 4] = ["discord", "ntfy", "teams", "telegram"];

/// The row of a kind; of Slack that of the Web API.
pub(crate) fn kind_of(name: &str) -> &'static HttpKind {
    HTTP_KINDS.iter().rfind(|row| row.kind == name).unwrap()
}

impl HttpKind {
    pub(crate) async fn start(&self) -> (HttpReceiver, AnyContact) {
        let receiver = HttpReceiver::start(self.answer).await;
        self.connect(receiver)
    }

    pub(crate) fn connect(&self, receiver: HttpReceiver) -> (HttpReceiver, AnyContact) {
        let contact = contacts(&self.settings(&receiver)).remove(0).contact;
        (receiver, contact)
    }

    /// Settings of a contact with this receiver.
    pub(crate) fn settings(&self, receiver: &HttpReceiver) -> String {
        let keys = self.settings.replace("URL", &format!("http://{}", receiver.address));
        format!("[[contact]]\nname = 'c'\nkind = '{}'\n{keys}\n", self.kind)
    }

    fn verdict(&self, fault: ReceiverFault) -> Verdict {
        match fault {
            ReceiverFault::None | ReceiverFault::SlowAnswer => Verdict::Delivered,
            ReceiverFault::RateLimit => Verdict::Temporary(Some(7)),
            ReceiverFault::ServerError => Verdict::Temporary(None),
            ReceiverFault::Silence | ReceiverFault::Reset => Verdict::Unconfirmed,
            ReceiverFault::NotOk => self.not_ok,
            ReceiverFault::BadRequest => Verdict::Permanent,
        }
    }

    /// Number of requests of an attempt. A message that is rejected with its picture is sent
    /// without it.
    fn request_count(&self, fault: ReceiverFault) -> usize {
        let is_rejected = self.verdict(fault) == Verdict::Permanent;
        match (self.kind, self.verdict(fault)) {
            // Ticket, bytes, completion, processing, message; the ticket and the message.
            ("slack", Verdict::Delivered) if self.settings.contains("token") => 5,
            ("slack", _) if self.settings.contains("token") => 2,
            // The alert, its id, the attachment.
            ("opsgenie", Verdict::Delivered) => 3,
            (kind, _) if PICTURE_KINDS.contains(&kind) && is_rejected => 2,
            _ => 1,
        }
    }
}

const FAULTS: [ReceiverFault; 8] = [
    ReceiverFault::None,
    ReceiverFault::RateLimit,
    ReceiverFault::ServerError,
    ReceiverFault::Silence,
    ReceiverFault::Reset,
    ReceiverFault::SlowAnswer,
    ReceiverFault::NotOk,
    ReceiverFault::BadRequest,
];

fn timeout(fault: ReceiverFault) -> Duration {
    match fault {
        ReceiverFault::Silence => Duration::from_millis(300),
        _ => TIMEOUT,
    }
}

pub(crate) async fn send(
    contact: &AnyContact,
    notification: &Notification,
    client: &HttpClient,
) -> Result<DeliveryReceipt, DeliveryError> {
    contact.send(notification, &context(client)).await
}

#[test]
fn no_kind_of_contact_is_left_out() {
    let mut tested: Vec<&str> = HTTP_KINDS.iter().map(|row| row.kind).chain(["email"]).collect();
    tested.sort();
    tested.dedup();
    assert_eq!(tested, contact_kinds().collect::<Vec<_>>());
}

#[tokio::test]
async fn each_contact_knows_whether_its_message_arrived() {
    for kind in HTTP_KINDS {
        let (receiver, contact) = kind.start().await;
        assert_eq!(contact.kind(), kind.kind);
        for fault in FAULTS {
            receiver.set_fault(fault);
            let result = send(&contact, &notification("a1b2", 1), &client(timeout(fault))).await;
            let settings = kind.settings;
            let expected = kind.verdict(fault);
            assert_eq!(Verdict::of(&result), expected, "{fault:?} of {settings}: {result:?}");
            let requests = receiver.take_requests();
            assert_eq!(requests.len(), kind.request_count(fault), "{fault:?} of {settings}");
            requests.iter().for_each(kind.schema);
            if let Err(error) = result {
                let text = error.to_string();
                assert!(!text.contains("tok") && !text.contains("xoxb"), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn every_state_and_severity_fits_the_schema() {
    let states = [
        NotifiedState::Firing,
        NotifiedState::Unknown,
        NotifiedState::Acknowledged,
        NotifiedState::Resolved,
    ];
    let client = client(TIMEOUT);
    for kind in HTTP_KINDS {
        let (receiver, contact) = kind.start().await;
        for state in states {
            for severity in 1..=5 {
                let mut notification = notification("a1b2", 1);
                (notification.state, notification.severity) = (state, severity);
                let receipt = send(&contact, &notification, &client).await.unwrap();
                assert_eq!(receipt.notes, Vec::<String>::new(), "{}", kind.kind);
                receiver.take_requests().iter().for_each(kind.schema);
            }
        }
    }
}

#[tokio::test]
async fn a_text_above_a_limit_is_cut_and_the_receipt_says_so() {
    let client = client(TIMEOUT);
    for kind in HTTP_KINDS {
        let (receiver, contact) = kind.start().await;
        let receipt = send(&contact, &huge_notification(), &client).await.unwrap();
        receiver.take_requests().iter().for_each(kind.schema);
        let has_limits = !["webhook", "heartbeat"].contains(&kind.kind);
        assert_eq!(!receipt.cuts.is_empty(), has_limits, "{}: {:?}", kind.kind, receipt.cuts);
    }
}

#[tokio::test]
async fn a_receiver_that_is_down_does_not_have_the_message() {
    let client = client(TIMEOUT);
    for kind in HTTP_KINDS {
        let (receiver, contact) = kind.start().await;
        drop(receiver);
        // The task of the receiver ends, and with it the listener.
        tokio::task::yield_now().await;
        let result = send(&contact, &notification("a1b2", 1), &client).await;
        assert_eq!(Verdict::of(&result), Verdict::Temporary(None), "{}: {result:?}", kind.kind);
    }
}

#[tokio::test]
async fn pagerduty_opens_acknowledges_and_closes_one_incident() {
    let kind = kind_of("pagerduty");
    let (receiver, contact) = kind.start().await;
    let client = client(TIMEOUT);
    let states = [NotifiedState::Firing, NotifiedState::Acknowledged, NotifiedState::Resolved];
    for (transition, state) in (1..).zip(states) {
        let mut notification = notification("a1b2", transition);
        notification.state = state;
        assert!(contact.is_idempotent(&notification, None));
        send(&contact, &notification, &client).await.unwrap();
    }
    let sent: Vec<_> = receiver.take_requests().iter().map(schemas::json).collect();
    let fields = |name: &str| sent.iter().map(|body| body[name].clone()).collect::<Vec<_>>();
    assert_eq!(fields("event_action"), ["trigger", "acknowledge", "resolve"]);
    assert_eq!(fields("dedup_key"), ["a1b2"; 3]);
}

#[tokio::test]
async fn a_heartbeat_is_sent_at_its_interval_and_receives_no_alerts() {
    let contact = |keys: &str| {
        let url = "url = 'https://beats.example/ping'";
        contacts(&format!("[[contact]]\nname = 'h'\nkind = 'heartbeat'\n{url}\n{keys}\n"))
            .remove(0)
            .contact
    };
    assert_eq!(contact("").heartbeat_interval(), Some(Duration::from_secs(60)));
    assert_eq!(contact("interval = '5min'").heartbeat_interval(), Some(Duration::from_secs(300)));
    let pager = kind_of("pagerduty").start().await.1;
    assert_eq!(pager.heartbeat_interval(), None);
}

#[tokio::test]
async fn slack_has_one_living_message_per_alert() {
    let kind = kind_of("slack");
    let (receiver, contact) = kind.start().await;
    let client = client(TIMEOUT);
    let first = notification("a1b2", 1);
    assert!(!contact.is_idempotent(&first, None));
    let id = send(&contact, &first, &client).await.unwrap().message_id.unwrap();
    let mut resolved = notification("a1b2", 2);
    resolved.state = NotifiedState::Resolved;
    assert!(contact.is_idempotent(&resolved, Some(&id)));
    let mut reminder = notification("a1b2", 1);
    reminder.key.reminder = 1;
    assert!(!contact.is_idempotent(&reminder, Some(&id)));
    for next in [&reminder, &resolved] {
        let context = DeliveryContext { previous: Some(&id), ..context(&client) };
        let receipt = contact.send(next, &context).await.unwrap();
        assert_eq!(receipt.message_id.as_deref(), Some(&*id));
    }
    let requests = receiver.take_requests();
    requests.iter().for_each(schemas::check_slack_api);
    let sent: Vec<_> = requests
        .iter()
        .filter(|request| request.path.starts_with("/api/chat."))
        .map(|request| {
            let body = schemas::json(request);
            (request.path.as_str(), body["ts"].clone(), body["thread_ts"].clone())
        })
        .collect();
    let null = serde_json::Value::Null;
    assert_eq!(
        sent,
        [
            ("/api/chat.postMessage", null.clone(), null.clone()),
            ("/api/chat.postMessage", null.clone(), "17.2".into()),
            ("/api/chat.update", "17.2".into(), null),
        ]
    );
}

#[tokio::test]
async fn slack_posts_a_new_message_when_the_old_one_was_deleted() {
    let receiver = HttpReceiver::start(|request| match request.path.as_str() {
        "/api/chat.update" => (200, r#"{"ok": false, "error": "message_not_found"}"#),
        _ => (200, r#"{"ok": true, "channel": "C1", "ts": "18.0"}"#),
    })
    .await;
    let kind = kind_of("slack");
    let (receiver, contact) = kind.connect(receiver);
    let client = client(TIMEOUT);
    let context = DeliveryContext { previous: Some("C1 17.2"), ..context(&client) };
    let receipt = contact.send(&notification("a1b2", 2), &context).await.unwrap();
    assert_eq!(receipt.message_id.as_deref(), Some("C1 18.0"));
    let paths: Vec<String> =
        receiver.take_requests().into_iter().map(|request| request.path).collect();
    // This receiver takes no pictures.
    let expected = ["/api/files.getUploadURLExternal", "/api/chat.update", "/api/chat.postMessage"];
    assert_eq!(paths, expected);
}

pub(crate) fn mail_contact_settings(receiver: &MailReceiver, keys: &str) -> String {
    let port = receiver.address.port();
    format!(
        "[[contact]]\nname = 'm'\nkind = 'email'\nserver = 'localhost:{port}'\n\
         from = 'topdeck@example.com'\nto = ['eve@example.org', 'bob@example.org']\n{keys}\n"
    )
}

pub(crate) fn mail_contact(receiver: &MailReceiver, keys: &str) -> AnyContact {
    contacts(&mail_contact_settings(receiver, keys)).remove(0).contact
}

#[tokio::test]
async fn mail_knows_whether_its_message_arrived() {
    let receiver = MailReceiver::start(None).await;
    let contact = mail_contact(&receiver, "security = 'none'");
    for fault in FAULTS {
        receiver.set_fault(fault);
        let result = send(&contact, &notification("a1b2", 1), &client(timeout(fault))).await;
        let expected = match fault {
            ReceiverFault::None | ReceiverFault::SlowAnswer => Verdict::Delivered,
            ReceiverFault::RateLimit | ReceiverFault::ServerError => Verdict::Temporary(None),
            ReceiverFault::Silence | ReceiverFault::Reset => Verdict::Unconfirmed,
            ReceiverFault::NotOk | ReceiverFault::BadRequest => Verdict::Permanent,
        };
        assert_eq!(Verdict::of(&result), expected, "{fault:?}: {result:?}");
    }
    assert_eq!(receiver.take_messages().len(), FAULTS.len() - 2);
    drop(receiver);
    tokio::task::yield_now().await;
    let result = send(&contact, &notification("a1b2", 1), &client(TIMEOUT)).await;
    assert_eq!(Verdict::of(&result), Verdict::Temporary(None));
}

/// Parts of a multipart body: content type and decoded content.
fn mail_parts(text: &str) -> Vec<(String, Vec<u8>)> {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let head = head.replace("\r\n ", " ");
    let header = |name: &str| {
        let line = head.lines().find(|line| line.starts_with(name));
        line.map(|line| line[name.len() + 2..].to_owned()).unwrap_or_default()
    };
    let kind = header("Content-Type");
    let Some(boundary) = kind.split("boundary=\"").nth(1).and_then(|rest| rest.split('"').next())
    else {
        assert_eq!(header("Content-Transfer-Encoding"), "base64");
        let body = body.replace("\r\n", "");
        let kind = kind.split(';').next().unwrap().to_owned();
        return vec![(kind, STANDARD.decode(body).unwrap())];
    };
    let body = format!("\r\n{body}");
    let (body, _) = body.split_once(&format!("\r\n--{boundary}--")).unwrap();
    let separator = format!("\r\n--{boundary}\r\n");
    body.split(&separator).skip(1).flat_map(mail_parts).collect()
}

#[tokio::test]
async fn a_mail_has_text_html_and_the_picture_inline() {
    let receiver = MailReceiver::start(None).await;
    let contact = mail_contact(&receiver, "security = 'none'");
    send(&contact, &notification("a1b2", 1), &client(TIMEOUT)).await.unwrap();
    let mail = receiver.take_messages().remove(0);
    assert_eq!(mail.from, "topdeck@example.com");
    assert_eq!(mail.to, ["eve@example.org", "bob@example.org"]);
    assert!(mail.text.contains("\r\nSubject: [Severity 1] CheckoutSlow\r\n"));
    let parts = mail_parts(&mail.text);
    let kinds: Vec<&str> = parts.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["text/plain", "text/html", "image/png"]);
    let text = String::from_utf8(parts[0].1.clone()).unwrap();
    assert!(text.contains("value 310.0 ms (300.0 to 320.0 ms), threshold 250 ms"), "{text}");
    let html = String::from_utf8(parts[1].1.clone()).unwrap();
    assert!(html.contains("<img src=\"cid:picture\"") && html.contains("12,031 requests"));
    assert_eq!(parts[2].1, b"\x89PNG\r\n\x1a\npicture");
}

/// Certificate of `localhost`, as files that are removed with the value.
struct CertificateDir(PathBuf);

impl CertificateDir {
    fn new() -> CertificateDir {
        let dir = std::env::temp_dir().join(format!("topdeck-notify-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(dir.join("certificate"), made.cert.pem()).unwrap();
        std::fs::write(dir.join("key"), made.signing_key.serialize_pem()).unwrap();
        CertificateDir(dir)
    }

    fn acceptor(&self) -> TlsAcceptor {
        let (certificate, key) = (self.0.join("certificate"), self.0.join("key"));
        let tls = ServerTls { certificate, key, client_ca: None };
        let mut config = tls.config().unwrap();
        config.alpn_protocols.clear();
        std::sync::Arc::new(config).into()
    }
}

impl Drop for CertificateDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_password_is_sent_after_starttls_only() {
    let files = CertificateDir::new();
    let keys = "user = 'me'\npassword = 'secret'";
    let tls = ClientTls { ca: Some(files.0.join("certificate")), ..ClientTls::default() };
    let client = HttpClient::new(tls, TIMEOUT);

    let receiver = MailReceiver::start(Some(files.acceptor())).await;
    let contact = mail_contact(&receiver, keys);
    send(&contact, &notification("a1b2", 1), &client).await.unwrap();
    let mail = receiver.take_messages().remove(0);
    assert!(mail.is_encrypted);
    assert_eq!(mail.credentials.as_deref(), Some("me:secret"));

    // An attacker removes STARTTLS from the response.
    let receiver = MailReceiver::start(None).await;
    let contact = mail_contact(&receiver, keys);
    let result = send(&contact, &notification("a1b2", 1), &client).await;
    assert_eq!(Verdict::of(&result), Verdict::Permanent);
    assert!(result.unwrap_err().to_string().contains("does not offer STARTTLS"));
}
