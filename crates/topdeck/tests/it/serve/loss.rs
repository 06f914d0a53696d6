//! What may be lost, and is told: damage to a segment, datagrams of a server that is killed. And what may not: a stop
//! in order, a disk without room.

use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::client::{request, request_within};
use super::deck::{Deck, until};
use super::matrix::{Fleet, await_stored, pause, stored};
use super::sender::Sender;

/// Sends batches of one value each; all are taken.
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

/// The newest segment, and how many of its bytes are used.
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
enum Damage {
    Flipped,
    CutOff,
}

/// A third before what is used ends, wider than the room between two frames.
fn damage(journal: &Path, how: Damage) {
    let (path, used) = last_segment(journal);
    let file = File::options().read(true).write(true).open(path).expect("it can be opened");
    let at = used - used / 3;
    match how {
        Damage::Flipped => {
            let mut bytes = [0; 64];
            file.read_exact_at(&mut bytes, at).expect("it can be read");
            file.write_all_at(&bytes.map(|byte| !byte), at).expect("it can be written");
        }
        Damage::CutOff => file.set_len(at).expect("it can be cut off"),
    }
}

/// Measures itself rarely: what is in the journal is what was sent.
fn quiet(deck: &Deck) {
    let text = std::fs::read_to_string(deck.settings()).expect("there are settings");
    let text = text.replace("interval = \"1s\"", "interval = \"60s\"");
    std::fs::write(deck.settings(), text).expect("settings are written");
}

/// What a server tells as missing in a journal, its own or an agent's, in batches, each with a reason.
#[track_caller]
fn told(deck: &Deck) -> u64 {
    let gaps = deck.get("/v1/status").json()["store"]["gaps"].clone();
    let of = |gap: &serde_json::Value| {
        let reason = gap["reason"].as_str().expect("a reason");
        let (number, why) = match reason.split_once(" batches missing in the journal: ") {
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
/// Sent after the damage.
const MORE: u64 = 10;

/// What is cut off is still in the memory that processes share, unless the power goes; the middle is lost.
#[track_caller]
fn check_left(left: u64, how: Damage) {
    let expected = match how {
        Damage::Flipped => SENT / 2..SENT + MORE,
        Damage::CutOff => SENT + MORE..SENT + MORE + 1,
    };
    assert!(expected.contains(&left), "{left} of {SENT} and {MORE}");
}

fn a_damaged_agent(how: Damage) {
    let mut fleet = Fleet::with(quiet);
    fleet.link.cut();
    fleet.north.freeze();
    send(fleet.agent.port, 1..SENT + 1);
    fleet.agent.kill();
    damage(&fleet.agent.folder.path("data/journal"), how);
    fleet.agent.start();
    send(fleet.agent.port, SENT + 1..SENT + MORE + 1);
    fleet.link.mend();
    fleet.north.thaw();
    // What is lost is told at each site, which has all the rest.
    for site in [&fleet.north, &fleet.south] {
        until("the site has, or misses, all", || {
            stored(site).is_some_and(|stored| stored + told(site) >= SENT + MORE)
        });
        let left = stored(site).expect("it answers");
        check_left(left, how);
        site.audit();
    }
    assert_eq!(stored(&fleet.north), stored(&fleet.south));
    fleet.agent.audit();
}

#[test]
fn a_byte_of_an_agents_journal_costs_a_gap() {
    a_damaged_agent(Damage::Flipped);
}

#[test]
fn an_agents_journal_that_is_cut_off_is_made_whole_from_memory() {
    a_damaged_agent(Damage::CutOff);
}

#[test]
fn a_byte_of_a_servers_journal_costs_a_gap() {
    for how in [Damage::Flipped, Damage::CutOff] {
        let mut deck = Deck::new("serve", "");
        quiet(&deck);
        deck.start();
        send(deck.port, 1..SENT + 1);
        deck.kill();
        damage(&deck.folder.path("data/store/journal"), how);
        deck.start();
        send(deck.port, SENT + 1..SENT + MORE + 1);
        let left = stored(&deck).expect("it answers");
        check_left(left, how);
        assert!(left + told(&deck) >= SENT + MORE, "{left} and {}", told(&deck));
        let said = "batches missing in the journal: damaged";
        let is_damaged = matches!(how, Damage::Flipped);
        assert_eq!(deck.log().contains(said), is_damaged, "{}", deck.log());
        let audit = deck.audit().to_string();
        assert_eq!(audit.contains("missing in the journal: damaged"), is_damaged, "{audit}");
        deck.stop();
        deck.start();
        await_stored(&deck, left);
        assert!(left + told(&deck) >= SENT + MORE, "{left}");
        deck.audit();
    }
}

/// Each is kept twice, or follows from what is beside it.
#[test]
fn a_server_starts_without_a_manifest_or_the_file_of_its_journal() {
    let mut deck = Deck::new("serve", "");
    quiet(&deck);
    deck.start();
    send(deck.port, 1..SENT + 1);
    for lost in ["manifest", "manifest.copy", "journal/journal"] {
        deck.kill();
        let path = deck.folder.path("data/store").join(lost);
        std::fs::remove_file(path).expect("it is there");
        deck.start();
        await_stored(&deck, SENT);
        deck.audit();
    }
}

/// A server that hears StatsD.
fn hearing() -> Deck {
    Deck::new("serve", "[statsd]\nudp = [\"127.0.0.1:0\"]\n")
}

/// Fits in a socket buffer of the default maximum (208 KiB), even if the server reads nothing.
const DATAGRAMS: u64 = 200;

fn datagrams(deck: &Deck) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let port = deck.udp_port("StatsD");
    for _ in 0..DATAGRAMS {
        socket.send_to(b"took:5|ms", ("127.0.0.1", port)).expect("loopback takes it");
    }
}

/// What is in the kernel's buffer and in an interval that is not over is written before it ends.
#[test]
fn a_stop_in_order_loses_no_datagram() {
    let mut deck = hearing();
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
fn datagrams_that_a_killed_server_had_are_told_as_a_gap() {
    let mut deck = hearing();
    deck.start();
    datagrams(&deck);
    deck.kill();
    deck.start();
    datagrams(&deck);
    let has_come = || stored(&deck).is_some_and(|stored| stored >= DATAGRAMS);
    until("what came after it is there", has_come);
    let left = stored(&deck).expect("it answers");
    assert!((DATAGRAMS..=2 * DATAGRAMS).contains(&left), "{left}");
    until("the gap is told", || deck.losses().iter().any(|loss| loss.contains("was killed")));
    deck.stop();
    deck.start();
    await_stored(&deck, left);
}

/// A request on its way is answered though the server is asked to stop.
#[test]
fn a_stop_in_order_loses_no_request() {
    let mut deck = Deck::new("serve", "");
    deck.start();
    let senders: Vec<Sender> = (1..5).map(|producer| Sender::start(deck.port, producer)).collect();
    for _ in 0..3 {
        pause(&senders[0], 10);
        deck.stop();
        deck.start();
    }
    let sent = senders.into_iter().map(Sender::stop).sum();
    await_stored(&deck, sent);
    deck.audit();
}

/// A file system of a few bytes on a folder, while it exists.
struct Small(PathBuf);

impl Small {
    /// None if this process may not mount.
    fn mount(path: &Path, mib: u32) -> Option<Small> {
        std::fs::create_dir_all(path).expect("a folder can be made");
        let size = format!("size={mib}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        match mount.is_ok_and(|output| output.status.success()) {
            true => Some(Small(path.to_owned())),
            false => {
                println!("skipped: this process may not mount a small file system");
                None
            }
        }
    }

    /// Takes all the room that is left but a MiB: books can be written, a segment cannot be begun.
    fn fill(&self) {
        let mut file = File::create(self.0.join("ballast")).expect("a file can be made");
        let zeros = vec![0; 1 << 20];
        let mut written = 0;
        while std::io::Write::write_all(&mut file, &zeros).is_ok() {
            written += 1 << 20;
        }
        file.set_len(written - (1 << 20)).expect("it can be cut off");
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("ballast")).expect("it can be removed");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

const SOON: Duration = Duration::from_millis(500);

/// Senders are asked to wait while there is no room; what was acknowledged is there, and it goes on with room.
#[test]
fn a_full_disk_loses_nothing() {
    let mut deck = Deck::new("serve", "");
    let Some(disk) = Small::mount(&deck.folder.path("data"), 200) else { return };
    deck.start();
    let sender = Sender::start(deck.port, 1);
    for _ in 0..2 {
        pause(&sender, 20);
        deck.stop();
        // What the journal had reserved is free now, and somebody else takes it.
        disk.fill();
        deck.start();
        let refused = |answer: std::io::Result<super::client::Answer>| {
            answer.is_ok_and(|answer| matches!(answer.status, 429 | 503))
        };
        // The request that waits for the disk is answered when there is space; later ones at once.
        let path = "/v1/record?metric=other";
        let post = || request_within(SOON, deck.address(), "POST", path, &[], b"1\n");
        // Again and again: room is looked for each time.
        for _ in 0..3 {
            until("senders are asked to wait", || refused(post()));
        }
        disk.make_room();
        pause(&sender, 20);
    }
    let sent = sender.stop();
    await_stored(&deck, sent);
    deck.audit();
    deck.stop();
}
