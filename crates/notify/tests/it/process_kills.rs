//! `kill -9` of a real process, at each of its messages: between log, message and response.
//!
//! The test starts itself again as the process that is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::OsDisk;
use journal::{Supervisor, wall_clock};
use notify::{Notifier, NotifierOptions, NotifySettings};
use toml::de::DeTable;

use crate::alerts::{name_templates, notification};
use crate::http_receiver::{HttpMessage, HttpReceiver};

const NAME: &str = "process_kills::a_killed_process_loses_no_alert_and_marks_a_repeat";
const DIR: &str = "TOPDECK_NOTIFY_TEST_DIR";
const ADDRESS: &str = "TOPDECK_NOTIFY_TEST_ADDRESS";
const ALERTS: [&str; 4] = ["a", "b", "c", "d"];
/// How long the test waits for a message.
const PATIENCE: Duration = Duration::from_secs(120);

/// The process: submits all alerts and delivers until it is killed, or until nothing is pending.
fn deliver_all(dir: &Path, address: &str) {
    let contact = |name: &str, is_idempotent: bool| {
        format!(
            "[[contact]]\nname = '{name}'\nkind = 'webhook'\nurl = 'http://{address}/{name}'\n\
             idempotent = {is_idempotent}\n"
        )
    };
    let settings = format!(
        "{}{}[route]\nreceiver = 'hook'\ngroup_wait = '0s'\ngroup_interval = '1s'\n\
         [[route.routes]]\nreceiver = 'hook'\n\
         continue = true\n[[route.routes]]\nreceiver = 'key'\n",
        contact("hook", false),
        contact("key", true)
    );
    let root = DeTable::parse(&settings).unwrap().into_inner();
    let options = NotifierOptions {
        disk: Arc::new(OsDisk),
        dir: dir.join("alerts"),
        settings_dir: dir.to_owned(),
        clock: wall_clock(),
        supervisor: Supervisor::default(),
        log: Arc::new(|_, _: &str| {}),
        tls: Default::default(),
        templates: name_templates(),
        pictures: None,
        limits: Default::default(),
        is_held: false,
    };
    let settings = NotifySettings::read(&root, dir).unwrap();
    let notifier = Notifier::start(settings, options).unwrap();
    for alert in ALERTS {
        notifier.submit(notification(alert, 1)).unwrap();
    }
    loop {
        let status = notifier.status();
        if status.alerts == ALERTS.len() && status.log.remembered == 2 * ALERTS.len() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    notifier.stop();
}

/// A process that does not outlive the test, whatever ends it.
struct TestProcess(Child);

impl TestProcess {
    /// SIGKILL.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until it ends by itself.
    fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // It has ended, or the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_process(dir: &Path, receiver: &HttpReceiver) -> TestProcess {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args([NAME, "--exact"]).env(DIR, dir).env(ADDRESS, receiver.address.to_string());
    TestProcess(command.stdout(Stdio::null()).spawn().unwrap())
}

/// Whether the message is marked as a repeat, by contact and key.
fn arrivals(messages: &[HttpMessage]) -> BTreeMap<(String, String), Vec<bool>> {
    let mut arrivals: BTreeMap<_, Vec<bool>> = BTreeMap::new();
    for message in messages {
        let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
        let key = body["topdeck"]["key"].as_str().unwrap().to_owned();
        let may_be_duplicate = body["topdeck"]["mayBeDuplicate"] == true;
        arrivals.entry((message.path.clone(), key)).or_default().push(may_be_duplicate);
    }
    arrivals
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_loses_no_alert_and_marks_a_repeat() {
    if let (Ok(dir), Ok(address)) = (std::env::var(DIR), std::env::var(ADDRESS)) {
        return deliver_all(Path::new(&dir), &address);
    }
    for messages in 1..=2 * ALERTS.len() {
        let name = format!("topdeck-notify-kill-{}-{messages}", std::process::id());
        let dir: PathBuf = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let receiver = HttpReceiver::start(|_| (200, "")).await;
        let mut process = start_process(&dir, &receiver);
        let start = Instant::now();
        while receiver.request_count() < messages {
            assert!(start.elapsed() < PATIENCE, "message {messages} does not arrive");
            std::thread::yield_now();
        }
        process.kill();
        let status = start_process(&dir, &receiver).wait();
        assert!(status.success(), "{status}");
        let arrivals = arrivals(&receiver.take_requests());
        for alert in ALERTS {
            let of = |path: &str| {
                arrivals.get(&(path.to_owned(), format!("{alert}/1"))).cloned().unwrap_or_default()
            };
            let crash = format!("kill at message {messages}, alert {alert}: {arrivals:?}");
            assert!(!of("/key").is_empty(), "{crash}");
            let hook = of("/hook");
            assert!(hook.len() == 1 || hook == [false, true], "{crash}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
