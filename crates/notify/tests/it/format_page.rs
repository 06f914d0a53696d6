//! The example of `docs/formats/deliveries.md` is as written, and the page documents each record.

use notify::{
    AlertImpact, AttemptVerdict, DELIVERY_LOG_VERSION, DeliveryRecord, NotificationKey,
    NotifiedState, Picture,
};

use crate::alerts::{START_NS, notification};

const PAGE: &str = include_str!("../../../../docs/formats/deliveries.md");

fn records() -> Vec<DeliveryRecord> {
    let mut notification = notification("a1b2", 3);
    notification.picture = Some(Picture { png: b"PNG".to_vec(), alt: "latency".to_owned() });
    notification.impact = AlertImpact { requests: Some(12_031), users: None };
    notification.annotations.clear();
    let mut end = notification.clone();
    (end.state, end.key.transition, end.picture) = (NotifiedState::Resolved, 4, None);
    let (at_ns, key) = (START_NS, NotificationKey { reminder: 0, ..notification.key.clone() });
    let (contact, message_id) = ("on call".to_owned(), Some("C1 17.2".to_owned()));
    let note = "title cut from 300 to 256 characters".to_owned();
    vec![
        DeliveryRecord::Finished {
            contact: contact.clone(),
            key: NotificationKey { transition: 2, ..key },
            at_ns,
            verdict: AttemptVerdict::Delivered,
            message_id,
            note,
        },
        DeliveryRecord::Due { id: 7, at_ns, contact, notification: notification.into() },
        DeliveryRecord::Progress {
            id: 7,
            attempts: 2,
            unknown_outcomes: 1,
            next_ns: at_ns,
            has_failed_over: false,
            note: "timed out".to_owned(),
        },
        DeliveryRecord::Attempt { id: 7, at_ns, is_idempotent: true },
        DeliveryRecord::Outcome {
            id: 7,
            at_ns,
            verdict: AttemptVerdict::Retry,
            is_unknown: false,
            next_ns: at_ns + 5,
            failover: Some((8, "sms".to_owned())),
            message_id: None,
            note: "429".to_owned(),
        },
        DeliveryRecord::Ended { at_ns, notification: end.into() },
    ]
}

#[test]
fn the_page_shows_a_log_as_written() {
    let lines: String = records().iter().map(DeliveryRecord::encode).collect();
    let expected = format!("topdeck deliveries {DELIVERY_LOG_VERSION}\n{lines}");
    let shown = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    // The page wraps long lines with an indent.
    assert_eq!(shown.replace("\n    ", " "), expected, "\n{expected}");
}

#[test]
fn the_page_documents_each_keyword_with_all_its_values() {
    for record in records() {
        let line = record.encode();
        let words: Vec<&str> = line.trim_end().split(' ').skip(1).collect();
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{} ", words[0])));
        let row = row.unwrap_or_else(|| panic!("{} is not documented", words[0]));
        let shown = row.split('`').nth(1).unwrap().replace("NOTIFICATION", NOTIFICATION_WORDS);
        assert_eq!(shown.split(' ').count(), words.len(), "{shown}\n{line}");
    }
    for word in NOTIFICATION_WORDS.split(' ') {
        assert!(PAGE.contains(&format!("| {word} |")), "{word} is not documented");
    }
}

const NOTIFICATION_WORDS: &str = "ALERT TRANSITION REMINDER STATE SEVERITY NAME LABELS ANNOTATIONS \
    SINCE TIME CRITERION REQUESTS USERS UNIT THRESHOLD VALUE LINK NOTES OTHERS PICTURE";

#[test]
fn the_page_names_each_verdict() {
    for name in ["delivered", "retry", "rejected", "given-up"] {
        assert!(PAGE.contains(&format!("`{name}`")), "{name} is not documented");
    }
}
