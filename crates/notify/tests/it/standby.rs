//! Two sites with the same alerts and contacts: one holds its deliveries while the other sends.

use notify::{
    Notification, NotificationKey, NotifiedState, Notifier, NotifierError, OtherSiteDeliveries,
    SiteDelivery, label_fingerprint,
};

use crate::alerts::{SECOND_NS, START_NS};
use crate::http_receiver::HttpReceiver;
use crate::notifier::{
    ESCALATION, NotifierBench, ROUTE, delivered, ok, paths, team, texts, wait_for, webhook,
};

fn deliveries(primary: &Notifier) -> OtherSiteDeliveries {
    let mut other = OtherSiteDeliveries::default();
    let all = primary.deliveries_after(0).expect("it sends");
    all.into_iter().for_each(|delivery| other.add(delivery));
    other
}

/// The same alert as another site sees it, which evaluated the rule at another time.
fn elsewhere(notification: Notification) -> Notification {
    let NotificationKey { alert_id, transition, reminder } = notification.key;
    let (alert_id, transition) = (format!("{alert_id} south"), transition + 7);
    Notification {
        key: NotificationKey { alert_id, transition, reminder },
        at_ns: notification.at_ns + SECOND_NS,
        ..notification
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_other_site_delivered_is_not_repeated_and_its_end_is_told() {
    let (north, south) = (NotifierBench::new(), NotifierBench::new());
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let (primary, standby) = (north.start(&settings), south.start_held(&settings));
    for alert in ["a", "b"] {
        primary.submit(north.firing(alert, 1)).unwrap();
    }
    standby.submit(elsewhere(south.firing("a", 1))).unwrap();
    standby.submit(south.firing("b", 1)).unwrap();
    wait_for(&primary, "both alerts", |status| delivered(status, "hook") == 2);
    wait_for(&standby, "both alerts", |status| status.log.pending == 2);
    assert!(matches!(standby.deliveries_after(0), Err(NotifierError::Held)));
    let mut other = deliveries(&primary);
    assert_eq!(standby.settle(&mut other, START_NS).unwrap(), 2);
    assert_eq!(standby.settle(&mut other, START_NS).unwrap(), 0);
    assert_eq!(standby.status().log.pending, 0);
    primary.stop();
    south.advance(70);
    let end = Notification { state: NotifiedState::Resolved, ..elsewhere(south.firing("a", 2)) };
    standby.submit(end).unwrap();
    standby.submit(south.firing("c", 1)).unwrap();
    standby.release(i64::MIN);
    wait_for(&standby, "what is new", |status| delivered(status, "hook") == 2);
    let mut sent = texts(&receiver.take_requests());
    sent.sort();
    assert_eq!(sent, ["a south/9 resolved", "a/1 firing", "b/1 firing", "c/1 firing"]);
    standby.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_other_site_may_have_delivered_is_marked_as_a_repeat() {
    let south = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let standby = south.start_held(&settings);
    standby.submit(south.firing("a", 1)).unwrap();
    wait_for(&standby, "the alert", |status| status.log.pending == 1);
    south.advance(10);
    standby.release(START_NS + SECOND_NS);
    wait_for(&standby, "the alert", |status| delivered(status, "hook") == 1);
    standby.submit(south.firing("b", 1)).unwrap();
    wait_for(&standby, "the other alert", |status| delivered(status, "hook") == 2);
    let expected = ["a/1 firing repeat", "b/1 firing"];
    assert_eq!(texts(&receiver.take_requests()), expected);
    standby.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_came_and_went_while_the_other_site_sent_is_not_sent_later() {
    let south = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let standby = south.start_held(&settings);
    standby.submit(south.firing("a", 1)).unwrap();
    wait_for(&standby, "the alert", |status| status.log.pending == 1);
    south.advance(70);
    standby.submit(south.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    wait_for(&standby, "its end", |status| status.log.pending == 2);
    // The other site may still be about to send it.
    standby.settle(&mut OtherSiteDeliveries::default(), START_NS).unwrap();
    assert_eq!(standby.status().log.pending, 2);
    south.advance(121);
    // It did not answer when the alert began: nobody sent it.
    standby.settle(&mut OtherSiteDeliveries::default(), i64::MAX).unwrap();
    assert_eq!(standby.status().log.pending, 2);
    standby.settle(&mut OtherSiteDeliveries::default(), START_NS).unwrap();
    standby.release(i64::MIN);
    standby.submit(south.firing("b", 1)).unwrap();
    wait_for(&standby, "another alert", |status| delivered(status, "hook") == 1);
    assert_eq!(texts(&receiver.take_requests()), ["b/1 firing"]);
    let status = standby.status();
    assert_eq!((status.log.pending, status.undelivered), (0, Vec::new()));
    standby.stop();
}

/// Contacts and an escalation with steps at these minutes, each alert alone in its group.
fn escalation(receiver: &HttpReceiver, second: u32, third: u32) -> String {
    let settings = format!("{}{ESCALATION}", team(receiver));
    let settings = settings.replace("group_wait = '0s'", "group_wait = '0s'\ngroup_by = ['...']");
    let settings = settings.replace("'10min'", &format!("'{third}min'"));
    settings.replace("'5min'", &format!("'{second}min'"))
}

/// Waits until the router has looked at all alerts at the current time.
fn wait_for_look(bench: &NotifierBench, notifier: &Notifier, marker: &str) {
    let alerts = notifier.status().alerts;
    // An alert that nobody is told of while deliveries are held.
    notifier.submit(bench.firing(marker, 1)).unwrap();
    wait_for(notifier, "a look", |status| status.alerts == alerts + 1);
}

/// Finishes what a primary delivered to these contacts.
fn settle(standby: &Notifier, alert: &Notification, contacts: &[&str]) -> u64 {
    let mut other = OtherSiteDeliveries::default();
    let labels = alert.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let fingerprint = label_fingerprint(labels);
    for (number, contact) in (1..).zip(contacts) {
        other.add(SiteDelivery {
            number,
            contact: (*contact).to_owned(),
            key: alert.key.clone(),
            fingerprint: fingerprint.clone(),
            state: alert.state,
            at_ns: alert.at_ns,
        });
    }
    standby.settle(&mut other, START_NS).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_holds_makes_no_step_of_an_escalation_early() {
    let south = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let standby = south.start_held(&escalation(&receiver, 20, 30));
    standby.submit(south.firing("a", 1)).unwrap();
    wait_for(&standby, "step 1", |status| status.log.pending == 1);
    // The primary did not reach the first contact for long: that says nothing here.
    south.advance(19 * 60);
    wait_for_look(&south, &standby, "b");
    let status = standby.status();
    assert_eq!((status.log.pending, status.warnings), (2, Vec::new()), "step 1 of both alerts");
    south.advance(61);
    wait_for(&standby, "step 2 of the first alert", |status| status.log.pending == 3);
    assert_eq!(standby.status().warnings, Vec::new());
    assert_eq!(receiver.take_requests().len(), 0);
    standby.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_escalation_goes_on_at_the_step_that_is_due_when_the_primary_falls_silent() {
    let south = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let standby = south.start_held(&escalation(&receiver, 5, 20));
    let alert = south.firing("a", 1);
    standby.submit(alert.clone()).unwrap();
    wait_for(&standby, "step 1", |status| status.log.pending == 1);
    // The primary makes the first step, and is dead when the second one is due.
    assert_eq!(settle(&standby, &alert, &["eve"]), 1);
    south.advance(301);
    wait_for(&standby, "step 2", |status| status.log.pending == 1);
    south.advance(450);
    standby.release(i64::MIN);
    wait_for(&standby, "step 2", |status| delivered(status, "hook") == 1);
    wait_for_look(&south, &standby, "b");
    wait_for(&standby, "step 1 of another alert", |status| delivered(status, "eve") == 1);
    let status = standby.status();
    assert_eq!((status.log.pending, status.warnings), (0, Vec::new()));
    // The third step counts from the first message, too: 20 min after it.
    south.advance(450);
    wait_for(&standby, "step 3", |status| delivered(status, "boss") == 1);
    let mut sent = paths(&receiver.take_requests());
    sent.sort();
    assert_eq!(sent[..3], ["/boss a/1 firing", "/eve b/1 firing", "/hook a/1 firing"]);
    standby.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_restarts_goes_on_with_an_escalation_from_its_first_message() {
    let south = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = escalation(&receiver, 5, 10);
    let standby = south.start_held(&settings);
    let alert = south.firing("a", 1);
    standby.submit(alert.clone()).unwrap();
    wait_for(&standby, "step 1", |status| status.log.pending == 1);
    assert_eq!(settle(&standby, &alert, &["eve"]), 1);
    south.advance(301);
    wait_for(&standby, "step 2", |status| status.log.pending == 1);
    assert_eq!(settle(&standby, &alert, &["hook"]), 1);
    standby.stop();
    south.advance(100);
    let standby = south.start_held(&settings);
    standby.submit(alert).unwrap();
    wait_for(&standby, "the alert", |status| status.alerts == 1 && status.next_due_ns.is_some());
    standby.release(i64::MIN);
    // 10 min after the first message.
    south.advance(200);
    wait_for(&standby, "step 3", |status| delivered(status, "boss") == 1);
    assert_eq!(paths(&receiver.take_requests()), ["/boss a/1 firing"]);
    standby.stop();
}
