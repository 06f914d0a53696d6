//! Escalations: their steps, acknowledgements, restarts and handovers.

use std::sync::atomic::Ordering;

use notify::{NotifiedState, RoutedNotification};

use super::{ESCALATION, NotifierBench, delivered, ok, paths, team, wait_for};
use crate::alerts::SECOND_NS;
use crate::http_receiver::HttpReceiver;

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_stops_the_escalation_and_is_told_to_those_who_know() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let notifier = bench.start(&format!("{}{ESCALATION}", team(&receiver)));
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "step 1", |status| delivered(status, "eve") == 1);
    bench.advance(301);
    wait_for(&notifier, "step 2", |status| delivered(status, "hook") == 1);
    notifier.submit(bench.in_state("a", 2, NotifiedState::Acknowledged)).unwrap();
    wait_for(&notifier, "the acknowledgement", |status| {
        delivered(status, "eve") == 2 && delivered(status, "hook") == 2
    });
    bench.advance(3600);
    wait_for(&notifier, "another look", |status| {
        status.next_due_ns > Some(bench.clock.load(Ordering::Relaxed))
    });
    notifier.submit(bench.in_state("a", 3, NotifiedState::Resolved)).unwrap();
    bench.advance(301);
    wait_for(&notifier, "the end", |status| {
        delivered(status, "eve") == 3 && delivered(status, "hook") == 3
    });
    let mut sent = paths(&receiver.take_requests());
    sent.sort();
    let expected = [
        "/eve a/1 firing",
        "/eve a/2 acknowledged",
        "/eve a/3 resolved",
        "/hook a/1 firing",
        "/hook a/2 acknowledged",
        "/hook a/3 resolved",
    ];
    assert_eq!(sent, expected);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_moves_to_an_escalation_after_hours_begins_with_its_first_step() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let routes = ESCALATION.replace("receiver = 'pay'", "receiver = 'eve'")
        + "[[route.routes]]\nmatchers = ['severity=1']\nreceiver = 'pay'\n";
    let notifier = bench.start(&format!("{}{routes}", team(&receiver)));
    let with_severity = |transition, severity| {
        let mut notification = bench.firing("a", transition);
        notification.severity = severity;
        RoutedNotification::with_criterion_severity(notification)
    };
    notifier.submit(with_severity(1, 3)).unwrap();
    wait_for(&notifier, "the lesser contact", |status| delivered(status, "eve") == 1);
    bench.advance(7200);
    notifier.submit(with_severity(2, 1)).unwrap();
    wait_for(&notifier, "step 1", |status| delivered(status, "eve") == 2);
    bench.advance(200);
    wait_for(&notifier, "the time of step 2", |status| {
        status.next_due_ns > Some(bench.clock.load(Ordering::Relaxed))
    });
    assert_eq!(delivered(&notifier.status(), "hook"), 0);
    bench.advance(101);
    wait_for(&notifier, "step 2", |status| delivered(status, "hook") == 1);
    assert_eq!(delivered(&notifier.status(), "boss"), 0);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_contact_rejects_the_alert_is_skipped_at_once_with_a_warning() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(|message| match message.path.as_str() {
        "/eve" => (400, "bad"),
        _ => (200, ""),
    })
    .await;
    let notifier = bench.start(&format!("{}{ESCALATION}", team(&receiver)));
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "step 2", |status| delivered(status, "hook") == 1);
    let status = notifier.status();
    let expected = "escalation \"pay\" of a/1: no contact of step 1 is reachable; step 2 is made \
                    at once";
    wait_for(&notifier, "the warning", |status| !status.warnings.is_empty());
    assert_eq!(notifier.status().warnings[0].text, expected);
    assert_eq!(delivered(&status, "boss"), 0);
    assert_eq!(notifier.status().undelivered[0].contact, "eve");
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_with_the_escalation_and_a_handover_pages_nobody_again() {
    let bench = NotifierBench::new();
    // 100 s before the handover on 2023-11-20 at 9:00 UTC.
    bench.set_time(1_700_470_700 * SECOND_NS);
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ESCALATION}", team(&receiver));
    let notifier = bench.start(&settings);
    let alert = bench.firing("a", 1);
    notifier.submit(alert.clone()).unwrap();
    wait_for(&notifier, "step 1", |status| delivered(status, "eve") == 1);
    notifier.stop();
    bench.advance(200);
    let notifier = bench.start(&settings);
    notifier.submit(alert).unwrap();
    wait_for(&notifier, "the alert", |status| status.alerts == 1 && status.next_due_ns.is_some());
    bench.advance(101);
    wait_for(&notifier, "step 2", |status| delivered(status, "hook") == 1);
    assert_eq!(paths(&receiver.take_requests()), ["/eve a/1 firing", "/hook a/1 firing"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_state_after_a_handover_makes_no_step_early() {
    let bench = NotifierBench::new();
    // 100 s before the handover on 2023-11-20 at 9:00 UTC.
    bench.set_time(1_700_470_700 * SECOND_NS);
    let receiver = HttpReceiver::start(ok).await;
    let notifier = bench.start(&format!("{}{ESCALATION}", team(&receiver)));
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "step 1", |status| delivered(status, "eve") == 1);
    bench.advance(200);
    // Its group is not looked at yet when the escalation is.
    notifier.submit(bench.firing("a", 2)).unwrap();
    notifier.submit(bench.firing("b", 1)).unwrap();
    wait_for(&notifier, "a look", |status| status.alerts == 2);
    let status = notifier.status();
    assert_eq!((status.log.pending, status.warnings), (0, Vec::new()));
    bench.advance(101);
    wait_for(&notifier, "step 2", |status| delivered(status, "hook") == 1);
    wait_for(&notifier, "the news", |status| {
        delivered(status, "eve") == 2 && delivered(status, "bob") == 1
    });
    let mut sent = paths(&receiver.take_requests());
    sent.sort();
    let expected = ["/bob b/1 firing", "/eve a/1 firing", "/eve a/2 firing", "/hook a/2 firing"];
    assert_eq!(sent, expected);
    assert_eq!(notifier.status().warnings, Vec::new());
    notifier.stop();
}
