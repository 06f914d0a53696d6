//! A small server under its own load, which shows every kind of metric, for whoever wants to look
//! at one: `docs/shm.md` does.
//!
//! ```console
//! cargo run -p topdeck-shm --example sample -- --seconds 600 --stuck 4798
//! ```

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use shm::{
    Counter, Gauge, Heartbeat, Histogram, InFlight, MetricRole, Tag, TextMetric, UpDownCounter,
};

shm::label! {
    /// Where requests go.
    enum Route as "route" { Home = "home", Search = "search" }
}

shm::metrics! {
    /// Requests that were answered.
    static ANSWERED: Counter[Route] = "answered_total";
    /// How long an answer took.
    static TOOK: Histogram[Route] = "answer_duration", unit "ns", role MetricRole::Timing;
    /// How long a request took, with its wait in the queue.
    static REQUEST: Histogram = "sample_request_duration", unit "ns", role MetricRole::Timing;
    /// Requests that failed.
    static FAILED: Counter = "failed_total", role MetricRole::Error, link &REQUEST;
    /// Calls of the storage.
    static STORAGE_CALLS: Counter = "storage_calls_total", role MetricRole::Subcalls, link &REQUEST;
    /// What the cache holds.
    static CACHE_SIZE: UpDownCounter = "cache_size", unit "By", role MetricRole::Size;
    /// Answers that the cache had.
    static HITS: Counter = "cache_hits_total", role MetricRole::Hit, link &CACHE_SIZE;
    /// Answers that it did not have.
    static MISSES: Counter = "cache_misses_total", role MetricRole::Miss, link &CACHE_SIZE;
    /// How many requests may wait.
    static QUEUE_CAPACITY: Gauge = "queue_capacity", unit "{requests}", role MetricRole::Capacity;
    /// How many requests wait.
    static QUEUE: UpDownCounter = "queue_depth", unit "{requests}", role MetricRole::Queue, link &QUEUE_CAPACITY;
    /// What the storage was asked and has not answered.
    static STORAGE: InFlight = "storage_in_flight", tags &["device", "operation"];
    /// The one who makes requests still does.
    static CLIENT: Heartbeat = "client_heartbeat", every_ns 100_000_000;
    /// Which version this is.
    static VERSION: TextMetric = "version";
}

/// Capacity of the queue.
const WAITING_MAX: usize = 64;
const WORKERS: usize = 2;
/// Storage devices, weighted: one entry for each of seven operations.
const DEVICES: [&str; 7] = ["nvme0n1", "sda", "nvme0n1", "sdb", "nvme0n1", "sda", "nvme0n1"];

/// Options of the sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleOptions {
    /// Run time in seconds.
    pub(crate) seconds: u64,
    /// Number of requests, with pauses between them; if not set, as many as there is time for.
    pub(crate) requests: Option<u64>,
    /// Number of storage operations that never end.
    pub(crate) stuck: usize,
    /// Ends with `abort`.
    pub(crate) abort: bool,
}

impl SampleOptions {
    /// Parses the command line.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<SampleOptions, String> {
        let mut wanted = SampleOptions { seconds: 60, requests: None, stuck: 0, abort: false };
        while let Some(word) = words.next() {
            let mut number = || {
                let text = words.next().unwrap_or_default();
                text.parse::<u64>().map_err(|_| format!("{word} wants a number, found {text:?}"))
            };
            match word.as_str() {
                "--seconds" => wanted.seconds = number()?,
                "--requests" => wanted.requests = Some(number()?),
                "--stuck" => wanted.stuck = number()? as usize,
                "--abort" => wanted.abort = true,
                other => {
                    return Err(format!(
                        "unknown word {other:?}: there are --seconds N, --requests N, --stuck N \
                         and --abort"
                    ));
                }
            }
        }
        Ok(wanted)
    }
}

/// Queued request.
struct SampleRequest {
    number: u64,
    started: u64,
}

#[allow(dead_code, reason = "a test has this file as a module")]
fn main() {
    match SampleOptions::parse(std::env::args().skip(1)) {
        Ok(wanted) => run(wanted),
        Err(problem) => {
            eprintln!("sample: {problem}");
            std::process::exit(2);
        }
    }
}

/// Runs the sample. It prints the path of its metrics file, and "ready" when everything requested
/// is done.
pub(crate) fn run(wanted: SampleOptions) {
    match shm::status() {
        Ok(path) => println!("{}", path.display()),
        Err(problem) => eprintln!("sample: {problem}"),
    }
    VERSION.set("1.0.0");
    CACHE_SIZE.add(0);
    QUEUE_CAPACITY.set(WAITING_MAX as i64);
    let tags = |device| ["read", "write"].map(|operation| [Tag::new(device), Tag::new(operation)]);
    let tags = DEVICES.map(|device| tags(device).map(|pair| pair.map(Result::unwrap_or_default)));
    let stuck: Vec<_> = (0..wanted.stuck)
        .map(|n| STORAGE.begin(n as u64, &tags[n % DEVICES.len()][n % 2]))
        .collect();

    let end = clock::now() + wanted.seconds * 1_000_000_000;
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| serve(&receiver, &tags));
        }
        for number in 0..wanted.requests.unwrap_or(u64::MAX) {
            if clock::now() > end {
                break;
            }
            CLIENT.beat();
            QUEUE.add(1);
            if sender.send(SampleRequest { number, started: clock::now() }).is_err() {
                break;
            }
            // Requests arrive in bursts.
            if number % 16 == 15 {
                thread::sleep(Duration::from_millis(10));
            }
        }
        drop(sender);
    });
    println!("ready");
    if wanted.abort {
        std::process::abort();
    }
    thread::sleep(Duration::from_nanos(end.saturating_sub(clock::now())));
    drop(stuck);
}

/// Answers requests until the queue is closed.
fn serve(requests: &Mutex<Receiver<SampleRequest>>, tags: &[[[Tag; 2]; 2]; DEVICES.len()]) {
    loop {
        let next = requests.lock().map(|requests| requests.recv());
        let Ok(Ok(SampleRequest { number, started: begun })) = next else { return };
        QUEUE.add(-1);
        let route = if number % 4 == 0 { Route::Search } else { Route::Home };
        let timer = TOOK.with_label(route).start();
        if number % 10 == 0 {
            MISSES.add(1);
            STORAGE_CALLS.add(2);
            let device = (number / 10) as usize % DEVICES.len();
            for asked in &tags[device] {
                let _asked = STORAGE.begin(number, asked);
                thread::sleep(Duration::from_micros(200 + number % 7 * 100));
            }
            CACHE_SIZE.add(if number < 10_000 { 4096 } else { 0 });
        } else {
            HITS.add(1);
            std::hint::black_box((0..2_000u64).fold(number, |sum, n| sum.rotate_left(7) ^ n));
        }
        if number % 100 == 99 {
            FAILED.add(1);
        }
        ANSWERED.with_label(route).add(1);
        drop(timer);
        REQUEST.record(clock::now().saturating_sub(begun));
    }
}
