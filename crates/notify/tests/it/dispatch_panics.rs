//! Panics while messages are composed: each costs one message, or what is due of one alert, and no
//! restart of the thread.

use notify::{NotifiedState, NotifierStatus};

use crate::http_receiver::HttpReceiver;
use crate::notifier::{NotifierBench, delivered, ok, reload, texts, wait_for, webhook};

/// Contacts `hook` and `second` get everything.
const ROUTES: &str = "[route]\nreceiver = 'hook'\ngroup_by = ['...']\ngroup_wait = '0s'\n\
                      group_interval = '1min'\n[[route.routes]]\nreceiver = 'hook'\n\
                      continue = true\n[[route.routes]]\nreceiver = 'second'\n";

fn settings(receiver: &HttpReceiver, routes: &str) -> String {
    format!("{}{}{routes}", webhook("hook", receiver, ""), webhook("second", receiver, ""))
}

fn both(status: &NotifierStatus) -> (u64, u64) {
    (delivered(status, "hook"), delivered(status, "second"))
}

fn sorted(receiver: &HttpReceiver) -> Vec<String> {
    let mut sent = texts(&receiver.take_requests());
    sent.sort();
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_composition_panics_costs_no_other_one() {
    let bench = NotifierBench::with_panics(&[("notify message hook a/1", u32::MAX)]);
    let receiver = HttpReceiver::start(ok).await;
    let notifier = bench.start(&settings(&receiver, ROUTES));
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the other contact", |status| both(status) == (0, 1));
    notifier.submit(bench.firing("b", 1)).unwrap();
    wait_for(&notifier, "the other alert", |status| both(status) == (1, 2));
    // Later looks at the group do not try it again.
    bench.advance(61);
    notifier.submit(bench.firing("c", 1)).unwrap();
    wait_for(&notifier, "a third alert", |status| both(status) == (2, 3));
    assert_eq!(bench.router_panics(), (1, 0));
    let status = notifier.status();
    let warnings: Vec<&str> = status.warnings.iter().map(|warning| warning.text.as_str()).collect();
    let expected = "the message to contact \"hook\" on alert a/1 is not sent: thrown at notify \
                    message hook a/1";
    assert_eq!(warnings, [expected]);
    // Its next state is another message: to those who know the alert.
    notifier.submit(bench.in_state("a", 2, NotifiedState::Acknowledged)).unwrap();
    wait_for(&notifier, "the next state", |status| both(status) == (2, 4));
    let expected =
        ["a/1 firing", "a/2 acknowledged", "b/1 firing", "b/1 firing", "c/1 firing", "c/1 firing"];
    assert_eq!(sorted(&receiver), expected);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_panics_in_its_group_keeps_no_other_from_its_contacts() {
    let bench = NotifierBench::with_panics(&[("notify group a/1", u32::MAX)]);
    let receiver = HttpReceiver::start(ok).await;
    let one_group = ROUTES.replace("group_by = ['...']\n", "");
    let notifier = bench.start(&settings(&receiver, &one_group));
    for alert in ["a", "b"] {
        notifier.submit(bench.firing(alert, 1)).unwrap();
    }
    // They may be in two looks at the group.
    wait_for(&notifier, "the panics of both contacts", |_| bench.router_panics().0 >= 2);
    bench.advance(61);
    wait_for(&notifier, "the other alert", |status| both(status) == (1, 1));
    notifier.submit(bench.firing("a", 2)).unwrap();
    bench.advance(61);
    wait_for(&notifier, "the next state", |status| both(status) == (2, 2));
    let expected = ["a/2 firing", "a/2 firing", "b/1 firing", "b/1 firing"];
    assert_eq!(sorted(&receiver), expected);
    assert_eq!(bench.router_panics().1, 0);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_an_escalation_that_panics_is_followed_by_the_next_one() {
    let bench = NotifierBench::with_panics(&[("notify escalation a/1", 1)]);
    let receiver = HttpReceiver::start(ok).await;
    let routes = "[[escalation]]\nname = 'team'\nsteps = [{ after = '0s', receivers = ['hook'] }, \
                  { after = '5min', receivers = ['second'] }]\n[route]\nreceiver = 'team'\n\
                  group_by = ['...']\ngroup_wait = '0s'\ngroup_interval = '1min'\n";
    let notifier = bench.start(&settings(&receiver, routes));
    notifier.submit(bench.firing("a", 1)).unwrap();
    // Nobody of the first step was reached: the second one is made at once.
    wait_for(&notifier, "the second step", |status| both(status) == (0, 1));
    notifier.submit(bench.firing("b", 1)).unwrap();
    wait_for(&notifier, "the other alert", |status| both(status) == (1, 1));
    assert_eq!(bench.router_panics(), (1, 0));
    assert_eq!(sorted(&receiver), ["a/1 firing", "b/1 firing"]);
    notifier.stop();
}

/// Each panic costs what the group would have done; the escalation is no part of that.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_before_the_first_step_does_not_keep_an_alert_from_its_escalation() {
    for point in ["notify duty team", "notify group a/1"] {
        let bench = NotifierBench::with_panics(&[(point, 1)]);
        let receiver = HttpReceiver::start(ok).await;
        let routes = "[[escalation]]\nname = 'team'\nsteps = [{ after = '0s', receivers = \
                      ['hook'] }, { after = '5min', receivers = ['second'] }]\n[route]\n\
                      receiver = 'team'\ngroup_by = ['...']\ngroup_wait = '0s'\n\
                      group_interval = '1min'\n";
        let notifier = bench.start(&settings(&receiver, routes));
        notifier.submit(bench.firing("a", 1)).unwrap();
        wait_for(&notifier, "the first step", |status| both(status) == (1, 0));
        bench.advance(301);
        wait_for(&notifier, "the second step", |status| both(status) == (1, 1));
        assert_eq!(bench.router_panics(), (1, 0), "{point}");
        assert_eq!(sorted(&receiver), ["a/1 firing", "a/1 firing"]);
        notifier.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_panics_costs_no_state_of_another_alert() {
    let bench = NotifierBench::with_panics(&[("notify state a/2", u32::MAX)]);
    let receiver = HttpReceiver::start(ok).await;
    let notifier = bench.start(&settings(&receiver, ROUTES));
    for alert in ["a", "b"] {
        notifier.submit(bench.firing(alert, 1)).unwrap();
    }
    wait_for(&notifier, "both alerts", |status| both(status) == (2, 2));
    for alert in ["a", "b"] {
        notifier.submit(bench.in_state(alert, 2, NotifiedState::Acknowledged)).unwrap();
    }
    wait_for(&notifier, "the other state", |status| both(status) == (3, 3));
    assert_eq!(bench.router_panics(), (1, 0));
    assert_eq!(sorted(&receiver)[4..], ["b/2 acknowledged", "b/2 acknowledged"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_panics_keeps_no_other_from_its_contacts_and_is_sent_at_its_next_look() {
    let bench = NotifierBench::with_panics(&[("notify receiver hook", 1)]);
    let receiver = HttpReceiver::start(ok).await;
    let notifier = bench.start(&settings(&receiver, ROUTES));
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the other group", |status| both(status) == (0, 1));
    bench.advance(61);
    wait_for(&notifier, "the next look", |status| both(status) == (1, 1));
    assert_eq!(bench.router_panics(), (1, 0));
    assert_eq!(sorted(&receiver), ["a/1 firing", "a/1 firing"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_panics_at_a_reload_costs_no_other_one() {
    let bench = NotifierBench::with_panics(&[("notify reload a/1", 1)]);
    let receiver = HttpReceiver::start(ok).await;
    let before = ROUTES.replace("group_wait = '0s'", "group_wait = '1h'");
    let mut notifier = bench.start(&settings(&receiver, &before));
    for alert in ["a", "b"] {
        notifier.submit(bench.firing(alert, 1)).unwrap();
    }
    wait_for(&notifier, "both alerts", |status| status.alerts == 2);
    reload(&mut notifier, &settings(&receiver, ROUTES));
    wait_for(&notifier, "the other alert", |status| both(status) == (1, 1));
    assert_eq!(bench.router_panics(), (1, 0));
    assert_eq!(sorted(&receiver), ["b/1 firing", "b/1 firing"]);
    notifier.stop();
}
