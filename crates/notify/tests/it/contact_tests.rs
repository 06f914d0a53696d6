//! `topdeck contacts test` of each kind of contact: what the receiver gets.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use net::tls::ClientTls;
use notify::{ConfiguredContact, ContactTest};

use crate::alerts::{NameTemplates, START_NS, contacts};
use crate::contact_faults::{HTTP_KINDS, HttpKind, mail_contact_settings};
use crate::http_receiver::{HttpMessage, HttpReceiver, ReceiverFault};
use crate::mail_receiver::MailReceiver;
use crate::schemas;

const LINK: &str = "https://topdeck.example/#/alerts";

/// Sends a test. The texts of the contact are templates.
async fn test(contact: &ConfiguredContact) -> Result<Vec<String>, String> {
    let test = ContactTest::new(contact, &NameTemplates, Some(LINK.to_owned()), START_NS);
    let sent = test.send(contact, ClientTls::default(), Path::new("/")).await;
    sent.map_err(|error| error.to_string())
}

async fn start(kind: &HttpKind) -> (HttpReceiver, ConfiguredContact) {
    let receiver = HttpReceiver::start(kind.answer).await;
    let text = match kind.kind {
        "heartbeat" => "",
        _ => "title = 'Is it NAME?'\n",
    };
    let settings = kind.settings(&receiver) + text;
    (receiver, contacts(&settings).remove(0))
}

fn text(request: &HttpMessage) -> String {
    let text = format!("{} {}", request.path, String::from_utf8_lossy(&request.body));
    percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// Where a part begins and ends.
fn position(bytes: &[u8], begin: &[u8], end: &[u8]) -> Option<(usize, usize)> {
    let find = |from: usize, part: &[u8]| {
        let at = bytes.get(from..)?.windows(part.len()).position(|found| found == part)?;
        Some(from + at)
    };
    let begin_at = find(0, begin)?;
    Some((begin_at, find(begin_at + begin.len(), end)? + end.len()))
}

/// The request as the schemas expect it of an alert: with their picture and alert in place of its
/// own.
fn as_of_alert(kind: &str, request: &HttpMessage) -> HttpMessage {
    let mut request = request.clone();
    if kind == "opsgenie" {
        request.path = request.path.replace("test%2Dc%2D1700000000000", "a1b2");
    }
    let base64 = format!("image/png;base64,{}\"", STANDARD.encode(schemas::PNG));
    let length = format!("&length={}&", schemas::PNG.len());
    let parts: [(&[u8], &[u8], &[u8]); 3] = [
        (b"\x89PNG", b"IEND\xaeB`\x82", schemas::PNG),
        (b"image/png;base64,", b"\"", base64.as_bytes()),
        (b"&length=", b"&", length.as_bytes()),
    ];
    for (begin, end, known) in parts {
        if let Some((from, to)) = position(&request.body, begin, end) {
            request.body.splice(from..to, known.iter().copied());
        }
    }
    request
}

/// Words of the messages that tell a service the state of an alert.
fn states(kind: &str) -> &'static [&'static str] {
    match kind {
        "opsgenie" => &["/v2/alerts {", "/close?"],
        "pagerduty" => &["\"trigger\"", "\"resolve\""],
        "victorops" => &["\"INFO\"", "\"RECOVERY\""],
        _ => &[""],
    }
}

#[tokio::test]
async fn each_contact_gets_a_message_that_fits_its_schema_and_says_that_it_is_a_test() {
    for kind in HTTP_KINDS {
        let (receiver, contact) = start(kind).await;
        assert_eq!(test(&contact).await, Ok(Vec::new()), "{}", kind.kind);
        let requests = receiver.take_requests();
        requests.iter().for_each(|request| (kind.schema)(&as_of_alert(kind.kind, request)));
        if kind.kind == "heartbeat" {
            assert_eq!(requests.len(), 1);
            continue;
        }
        let texts: Vec<String> = requests.iter().map(text).collect();
        let title = "Is it Test of contact c?";
        assert!(texts.iter().any(|text| text.contains(title)), "{}: {texts:#?}", kind.kind);
        assert!(texts.iter().any(|text| text.contains(LINK)), "{}: {texts:#?}", kind.kind);
        // What is opened is closed again, in this order.
        let mut rest = texts.iter();
        for state in states(kind.kind) {
            assert!(rest.any(|text| text.contains(state)), "{}: {state}: {texts:#?}", kind.kind);
        }
    }
}

#[tokio::test]
async fn a_test_that_is_rejected_says_where_and_why() {
    for kind in HTTP_KINDS {
        let (receiver, contact) = start(kind).await;
        receiver.set_fault(ReceiverFault::BadRequest);
        let error = test(&contact).await.unwrap_err();
        let address = receiver.address.to_string();
        assert!(error.contains(&address) && error.contains("400"), "{}: {error}", kind.kind);
        assert!(error.contains("invalid payload"), "{}: {error}", kind.kind);
    }
}

#[tokio::test]
async fn a_test_mail_has_the_text_and_a_picture() {
    let receiver = MailReceiver::start(None).await;
    let settings = mail_contact_settings(&receiver, "security = 'none'\ntitle = 'Is it NAME?'");
    assert_eq!(test(&contacts(&settings)[0]).await, Ok(Vec::new()));
    let mail = receiver.take_messages().remove(0).text;
    assert!(mail.contains("\r\nSubject: Is it Test of contact m?\r\n"), "{mail}");
    assert!(mail.contains("Content-Type: image/png"), "{mail}");
}
