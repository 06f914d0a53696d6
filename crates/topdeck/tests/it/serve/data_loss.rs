//! Losses that are reported: damage to a segment, datagrams of a killed server. Losses that must
//! not occur: at an orderly stop, and with a full disk.

use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::client::{request, request_with_timeout};
use super::load_sender::LoadSender;
use super::matrix::{TestFleet, await_stored, pause_until_sent, stored};
use super::server_process::{ServerProcess, wait_until};

/// Sends batches of one value each; all are accepted.
#[track_caller]
fn send(port: u16, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        let batch = format!("{:016x}/1/{sequence}", 77);
        let headers = [("Topdeck-Batch", batch.as_str())];
        let answer = request(port, "POST", "/v1/record?metric=took&unit=ms", &headers, b"5\n")
            .expect("it answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// The newest segment, and the number of its used bytes.
fn last_segment(journal: &Path) -> (PathBuf, u64) {
    let segments = std::fs::read_dir(journal.join("segments")).expect("there are segments");
    let mut paths: Vec<PathBuf> = segments.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let path = paths.pop().expect("there is a segment");
    let bytes = std::fs::read(&path).expect("it can be read");
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    (path, used as u64)
}

#[derive(Clone, Copy)]
enum SegmentDamage {
    Flipped,
    Truncated,
}

/// Damages a third of the used bytes before their end, wider than the space between two frames.
fn damage(journal: &Path, how: SegmentDamage) {
    let (path, used) = last_segment(journal);
    let file = File::options().read(true).write(true).open(path).expect("it can be opened");
    let at = used - used / 3;
    match how {
        SegmentDamage::Flipped => {
            let mut bytes = [0; 64];
            file.read_exact_at(&mut bytes, at).expect("it can be read");
            file.write_all_at(&bytes.map(|byte| !byte), at).expect("it can be written");
        }
        SegmentDamage::Truncated => file.set_len(at).expect("it can be cut off"),
    }
}

/// Collects self-metrics rarely, so that the journal contains mostly test data.
fn without_self_metrics(deck: &ServerProcess) {
    let text = std::fs::read_to_string(deck.settings()).expect("there are settings");
    let text = text.replace("interval = \"1s\"", "interval = \"60s\"");
    std::fs::write(deck.settings(), text).expect("settings are written");
}

/// Records reported as missing in a journal, of the server or of an agent, in batches, with
/// reasons.
#[track_caller]
fn reported_missing(deck: &ServerProcess) -> u64 {
    let gaps = deck.get("/v1/status").json()["store"]["gaps"].clone();
    let of = |gap: &serde_json::Value| {
        let reason = gap["reason"].as_str().expect("a reason");
        let (number, why) = match reason.split_once(" batches lost in the journal: ") {
            Some((number, why)) => (number.parse().ok(), why),
            None => {
                let why = reason.strip_prefix("missing in the journal of an agent: ")?;
                (gap["lost"].as_u64(), why)
            }
        };
        assert!(!why.is_empty(), "{reason}");
        Some(number.expect("how many"))
    };
    gaps.as_array().expect("gaps").iter().filter_map(of).sum()
}

const SENT: u64 = 100;
/// Batches sent after the damage.
const MORE: u64 = 10;

/// A truncated tail is still in shared memory, unless the power fails; the middle is lost.
#[track_caller]
fn check_remaining(left: u64, how: SegmentDamage) {
    let expected = match how {
        SegmentDamage::Flipped => SENT / 2..SENT + MORE,
        SegmentDamage::Truncated => SENT + MORE..SENT + MORE + 1,
    };
    assert!(expected.contains(&left), "{left} of {SENT} and {MORE}");
}

fn run_damaged_agent(how: SegmentDamage) {
    let mut fleet = TestFleet::with(without_self_metrics);
    fleet.proxy.disconnect();
    fleet.north.freeze();
    send(fleet.agent.port, 1..SENT + 1);
    fleet.agent.kill();
    damage(&fleet.agent.dir.path("data/journal"), how);
    fleet.agent.start();
    send(fleet.agent.port, SENT + 1..SENT + MORE + 1);
    fleet.proxy.reconnect();
    fleet.north.resume();
    // The loss is reported at each remote, which has all other data.
    for site in [&fleet.north, &fleet.south] {
        wait_until("the site has, or misses, all", || {
            stored(site).is_some_and(|stored| stored + reported_missing(site) >= SENT + MORE)
        });
        let left = stored(site).expect("it answers");
        check_remaining(left, how);
        site.audit();
    }
    assert_eq!(stored(&fleet.north), stored(&fleet.south));
    fleet.agent.audit();
}

#[test]
fn flipped_byte_in_an_agent_journal_is_a_gap() {
    run_damaged_agent(SegmentDamage::Flipped);
}

#[test]
fn truncated_agent_journal_is_recovered_from_memory() {
    run_damaged_agent(SegmentDamage::Truncated);
}

#[test]
fn flipped_byte_in_a_server_journal_is_a_gap() {
    for how in [SegmentDamage::Flipped, SegmentDamage::Truncated] {
        let mut deck = ServerProcess::new("serve", "");
        without_self_metrics(&deck);
        deck.start();
        send(deck.port, 1..SENT + 1);
        deck.kill();
        damage(&deck.dir.path("data/store/journal"), how);
        deck.start();
        send(deck.port, SENT + 1..SENT + MORE + 1);
        let left = stored(&deck).expect("it answers");
        check_remaining(left, how);
        assert!(
            left + reported_missing(&deck) >= SENT + MORE,
            "{left} and {}",
            reported_missing(&deck)
        );
        let said = "batches lost in the journal: damaged";
        let is_damaged = matches!(how, SegmentDamage::Flipped);
        if is_damaged {
            wait_until("the log says so", || deck.log().contains(said));
        }
        assert_eq!(deck.log().contains(said), is_damaged, "{}", deck.log());
        let audit = deck.audit().to_string();
        assert_eq!(audit.contains("missing in the journal: damaged"), is_damaged, "{audit}");
        deck.stop();
        deck.start();
        await_stored(&deck, left);
        assert!(left + reported_missing(&deck) >= SENT + MORE, "{left}");
        deck.audit();
    }
}

/// Each has a second copy, or can be derived from other files.
#[test]
fn server_starts_without_manifest_or_journal_file() {
    let mut deck = ServerProcess::new("serve", "");
    without_self_metrics(&deck);
    deck.start();
    send(deck.port, 1..SENT + 1);
    for lost in ["manifest", "manifest.copy", "journal/journal"] {
        deck.kill();
        let path = deck.dir.path("data/store").join(lost);
        std::fs::remove_file(path).expect("it is there");
        deck.start();
        await_stored(&deck, SENT);
        deck.audit();
    }
}

/// Server with a StatsD listener.
fn statsd_server() -> ServerProcess {
    ServerProcess::new("serve", "[statsd]\nudp = [\"127.0.0.1:0\"]\n")
}

/// Fits in a socket buffer of the default maximum (208 KiB), even if the server reads nothing.
const DATAGRAMS: u64 = 200;

fn datagrams(deck: &ServerProcess) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let port = deck.udp_port("StatsD");
    for _ in 0..DATAGRAMS {
        socket.send_to(b"took:5|ms", ("127.0.0.1", port)).expect("loopback takes it");
    }
}

/// Data in the kernel's buffer and in the current interval is stored before the exit.
#[test]
fn clean_stop_loses_no_datagram() {
    let mut deck = statsd_server();
    for _ in 0..3 {
        deck.start();
        datagrams(&deck);
        deck.stop();
    }
    deck.start();
    await_stored(&deck, 3 * DATAGRAMS);
    assert_eq!(deck.losses(), Vec::<String>::new());
}

#[test]
fn datagrams_of_a_killed_server_are_a_gap() {
    let mut deck = statsd_server();
    deck.start();
    datagrams(&deck);
    deck.kill();
    deck.start();
    datagrams(&deck);
    let has_come = || stored(&deck).is_some_and(|stored| stored >= DATAGRAMS);
    wait_until("what came after it is there", has_come);
    let left = stored(&deck).expect("it answers");
    assert!((DATAGRAMS..=2 * DATAGRAMS).contains(&left), "{left}");
    wait_until("the gap is told", || deck.losses().iter().any(|loss| loss.contains("was killed")));
    deck.stop();
    deck.start();
    await_stored(&deck, left);
}

/// A user who sends over HTTP, with the default listeners on, saw each kill as a gap of his data.
#[test]
fn kill_is_no_gap_of_values_sent_over_http() {
    let mut deck = statsd_server();
    deck.start();
    datagrams(&deck);
    let answer = request(deck.port, "POST", "/v1/record?metric=http_took&unit=ms", &[], b"5\n");
    assert_eq!(answer.expect("it answers").status, 200);
    wait_until("datagrams are stored", || stored(&deck).is_some_and(|stored| stored > 0));
    wait_until("the ledger names the listeners", || {
        let ledger = deck.dir.path("data/store/journal/ledgers/ledger");
        std::fs::read_to_string(ledger).is_ok_and(|ledger| ledger.contains("\nvolatile "))
    });
    deck.kill();
    deck.start();
    let gaps = |metric: &str| {
        let answer = deck.get(&format!("/v1/histogram?selector={metric}")).json();
        answer["gaps"].as_array().expect("a list of gaps").len()
    };
    wait_until("the gap is stored", || gaps("took") > 0);
    assert_eq!(gaps("http_took"), 0);
}

/// A request in progress is answered although the server is asked to stop.
#[test]
fn clean_stop_loses_no_request() {
    let mut deck = ServerProcess::new("serve", "");
    deck.start();
    let senders: Vec<LoadSender> =
        (1..5).map(|producer| LoadSender::start(deck.port, producer)).collect();
    for _ in 0..3 {
        pause_until_sent(&senders[0], 10);
        deck.stop();
        deck.start();
    }
    let sent = senders.into_iter().map(LoadSender::stop).sum();
    await_stored(&deck, sent);
    deck.audit();
}

/// Small file system mounted on a directory until drop.
pub(super) struct SmallFilesystem(PathBuf);

impl SmallFilesystem {
    /// `None` if this process may not mount.
    pub(super) fn mount(path: &Path, mib: u32) -> Option<SmallFilesystem> {
        std::fs::create_dir_all(path).expect("a directory can be made");
        let size = format!("size={mib}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        match mount.is_ok_and(|output| output.status.success()) {
            true => Some(SmallFilesystem(path.to_owned())),
            false => {
                println!("skipped: this process may not mount a small file system");
                None
            }
        }
    }

    /// Fills the file system except for 1 MiB: the ledger can be written, a new segment cannot.
    pub(super) fn fill(&self) {
        let mut file = File::create(self.0.join("ballast")).expect("a file can be made");
        let zeros = vec![0; 1 << 20];
        let mut written = 0;
        while std::io::Write::write_all(&mut file, &zeros).is_ok() {
            written += 1 << 20;
        }
        file.set_len(written - (1 << 20)).expect("it can be cut off");
    }

    pub(super) fn free_space(&self) {
        std::fs::remove_file(self.0.join("ballast")).expect("it can be removed");
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

pub(super) const SHORT_WAIT: Duration = Duration::from_millis(500);

/// Senders are asked to retry while there is no space; acknowledged data exists, and ingest
/// continues when there is space.
#[test]
fn full_disk_loses_nothing() {
    let mut deck = ServerProcess::new("serve", "");
    let Some(disk) = SmallFilesystem::mount(&deck.dir.path("data"), 200) else { return };
    deck.start();
    let sender = LoadSender::start(deck.port, 1);
    for _ in 0..2 {
        pause_until_sent(&sender, 20);
        deck.stop();
        // Space that the journal had reserved is free now; another program takes it.
        disk.fill();
        deck.start();
        let refused = |answer: std::io::Result<super::client::TestResponse>| {
            answer.is_ok_and(|answer| matches!(answer.status, 429 | 503))
        };
        // The request that waits for the disk is answered when there is space; later ones at once.
        let path = "/v1/record?metric=other";
        let post = || request_with_timeout(SHORT_WAIT, deck.address(), "POST", path, &[], b"1\n");
        // Repeatedly: space is checked each time.
        for _ in 0..3 {
            wait_until("senders are asked to wait", || refused(post()));
        }
        disk.free_space();
        pause_until_sent(&sender, 20);
    }
    let sent = sender.stop();
    await_stored(&deck, sent);
    deck.audit();
    deck.stop();
}
