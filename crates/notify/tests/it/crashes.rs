//! Power losses and kills at every write of the log of deliveries.
//!
//! A source reports all its notifications again after each crash, as the rules do. Each must arrive
//! once at a receiver with a key (repeats are recognized), and at most twice, the second marked as
//! a repeat, at one without.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disk::Disk;
use notify::{
    AnyContact, ConfiguredContact, Contact, DeliveryContext, DeliveryError, DeliveryLog,
    DeliveryPolicy, DeliveryReceipt, KeyProblems, LogLimits, Notification, NotificationKey,
    deliver_next, failover_chain,
};
use serde::Deserialize;
use sim::{SimDisk, SimProcess};
use tokio::runtime::Runtime;

use crate::alerts::{COMPOSITION, SECOND_NS, START_NS, client, notification};

/// A message at a receiver: contact, key, and whether it is marked as a repeat.
type Arrival = (String, NotificationKey, bool);

/// The receivers, and the process that may be killed while a message is sent.
#[derive(Clone, Debug, Default)]
struct Receivers {
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    kill: Arc<Mutex<Option<SendKill>>>,
    /// Seconds since the start; time goes on after a crash.
    seconds: Arc<AtomicI64>,
    clock_step: Arc<Mutex<Option<ClockStep>>>,
}

/// Sets the wall clock when it is read.
#[derive(Debug)]
struct ClockStep {
    readings_left: u64,
    seconds: i64,
}

impl Receivers {
    fn now_ns(&self) -> i64 {
        let mut step = self.clock_step.lock().unwrap();
        if let Some(ClockStep { seconds, .. }) = step.take_if(|step| step.readings_left == 0) {
            self.seconds.fetch_add(seconds, Ordering::Relaxed);
        }
        if let Some(step) = step.as_mut() {
            step.readings_left -= 1;
        }
        START_NS + SECOND_NS * self.seconds.fetch_add(1, Ordering::Relaxed)
    }
}

/// Kills the process at one of its messages.
#[derive(Debug)]
struct SendKill {
    process: SimProcess,
    messages_left: u32,
    /// Whether the message arrives before.
    arrives: bool,
}

/// A contact that writes down what arrives.
#[derive(Debug, Deserialize)]
struct RecordingContact {
    name: String,
    is_idempotent: bool,
    #[serde(skip)]
    receivers: Receivers,
}

impl Contact for RecordingContact {
    const KIND: &'static str = "recording";

    fn check(&self, _problems: &mut KeyProblems) {}

    fn host(&self) -> Option<String> {
        None
    }

    fn is_idempotent(&self, _notification: &Notification, _previous: Option<&str>) -> bool {
        self.is_idempotent
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let mut kill = self.receivers.kill.lock().unwrap();
        if let Some(kill) = kill.as_mut() {
            if kill.messages_left == 0 {
                kill.process.kill();
                if !kill.arrives {
                    // The process is dead: nothing looks at the result.
                    return Err(DeliveryError::Permanent { reason: "killed".to_owned() });
                }
            }
            kill.messages_left = kill.messages_left.saturating_sub(1);
        }
        let arrival = (self.name.clone(), notification.key.clone(), context.may_be_duplicate);
        self.receivers.arrivals.lock().unwrap().push(arrival);
        Ok(DeliveryReceipt { message_id: Some("m 1".to_owned()), ..Default::default() })
    }
}

const CONTACTS: [(&str, bool, Option<&str>); 3] =
    [("hook", false, Some("spare")), ("pager", true, None), ("spare", true, None)];
const LIMITS: LogLimits = LogLimits {
    pending_max: 100,
    bytes_max: 1 << 20,
    remembered_max: 100,
    compact_bytes_min: 2 << 10,
};

fn due() -> Vec<Notification> {
    let keys = [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2)];
    keys.map(|(alert, transition)| notification(alert, transition)).into()
}

/// Reports all notifications and delivers what is due; `None` if the process died.
fn run(runtime: &Runtime, process: SimProcess, receivers: &Receivers) -> Option<()> {
    let now = || receivers.now_ns();
    let log = DeliveryLog::open(Arc::new(process), Path::new("/data/alerts"), LIMITS).ok()?;
    assert_eq!(log.summary().damaged_lines, 0);
    let log = Mutex::new(log);
    let client = client(Duration::from_secs(60));
    let contacts = CONTACTS.map(|(name, is_idempotent, failover)| ConfiguredContact {
        name: name.to_owned(),
        contact: AnyContact::new(RecordingContact {
            name: name.to_owned(),
            is_idempotent,
            receivers: receivers.clone(),
        }),
        templates: Default::default(),
        policy: DeliveryPolicy {
            failover: failover.map(str::to_owned),
            ..DeliveryPolicy::default()
        },
    });
    let deliver = |contact: &ConfiguredContact| {
        runtime.block_on(deliver_next(&log, contact, &client, Path::new("/"), &now, &COMPOSITION))
    };
    for notification in due() {
        for name in ["hook", "pager"] {
            let names = failover_chain(&contacts, name);
            log.lock().unwrap().enqueue(&names, &notification, now()).ok()?;
        }
        deliver(&contacts[0]).ok()?;
    }
    loop {
        let mut is_idle = true;
        for contact in &contacts {
            is_idle &= deliver(contact).ok()?.is_none();
        }
        if is_idle {
            assert_eq!(log.lock().unwrap().summary().pending, 0);
            return Some(());
        }
    }
}

#[track_caller]
fn check_arrivals(receivers: &Receivers, crash: &str) {
    let mut marks: BTreeMap<(String, NotificationKey), Vec<bool>> = BTreeMap::new();
    let mut newest: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (contact, key, may_be_duplicate) in receivers.arrivals.lock().unwrap().iter().cloned() {
        let newest = newest.entry((contact.clone(), key.alert_id.clone())).or_default();
        assert!(*newest <= key.transition, "{crash}: {contact} got {key} after a newer one");
        *newest = key.transition;
        marks.entry((contact, key)).or_default().push(may_be_duplicate);
    }
    for Notification { key, .. } in due() {
        let of = |name: &str| {
            marks.get(&(name.to_owned(), key.clone())).map(Vec::as_slice).unwrap_or_default()
        };
        assert!(!of("pager").is_empty(), "{crash}: {key} is lost");
        assert!(of("pager").iter().all(|may_be_duplicate| !may_be_duplicate));
        let hook = of("hook");
        assert!(!hook.is_empty() || !of("spare").is_empty(), "{crash}: {key} is lost");
        assert!(hook.len() <= 2, "{crash}: {key} arrived {} times", hook.len());
        if let [_, second] = hook {
            assert!(second, "{crash}: {key} is repeated without a mark");
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A copy of the receivers for another continuation.
fn fork(receivers: &Receivers) -> Receivers {
    let arrivals = receivers.arrivals.lock().unwrap().clone();
    let seconds = receivers.seconds.load(Ordering::Relaxed);
    Receivers {
        arrivals: Arc::new(Mutex::new(arrivals)),
        kill: Arc::default(),
        seconds: Arc::new(seconds.into()),
        clock_step: Arc::default(),
    }
}

/// A disk whose directory `/data` is durable, as it is before a node starts.
fn disk_with_data_dir(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let process = disk.process();
    process.create_dir(Path::new("/data")).unwrap();
    process.sync_dir(Path::new("/")).unwrap();
    disk
}

/// Runs until the power is lost at operation `count`; `None` if the run ends before.
fn run_to_power_loss(runtime: &Runtime, count: u64) -> Option<(SimDisk, Receivers)> {
    let (disk, receivers) = (disk_with_data_dir(count), Receivers::default());
    disk.cut_after(count);
    match run(runtime, disk.process(), &receivers) {
        None => Some((disk, receivers)),
        Some(()) => None,
    }
}

#[test]
fn a_power_loss_at_any_write_neither_loses_nor_repeats_a_notification() {
    let runtime = runtime();
    let mut count = 0;
    while let Some((disk, receivers)) = run_to_power_loss(&runtime, count) {
        for seed in 0..6 {
            let (disk, receivers) = (disk.fork(seed), fork(&receivers));
            disk.power_cut();
            run(&runtime, disk.process(), &receivers).unwrap();
            check_arrivals(&receivers, &format!("power loss at {count}, seed {seed}"));
        }
        count += 1;
    }
    assert!(count > 60, "only {count} writes");
}

#[test]
fn two_power_losses_are_as_harmless_as_one() {
    let runtime = runtime();
    let mut count = 0;
    while let Some((disk, receivers)) = run_to_power_loss(&runtime, count) {
        for second in 0..20 {
            let (disk, receivers) = (disk.fork(second), fork(&receivers));
            disk.power_cut();
            disk.cut_after(second);
            if run(&runtime, disk.process(), &receivers).is_none() {
                disk.power_cut();
                run(&runtime, disk.process(), &receivers).unwrap();
            }
            check_arrivals(&receivers, &format!("power losses at {count} and {second}"));
        }
        count += 3;
    }
    assert!(count > 60, "only {count} writes");
}

#[test]
fn a_kill_at_any_write_neither_loses_nor_repeats_a_notification() {
    let runtime = runtime();
    for count in 0.. {
        let (disk, receivers) = (SimDisk::new(count), Receivers::default());
        let process = disk.process();
        process.kill_after(count);
        if run(&runtime, process, &receivers).is_some() {
            assert!(count > 60, "only {count} writes");
            break;
        }
        run(&runtime, disk.process(), &receivers).unwrap();
        check_arrivals(&receivers, &format!("kill at {count}"));
    }
}

const HOUR_S: i64 = 3600;

/// The clock is set when it is read for the n-th time, before or after a kill.
#[test]
fn a_clock_step_of_an_hour_at_any_time_around_a_kill_neither_loses_nor_repeats_a_notification() {
    let runtime = runtime();
    let mut rounds = 0;
    for kill in (0..).step_by(7) {
        let mut is_killed = false;
        for (reading, seconds) in
            (0..40).step_by(3).flat_map(|reading| [(reading, HOUR_S), (reading, -HOUR_S)])
        {
            let (disk, receivers) = (SimDisk::new(kill), Receivers::default());
            let step = ClockStep { readings_left: reading, seconds };
            *receivers.clock_step.lock().unwrap() = Some(step);
            let process = disk.process();
            process.kill_after(kill);
            if run(&runtime, process, &receivers).is_none() {
                is_killed = true;
                run(&runtime, disk.process(), &receivers).unwrap();
            }
            let crash = format!("kill at {kill}, clock set by {seconds} s at reading {reading}");
            check_arrivals(&receivers, &crash);
            rounds += 1;
        }
        if !is_killed {
            break;
        }
    }
    assert!(rounds > 200, "only {rounds} rounds");
}

#[test]
fn a_kill_while_sending_neither_loses_nor_repeats_a_notification() {
    let runtime = runtime();
    let messages = 2 * due().len() as u32;
    for (messages_left, arrives) in (0..messages).flat_map(|at| [(at, true), (at, false)]) {
        let (disk, receivers) = (SimDisk::new(1), Receivers::default());
        let process = disk.process();
        let kill = SendKill { process: process.clone(), messages_left, arrives };
        *receivers.kill.lock().unwrap() = Some(kill);
        assert_eq!(run(&runtime, process, &receivers), None);
        *receivers.kill.lock().unwrap() = None;
        run(&runtime, disk.process(), &receivers).unwrap();
        check_arrivals(&receivers, &format!("kill at message {messages_left}, {arrives}"));
    }
}

#[test]
fn a_damaged_line_costs_one_delivery_and_is_counted() {
    let (runtime, disk) = (runtime(), SimDisk::new(1));
    let open =
        || DeliveryLog::open(Arc::new(disk.process()), Path::new("/data/alerts"), LIMITS).unwrap();
    let mut log = open();
    for alert in ["a", "b", "c"] {
        log.enqueue(&["pager"], &notification(alert, 1), START_NS).unwrap();
    }
    drop(log);
    let text = disk.contents("/data/alerts/deliveries").unwrap();
    let second_line = text.iter().position(|&byte| byte == b'\n').unwrap() as u64 + 1;
    disk.flip_bit("/data/alerts/deliveries", second_line + 20, 3);
    assert_eq!(open().summary().damaged_lines, 1);
    let log = open();
    assert_eq!((log.summary().damaged_lines, log.summary().pending), (0, 2));
    drop(log);
    // The rules report it again.
    let receivers = Receivers::default();
    run(&runtime, disk.process(), &receivers).unwrap();
    check_arrivals(&receivers, "damage");
}

#[test]
fn a_later_version_is_not_overwritten() {
    let disk = SimDisk::new(1);
    let process = Arc::new(disk.process());
    let dir = Path::new("/data/alerts");
    drop(DeliveryLog::open(process.clone(), dir, LIMITS).unwrap());
    disk.overwrite("/data/alerts/deliveries", 0, b"topdeck deliveries 9\n");
    let error = DeliveryLog::open(process, dir, LIMITS).unwrap_err().to_string();
    assert!(error.contains("topdeck deliveries 9"), "{error}");
    assert_eq!(disk.contents("/data/alerts/deliveries").unwrap(), b"topdeck deliveries 9\n");
}
