//! E-mail messages (RFC 5322, MIME): text, HTML and an inline picture.
//!
//! All parts are base64, so that no line is too long and every character is safe.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use net::signature::to_hex;

use crate::message::{MessageText, one_line};
use crate::notification::{Notification, Picture};

/// Bytes per encoded word, so that it has at most 75 characters (RFC 2047, section 2).
const ENCODED_WORD_BYTES: usize = 45;
/// Characters per line of base64 (RFC 2045, section 6.8).
const BASE64_LINE_CHARS: usize = 76;

/// Sender and receivers of a message.
pub(crate) struct MailAddresses<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a [String],
}

/// A message with CRLF line ends.
pub(crate) fn mail_message(
    addresses: &MailAddresses<'_>,
    notification: &Notification,
    text: &MessageText,
    now_ns: i64,
) -> String {
    let domain = addresses.from.rsplit('@').next().unwrap_or("topdeck");
    let key = notification.key.to_string();
    let now = jiff::Timestamp::from_nanosecond(now_ns.into()).unwrap_or_default();
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_string(&now);
    let mut mail = String::new();
    let mut header = |name: &str, value: &str| _ = write!(mail, "{name}: {value}\r\n");
    header("From", addresses.from);
    header("To", &addresses.to.join(",\r\n "));
    header("Subject", &encoded_words(&one_line(&text.title)));
    header("Date", &date.unwrap_or_default());
    header("Message-ID", &format!("<{}@{domain}>", short_hash(&key)));
    // The messages of an alert are one thread.
    let thread = format!("<{}@{domain}>", short_hash(&notification.key.alert_id));
    header("In-Reply-To", &thread);
    header("References", &thread);
    header("Auto-Submitted", "auto-generated");
    header("MIME-Version", "1.0");
    // A boundary is no line of base64: it contains "-" and "=".
    let boundary = format!("-={}", short_hash(&key));
    let picture = notification.sendable_picture();
    let content = match picture {
        None => alternatives(notification, text, None, &boundary),
        Some(picture) => with_picture(notification, text, picture, &boundary),
    };
    mail + &content
}

fn with_picture(
    notification: &Notification,
    text: &MessageText,
    picture: &Picture,
    boundary: &str,
) -> String {
    let outer = format!("{boundary}-outer");
    let inner = alternatives(notification, text, Some(picture), &format!("{boundary}-inner"));
    let png = base64_lines(&picture.png);
    format!(
        "Content-Type: multipart/related; boundary=\"{outer}\";\r\n \
         type=\"multipart/alternative\"\r\n\
         \r\n--{outer}\r\n{inner}\r\n--{outer}\r\n\
         Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\
         Content-ID: <picture>\r\nContent-Disposition: inline; filename=\"picture.png\"\r\n\
         \r\n{png}\r\n--{outer}--\r\n"
    )
}

fn alternatives(
    notification: &Notification,
    text: &MessageText,
    picture: Option<&Picture>,
    boundary: &str,
) -> String {
    let plain = part("text/plain", &text.long);
    let html = part("text/html", &html(notification, text, picture));
    format!(
        "Content-Type: multipart/alternative; boundary=\"{boundary}\"\r\n\
         \r\n--{boundary}\r\n{plain}\r\n--{boundary}\r\n{html}\r\n--{boundary}--\r\n"
    )
}

fn part(kind: &str, text: &str) -> String {
    let body = base64_lines(text.as_bytes());
    format!(
        "Content-Type: {kind}; charset=utf-8\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{body}"
    )
}

fn html(notification: &Notification, text: &MessageText, picture: Option<&Picture>) -> String {
    let mut html = String::from("<!DOCTYPE html><html><body style=\"font-family:sans-serif\">");
    _ = write!(html, "<h2>{}</h2>", escape_html(&text.title));
    if let Some(picture) = picture {
        _ = write!(html, "<p><img src=\"cid:picture\" alt=\"{}\"></p>", escape_html(&picture.alt));
    }
    for line in text.long.lines() {
        _ = write!(html, "<p>{}</p>", escape_html(line));
    }
    if let Some(link) = &notification.link {
        _ = write!(html, "<p><a href=\"{}\">View</a></p>", escape_html(link));
    }
    html + "</body></html>"
}

fn escape_html(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;").replace('\'', "&#39;")
}

/// A header value; one that is not short ASCII becomes encoded words (RFC 2047).
fn encoded_words(text: &str) -> String {
    if text.is_ascii() && text.len() <= 60 && !text.contains("=?") {
        return text.to_owned();
    }
    let mut words = vec![String::new()];
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if word.len() + c.len_utf8() <= ENCODED_WORD_BYTES => word.push(c),
            _ => words.push(c.to_string()),
        }
    }
    let words = words.iter().map(|word| format!("=?utf-8?B?{}?=", STANDARD.encode(word)));
    words.collect::<Vec<_>>().join("\r\n ")
}

fn base64_lines(bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    let mut lines = String::with_capacity(encoded.len() + encoded.len() / 30);
    for (at, c) in encoded.chars().enumerate() {
        if at > 0 && at % BASE64_LINE_CHARS == 0 {
            lines.push_str("\r\n");
        }
        lines.push(c);
    }
    lines
}

fn short_hash(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    to_hex(&digest.as_ref()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::render_message;
    use crate::notification::example_notification;

    fn example_mail(notification: &Notification) -> String {
        let to = ["eve@example.org".to_owned(), "bob@example.org".to_owned()];
        let addresses = MailAddresses { from: "topdeck@example.com", to: &to };
        let text = render_message(notification, false);
        mail_message(&addresses, notification, &text, notification.at_ns)
    }

    #[test]
    fn no_line_of_a_mail_is_too_long_and_no_label_adds_a_header() {
        let mut notification = example_notification();
        notification.name = format!("é{}\r\nBcc: all@example.org", "long ".repeat(300));
        notification.criterion = "x".repeat(5000);
        let mail = example_mail(&notification);
        assert!(!mail.contains("\nBcc:"));
        for line in mail.split("\r\n") {
            assert!(line.len() <= 98 && !line.contains(['\r', '\n']), "{line}");
        }
    }

    #[test]
    fn a_subject_with_umlauts_is_encoded() {
        assert_eq!(encoded_words("plain"), "plain");
        assert_eq!(encoded_words("ü"), "=?utf-8?B?w7w=?=");
        let long = encoded_words(&"ü".repeat(60));
        assert!(long.split("\r\n ").all(|word| word.len() <= 75), "{long}");
    }

    #[test]
    fn markup_in_a_label_stays_text() {
        let mut notification = example_notification();
        notification.name = "<script>".to_owned();
        let text = render_message(&notification, false);
        let html = html(&notification, &text, None);
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
    }

    #[test]
    fn a_repeat_has_the_same_message_id_and_states_of_an_alert_one_thread() {
        let header = |mail: &str, name: &str| {
            let found = mail.split("\r\n").find(|line| line.starts_with(name));
            found.unwrap_or_default().to_owned()
        };
        let first = example_notification();
        let mut second = first.clone();
        second.key.transition += 1;
        let (a, b) = (example_mail(&first), example_mail(&second));
        assert_eq!(header(&a, "Message-ID"), header(&example_mail(&first), "Message-ID"));
        assert_ne!(header(&a, "Message-ID"), header(&b, "Message-ID"));
        assert_eq!(header(&a, "References"), header(&b, "References"));
        assert_eq!(header(&a, "Date"), "Date: Tue, 14 Nov 2023 22:18:20 -0000");
    }
}
