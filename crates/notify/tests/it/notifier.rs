//! The notifier: threads, receivers on the loopback interface, a simulated disk, and a clock that
//! the tests set.

mod escalations;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use disk::Disk;
use journal::Supervisor;
use notify::{
    Notification, NotificationKey, NotifiedState, Notifier, NotifierOptions, NotifierStatus,
    NotifySettings,
};
use sim::SimDisk;
use toml::de::DeTable;

use crate::alerts::{SECOND_NS, START_NS, name_templates, notification};
use crate::http_receiver::{HttpMessage, HttpReceiver, ReceiverFault};

/// How long a test waits for something that happens; it fails afterwards.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node's part around a notifier.
pub(crate) struct NotifierBench {
    disk: SimDisk,
    clock: Arc<AtomicI64>,
    supervisor: Supervisor,
    log: Arc<Mutex<Vec<String>>>,
}

impl NotifierBench {
    pub(crate) fn new() -> NotifierBench {
        let disk = SimDisk::new(1);
        disk.process().create_dir(Path::new("/data")).unwrap();
        NotifierBench {
            disk,
            clock: Arc::new(AtomicI64::new(START_NS)),
            supervisor: Supervisor::default(),
            log: Arc::default(),
        }
    }

    /// A bench whose notifier panics the first times that points are reached.
    pub(crate) fn with_panics(points: &[(&str, u32)]) -> NotifierBench {
        let supervisor = Supervisor::with_injected_panics(points);
        NotifierBench { supervisor, ..NotifierBench::new() }
    }

    /// Panics and restarts of the router.
    pub(crate) fn router_panics(&self) -> (u64, u64) {
        (self.supervisor.panics("notify"), self.supervisor.restarts("notify"))
    }

    fn options(&self) -> NotifierOptions {
        let (clock, log) = (Arc::clone(&self.clock), Arc::clone(&self.log));
        NotifierOptions {
            disk: Arc::new(self.disk.process()),
            dir: PathBuf::from("/data/alerts"),
            settings_dir: PathBuf::from("/"),
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            supervisor: self.supervisor.clone(),
            log: Arc::new(move |_, line: &str| log.lock().unwrap().push(line.to_owned())),
            tls: Default::default(),
            templates: name_templates(),
            pictures: None,
            limits: Default::default(),
            is_held: false,
        }
    }

    pub(crate) fn start(&self, settings: &str) -> Notifier {
        Notifier::start(read(settings), self.options()).unwrap()
    }

    /// As [`NotifierBench::start`], with its deliveries held.
    pub(crate) fn start_held(&self, settings: &str) -> Notifier {
        let options = NotifierOptions { is_held: true, ..self.options() };
        Notifier::start(read(settings), options).unwrap()
    }

    pub(crate) fn set_time(&self, at_ns: i64) {
        self.clock.store(at_ns, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.clock.fetch_add(seconds * SECOND_NS, Ordering::Relaxed);
    }

    /// An alert that fires now.
    pub(crate) fn firing(&self, alert_id: &str, transition: u64) -> Notification {
        let mut notification = notification(alert_id, transition);
        notification.at_ns = self.clock.load(Ordering::Relaxed);
        notification.since_ns = notification.at_ns;
        notification.name = format!("Alert {alert_id}");
        notification.labels.insert("alert".to_owned(), alert_id.to_owned());
        notification
    }

    pub(crate) fn in_state(
        &self,
        alert_id: &str,
        transition: u64,
        state: NotifiedState,
    ) -> Notification {
        Notification { state, ..self.firing(alert_id, transition) }
    }
}

/// Lets a notifier use other settings.
#[track_caller]
pub(crate) fn reload(notifier: &mut Notifier, settings: &str) {
    notifier.reload(read(settings), &name_templates(), None).unwrap();
}

#[track_caller]
fn read(settings: &str) -> NotifySettings {
    let root = DeTable::parse(settings).unwrap().into_inner();
    NotifySettings::read(&root, Path::new("/")).unwrap()
}

#[track_caller]
fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
pub(crate) fn wait_for(notifier: &Notifier, what: &str, is_true: impl Fn(&NotifierStatus) -> bool) {
    wait_until(what, || is_true(&notifier.status()));
}

pub(crate) fn delivered(status: &NotifierStatus, contact: &str) -> u64 {
    status.contacts.iter().find(|one| one.name == contact).map_or(0, |one| one.delivered)
}

/// "Alert a: firing 1" of each webhook message: name, state, transition, reminder, repeat.
pub(crate) fn texts(messages: &[HttpMessage]) -> Vec<String> {
    let text = |message: &HttpMessage| {
        let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
        let own = &body["topdeck"];
        let repeat = if own["mayBeDuplicate"] == true { " repeat" } else { "" };
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        format!("{} {}{repeat}", text(&own["key"]), text(&own["state"]))
    };
    messages.iter().map(text).collect()
}

pub(crate) fn ok(_message: &HttpMessage) -> (u16, &'static str) {
    (200, "")
}

pub(crate) fn webhook(name: &str, receiver: &HttpReceiver, more: &str) -> String {
    let address = receiver.address;
    format!("[[contact]]\nname = '{name}'\nkind = 'webhook'\nurl = 'http://{address}/'\n{more}\n")
}

pub(crate) const ROUTE: &str =
    "[route]\nreceiver = 'hook'\ngroup_by = ['...']\ngroup_wait = '0s'\ngroup_interval = '1min'\n";

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_sent_when_it_fires_reminded_of_and_resolved() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}repeat_interval = '1h'\n", webhook("hook", &receiver, ""));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "firing", |status| delivered(status, "hook") == 1);
    // The same state again is no news.
    notifier.submit(bench.firing("a", 1)).unwrap();
    bench.advance(3700);
    wait_for(&notifier, "a reminder", |status| delivered(status, "hook") == 2);
    bench.advance(70);
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    bench.advance(70);
    wait_for(&notifier, "resolved", |status| delivered(status, "hook") == 3);
    wait_for(&notifier, "forgotten", |status| status.alerts == 0 && status.groups == 0);
    let expected = ["a/1 firing", "a/1/1 firing", "a/2 resolved"];
    assert_eq!(texts(&receiver.take_requests()), expected);
    notifier.stop();
}

/// `alsoFiring` was empty: each alert is a group of its own, and two alerts of a rule have one
/// name.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_names_what_else_fires() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let notifier = bench.start(&format!("{}{ROUTE}", webhook("hook", &receiver, "")));
    let named = |id: &str, transition: u64, state: NotifiedState, name: &str| {
        let state = bench.in_state(id, transition, state);
        Notification { name: name.to_owned(), ..state }
    };
    let mut sent = 0;
    let mut next_others = async |notification: Notification| {
        notifier.submit(notification).unwrap();
        sent += 1;
        wait_for(&notifier, "a message", |status| delivered(status, "hook") == sent);
        let messages = receiver.take_requests();
        let body: serde_json::Value = serde_json::from_slice(&messages[0].body).unwrap();
        let list = body["topdeck"]["alsoFiring"].as_array().unwrap().clone();
        list.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (firing, acknowledged) = (NotifiedState::Firing, NotifiedState::Acknowledged);
    assert!(next_others(named("a", 1, firing, "DiskFull")).await.is_empty());
    assert_eq!(next_others(named("b", 1, firing, "CartErrors")).await, ["DiskFull"]);
    // The same rule on another host.
    assert_eq!(next_others(named("c", 1, firing, "DiskFull")).await, ["CartErrors", "DiskFull"]);
    assert_eq!(next_others(named("b", 2, acknowledged, "CartErrors")).await, ["DiskFull"]);
    bench.advance(70);
    let ended = named("a", 2, NotifiedState::Resolved, "DiskFull");
    assert_eq!(next_others(ended).await, ["CartErrors", "DiskFull"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_repeats_nothing_and_resolves_what_ended_meanwhile() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    notifier.submit(bench.firing("b", 1)).unwrap();
    wait_for(&notifier, "firing", |status| delivered(status, "hook") == 2);
    receiver.take_requests();
    notifier.stop();
    bench.advance(600);
    // The source submits what it knows.
    let notifier = bench.start(&settings);
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    notifier.submit(bench.firing("b", 1)).unwrap();
    notifier.submit(bench.firing("c", 1)).unwrap();
    wait_for(&notifier, "news", |status| delivered(status, "hook") == 2);
    let mut sent = texts(&receiver.take_requests());
    sent.sort();
    assert_eq!(sent, ["a/2 resolved", "c/1 firing"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_ends_right_after_a_restart_is_resolved_where_it_was_told() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "firing", |status| delivered(status, "hook") == 1);
    notifier.stop();
    // The group still waits when the alert ends.
    let notifier = bench.start(&settings.replace("'0s'", "'30s'"));
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the alert", |status| status.alerts == 1);
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    wait_for(&notifier, "resolved", |status| delivered(status, "hook") == 1);
    assert_eq!(texts(&receiver.take_requests()), ["a/1 firing", "a/2 resolved"]);
    notifier.stop();
}

/// The rules forget an alert 15 minutes after its end, by a clock that may have been set forward.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_its_source_has_forgotten_is_sent_after_a_restart() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "firing", |status| delivered(status, "hook") == 1);
    let is_routed = notifier.routing_waiter();
    // Its group is looked at a minute later.
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    assert!(is_routed(PATIENCE));
    notifier.stop();
    assert!(is_routed(Duration::ZERO));
    assert_eq!(texts(&receiver.take_requests()), ["a/1 firing"]);
    let notifier = bench.start(&settings);
    wait_for(&notifier, "resolved", |status| delivered(status, "hook") == 1);
    assert_eq!(texts(&receiver.take_requests()), ["a/2 resolved"]);
    wait_for(&notifier, "forgotten", |status| status.alerts == 0);
    notifier.stop();
}

/// An alert began anew before its end was sent: the end was lost with a kill.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_resolves_an_alert_that_another_one_replaced() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "firing", |status| delivered(status, "hook") == 1);
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    assert!(notifier.routing_waiter()(PATIENCE));
    notifier.stop();
    receiver.take_requests();
    let notifier = bench.start(&settings);
    // Other labels would be another group.
    let mut anew = bench.firing("b", 1);
    anew.labels = bench.firing("a", 1).labels;
    notifier.submit(anew).unwrap();
    wait_for(&notifier, "both", |status| delivered(status, "hook") == 2);
    let mut sent = texts(&receiver.take_requests());
    sent.sort();
    assert_eq!(sent, ["a/2 resolved", "b/1 firing"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_contact_delays_no_other_and_its_failover_hears_of_the_alert() {
    let bench = NotifierBench::new();
    let dead = HttpReceiver::start(ok).await;
    dead.set_fault(ReceiverFault::ServerError);
    let (hook, spare) = (HttpReceiver::start(ok).await, HttpReceiver::start(ok).await);
    let settings = [
        webhook("dead", &dead, "failover = 'spare'\nfailover_after = '1min'"),
        webhook("hook", &hook, ""),
        webhook("spare", &spare, ""),
        ROUTE.to_owned(),
        "[[route.routes]]\nreceiver = 'dead'\ncontinue = true\n".to_owned(),
        "[[route.routes]]\nreceiver = 'hook'\n".to_owned(),
    ];
    let notifier = bench.start(&settings.concat());
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the other contact", |status| delivered(status, "hook") == 1);
    wait_for(&notifier, "an error", |status| {
        status.contacts[0].last_error.as_ref().is_some_and(|error| error.text.contains("500"))
    });
    assert_eq!(spare.take_requests().len(), 0);
    bench.advance(61);
    wait_for(&notifier, "the failover", |status| delivered(status, "spare") == 1);
    assert_eq!(texts(&spare.take_requests()), ["a/1 firing"]);
    // It recovers.
    dead.set_fault(ReceiverFault::None);
    bench.advance(600);
    wait_for(&notifier, "the recovery", |status| delivered(status, "dead") == 1);
    assert_eq!(notifier.status().log.pending, 0);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_receiver_delays_no_other() {
    let bench = NotifierBench::new();
    let (silent, hook) = (HttpReceiver::start(ok).await, HttpReceiver::start(ok).await);
    silent.set_fault(ReceiverFault::Silence);
    let settings = [
        webhook("silent", &silent, ""),
        webhook("hook", &hook, ""),
        ROUTE.to_owned(),
        "[[route.routes]]\nreceiver = 'silent'\ncontinue = true\n".to_owned(),
        "[[route.routes]]\nreceiver = 'hook'\n".to_owned(),
    ];
    let notifier = bench.start(&settings.concat());
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_until("the request", || silent.request_count() == 1);
    // It is still waiting for the response.
    notifier.submit(bench.firing("b", 1)).unwrap();
    wait_for(&notifier, "the other contact", |status| delivered(status, "hook") == 2);
    assert_eq!(delivered(&notifier.status(), "silent"), 0);
    drop(notifier);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_shown_and_nothing_is_lost_when_there_is_space_again() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let notifier = bench.start(&settings);
    bench.disk.set_capacity(0);
    // It does not fit into the page that the file has.
    let notes = Some("x".repeat(20_000));
    notifier.submit(Notification { notes, ..bench.firing("a", 1) }).unwrap();
    wait_for(&notifier, "the error", |status| {
        status.error.as_ref().is_some_and(|error| error.text.starts_with("cannot write"))
    });
    assert_eq!(receiver.take_requests().len(), 0);
    bench.disk.set_capacity(1 << 30);
    bench.advance(10);
    wait_for(&notifier, "the delivery", |status| delivered(status, "hook") == 1);
    wait_for(&notifier, "no error", |status| status.error.is_none());
    assert_eq!(texts(&receiver.take_requests()), ["a/1 firing"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_panics_is_restarted_and_the_alert_arrives() {
    let mut bench = NotifierBench::new();
    bench.supervisor = Supervisor::with_injected_panics(&[("notify", 2), ("contact hook", 1)]);
    let receiver = HttpReceiver::start(ok).await;
    let notifier = bench.start(&format!("{}{ROUTE}", webhook("hook", &receiver, "")));
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_until("the alert", || receiver.request_count() == 1);
    wait_until("the panics", || {
        bench.supervisor.panics("notify") == 2 && bench.supervisor.panics("contact hook") == 1
    });
    assert_eq!(texts(&receiver.take_requests()), ["a/1 firing"]);
    notifier.stop();
}

#[test]
fn two_notifiers_do_not_use_one_directory() {
    let bench = NotifierBench::new();
    let first = bench.start("");
    let error = Notifier::start(NotifySettings::default(), bench.options()).unwrap_err();
    let expected = "cannot use /data/alerts: another process uses it; stop that process";
    assert_eq!(error.to_string(), expected);
    first.stop();
    assert!(Notifier::start(NotifySettings::default(), bench.options()).is_ok());
}

pub(crate) const ESCALATION: &str = "
[route]
receiver = 'pay'
group_wait = '0s'

[[escalation]]
name = 'pay'
steps = [
  { after = '0s', receivers = ['primary'] },
  { after = '5min', receivers = ['hook'] },
  { after = '10min', receivers = ['boss'] },
]

[[rotation]]
name = 'primary'
members = ['eve', 'bob']
start = '2023-11-13T09:00'
shift = '1w'
";

/// Contacts `eve`, `bob`, `hook` and `boss`, whose paths are their names.
pub(crate) fn team(receiver: &HttpReceiver) -> String {
    let address = receiver.address;
    let contact = |name| {
        format!("[[contact]]\nname = '{name}'\nkind = 'webhook'\nurl = 'http://{address}/{name}'\n")
    };
    ["eve", "bob", "hook", "boss"].map(contact).concat()
}

pub(crate) fn paths(messages: &[HttpMessage]) -> Vec<String> {
    let all = messages.iter().zip(texts(messages));
    all.map(|(message, text)| format!("{} {text}", message.path)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_alerts_and_gives_up_deliveries_to_a_removed_contact() {
    let bench = NotifierBench::new();
    let (hook, gone) = (HttpReceiver::start(ok).await, HttpReceiver::start(ok).await);
    gone.set_fault(ReceiverFault::ServerError);
    let both = [
        webhook("hook", &hook, ""),
        webhook("gone", &gone, ""),
        ROUTE.to_owned(),
        "[[route.routes]]\nreceiver = 'gone'\ncontinue = true\n".to_owned(),
        "[[route.routes]]\nreceiver = 'hook'\n".to_owned(),
    ];
    let mut notifier = bench.start(&both.concat());
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the error", |status| {
        delivered(status, "hook") == 1 && status.contacts[1].failed == 1
    });
    let settings = read(&format!("{}{ROUTE}", webhook("hook", &hook, "")));
    notifier.reload(settings, &name_templates(), None).unwrap();
    let status = notifier.status();
    assert_eq!((status.log.pending, status.contacts.len()), (0, 1));
    assert_eq!(status.undelivered[0].reason, "the contact is no longer configured");
    notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
    bench.advance(61);
    wait_for(&notifier, "the end", |status| delivered(status, "hook") == 2);
    assert_eq!(texts(&hook.take_requests()), ["a/1 firing", "a/2 resolved"]);
    notifier.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_are_sent_at_their_interval_while_the_router_works() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let url = format!("http://{}/beat", receiver.address);
    let settings = format!("[[contact]]\nname = 'beat'\nkind = 'heartbeat'\nurl = '{url}'\n");
    let notifier = bench.start(&settings);
    wait_for(&notifier, "the first beat", |status| delivered(status, "beat") == 1);
    bench.advance(50);
    wait_for(&notifier, "the router", |status| status.contacts.len() == 1);
    bench.advance(10);
    wait_for(&notifier, "the second beat", |status| delivered(status, "beat") == 2);
    notifier.stop();
    assert_eq!(receiver.take_requests().len(), 2);
}

#[test]
fn an_alert_is_not_accepted_after_the_stop_and_a_key_orders_states() {
    let bench = NotifierBench::new();
    let notifier = bench.start("");
    let reader = notifier.status_reader();
    notifier.submit(bench.firing("a", 2)).unwrap();
    let old = NotificationKey { transition: 1, ..bench.firing("a", 2).key };
    notifier.submit(Notification { key: old, ..bench.firing("a", 1) }).unwrap();
    wait_until("the alert", || reader().alerts == 1);
    notifier.stop();
    assert_eq!(reader().alerts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_step_of_an_hour_neither_loses_nor_repeats_a_message() {
    for step_s in [3600, -3600] {
        let bench = NotifierBench::new();
        let receiver = HttpReceiver::start(ok).await;
        let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
        let notifier = bench.start(&settings);
        notifier.submit(bench.firing("a", 1)).unwrap();
        wait_for(&notifier, "firing", |status| delivered(status, "hook") == 1);
        bench.advance(step_s);
        notifier.submit(bench.firing("b", 1)).unwrap();
        wait_for(&notifier, "another alert", |status| delivered(status, "hook") == 2);
        bench.advance(70);
        notifier.submit(bench.in_state("a", 2, NotifiedState::Resolved)).unwrap();
        bench.advance(70);
        wait_for(&notifier, "resolved", |status| delivered(status, "hook") == 3);
        let expected = ["a/1 firing", "b/1 firing", "a/2 resolved"];
        assert_eq!(texts(&receiver.take_requests()), expected, "{step_s}");
        notifier.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_of_a_contact_make_its_texts_and_one_that_fails_loses_no_message() {
    let bench = NotifierBench::new();
    let receiver = HttpReceiver::start(ok).await;
    let templates = "title = 'SHOP: NAME'\ntext = '!'\n";
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, templates));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_for(&notifier, "the message", |status| delivered(status, "hook") == 1);
    let body: serde_json::Value =
        serde_json::from_slice(&receiver.take_requests()[0].body).unwrap();
    assert_eq!(body["topdeck"]["title"], "SHOP: Alert a");
    let text = body["topdeck"]["text"].as_str().unwrap();
    assert!(text.contains("threshold 250 ms"), "{text}");
    let status = notifier.status();
    let note = &status.contacts[0].attempts[0].note;
    assert_eq!(note, "template of the text: it failed; the default text is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_whose_routing_panics_keeps_no_other_from_its_contact() {
    let mut bench = NotifierBench::new();
    bench.supervisor = Supervisor::with_injected_panics(&[("notify submit", 1)]);
    let receiver = HttpReceiver::start(ok).await;
    let settings = format!("{}{ROUTE}", webhook("hook", &receiver, ""));
    let notifier = bench.start(&settings);
    notifier.submit(bench.firing("a", 1)).unwrap();
    wait_until("the panic", || bench.supervisor.panics("notify") == 1);
    notifier.submit(bench.firing("b", 1)).unwrap();
    wait_for(&notifier, "the other alert", |status| delivered(status, "hook") == 1);
    assert_eq!(texts(&receiver.take_requests()), ["b/1 firing"]);
    assert_eq!(bench.supervisor.restarts("notify"), 0);
}
