//! Two sites with the same alerts and contacts: one holds its deliveries while the other sends.

use notify::{
    Notification, NotificationKey, NotifiedState, Notifier, NotifierError, OtherSiteDeliveries,
};

use crate::alerts::{SECOND_NS, START_NS};
use crate::http_receiver::HttpReceiver;
use crate::notifier::{NotifierBench, ROUTE, delivered, ok, texts, wait_for, webhook};

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
