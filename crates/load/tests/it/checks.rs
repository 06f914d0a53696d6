//! What must hold for any bytes at all: one check per fuzz target, by its name. `fuzz/` includes this file by
//! path, and `fuzzed` repeats the checks on inputs that once broke something.

use std::collections::BTreeSet;
use std::path::Path;

use load::{
    Ended, Failure, Limit, Protocol, Rendered, Requests, Requirement, Run, Schedule, Tally, Target,
    Ticket,
};

/// Panics where something broke.
pub(crate) type Check = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, Check); 2] = [("load_codec", codec), ("load_text", text)];

/// What is spoken, by the first byte.
pub(crate) const TARGETS: [&str; 9] = [
    "http://a/",
    "h2c://a/",
    "grpc://a/b.C/D",
    "tcp://a:1",
    "postgres://a",
    "postgres://a:b@c/d?prepared=true",
    "redis://a",
    "redis://a:b@c/3",
    "redis://:b@c",
];
/// The second byte says how many bytes of a plan follow: each says what is done next. All others are what the server says.
const PLAN_MAX: usize = 64;
/// Of a byte of the plan, the first three bits: send, give up, or else take so many bytes; the others say which, or how many.
pub(crate) const SEND: u8 = 6 << 5;
pub(crate) const ABANDON: u8 = 7 << 5;
/// Nobody has this many requests at once on a connection.
const ROOM_MAX: usize = 100;
/// So many bytes may be said to each byte that came, and so many beside: nobody is made to shout.
const ECHO_MAX: usize = 16;
const SAID_MAX: usize = 16 << 10;

/// A server that says anything at any time: each request ends once at most and none that was not sent, room is what there is, little
/// is said to it, and it does not matter in which pieces its bytes come.
fn codec(bytes: &[u8]) {
    let [target, length, bytes @ ..] = bytes else { return };
    let target = TARGETS[usize::from(*target) % TARGETS.len()];
    let (target, _) = Target::parse(target).expect("BUG: it is one");
    let (plan, said) = bytes.split_at(bytes.len().min(usize::from(*length) % PLAN_MAX));
    let whole = talk(&target.protocol, plan, said, usize::MAX);
    // Of HTTP/2 an end may be known by what comes with it.
    if !matches!(target.protocol, Protocol::Http2 { .. } | Protocol::Grpc { .. }) {
        assert_eq!(talk(&target.protocol, plan, said, 1), whole, "byte by byte");
    }
}

/// What became of a connection.
#[derive(Debug, Default, PartialEq)]
struct Talk {
    under_way: BTreeSet<Ticket>,
    ended: Vec<Ended>,
    rooms: Vec<usize>,
    error: Option<Failure>,
}

impl Talk {
    /// Keeps the books. Panics where they do not balance.
    fn book(&mut self, ended: &[Ended]) {
        for one in ended {
            assert!(self.under_way.remove(&one.ticket), "{one:?} is not under way");
        }
        self.ended.extend(ended);
    }
}

/// Talks with a server, whose bytes come in pieces of so many at the most.
fn talk(protocol: &Protocol, plan: &[u8], mut said: &[u8], piece: usize) -> Talk {
    let (mut codec, mut talk) = (protocol.codec(), Talk::default());
    let (mut out, mut ended, mut next) = (Vec::new(), Vec::new(), 0);
    codec.open(&mut out);
    // When the plan is at its end, all the rest comes.
    for step in plan.iter().map(Some).chain([None]) {
        let room = codec.room();
        talk.rooms.push(room);
        assert!(room == 0 || room + talk.under_way.len() <= ROOM_MAX, "{room} and {talk:?}");
        assert!(room == 0 || !codec.is_ending(), "who ends takes nothing");
        let low = step.map_or(0, |step| step & 0x1f);
        match step.map(|step| step & 0xe0) {
            Some(SEND) if room > 0 => {
                codec.send(&request(low), next, &mut out);
                assert!(talk.under_way.insert(next));
                next += 1;
            }
            Some(SEND) => {}
            Some(ABANDON) => {
                let Some(&ticket) = talk.under_way.iter().nth(usize::from(low)) else { continue };
                talk.under_way.remove(&ticket);
                if !codec.abandon(ticket, &mut out) {
                    return talk;
                }
            }
            come => {
                // Some few bytes, or many.
                let length = match come {
                    None => said.len(),
                    Some(0 | 0x20) => usize::from(low) + 1,
                    Some(_) => (usize::from(low) + 1) * 16,
                };
                let (bytes, rest) = said.split_at(length.min(said.len()));
                said = rest;
                for bytes in bytes.chunks(piece) {
                    out.clear();
                    let result = codec.receive(bytes, &mut out, &mut ended);
                    assert!(out.len() <= SAID_MAX + ECHO_MAX * bytes.len(), "{} said", out.len());
                    talk.book(&ended);
                    ended.clear();
                    if let Err(failure) = result {
                        talk.error = Some(failure);
                        return talk;
                    }
                }
            }
        }
    }
    codec.close(&mut ended);
    talk.book(&ended);
    talk
}

/// One of those that are sent, some of which cannot be said in each protocol.
fn request(which: u8) -> Rendered {
    let of = |method: &str, path: &str, body: &[u8], arguments: &[&str]| Rendered {
        index: usize::from(which),
        method: method.to_owned(),
        path: path.to_owned(),
        body: body.to_vec(),
        arguments: arguments.iter().map(|one| one.as_bytes().to_vec()).collect(),
        ..Rendered::default()
    };
    match which % 6 {
        0 => of("GET", "/a", b"", &[]),
        1 => of("HEAD", "/a?b c", b"select 1", &[]),
        2 => of("POST", "/", b"select $1", &["a"]),
        3 => of("a b", "x", b"a\0b", &[]),
        4 => of("PUT", "", &[0xff; 300], &["", "b"]),
        _ => of("POST", "/ä", b"ab", &["GET", "a"]),
    }
}

/// What people write: refused with words, or of use. The first byte says what it is to be.
fn text(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match kind % 4 {
        0 => target(text),
        1 => replay(text),
        2 => requirement(text),
        // Those could name any file of this machine.
        _ if text.contains("file") || text.contains('\\') => {}
        _ => {
            if let Ok(requests) = Requests::parse(text, Path::new("nowhere")) {
                assert!(requests.names().next().is_some());
            }
        }
    }
}

/// A password that nobody writes by chance.
const PASSWORD: &str = "hunter2%21";

fn target(text: &str) {
    let with = |scheme: &str| format!("{scheme}://a:{PASSWORD}@{text}");
    let all = [text.to_owned(), format!("{text}:{PASSWORD}@a"), with("redis"), with("postgres")];
    for written in all {
        let shown = match Target::parse(&written) {
            Ok((target, path)) => {
                assert!(!target.host.is_empty() && target.port > 0, "{written:?}");
                // One that comes into a line of HTTP ends no line.
                let is_line = |text: &str| !text.contains(['\r', '\n', '\0']);
                assert!(is_line(&target.host) && is_line(&path), "{written:?}: {path:?}");
                target.protocol.codec().open(&mut Vec::new());
                String::new()
            }
            Err(error) => format!("{error} {error:?}"),
        };
        let shown = shown + &Target::shown(&written);
        assert!(text.contains("hunter2") || !shown.contains("hunter2"), "{written:?}: {shown}");
    }
}

fn replay(text: &str) {
    let Ok(all) = Schedule::replay(text, None) else { return };
    let times: Vec<u64> = all.arrivals().collect();
    assert!(times.first() == Some(&0) && times.is_sorted(), "{times:?}");
    assert!(times.last().is_some_and(|last| *last < all.length_ns()));
    assert!(all.rate_max() >= 10.0);
    let second = Schedule::replay(text, Some(1_000_000_000)).expect("BUG: it was read");
    let until = times.partition_point(|time| *time < 1_000_000_000);
    assert!(second.arrivals().eq(times[..until].iter().copied()));
}

fn requirement(text: &str) {
    let Ok(requirement) = text.parse::<Requirement>() else { return };
    assert_eq!(requirement.written, text);
    let _ = Limit::try_from(&requirement);
    for (answered, failed) in [(0, 0), (0, 1), (3, 0), (3, 1)] {
        let mut times = hist::Recorder::new();
        (0..answered).for_each(|number| times.record(number * number * 1_000_000));
        let mut tally = Tally { completed: answered, ..Tally::default() };
        (tally.response, tally.service) = (times.snapshot(), times.snapshot());
        tally.failed[Failure::Reset as usize] = failed;
        let run = Run {
            tally,
            by_second: Default::default(),
            by_request: Vec::new(),
            began_unix_ns: 0,
            length_ns: 1_000_000_000,
            is_interrupted: false,
            words: Default::default(),
            stalls: Vec::new(),
            doubts: Vec::new(),
            files: Default::default(),
        };
        let (found, _) = requirement.judge(&run);
        assert!(found.is_none_or(|found| found.lower <= found.upper), "{found:?}");
    }
}
