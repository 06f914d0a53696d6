//! The log of deliveries without crashes: order, duplicates, retries, failover, limits.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use notify::{
    AnyContact, AttemptReport, AttemptVerdict, ConfiguredContact, Contact, ContactTemplates,
    DeliveryContext, DeliveryError, DeliveryLog, DeliveryLogError, DeliveryReceipt, KeyProblems,
    LogLimits, MessageComposition, MessageFacts, MessageTemplates, Notification, NotificationKey,
    Picture, TemplateSource, deliver_next, failover_chain,
};
use sim::{DiskOperation, Fault, FaultKind, SimDisk};

use crate::alerts::{COMPOSITION, SECOND_NS, START_NS, client, contacts, notification};
use crate::http_receiver::{HttpReceiver, ReceiverFault};

pub(crate) fn open(disk: &SimDisk, limits: LogLimits) -> DeliveryLog {
    DeliveryLog::open(Arc::new(disk.process()), Path::new("/data/alerts"), limits).unwrap()
}

/// A log, a contact of each kind of receiver, and a clock.
struct DeliveryBench {
    disk: SimDisk,
    log: Mutex<DeliveryLog>,
    receiver: HttpReceiver,
    contacts: Vec<ConfiguredContact>,
    now_ns: i64,
}

impl DeliveryBench {
    /// Replaces the log by one on another disk: its directory is free.
    fn close_log(&self) {
        *self.log.lock().unwrap() = open(&SimDisk::new(9), LogLimits::default());
    }

    /// The contact `hook` has no key, its failover `pager` has one.
    async fn start() -> DeliveryBench {
        let disk = SimDisk::new(1);
        let receiver = HttpReceiver::start(|request| match request.path.as_str() {
            "/v2/enqueue" => (202, r#"{"status": "success"}"#),
            _ => (200, ""),
        })
        .await;
        let url = format!("http://{}", receiver.address);
        let contacts = contacts(&format!(
            "[[contact]]\nname = 'hook'\nkind = 'webhook'\nurl = '{url}/hook'\nfailover = 'pager'\n\
             [[contact]]\nname = 'pager'\nkind = 'pagerduty'\nurl = '{url}'\nrouting_key = 'r'\n"
        ));
        let log = Mutex::new(open(&disk, LogLimits::default()));
        DeliveryBench { disk, log, receiver, contacts, now_ns: START_NS }
    }

    fn enqueue(&self, contact: &str, alert: &str, transition: u64) -> bool {
        let notification = notification(alert, transition);
        let names = failover_chain(&self.contacts, contact);
        self.log.lock().unwrap().enqueue(&names, &notification, self.now_ns).unwrap()
    }

    async fn attempt(&self, contact: usize) -> Option<AttemptReport> {
        let (client, now_ns) = (client(Duration::from_secs(60)), self.now_ns);
        let contact = &self.contacts[contact];
        deliver_next(&self.log, contact, &client, Path::new("/"), &|| now_ns, &COMPOSITION)
            .await
            .unwrap()
    }

    async fn verdict(&self, contact: usize) -> Option<AttemptVerdict> {
        self.attempt(contact).await.map(|report| report.verdict)
    }

    /// Keys of the messages since the last call.
    fn take_keys(&self) -> Vec<String> {
        let requests = self.receiver.take_requests();
        let key = |message: &crate::http_receiver::HttpMessage| {
            let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
            match body["topdeck"]["key"].as_str() {
                Some(key) => key.to_owned(),
                None => format!("pager {}", body["dedup_key"].as_str().unwrap()),
            }
        };
        requests.iter().map(key).collect()
    }
}

const HOOK: usize = 0;
const PAGER: usize = 1;

#[tokio::test]
async fn a_notification_is_sent_once_however_often_it_is_reported() {
    let bench = DeliveryBench::start().await;
    assert!(bench.enqueue("hook", "a", 1));
    assert!(!bench.enqueue("hook", "a", 1));
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
    assert!(!bench.enqueue("hook", "a", 1));
    assert_eq!(bench.verdict(HOOK).await, None);
    assert!(bench.enqueue("hook", "a", 2) && bench.enqueue("hook", "b", 1));
    assert!(!bench.enqueue("hook", "a", 1), "older than one that is pending");
    assert_eq!(bench.take_keys(), ["a/1"]);
}

#[tokio::test]
async fn resolved_does_not_overtake_firing() {
    let mut bench = DeliveryBench::start().await;
    bench.receiver.set_fault(ReceiverFault::ServerError);
    for (alert, transition) in [("a", 1), ("a", 2), ("b", 1)] {
        bench.enqueue("hook", alert, transition);
    }
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Retry));
    bench.receiver.set_fault(ReceiverFault::None);
    // The retry of the first is not due yet, and the other alert does not wait for it.
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
    assert_eq!(bench.verdict(HOOK).await, None);
    bench.now_ns += 6 * SECOND_NS;
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
    assert_eq!(bench.take_keys(), ["a/1", "b/1", "a/1", "a/2"]);
}

#[tokio::test]
async fn a_receiver_that_is_down_for_an_hour_gets_everything_and_the_failover_after_5_minutes() {
    let mut bench = DeliveryBench::start().await;
    bench.enqueue("hook", "a", 1);
    bench.receiver.set_fault(ReceiverFault::ServerError);
    let mut failover_at = None;
    while bench.now_ns < START_NS + 3600 * SECOND_NS {
        let report = bench.attempt(HOOK).await.unwrap();
        assert_eq!(report.verdict, AttemptVerdict::Retry);
        if let Some(failover) = report.failover {
            assert_eq!((failover.as_str(), failover_at), ("pager", None));
            failover_at = Some((bench.now_ns - START_NS) / SECOND_NS);
        }
        bench.now_ns = bench.log.lock().unwrap().next_due_ns("hook").unwrap();
    }
    assert_eq!(failover_at, Some(300));
    bench.receiver.set_fault(ReceiverFault::None);
    bench.take_keys();
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
    assert_eq!(bench.verdict(PAGER).await, Some(AttemptVerdict::Delivered));
    assert_eq!(bench.take_keys(), ["a/1", "pager a"]);
    assert_eq!(bench.log.lock().unwrap().summary().pending, 0);
}

#[tokio::test]
async fn a_rejected_notification_goes_to_the_failover_at_once_and_is_listed() {
    let bench = DeliveryBench::start().await;
    bench.enqueue("hook", "a", 1);
    bench.receiver.set_fault(ReceiverFault::BadRequest);
    let report = bench.attempt(HOOK).await.unwrap();
    assert_eq!(
        (report.verdict, report.failover.as_deref()),
        (AttemptVerdict::Rejected, Some("pager"))
    );
    bench.receiver.set_fault(ReceiverFault::None);
    assert_eq!(bench.verdict(PAGER).await, Some(AttemptVerdict::Delivered));
    let log = bench.log.lock().unwrap();
    let undelivered: Vec<_> = log.undelivered().collect();
    let key = NotificationKey { alert_id: "a".to_owned(), transition: 1, reminder: 0 };
    assert_eq!((undelivered[0].0, undelivered[0].1), ("hook", &key));
    assert!(undelivered[0].2.contains("responded 400"), "{undelivered:?}");
}

#[tokio::test]
async fn an_unconfirmed_message_is_repeated_once_and_marked() {
    let mut bench = DeliveryBench::start().await;
    bench.enqueue("hook", "a", 1);
    bench.receiver.set_fault(ReceiverFault::Reset);
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Retry));
    bench.now_ns += 6 * SECOND_NS;
    let report = bench.attempt(HOOK).await.unwrap();
    assert!(report.may_be_duplicate);
    assert_eq!(
        (report.verdict, report.failover.as_deref()),
        (AttemptVerdict::GivenUp, Some("pager"))
    );
    bench.now_ns += 3600 * SECOND_NS;
    assert_eq!(bench.verdict(HOOK).await, None);
    let requests = bench.receiver.take_requests();
    let marks: Vec<_> = requests
        .iter()
        .map(|request| crate::schemas::json(request)["topdeck"]["mayBeDuplicate"].clone())
        .collect();
    assert_eq!(marks, [false, true]);
}

#[tokio::test]
async fn a_receiver_with_a_key_is_repeated_until_it_confirms() {
    let mut bench = DeliveryBench::start().await;
    bench.enqueue("pager", "a", 1);
    bench.receiver.set_fault(ReceiverFault::Reset);
    for _ in 0..5 {
        let report = bench.attempt(PAGER).await.unwrap();
        assert_eq!((report.verdict, report.may_be_duplicate), (AttemptVerdict::Retry, false));
        bench.now_ns = bench.log.lock().unwrap().next_due_ns("pager").unwrap();
    }
    bench.receiver.set_fault(ReceiverFault::None);
    assert_eq!(bench.verdict(PAGER).await, Some(AttemptVerdict::Delivered));
}

#[tokio::test]
async fn a_clock_that_steps_back_an_hour_delays_no_retry() {
    let mut bench = DeliveryBench::start().await;
    bench.enqueue("hook", "a", 1);
    bench.receiver.set_fault(ReceiverFault::ServerError);
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Retry));
    bench.now_ns -= 3600 * SECOND_NS;
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Retry));
}

#[tokio::test]
async fn a_full_disk_sends_nothing_that_is_not_durable_and_recovers() {
    let bench = DeliveryBench::start().await;
    bench.enqueue("hook", "a", 1);
    let fault = |operation, path: &str| Fault {
        operation,
        path_contains: path.to_owned(),
        skip: 0,
        times: u64::MAX,
        kind: FaultKind::Os(28),
    };
    bench.disk.inject(fault(DiskOperation::Write, "deliveries"));
    let (client, contact) = (client(Duration::from_secs(60)), &bench.contacts[HOOK]);
    let now = || START_NS;
    let error =
        deliver_next(&bench.log, contact, &client, Path::new("/"), &now, &COMPOSITION).await;
    assert!(matches!(error, Err(DeliveryLogError::File(_))), "{error:?}");
    assert!(bench.take_keys().is_empty());
    bench.disk.clear_faults();
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
    assert_eq!(bench.take_keys(), ["a/1"]);
}

#[tokio::test]
async fn an_outcome_that_could_not_be_written_is_not_forgotten() {
    let bench = DeliveryBench::start().await;
    bench.enqueue("hook", "a", 1);
    bench.disk.inject(Fault {
        operation: DiskOperation::Sync,
        path_contains: "deliveries".to_owned(),
        skip: 1,
        times: 1,
        kind: FaultKind::Os(5),
    });
    let (client, contact) = (client(Duration::from_secs(60)), &bench.contacts[HOOK]);
    let now = || START_NS;
    deliver_next(&bench.log, contact, &client, Path::new("/"), &now, &COMPOSITION)
        .await
        .unwrap_err();
    assert_eq!(bench.verdict(HOOK).await, None);
    bench.enqueue("hook", "b", 1);
    bench.close_log();
    let log = open(&bench.disk, LogLimits::default());
    assert_eq!((log.summary().pending, log.next_due_ns("hook")), (1, Some(START_NS)));
    assert_eq!(bench.take_keys(), ["a/1"]);
}

#[test]
fn limits_have_names_and_the_file_stays_small() {
    let disk = SimDisk::new(1);
    let limits = LogLimits {
        pending_max: 20,
        bytes_max: 64 << 10,
        remembered_max: 5,
        compact_bytes_min: 4 << 10,
    };
    let mut log = open(&disk, limits);
    for alert in 0..20 {
        assert!(log.enqueue(&["c"], &notification(&format!("a{alert}"), 1), START_NS).unwrap());
    }
    let error = log.enqueue(&["c"], &notification("b", 1), START_NS).unwrap_err().to_string();
    assert!(error.contains("pending deliveries limit (20) reached"), "{error}");
    let limits = LogLimits { pending_max: 1000, ..limits };
    drop(log);
    let mut log = open(&disk, limits);
    let full = (0..1000).find_map(|alert| {
        log.enqueue(&["d"], &notification(&format!("x{alert}"), 1), START_NS).err()
    });
    let error = full.unwrap().to_string();
    assert!(error.contains("size limit (65536 bytes) reached"), "{error}");
    assert!(log.summary().bytes <= 64 << 10);
}

/// Pictures are 4 KiB each.
#[test]
fn pictures_leave_room_for_messages() {
    let limits = LogLimits { bytes_max: 256 << 10, ..LogLimits::default() };
    let mut log = open(&SimDisk::new(1), limits);
    let mut sizes = Vec::new();
    for alert in 0..60 {
        let mut notification = notification(&format!("a{alert}"), 1);
        notification.picture = Some(Picture { png: vec![7; 4 << 10], alt: String::new() });
        let before = log.summary().bytes;
        log.enqueue(&["mail"], &notification, START_NS).expect("there is room");
        sizes.push(log.summary().bytes - before);
    }
    let with_picture = sizes.iter().filter(|size| **size > 4 << 10).count();
    assert!((8..20).contains(&with_picture), "{sizes:?}");
    assert!(sizes[with_picture..].iter().all(|size| *size < 2 << 10), "{sizes:?}");
}

#[tokio::test]
async fn what_the_failover_contact_was_told_is_resolved_there_too() {
    let bench = DeliveryBench::start().await;
    bench.enqueue("hook", "a", 1);
    bench.enqueue("hook", "b", 1);
    bench.receiver.set_fault(ReceiverFault::BadRequest);
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Rejected));
    bench.receiver.set_fault(ReceiverFault::None);
    assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
    for alert in ["a", "b"] {
        assert!(bench.enqueue("hook", alert, 2));
        assert!(!bench.enqueue("hook", alert, 2));
    }
    while bench.verdict(HOOK).await.is_some() || bench.verdict(PAGER).await.is_some() {}
    let mut keys = bench.take_keys();
    keys.sort();
    assert_eq!(keys, ["a/1", "a/2", "b/1", "b/2", "pager a", "pager a"]);
}

#[tokio::test]
async fn an_alert_with_huge_labels_is_shortened_and_arrives() {
    let bench = DeliveryBench::start().await;
    let mut huge = crate::alerts::huge_notification();
    huge.key.alert_id = "huge".to_owned();
    assert!(bench.log.lock().unwrap().enqueue(&["hook"], &huge, START_NS).unwrap());
    bench.close_log();
    let log = Mutex::new(open(&bench.disk, LogLimits::default()));
    let (client, now) = (client(Duration::from_secs(60)), || START_NS);
    let contact = &bench.contacts[HOOK];
    let sent = deliver_next(&log, contact, &client, Path::new("/"), &now, &COMPOSITION)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(sent.verdict, AttemptVerdict::Delivered);
    let body = crate::schemas::json(&bench.receiver.take_requests()[0]);
    assert!(body["topdeck"]["notes"].as_str().unwrap().contains("exceeded 256 KiB"));
    assert!(body["alerts"][0]["labels"].as_object().unwrap().len() <= 51);
}

#[tokio::test]
async fn a_year_of_notifications_is_compacted() {
    let disk = SimDisk::new(1);
    let limits =
        LogLimits { remembered_max: 5, compact_bytes_min: 4 << 10, ..LogLimits::default() };
    let bench = DeliveryBench::start().await;
    let mut bench =
        DeliveryBench { disk: disk.clone(), log: Mutex::new(open(&disk, limits)), ..bench };
    for transition in 1..=100 {
        bench.now_ns += SECOND_NS;
        assert!(bench.enqueue("hook", &format!("a{}", transition % 20), transition));
        assert_eq!(bench.verdict(HOOK).await, Some(AttemptVerdict::Delivered));
        assert!(bench.log.lock().unwrap().summary().bytes < 10 << 10);
    }
    bench.close_log();
    let log = open(&disk, limits);
    assert!(log.summary().remembered <= 2 * 5 + 1, "{:?}", log.summary());
    assert_eq!(log.summary().pending, 0);
    // The newest are remembered.
    drop(log);
    let mut log = open(&disk, limits);
    assert!(!log.enqueue(&["hook"], &notification("a0", 100), START_NS).unwrap());
}

/// A contact whose message to the alert `bad` panics.
#[derive(Debug, serde::Deserialize)]
struct PanickingContact;

impl Contact for PanickingContact {
    const KIND: &'static str = "panicking";

    fn check(&self, _problems: &mut KeyProblems) {}

    fn host(&self) -> Option<String> {
        None
    }

    fn is_idempotent(&self, _notification: &Notification, _previous: Option<&str>) -> bool {
        true
    }

    async fn send(
        &self,
        notification: &Notification,
        _context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        // After it was polled once.
        tokio::task::yield_now().await;
        assert_ne!(notification.key.alert_id, "bad", "no text for it");
        Ok(DeliveryReceipt::default())
    }
}

#[derive(Debug)]
struct PanickingTemplates;

impl MessageTemplates for PanickingTemplates {
    fn expand(&self, _template: &str, _facts: &MessageFacts<'_>) -> Result<String, String> {
        panic!("no template");
    }
}

#[tokio::test]
async fn a_message_that_panics_costs_no_other_message_and_goes_to_the_failover() {
    let bench = DeliveryBench::start().await;
    let source = TemplateSource { text: "x".to_owned(), byte: 0 };
    let contact = ConfiguredContact {
        name: "hook".to_owned(),
        contact: AnyContact::new(PanickingContact),
        policy: bench.contacts[HOOK].policy.clone(),
        templates: ContactTemplates { title: Some(source), text: None },
    };
    bench.enqueue("hook", "bad", 1);
    bench.enqueue("hook", "good", 1);
    let mut reports = Vec::new();
    for _ in 0..2 {
        let (client, now_ns) = (client(Duration::from_secs(60)), bench.now_ns);
        let (log, dir, now) = (&bench.log, Path::new("/"), || now_ns);
        let composition = MessageComposition { templates: &PanickingTemplates, pictures: None };
        let report = deliver_next(log, &contact, &client, dir, &now, &composition).await;
        reports.push(report.unwrap().unwrap());
    }
    let verdicts: Vec<AttemptVerdict> = reports.iter().map(|report| report.verdict).collect();
    assert_eq!(verdicts, [AttemptVerdict::Rejected, AttemptVerdict::Delivered]);
    assert!(reports[0].note.contains("BUG: the message panicked: "), "{}", reports[0].note);
    assert_eq!(reports[0].failover.as_deref(), Some("pager"));
    let note = "BUG: a template panicked: no template; the default texts are sent";
    assert_eq!(
        (reports[1].note.as_str(), reports[1].panic.as_deref()),
        (note, Some("no template"))
    );
}
