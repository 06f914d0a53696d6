//! Per-second reports of several threads: in order and during the run, even if threads finish far
//! apart; and the effect of a stop.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use load::{Observer, Schedule, Settings, Tally};

use crate::fixture;
use crate::scheduling::{ATTEMPTS, SchedulingWatch, skipped};

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;

struct Server {
    url: String,
    /// Requests received.
    received: Arc<AtomicUsize>,
}

/// Responds on each connection with its own delay, in order of arrival.
fn server(after_ms: [u64; 3]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = Server { url, received: Arc::default() };
    let received = server.received.clone();
    thread::spawn(move || {
        for (socket, ms) in listener.incoming().map_while(Result::ok).zip(after_ms) {
            let (mut socket, received) = (socket, received.clone());
            thread::spawn(move || {
                if socket.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                    received.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(ms));
                    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                    // Open until the client has the response.
                    let _ = socket.read(&mut [0; 4096]);
                }
            });
        }
    });
    server
}

/// Three requests, one per thread, due at the same time.
fn settings(url: &str) -> Settings {
    Settings {
        threads: 3,
        connections: 3,
        max_connections: 3,
        grace_period_ns: 20 * SECOND_NS,
        ..fixture::settings(url, Schedule::Replay(Arc::from([0, 1, 2])))
    }
}

#[derive(Default)]
struct RecordSeconds(Vec<(u64, Tally)>);

impl Observer for RecordSeconds {
    fn second_ended(&mut self, end_ns: u64, tally: &Tally) {
        self.0.push((end_ns, tally.clone()));
    }
}

#[test]
fn slow_threads_do_not_delay_seconds() {
    let mut why = "the generator stalled".to_owned();
    for _ in 0..ATTEMPTS {
        let watch = SchedulingWatch::start();
        let server = server([100, 1_500, 3_300]);
        let mut seconds_seen = RecordSeconds::default();
        let stop = Arc::new(AtomicBool::new(false));
        let run = load::run(&settings(&server.url), &stop, &mut seconds_seen).unwrap();
        let ends: Vec<u64> = seconds_seen.0.iter().map(|one| one.0).collect();
        let (last, whole) = ends.split_last().unwrap();
        assert_eq!(*last, run.duration_ns);
        assert!(whole.iter().all(|end_ns| end_ns.is_multiple_of(SECOND_NS)), "{ends:?}");
        assert!(ends.is_sorted_by(|a, b| a < b), "{ends:?}");
        let mut sum = Tally::default();
        seconds_seen.0.iter().for_each(|(_, tally)| sum.merge(tally));
        let all =
            |of: &Tally| (of.scheduled, of.accounted(), of.response.count(), of.connections_opened);
        assert_eq!(all(&sum), all(&run.tally));
        if run.stalls.is_empty() && run.tally.completed == 3 {
            // No response arrives before its time.
            let seconds = run.duration_ns.div_ceil(SECOND_NS);
            assert!(seconds >= 4 && whole.len() as u64 == seconds - 1, "{ends:?}");
            let completed: Vec<u64> = seconds_seen.0.iter().map(|one| one.1.completed).collect();
            if completed[..4] == [1, 1, 0, 1] {
                return;
            }
            why = watch.disturbance(0).unwrap_or_else(|| panic!("{completed:?} {ends:?}"));
        }
    }
    skipped(&why);
}

/// Sets `stop` after this many requests; after ten seconds at the latest, since requests that the
/// generator did not send never arrive.
struct StoppingObserver {
    stop: Arc<AtomicBool>,
    server: Server,
    requests: usize,
}

impl StoppingObserver {
    fn at(requests: usize, server: Server) -> StoppingObserver {
        StoppingObserver { stop: Arc::default(), server, requests }
    }
}

impl Observer for StoppingObserver {
    fn run_started(&mut self, _: u64, _: i64) {
        let (stop, received, requests) =
            (self.stop.clone(), self.server.received.clone(), self.requests);
        thread::spawn(move || {
            for _ in 0..2_000 {
                if received.load(Ordering::Relaxed) >= requests {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// All is sent: a stop ends the grace period.
#[test]
fn stop_ends_the_grace_period() {
    let mut stopping = StoppingObserver::at(3, server([600_000; 3]));
    let usual = settings(&stopping.server.url);
    let settings =
        Settings { grace_period_ns: 300 * SECOND_NS, timeout_ns: 600 * SECOND_NS, ..usual };
    let run = load::run(&settings, &stopping.stop.clone(), &mut stopping).unwrap();
    assert!(!run.is_interrupted);
    assert_eq!((run.tally.scheduled, run.tally.accounted()), (3, 3));
    assert!(run.duration_ns < settings.grace_period_ns, "{}", run.duration_ns);
}

#[test]
fn stop_before_the_last_request_is_an_interruption() {
    let mut stopping = StoppingObserver::at(2, server([0; 3]));
    let times = Arc::from([0, 1, 600 * SECOND_NS]);
    let usual = settings(&stopping.server.url);
    let settings = Settings { schedule: Schedule::Replay(times), ..usual };
    let run = load::run(&settings, &stopping.stop.clone(), &mut stopping).unwrap();
    assert!(run.is_interrupted);
    assert_eq!((run.tally.scheduled, run.tally.accounted()), (2, 2));
}
