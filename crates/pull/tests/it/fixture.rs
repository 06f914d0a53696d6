//! Fixture: servers in this process, and an intake with an in-memory journal.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use disk::Disk;
use intake::{Intake, Supervisor, WriteTarget};
use journal::{Journal, ReadItem, StartPosition};
use model::{Batch, BatchSeries, Gap, Sample, SampleValue, Series};
use net::tls::ServerTls;
use pull::{Pull, Settings};
use sim::SimDisk;

/// Longer than any test takes on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A wall clock time at which job `j` is due, for every interval that divides an hour. A job's
/// phase is the FNV-1a hash of its name; without this constant, each test would wait up to an
/// interval.
const STALENESS_TIME: i64 = {
    const HOUR: u64 = 3_600_000_000_000;
    let place = (0xcbf2_9ce4_8422_2325_u64 ^ b'j' as u64).wrapping_mul(0x0100_0000_01b3);
    (HOUR * 470_000 + place % HOUR) as i64
};
/// Bit pattern of Prometheus' staleness marker.
pub(crate) const STALE: u64 = 0x7ff0_0000_0000_0002;

/// Server that answers one request per connection, each in its own thread.
pub(crate) struct TestTarget {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestTarget {
    /// `answer` gets the connection number, from 0; its result is sent unchanged.
    pub(crate) fn new(answer: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static) -> TestTarget {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, heads) = (Arc::new(answer), Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&heads);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (answer, heads) = (Arc::clone(&answer), Arc::clone(&kept));
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    if let Some(head) = head(&mut stream) {
                        heads.lock().unwrap().push(head);
                        let _ = stream.write_all(&answer(number));
                    }
                });
            }
        });
        TestTarget { address, heads }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Reads a request's head; `None` if the connection was closed before.
pub(crate) fn head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// HTTP response with a body; `headers` are header lines.
pub(crate) fn http_response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn text_response(body: &str) -> Vec<u8> {
    http_response("200 OK", "content-type: text/plain; version=0.0.4\r\n", body.as_bytes())
}

/// Barrier of a number of connections.
pub(crate) struct ConnectionBarrier(AtomicUsize, usize);

impl ConnectionBarrier {
    pub(crate) fn new(connections: usize) -> ConnectionBarrier {
        ConnectionBarrier(AtomicUsize::new(0), connections)
    }

    /// Waits for the other connections; returns the waiting time.
    pub(crate) fn wait(&self) -> Duration {
        let began = Instant::now();
        self.0.fetch_add(1, Ordering::SeqCst);
        while self.0.load(Ordering::SeqCst) < self.1 {
            assert!(began.elapsed() < TIMEOUT, "{} of {}", self.0.load(Ordering::SeqCst), self.1);
            thread::sleep(Duration::from_millis(1));
        }
        began.elapsed()
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct PullFixture {
    pub(crate) journal: Arc<Journal>,
    pub(crate) intake: Arc<Intake>,
    runtime: tokio::runtime::Runtime,
    pull: Option<Pull>,
}

impl PullFixture {
    pub(crate) fn new() -> PullFixture {
        // The wall clock is fixed; schedules use the monotonic clock.
        let clock = Arc::new(|| STALENESS_TIME);
        let intake = intake::Settings { clock, ..intake::Settings::default() };
        PullFixture::build(&journal::Settings::default(), intake, Supervisor::default())
    }

    /// With a supervisor that restarts tasks, and a fixed clock.
    pub(crate) fn supervised(supervisor: Supervisor) -> PullFixture {
        let intake =
            intake::Settings { clock: Arc::new(|| STALENESS_TIME), ..intake::Settings::default() };
        PullFixture::build(&journal::Settings::default(), intake, supervisor)
    }

    /// With a running clock, for tests that depend on the order of times: the first attempt may be
    /// an interval away.
    pub(crate) fn with_running_clock(settings: &journal::Settings) -> PullFixture {
        PullFixture::build(settings, intake::Settings::default(), Supervisor::default())
    }

    fn build(
        settings: &journal::Settings,
        intake: intake::Settings,
        supervisor: Supervisor,
    ) -> PullFixture {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/journal");
        Journal::create(&*disk, dir, 7, 0, settings).unwrap();
        // A full journal returns at once.
        let wait_max = Duration::from_millis(20);
        let options = journal::Options {
            append_timeout: wait_max,
            supervisor,
            ..journal::Options::default()
        };
        let journal = Arc::new(Journal::open(disk, dir, &options).unwrap());
        // No self-monitoring.
        let settings = intake::Settings { background: false, ..intake };
        let intake =
            Arc::new(Intake::new(WriteTarget::Journal(Arc::clone(&journal)), settings).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        PullFixture { journal, intake, runtime: runtime.unwrap(), pull: None }
    }

    pub(crate) fn start(&mut self, settings: &Settings) {
        let _entered = self.runtime.enter();
        self.pull = Some(Pull::start(settings, &self.intake).unwrap());
    }

    pub(crate) fn reload(&mut self, settings: &Settings) -> pull::Result<()> {
        self.runtime.block_on(self.pull.as_mut().unwrap().reload(settings))
    }

    pub(crate) fn stop(&mut self) {
        self.runtime.block_on(self.pull.take().unwrap().stop());
    }

    pub(crate) fn count(&self, kind: &str, job: &str, outcome: &str) -> u64 {
        let labels = [("kind", kind), ("job", job), ("outcome", outcome)];
        self.intake.meter().counter("topdeck_pull_attempts_total", "", &labels).get()
    }

    /// Waits for a counter value of job `j`.
    #[track_caller]
    pub(crate) fn wait(&self, kind: &str, outcome: &str, count: u64) {
        self.wait_for(kind, "j", outcome, count);
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, kind: &str, job: &str, outcome: &str, count: u64) {
        wait_until(outcome, || self.count(kind, job, outcome) >= count);
    }

    /// Content of the journal.
    pub(crate) fn stored(&self) -> (Vec<(Series, Sample)>, Vec<Gap>) {
        let mut reader = self.journal.reader(StartPosition::First).unwrap();
        let (mut rows, mut gaps) = (Vec::new(), Vec::new());
        while let Some(item) = reader.next().unwrap() {
            let ReadItem::Batch(batch) = item else { panic!("nothing is missing") };
            for record in batch.records() {
                // Records that a test uses to fill the journal are not batches.
                let Ok(batch) = Batch::decode(record.bytes.to_vec()) else { continue };
                let mut entries = batch.read();
                for entry in entries.by_ref() {
                    let entry = entry.unwrap();
                    let BatchSeries::Key(canonical_key) = entry.series else {
                        panic!("keys are sent")
                    };
                    let (start, end, value) = (entry.start, entry.end, entry.decode().unwrap());
                    rows.push((
                        Series::from_canonical_key(canonical_key).unwrap(),
                        Sample { start, end, value },
                    ));
                }
                gaps.extend_from_slice(entries.gaps());
            }
        }
        (rows, gaps)
    }

    /// Values by series in order of arrival: numbers, `ended`, texts, histogram counts.
    pub(crate) fn values(&self) -> BTreeMap<String, Vec<String>> {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (series, sample) in self.stored().0 {
            let shown = match &sample.value {
                SampleValue::Number(number) if number.to_bits() == STALE => "ended".to_owned(),
                SampleValue::Number(number) => number.to_string(),
                SampleValue::Text(text) => text.clone(),
                SampleValue::Histogram(histogram) => format!("{} values", histogram.count()),
            };
            values.entry(series.to_string()).or_default().push(shown);
        }
        values
    }

    /// Values of the only series with this name.
    #[track_caller]
    pub(crate) fn values_of(&self, name: &str) -> Vec<String> {
        let is = |series: &str| series == name || series.starts_with(&format!("{name}{{"));
        let mut values: Vec<_> = self.values().into_iter().filter(|of| is(&of.0)).collect();
        assert!(values.len() <= 1, "{values:?}");
        values.pop().map(|of| of.1).unwrap_or_default()
    }
}

/// A certificate of 127.0.0.1 in `dir` that expires on 1 March 2044, and a server's settings with
/// it.
pub(crate) fn server_certificate(dir: &Path) -> (PathBuf, rustls::ServerConfig) {
    let (certificate, key) = (dir.join("crt.pem"), dir.join("key.pem"));
    let signing = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2044, 3, 1);
    std::fs::write(&certificate, params.self_signed(&signing).unwrap().pem()).unwrap();
    std::fs::write(&key, signing.serialize_pem()).unwrap();
    let tls = ServerTls { certificate: certificate.clone(), key, client_ca: None };
    (certificate, tls.config().unwrap())
}
