//! The dispatcher and its log on a simulated disk, with a clock that steps and a process that is
//! killed, at each state of an alert.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disk::Disk;
use journal::Supervisor;
use sim::{SimDisk, SimProcess};
use toml::de::DeTable;

use super::{AlertDispatcher, DeliveryHold};
use crate::contact_settings::ConfiguredContact;
use crate::delivery::lock_log;
use crate::delivery_log::{DeliveryLog, LogLimits};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::notification::{Notification, NotifiedState, example_notification};
use crate::notify_settings::NotifySettings;

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_S: i64 = 3600;
/// How long the rules keep an alert that ended, by the wall clock.
const RETENTION_NS: i64 = 15 * 60 * SECOND_NS;
const SETTINGS: &str = "[[contact]]\nname = 'hook'\nkind = 'webhook'\nurl = 'http://h/'\n\
                        [route]\nreceiver = 'hook'\ngroup_by = ['...']\ngroup_wait = '30s'\n\
                        group_interval = '5min'\n";

/// States of an alert, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlertMoment {
    /// Its group waits for more alerts.
    Waiting,
    /// Its message is in the log.
    Due,
    /// The receiver answered 500.
    Refused,
    /// The message arrived.
    Told,
    Acknowledged,
    /// It ended, which its group sends at its next look.
    Ended,
}

const MOMENTS: [AlertMoment; 6] = [
    AlertMoment::Waiting,
    AlertMoment::Due,
    AlertMoment::Refused,
    AlertMoment::Told,
    AlertMoment::Acknowledged,
    AlertMoment::Ended,
];

/// A node with one alert, and its receiver.
struct SteppedNode {
    disk: SimDisk,
    process: SimProcess,
    contacts: Vec<ConfiguredContact>,
    dispatcher: AlertDispatcher,
    log: Mutex<DeliveryLog>,
    now_ns: i64,
    /// What the rules know of the alert.
    alert: Option<Notification>,
    received: Vec<String>,
}

fn dispatcher() -> (AlertDispatcher, Vec<ConfiguredContact>) {
    let root = DeTable::parse(SETTINGS).unwrap().into_inner();
    let settings = NotifySettings::read(&root, Path::new("/")).unwrap();
    let (receivers, routing) = settings.into_receivers();
    let contacts = receivers.contacts().to_vec();
    (AlertDispatcher::new(receivers, routing), contacts)
}

fn open(process: &SimProcess) -> DeliveryLog {
    let (disk, limits) = (Arc::new(process.clone()), LogLimits::default());
    DeliveryLog::open(disk, Path::new("/data/alerts"), limits).unwrap()
}

impl SteppedNode {
    fn new() -> SteppedNode {
        let disk = SimDisk::new(1);
        let process = disk.process();
        process.create_dir(Path::new("/data")).unwrap();
        let (dispatcher, contacts) = dispatcher();
        let log = Mutex::new(open(&process));
        let (now_ns, received) = (example_notification().at_ns, Vec::new());
        SteppedNode { disk, process, contacts, dispatcher, log, now_ns, alert: None, received }
    }

    /// The alert has a new state.
    fn submit(&mut self, state: NotifiedState, transition: u64) {
        let mut notification = example_notification();
        (notification.state, notification.key.transition) = (state, transition);
        notification.at_ns = self.now_ns;
        if let Some(before) = &self.alert {
            notification.since_ns = before.since_ns;
        } else {
            notification.since_ns = self.now_ns;
        }
        self.alert = Some(notification.clone());
        self.dispatcher.submit(notification.into(), self.now_ns);
        self.run();
    }

    fn run(&mut self) {
        let (hold, supervisor) = (DeliveryHold::ReleasedAt(i64::MIN), Supervisor::default());
        let report = self.dispatcher.run(&self.log, self.now_ns, hold, &supervisor).unwrap();
        assert_eq!(report.panics, [""; 0]);
        // What ended is durable, so the rules may forget it.
        let now_ns = self.now_ns;
        let is_over = |alert: &mut Notification| {
            alert.state == NotifiedState::Resolved && now_ns - alert.at_ns > RETENTION_NS
        };
        self.alert.take_if(is_over);
    }

    fn advance(&mut self, seconds: i64) {
        self.now_ns += seconds * SECOND_NS;
        self.run();
    }

    /// Makes the attempts that are due, or one that is refused. Returns whether there was one.
    fn deliver(&mut self, is_refused: bool) -> bool {
        let (contact, mut is_made) = (&self.contacts[0], false);
        loop {
            let attempt = lock_log(&self.log).begin_attempt(contact, self.now_ns).unwrap();
            let Some(attempt) = attempt else { return is_made };
            is_made = true;
            let Notification { key, state, .. } = &*attempt.notification;
            let result = match is_refused {
                true => Err(DeliveryError::temporary("500")),
                false => {
                    self.received.push(format!("{} {}", key.transition, state.name()));
                    Ok(DeliveryReceipt::default())
                }
            };
            let now_ns = self.now_ns;
            lock_log(&self.log).finish_attempt(attempt, &result, &contact.policy, now_ns).unwrap();
            if is_refused {
                return true;
            }
        }
    }

    fn reach(&mut self, moment: AlertMoment) {
        match moment {
            AlertMoment::Waiting => self.submit(NotifiedState::Firing, 1),
            AlertMoment::Due => self.advance(31),
            AlertMoment::Refused => assert!(self.deliver(true)),
            AlertMoment::Told => {
                self.advance(10);
                self.deliver(false);
            }
            AlertMoment::Acknowledged => {
                self.submit(NotifiedState::Acknowledged, 2);
                self.deliver(false);
            }
            AlertMoment::Ended => self.submit(NotifiedState::Resolved, 3),
        }
    }

    /// Kills the process and starts it again. The rules submit what they know.
    fn restart(&mut self) {
        self.process.kill();
        self.process = self.disk.process();
        self.log = Mutex::new(open(&self.process));
        self.dispatcher = dispatcher().0;
        let ends = lock_log(&self.log).pending_ends();
        for notification in ends.into_iter().chain(self.alert.clone()) {
            self.dispatcher.submit(notification.into(), self.now_ns);
        }
        self.run();
    }
}

/// Steps the clock at a moment, kills the process if asked for, and lets the alert end.
#[track_caller]
fn check(moment: AlertMoment, step_s: i64, is_killed: bool) {
    let case = format!("{step_s} s at {moment:?}, kill: {is_killed}");
    let mut node = SteppedNode::new();
    for reached in MOMENTS {
        node.reach(reached);
        if reached == moment {
            node.now_ns += step_s * SECOND_NS;
            if is_killed {
                // The rules are evaluated after the step, before the router looks at its groups.
                let is_over = |alert: &mut Notification| {
                    alert.state == NotifiedState::Resolved
                        && node.now_ns - alert.at_ns > RETENTION_NS
                };
                node.alert.take_if(is_over);
                node.restart();
            }
        }
    }
    for _ in 0..10 {
        node.advance(60);
        node.deliver(false);
    }
    assert_eq!(node.received, ["1 firing", "2 acknowledged", "3 resolved"], "{case}");
    assert_eq!(node.dispatcher.alert_count(), 0, "{case}");
    assert_eq!(lock_log(&node.log).pending_ends(), [], "{case}");
    // Nothing is left that a later restart would send again.
    node.restart();
    node.deliver(false);
    assert_eq!(node.received.len(), 3, "{case}: {:?}", node.received);
}

/// The receiver showed an alert as firing for ever: it had ended, the clock was set forward by more
/// than 15 minutes, and the process was killed before the next look at its group.
#[test]
fn a_step_of_the_clock_at_each_state_with_a_kill_loses_no_message_and_repeats_none() {
    for moment in MOMENTS {
        for step_s in [HOUR_S, -HOUR_S, 25 * HOUR_S, -25 * HOUR_S] {
            check(moment, step_s, true);
            check(moment, step_s, false);
        }
    }
}

/// The message was given up after one more failure, because its age was that of the clock.
#[test]
fn a_step_forward_while_the_receiver_is_down_gives_up_no_message() {
    let mut node = SteppedNode::new();
    for moment in &MOMENTS[..3] {
        node.reach(*moment);
    }
    node.now_ns += 25 * HOUR_S * SECOND_NS;
    for _ in 0..5 {
        node.advance(600);
        node.deliver(true);
    }
    node.advance(600);
    node.deliver(false);
    assert_eq!(node.received, ["1 firing"]);
}

/// With a `max_retry_interval` above 10 minutes it was sent again at once, without end.
#[test]
fn a_long_retry_interval_is_kept() {
    let mut node = SteppedNode::new();
    node.contacts[0].policy.max_retry_interval = Duration::from_secs(3600);
    for moment in &MOMENTS[..3] {
        node.reach(*moment);
    }
    // The delay doubles: 12 attempts reach the longest one.
    let mut attempts = 0;
    while attempts < 12 {
        node.advance(1);
        attempts += usize::from(node.deliver(true));
    }
    let minutes = (0..).take_while(|_| {
        node.advance(60);
        !node.deliver(true)
    });
    let minutes = minutes.count();
    assert!((29..=60).contains(&minutes), "{minutes} min");
}

#[test]
fn an_end_that_no_contact_waits_for_is_not_noted() {
    let mut node = SteppedNode::new();
    node.submit(NotifiedState::Firing, 1);
    node.submit(NotifiedState::Resolved, 2);
    assert_eq!(lock_log(&node.log).pending_ends(), []);
    node.advance(60);
    node.deliver(false);
    assert_eq!(node.received, [""; 0]);
}

#[test]
fn an_end_survives_that_the_file_is_written_anew() {
    let mut node = SteppedNode::new();
    for moment in MOMENTS {
        node.reach(moment);
    }
    // Each opening with the end in it is followed by others.
    for _ in 0..3 {
        node.process.kill();
        node.process = node.disk.process();
        let path = Path::new("/data/alerts/deliveries");
        // A torn line: the file is written anew.
        let file = node.process.open(path, disk::OpenMode::Write).unwrap();
        let length = file.len().unwrap();
        file.write_all_at(b"torn", length).unwrap();
        node.log = Mutex::new(open(&node.process));
        assert_eq!(lock_log(&node.log).pending_ends().len(), 1);
    }
}
