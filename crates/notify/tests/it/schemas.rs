//! Schemas of the receivers' messages, from their documentation: fields, types and limits. A field
//! that is not documented is an error.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http_receiver::HttpMessage;

/// Type of a field with its limit.
#[derive(Clone, Copy, Debug)]
enum FieldType {
    /// At most this many characters.
    Text(usize),
    /// At most this many bytes.
    Bytes(usize),
    /// One of these texts.
    Word(&'static [&'static str]),
    /// RFC 3339.
    Time,
    Url,
    Integer(i64, i64),
    Boolean,
    Null,
    /// Texts by name.
    Texts,
    /// Any object.
    Object,
    /// Any array.
    Array,
}

use FieldType::*;

/// Name, type, and whether it is required.
type FieldRule = (&'static str, FieldType, bool);

#[track_caller]
fn check_fields(value: &Value, rules: &[FieldRule]) {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    for (name, kind, is_required) in rules {
        match object.get(*name) {
            Some(value) => assert!(is_valid(value, *kind), "{name}: {kind:?}: {value}"),
            None => assert!(!is_required, "{name} is missing: {value}"),
        }
    }
    for name in object.keys() {
        assert!(rules.iter().any(|(known, ..)| known == name), "undocumented field {name}");
    }
}

fn is_valid(value: &Value, kind: FieldType) -> bool {
    let text = value.as_str();
    match kind {
        Text(max) => text.is_some_and(|text| text.chars().count() <= max),
        Bytes(max) => text.is_some_and(|text| text.len() <= max),
        Word(words) => text.is_some_and(|text| words.contains(&text)),
        Time => text.is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()),
        Url => text.is_some_and(|text| text.starts_with("https://") || text.is_empty()),
        Integer(min, max) => value.as_i64().is_some_and(|number| (min..=max).contains(&number)),
        Boolean => value.is_boolean(),
        Null => value.is_null(),
        Texts => value.as_object().is_some_and(|all| all.values().all(Value::is_string)),
        Object => value.is_object(),
        Array => value.is_array(),
    }
}

#[track_caller]
pub(crate) fn json(request: &HttpMessage) -> Value {
    assert_eq!(request.method, "POST");
    assert_eq!(request.headers["content-type"], "application/json");
    serde_json::from_slice(&request.body).unwrap()
}

/// The only element of an array.
#[track_caller]
fn only(value: &Value) -> &Value {
    let all = value.as_array().unwrap_or_else(|| panic!("no array: {value}"));
    assert_eq!(all.len(), 1, "{value}");
    &all[0]
}

/// Alertmanager, `template/template.go`.
#[track_caller]
pub(crate) fn check_webhook(request: &HttpMessage) {
    let body = json(request);
    let status = Word(&["firing", "resolved"]);
    let reasons = Word(&[
        "first notification",
        "new alerts added",
        "some alerts resolved",
        "all alerts resolved",
        "repeat interval elapsed",
        "none",
        "unknown",
    ]);
    check_fields(
        &body,
        &[
            ("version", Word(&["4"]), true),
            ("groupKey", Text(usize::MAX), true),
            ("truncatedAlerts", Integer(0, 0), true),
            ("status", status, true),
            ("receiver", Text(usize::MAX), true),
            ("groupLabels", Texts, true),
            ("commonLabels", Texts, true),
            ("commonAnnotations", Texts, true),
            ("routeLabels", Texts, true),
            ("externalURL", Url, true),
            ("notification_reason", reasons, true),
            ("alerts", Array, true),
            ("topdeck", Object, true),
        ],
    );
    let alert = only(&body["alerts"]);
    check_fields(
        alert,
        &[
            ("status", status, true),
            ("labels", Texts, true),
            ("annotations", Texts, true),
            ("startsAt", Time, true),
            ("endsAt", Time, true),
            ("generatorURL", Url, true),
            ("fingerprint", Text(16), true),
        ],
    );
    assert_eq!(alert["labels"]["alertname"], body["groupLabels"]["alertname"]);
    let fingerprint = alert["fingerprint"].as_str().unwrap();
    assert!(fingerprint.len() == 16 && u64::from_str_radix(fingerprint, 16).is_ok());
    assert!(!request.headers["idempotency-key"].is_empty());
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"hush");
    let expected = ring::hmac::sign(&key, &request.body);
    let expected = format!("sha256={}", net::signature::to_hex(expected.as_ref()));
    assert_eq!(request.headers["x-topdeck-signature-256"], expected);
}

/// PagerDuty, Events API v2.
#[track_caller]
pub(crate) fn check_pagerduty(request: &HttpMessage) {
    assert_eq!(request.path, "/v2/enqueue");
    assert!(request.body.len() <= 512_000, "{} bytes", request.body.len());
    let body = json(request);
    check_fields(
        &body,
        &[
            ("routing_key", Text(32), true),
            ("event_action", Word(&["trigger", "acknowledge", "resolve"]), true),
            ("dedup_key", Text(255), true),
            ("client", Text(usize::MAX), false),
            ("client_url", Url, false),
            ("links", Array, false),
            ("images", Array, false),
            ("payload", Object, true),
        ],
    );
    check_fields(
        &body["payload"],
        &[
            ("summary", Text(1024), true),
            ("source", Text(usize::MAX), true),
            ("severity", Word(&["critical", "error", "warning", "info"]), true),
            ("timestamp", Time, false),
            ("component", Text(usize::MAX), false),
            ("group", Text(usize::MAX), false),
            ("class", Text(usize::MAX), false),
            ("custom_details", Object, false),
        ],
    );
    check_fields(only(&body["links"]), &[("href", Url, true), ("text", Text(1024), false)]);
    if body.get("images").is_some() {
        let image = only(&body["images"]);
        check_fields(
            image,
            &[("src", Url, true), ("href", Url, false), ("alt", Text(1024), false)],
        );
    }
}

/// Slack, message attachments.
#[track_caller]
fn check_slack_message(body: &Value, other: &[FieldRule]) {
    let rules = [&[("text", Text(40_000), true), ("attachments", Array, true)], other].concat();
    check_fields(body, &rules);
    let attachments = body["attachments"].as_array().unwrap();
    if let [_, picture] = &attachments[..] {
        let rules = [
            ("color", Text(7), true),
            ("fallback", Text(usize::MAX), false),
            ("blocks", Array, true),
        ];
        check_fields(picture, &rules);
        let block = only(&picture["blocks"]);
        let rules = [
            ("type", Word(&["image"]), true),
            ("slack_file", Object, true),
            ("alt_text", Text(2000), true),
        ];
        check_fields(block, &rules);
        check_fields(&block["slack_file"], &[("id", Word(&["F1"]), true)]);
    }
    assert!((1..=2).contains(&attachments.len()), "{body}");
    check_fields(
        &attachments[0],
        &[
            ("color", Text(7), false),
            ("title", Text(1024 + 1024), false),
            ("title_link", Url, false),
            ("text", Text(40_000), false),
            ("fallback", Text(usize::MAX), false),
            ("fields", Array, false),
            ("footer", Text(300), false),
            ("ts", Integer(0, i64::MAX), false),
        ],
    );
}

#[track_caller]
pub(crate) fn check_slack_webhook(request: &HttpMessage) {
    check_slack_message(&json(request), &[]);
}

/// Fields of a form as of a page.
#[track_caller]
fn url_encoded_fields(text: &str) -> BTreeMap<String, String> {
    let field = |text: &str| {
        let (name, value) = text.split_once('=').expect("a value");
        let value = percent_encoding::percent_decode_str(value).decode_utf8().unwrap();
        (name.to_owned(), value.into_owned())
    };
    text.split('&').map(field).collect()
}

/// Slack, methods of files whose arguments are a form.
#[track_caller]
fn check_slack_form(request: &HttpMessage, expected: &[&str]) {
    assert_eq!(request.headers["content-type"], "application/x-www-form-urlencoded");
    let fields = url_encoded_fields(std::str::from_utf8(&request.body).unwrap());
    assert_eq!(fields.keys().collect::<Vec<_>>(), expected);
    if let Some(length) = fields.get("length") {
        assert_eq!(length, &PNG.len().to_string());
        assert!(fields["alt_txt"].chars().count() <= 1000);
    }
}

/// Slack, `chat.postMessage` and `chat.update`, and the upload of a picture.
#[track_caller]
pub(crate) fn check_slack_api(request: &HttpMessage) {
    if request.path.starts_with("/upload/") {
        assert_eq!((request.method.as_str(), &request.body[..]), ("POST", PNG));
        assert!(!request.headers.contains_key("authorization"), "the token is for the API only");
        return;
    }
    assert_eq!(request.headers["authorization"], "Bearer xoxb-1");
    let channel = ("channel", Text(80), true);
    match request.path.as_str() {
        "/api/files.getUploadURLExternal" => {
            return check_slack_form(request, &["alt_txt", "filename", "length"]);
        }
        "/api/files.info" => return check_slack_form(request, &["file"]),
        _ => {}
    }
    let body = json(request);
    match request.path.as_str() {
        "/api/chat.postMessage" => check_slack_message(
            &body,
            &[channel, ("thread_ts", Text(20), false), ("reply_broadcast", Boolean, false)],
        ),
        "/api/files.completeUploadExternal" => {
            check_fields(&body, &[("files", Array, true)]);
            let rules = [("id", Word(&["F1"]), true), ("title", Text(1000), false)];
            check_fields(only(&body["files"]), &rules);
        }
        "/api/chat.update" => check_slack_message(&body, &[channel, ("ts", Text(20), true)]),
        other => panic!("unexpected method {other}"),
    }
}

/// ntfy, "Attach local file".
#[track_caller]
fn check_ntfy_picture(request: &HttpMessage) {
    assert_eq!(request.method, "PUT");
    assert_eq!(request.body, PNG);
    let parameters = request.path.strip_prefix("/alerts?").expect("the topic");
    let fields = url_encoded_fields(parameters);
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["click", "filename", "message", "priority", "tags", "title"]);
    assert_eq!(fields["filename"], "picture.png");
    assert!(fields["title"].chars().count() <= 250 && fields["message"].len() <= 4096);
    assert!((1..=5).contains(&fields["priority"].parse::<u8>().unwrap()));
}

/// ntfy, "Publish as JSON", or with a picture.
#[track_caller]
pub(crate) fn check_ntfy(request: &HttpMessage) {
    assert_eq!(request.headers["authorization"], "Bearer tk");
    if request.method != "POST" {
        return check_ntfy_picture(request);
    }
    assert_eq!(request.path, "/");
    check_fields(
        &json(request),
        &[
            ("topic", Text(64), true),
            ("title", Text(250), false),
            ("message", Bytes(4096), false),
            ("priority", Integer(1, 5), false),
            ("tags", Array, false),
            ("click", Url, false),
        ],
    );
}

/// Fields of a form with a picture: name, and content.
#[track_caller]
fn form_fields(request: &HttpMessage) -> Vec<(String, Vec<u8>)> {
    let kind = &request.headers["content-type"];
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").expect("a form");
    // Each byte is a character.
    let body: String = request.body.iter().map(|byte| char::from(*byte)).collect();
    let body = format!("\r\n{body}");
    let (body, end) = body.split_once(&format!("\r\n--{boundary}--\r\n")).expect("an end");
    assert_eq!(end, "");
    let separator = format!("\r\n--{boundary}\r\n");
    let field = |part: &str| {
        let (head, content) = part.split_once("\r\n\r\n").expect("a head");
        let name = head.strip_prefix("Content-Disposition: form-data; name=\"").expect("a name");
        let (name, more) = name.split_once('"').expect("its end");
        let expected = match name {
            "payload_json" => "\r\nContent-Type: application/json",
            "photo" | "files[0]" | "file" => {
                "; filename=\"picture.png\"\r\nContent-Type: image/png"
            }
            _ => "",
        };
        assert_eq!(more, expected, "{name}");
        (name.to_owned(), content.chars().map(|c| u8::try_from(c).unwrap()).collect())
    };
    body.split(&separator).skip(1).map(field).collect()
}

/// The picture of the notifications of the tests.
pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\npicture";

/// Telegram, `sendPhoto`.
#[track_caller]
fn check_telegram_photo(request: &HttpMessage) {
    let fields = form_fields(request);
    let text = |at: usize| (fields[at].0.as_str(), std::str::from_utf8(&fields[at].1).unwrap());
    assert_eq!(text(0), ("chat_id", "-100"));
    let ("caption", caption) = text(1) else { panic!("{fields:?}") };
    assert!((1..=1024).contains(&caption.encode_utf16().count()), "{caption}");
    assert!(matches!(text(2), ("disable_notification", "true" | "false")), "{fields:?}");
    assert_eq!(text(3), ("message_thread_id", "7"));
    assert_eq!(fields[4..], [("photo".to_owned(), PNG.to_vec())]);
}

/// Telegram, `sendMessage` or `sendPhoto`.
#[track_caller]
pub(crate) fn check_telegram(request: &HttpMessage) {
    if request.path == "/bot123:abc/sendPhoto" {
        return check_telegram_photo(request);
    }
    assert_eq!(request.path, "/bot123:abc/sendMessage");
    let body = json(request);
    check_fields(
        &body,
        &[
            ("chat_id", Integer(i64::MIN, i64::MAX), true),
            ("message_thread_id", Integer(1, i64::MAX), false),
            ("text", Text(4096), true),
            ("disable_notification", Boolean, false),
        ],
    );
    assert!(body["text"].as_str().unwrap().encode_utf16().count() <= 4096);
}

/// Discord, "Execute Webhook", with or without a picture.
#[track_caller]
pub(crate) fn check_discord(request: &HttpMessage) {
    assert_eq!(request.path, "/hook?wait=true");
    let has_picture = request.headers["content-type"].starts_with("multipart/");
    let body = match has_picture {
        false => json(request),
        true => {
            let fields = form_fields(request);
            assert_eq!(fields[0].0, "payload_json");
            assert_eq!(fields[1..], [("files[0]".to_owned(), PNG.to_vec())]);
            serde_json::from_slice(&fields[0].1).unwrap()
        }
    };
    check_fields(
        &body,
        &[
            ("content", Text(2000), false),
            ("embeds", Array, false),
            ("allowed_mentions", Object, false),
            ("attachments", Array, has_picture),
        ],
    );
    assert_eq!(body["allowed_mentions"]["parse"], Value::Array(Vec::new()));
    let embed = only(&body["embeds"]);
    check_fields(
        embed,
        &[
            ("title", Text(256), false),
            ("description", Text(4096), false),
            ("url", Url, false),
            ("timestamp", Time, false),
            ("color", Integer(0, 0xff_ff_ff), false),
            ("image", Object, has_picture),
        ],
    );
    assert_eq!(embed.get("image").is_some(), has_picture);
    if has_picture {
        assert_eq!(embed["image"]["url"], "attachment://picture.png");
        let attachment = only(&body["attachments"]);
        check_fields(
            attachment,
            &[
                ("id", Integer(0, 0), true),
                ("filename", Word(&["picture.png"]), true),
                ("description", Text(1024), false),
            ],
        );
    }
}

/// Microsoft Teams, Adaptive Card of a workflow.
#[track_caller]
pub(crate) fn check_teams(request: &HttpMessage) {
    assert!(request.body.len() <= 28_000, "{} bytes", request.body.len());
    let body = json(request);
    check_fields(&body, &[("type", Word(&["message"]), true), ("attachments", Array, true)]);
    let attachment = only(&body["attachments"]);
    let card_type = "application/vnd.microsoft.card.adaptive";
    check_fields(
        attachment,
        &[("contentUrl", Null, true), ("content", Object, true), ("contentType", Text(99), true)],
    );
    assert_eq!(attachment["contentType"], card_type);
    let content = &attachment["content"];
    check_fields(
        content,
        &[
            ("$schema", Text(99), true),
            ("type", Word(&["AdaptiveCard"]), true),
            ("version", Word(&["1.2"]), true),
            ("body", Array, true),
            ("actions", Array, false),
            ("msteams", Object, false),
        ],
    );
    let colors = Word(&["default", "dark", "light", "accent", "good", "warning", "attention"]);
    for block in content["body"].as_array().unwrap() {
        if block["type"] == "Image" {
            let rules = [
                ("type", Word(&["Image"]), true),
                ("url", Text(usize::MAX), true),
                ("altText", Text(1000), false),
                ("size", Word(&["Stretch"]), false),
            ];
            check_fields(block, &rules);
            let url = block["url"].as_str().unwrap();
            assert!(url.starts_with("data:image/png;base64,"), "{url}");
            continue;
        }
        check_fields(
            block,
            &[
                ("type", Word(&["TextBlock"]), true),
                ("text", Text(usize::MAX), true),
                ("weight", Word(&["Bolder"]), false),
                ("size", Word(&["Medium"]), false),
                ("style", Word(&["heading"]), false),
                ("color", colors, false),
                ("wrap", Boolean, false),
            ],
        );
    }
    check_fields(
        only(&content["actions"]),
        &[("type", Word(&["Action.OpenUrl"]), true), ("title", Text(99), true), ("url", Url, true)],
    );
}

/// Splunk On-Call, REST endpoint.
#[track_caller]
pub(crate) fn check_victorops(request: &HttpMessage) {
    assert_eq!(request.path, "/integrations/generic/20131114/alert/key/team%20a");
    let kinds = Word(&["CRITICAL", "WARNING", "ACKNOWLEDGEMENT", "INFO", "RECOVERY"]);
    check_fields(
        &json(request),
        &[
            ("message_type", kinds, true),
            ("entity_id", Text(512), false),
            ("entity_display_name", Text(usize::MAX), false),
            ("state_message", Text(20_480), false),
            ("state_start_time", Integer(0, i64::MAX), false),
            ("monitoring_tool", Text(99), false),
        ],
    );
}

/// Opsgenie, Alert API.
#[track_caller]
pub(crate) fn check_opsgenie(request: &HttpMessage) {
    assert_eq!(request.headers["authorization"], "GenieKey key");
    if request.path == "/v2/alerts/requests/r1" {
        assert_eq!((request.method.as_str(), request.body.len()), ("GET", 0));
        return;
    }
    if request.path == "/v2/alerts/alert%207/attachments" {
        assert_eq!(form_fields(request), [("file".to_owned(), PNG.to_vec())]);
        return;
    }
    let body = json(request);
    if request.path != "/v2/alerts" {
        let is_action = ["close", "acknowledge"]
            .iter()
            .any(|action| request.path == format!("/v2/alerts/a1b2/{action}?identifierType=alias"));
        assert!(is_action, "{}", request.path);
        return check_fields(&body, &[("source", Text(100), false), ("note", Text(25_000), false)]);
    }
    check_fields(
        &body,
        &[
            ("alias", Text(512), false),
            ("message", Text(130), true),
            ("description", Text(15_000), false),
            ("details", Texts, false),
            ("source", Text(100), false),
            ("responders", Array, false),
            ("priority", Word(&["P1", "P2", "P3", "P4", "P5"]), false),
            ("entity", Text(512), false),
        ],
    );
}

/// Twilio, "Create a Message".
#[track_caller]
pub(crate) fn check_twilio(request: &HttpMessage) {
    assert_eq!(request.path, "/2010-04-01/Accounts/AC1/Messages.json");
    assert_eq!(request.headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(request.headers["authorization"], "Basic QUMxOnRvaw==");
    let form = std::str::from_utf8(&request.body).unwrap();
    let field = |name: &str| {
        let value = form.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let text = percent_encoding::percent_decode_str(value.unwrap()).decode_utf8().unwrap();
        text.into_owned()
    };
    assert_eq!((field("To").as_str(), field("From").as_str()), ("+4930123", "+1555"));
    assert!((1..=1600).contains(&field("Body").chars().count()));
}

#[track_caller]
pub(crate) fn check_heartbeat(request: &HttpMessage) {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/ping"));
    assert!(request.body.is_empty());
}
