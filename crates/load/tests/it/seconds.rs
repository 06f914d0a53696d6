//! Seconds of several threads: told in order and while the run goes on, also when threads end far apart; and what a stop changes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use load::{Observer, Schedule, Settings, Tally};

use crate::plain;
use crate::steady::{ATTEMPTS, Watch, skipped};

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;

struct Server {
    url: String,
    /// How many requests have come.
    asked: Arc<AtomicUsize>,
}

/// Answers on each connection so long after the request, in the order in which they come.
fn server(after_ms: [u64; 3]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = Server { url, asked: Arc::default() };
    let asked = server.asked.clone();
    thread::spawn(move || {
        for (socket, ms) in listener.incoming().map_while(Result::ok).zip(after_ms) {
            let (mut socket, asked) = (socket, asked.clone());
            thread::spawn(move || {
                if socket.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                    asked.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(ms));
                    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                    // Open until the client has what it waits for.
                    let _ = socket.read(&mut [0; 4096]);
                }
            });
        }
    });
    server
}

/// Three requests, one for each thread, all due at once.
fn settings(url: &str) -> Settings {
    Settings {
        threads: 3,
        connections: 3,
        connections_max: 3,
        drain_ns: 20 * SECOND_NS,
        ..plain::settings(url, Schedule::Replay(Arc::from([0, 1, 2])))
    }
}

#[derive(Default)]
struct Told(Vec<(u64, Tally)>);

impl Observer for Told {
    fn second(&mut self, end_ns: u64, tally: &Tally) {
        self.0.push((end_ns, tally.clone()));
    }
}

#[test]
fn threads_that_end_far_apart_hold_no_second_back() {
    let mut why = "the generator stood still".to_owned();
    for _ in 0..ATTEMPTS {
        let watch = Watch::start();
        let server = server([100, 1_500, 3_300]);
        let mut told = Told::default();
        let stop = Arc::new(AtomicBool::new(false));
        let run = load::run(&settings(&server.url), &stop, &mut told).unwrap();
        let ends: Vec<u64> = told.0.iter().map(|one| one.0).collect();
        let (last, whole) = ends.split_last().unwrap();
        assert_eq!(*last, run.length_ns);
        assert!(whole.iter().all(|end_ns| end_ns.is_multiple_of(SECOND_NS)), "{ends:?}");
        assert!(ends.is_sorted_by(|a, b| a < b), "{ends:?}");
        let mut sum = Tally::default();
        told.0.iter().for_each(|(_, tally)| sum.merge(tally));
        let all = |of: &Tally| (of.intended, of.accounted(), of.response.count(), of.opened);
        assert_eq!(all(&sum), all(&run.tally));
        if run.stalls.is_empty() && run.tally.completed == 3 {
            // No answer comes early.
            let seconds = run.length_ns.div_ceil(SECOND_NS);
            assert!(seconds >= 4 && whole.len() as u64 == seconds - 1, "{ends:?}");
            let completed: Vec<u64> = told.0.iter().map(|one| one.1.completed).collect();
            if completed[..4] == [1, 1, 0, 1] {
                return;
            }
            why = watch.disturbance(0).unwrap_or_else(|| panic!("{completed:?} {ends:?}"));
        }
    }
    skipped(&why);
}

/// Sets `stop` when the server has been asked so often; at the latest after ten seconds, for what
/// the generator missed is never asked.
struct Stopping {
    stop: Arc<AtomicBool>,
    server: Server,
    requests: usize,
}

impl Stopping {
    fn at(requests: usize, server: Server) -> Stopping {
        Stopping { stop: Arc::default(), server, requests }
    }
}

impl Observer for Stopping {
    fn began(&mut self, _: u64, _: i64) {
        let (stop, asked, requests) = (self.stop.clone(), self.server.asked.clone(), self.requests);
        thread::spawn(move || {
            for _ in 0..2_000 {
                if asked.load(Ordering::Relaxed) >= requests {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// All was sent: a stop finds nothing to keep from being sent, and ends the waiting.
#[test]
fn a_stop_while_answers_are_waited_for_ends_that() {
    let mut stopping = Stopping::at(3, server([600_000; 3]));
    let usual = settings(&stopping.server.url);
    let settings = Settings { drain_ns: 300 * SECOND_NS, timeout_ns: 600 * SECOND_NS, ..usual };
    let run = load::run(&settings, &stopping.stop.clone(), &mut stopping).unwrap();
    assert!(!run.is_interrupted);
    assert_eq!((run.tally.intended, run.tally.accounted()), (3, 3));
    assert!(run.length_ns < settings.drain_ns, "{}", run.length_ns);
}

#[test]
fn a_stop_while_something_is_due_is_told() {
    let mut stopping = Stopping::at(2, server([0; 3]));
    let times = Arc::from([0, 1, 600 * SECOND_NS]);
    let usual = settings(&stopping.server.url);
    let settings = Settings { schedule: Schedule::Replay(times), ..usual };
    let run = load::run(&settings, &stopping.stop.clone(), &mut stopping).unwrap();
    assert!(run.is_interrupted);
    assert_eq!((run.tally.intended, run.tally.accounted()), (2, 2));
}
