//! Fuzz target checks: what must hold for any bytes, one check per target. `fuzz/` includes this
//! file by path, and `fuzz_regressions` repeats the checks on past findings.

use std::collections::BTreeSet;
use std::path::Path;

use load::{
    Completion, Failure, LatencyLimit, LoadProtocol, RenderedRequest, RequestId, Requests,
    Requirement, RunResult, Schedule, Tally, Target,
};

/// Panics on a violation.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 2] = [("load_codec", codec), ("load_text", text)];

/// Targets, selected by the first byte.
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
/// The second byte is the length of a plan, whose bytes are actions. The rest is what the server
/// sends.
const PLAN_MAX: usize = 64;
/// The top three bits of a plan byte: send, cancel, or receive; the others select a request or a
/// length.
pub(crate) const SEND: u8 = 6 << 5;
pub(crate) const CANCEL: u8 = 7 << 5;
/// Upper bound of the concurrent requests of a connection.
const ROOM_MAX: usize = 100;
/// Bytes that a client may send per received byte, and in addition: no server can make it flood.
const ECHO_MAX: usize = 16;
const SAID_MAX: usize = 16 << 10;

/// A server that sends anything at any time: each request completes at most once, only sent
/// requests complete, capacity is accurate, the client sends little, and the fragmentation of the
/// received bytes does not matter.
fn codec(bytes: &[u8]) {
    let [target, length, bytes @ ..] = bytes else { return };
    let target = TARGETS[usize::from(*target) % TARGETS.len()];
    let is_http2 = target.starts_with("h2c:") || target.starts_with("grpc:");
    let (target, _) = Target::parse(target).expect("BUG: it is one");
    let (plan, said) = bytes.split_at(bytes.len().min(usize::from(*length) % PLAN_MAX));
    let whole = talk(&*target.protocol, plan, said, usize::MAX);
    // In HTTP/2 an end may depend on what arrives with it.
    if !is_http2 {
        assert_eq!(talk(&*target.protocol, plan, said, 1), whole, "byte by byte");
    }
}

/// Outcome of a connection.
#[derive(Debug, Default, PartialEq)]
struct Exchange {
    in_flight: BTreeSet<RequestId>,
    ended: Vec<Completion>,
    rooms: Vec<usize>,
    error: Option<Failure>,
}

impl Exchange {
    /// Accounts for completions. Panics on a mismatch.
    fn record(&mut self, ended: &[Completion]) {
        for one in ended {
            assert!(self.in_flight.remove(&one.request_id), "{one:?} is not under way");
        }
        self.ended.extend(ended);
    }
}

/// Runs a connection; received bytes arrive in fragments of at most this size.
fn talk(protocol: &dyn LoadProtocol, plan: &[u8], mut said: &[u8], piece: usize) -> Exchange {
    let (mut codec, mut talk) = (protocol.codec(), Exchange::default());
    let (mut out, mut ended, mut next) = (Vec::new(), Vec::new(), 0);
    codec.open(&mut out);
    // After the plan, all remaining bytes arrive.
    for step in plan.iter().map(Some).chain([None]) {
        let room = codec.capacity();
        talk.rooms.push(room);
        assert!(room == 0 || room + talk.in_flight.len() <= ROOM_MAX, "{room} and {talk:?}");
        assert!(room == 0 || !codec.is_ending(), "who ends takes nothing");
        let low = step.map_or(0, |step| step & 0x1f);
        match step.map(|step| step & 0xe0) {
            Some(SEND) if room > 0 => {
                codec.send(&request(low), next, &mut out);
                assert!(talk.in_flight.insert(next));
                next += 1;
            }
            Some(SEND) => {}
            Some(CANCEL) => {
                let Some(&request_id) = talk.in_flight.iter().nth(usize::from(low)) else {
                    continue;
                };
                talk.in_flight.remove(&request_id);
                if !codec.cancel(request_id, &mut out) {
                    return talk;
                }
            }
            come => {
                // A few bytes, or many.
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
                    talk.record(&ended);
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
    talk.record(&ended);
    talk
}

/// A sample request; not every protocol can represent each.
fn request(which: u8) -> RenderedRequest {
    let of = |method: &str, path: &str, body: &[u8], arguments: &[&str]| RenderedRequest {
        index: usize::from(which),
        method: method.to_owned(),
        path: path.to_owned(),
        body: body.to_vec(),
        arguments: arguments.iter().map(|one| one.as_bytes().to_vec()).collect(),
        ..RenderedRequest::default()
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

/// User input: rejected with an error, or usable. The first byte selects the kind.
fn text(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match kind % 4 {
        0 => target(text),
        1 => replay(text),
        2 => requirement(text),
        // Such text could name any file of this machine.
        _ if text.contains("file") || text.contains('\\') => {}
        _ => {
            if let Ok(requests) = Requests::parse(text, Path::new("nowhere")) {
                assert!(requests.names().next().is_some());
            }
        }
    }
}

/// A password that does not occur by chance.
const PASSWORD: &str = "hunter2%21";

fn target(text: &str) {
    let with = |scheme: &str| format!("{scheme}://a:{PASSWORD}@{text}");
    let all = [text.to_owned(), format!("{text}:{PASSWORD}@a"), with("redis"), with("postgres")];
    for written in all {
        let shown = match Target::parse(&written) {
            Ok((target, path)) => {
                assert!(!target.host.is_empty() && target.port > 0, "{written:?}");
                // Text that becomes part of an HTTP line must not end it.
                let is_line = |text: &str| !text.contains(['\r', '\n', '\0']);
                assert!(is_line(&target.host) && is_line(&path), "{written:?}: {path:?}");
                target.protocol.codec().open(&mut Vec::new());
                String::new()
            }
            Err(error) => format!("{error} {error:?}"),
        };
        let shown = shown + &Target::redacted(&written);
        assert!(text.contains("hunter2") || !shown.contains("hunter2"), "{written:?}: {shown}");
    }
}

fn replay(text: &str) {
    let Ok(all) = Schedule::replay(text, None) else { return };
    let times: Vec<u64> = all.arrivals().collect();
    assert!(times.first() == Some(&0) && times.is_sorted(), "{times:?}");
    assert!(times.last().is_some_and(|last| *last < all.duration_ns()));
    assert!(all.max_rate() >= 10.0);
    let second = Schedule::replay(text, Some(1_000_000_000)).expect("BUG: it was read");
    let until = times.partition_point(|time| *time < 1_000_000_000);
    assert!(second.arrivals().eq(times[..until].iter().copied()));
}

fn requirement(text: &str) {
    let Ok(requirement) = text.parse::<Requirement>() else { return };
    assert_eq!(requirement.expression, text);
    let _ = LatencyLimit::try_from(&requirement);
    for (answered, failed) in [(0, 0), (0, 1), (3, 0), (3, 1)] {
        let mut times = hist::Recorder::new();
        (0..answered).for_each(|number| times.record(number * number * 1_000_000));
        let mut tally = Tally { completed: answered, ..Tally::default() };
        (tally.response, tally.service) = (times.snapshot(), times.snapshot());
        tally.failed[Failure::Reset as usize] = failed;
        let run = RunResult {
            tally,
            per_second: Default::default(),
            per_request: Vec::new(),
            start_unix_ns: 0,
            duration_ns: 1_000_000_000,
            is_interrupted: false,
            first_errors: Default::default(),
            stalls: Vec::new(),
            invalid_reasons: Vec::new(),
            files: Default::default(),
        };
        let (found, _) = requirement.evaluate(&run);
        assert!(found.is_none_or(|found| found.lower <= found.upper), "{found:?}");
    }
}
