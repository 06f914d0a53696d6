//! A journal in its own directory, a clock that follows the packets, and a list of packets.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use disk::{Disk, OsDisk};
use hist::Histogram;
use intake::{EventCounter, Intake, Supervisor, WriteTarget};
use journal::{Journal, Options, ReadItem, StartPosition};
use model::{Batch, BatchSeries, Exemplar, Gap, Sample, SampleValue, Series};
use observe::{CaptureSettings, PacketSource, WireCapture};
use wire::{CaptureError, CaptureFile, CapturedPacket, LinkType, RingStatistics};

/// A packet of a test.
#[derive(Clone, Debug)]
pub(crate) struct ListedPacket {
    pub(crate) time: u64,
    pub(crate) link_type: LinkType,
    pub(crate) bytes: Vec<u8>,
}

impl ListedPacket {
    pub(crate) fn captured(&self) -> CapturedPacket<'_> {
        CapturedPacket {
            time: Some(self.time),
            link_type: self.link_type,
            bytes: &self.bytes,
            original_bytes: self.bytes.len() as u32,
        }
    }
}

/// Packets of a session of psql: see `crates/topdeck/tests/it/wire.rs`.
pub(crate) fn postgres_packets() -> Vec<ListedPacket> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire/postgres.pcap");
    let mut file = CaptureFile::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = file.next_packet().unwrap() {
        let (time, bytes) = (packet.time.unwrap(), packet.bytes.to_vec());
        packets.push(ListedPacket { time, link_type: packet.link_type, bytes });
    }
    packets
}

/// Returns one packet per call, and sets the clock to its time.
pub(crate) struct PacketList {
    packets: Vec<ListedPacket>,
    read: Arc<AtomicUsize>,
    clock: Arc<AtomicI64>,
    /// Interval whose row is awaited after the packet that ends it, so that no two are merged.
    awaited: Option<(u64, EventCounter)>,
    ended_intervals: u64,
    /// Packet before which the source panics, once.
    panics_before: Option<usize>,
}

impl PacketList {
    fn await_interval(&mut self, index: usize) {
        let Some((interval_ns, written)) = &self.awaited else { return };
        let interval_of = |packet: &ListedPacket| packet.time / interval_ns;
        if index > 0 && interval_of(&self.packets[index - 1]) != interval_of(&self.packets[index]) {
            self.ended_intervals += 1;
            wait("the interval is written", || written.get() >= self.ended_intervals);
        }
    }
}

impl PacketSource for PacketList {
    fn read(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(&CapturedPacket<'_>),
    ) -> Result<bool, CaptureError> {
        let index = self.read.load(Ordering::SeqCst);
        assert!(self.panics_before.take_if(|before| *before == index).is_none(), "injected panic");
        let Some(packet) = self.packets.get(index) else {
            std::thread::sleep(timeout.min(Duration::from_millis(1)));
            return Ok(false);
        };
        self.clock.store(packet.time as i64, Ordering::SeqCst);
        each(&packet.captured());
        self.await_interval(index);
        self.read.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }

    fn statistics(&mut self) -> Result<RingStatistics, CaptureError> {
        let packets = self.read.load(Ordering::SeqCst) as u64;
        Ok(RingStatistics { packets, ..RingStatistics::default() })
    }
}

pub(crate) struct WireFixture {
    dir: PathBuf,
    pub(crate) journal: Arc<Journal>,
    pub(crate) intake: Arc<Intake>,
    clock: Arc<AtomicI64>,
}

impl WireFixture {
    pub(crate) fn new(interval: Duration) -> WireFixture {
        let limits = journal::Settings::default().limits;
        WireFixture::with(interval, limits, Supervisor::default())
    }

    pub(crate) fn with(
        interval: Duration,
        limits: journal::Limits,
        supervisor: Supervisor,
    ) -> WireFixture {
        let dir = directory();
        let settings = journal::Settings {
            segment_bytes: 256 << 10,
            buffer_bytes: 128 << 10,
            limits,
            ..journal::Settings::default()
        };
        Journal::create(&OsDisk, &dir, journal::random_id(), 0, &settings).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let options = Options { supervisor, ..Options::default() };
        let journal = Arc::new(Journal::open(disk, &dir, &options).unwrap());
        // Pins all records.
        journal.add_subscriber("test", StartPosition::First, false).unwrap();
        let clock = Arc::new(AtomicI64::new(0));
        let now = Arc::clone(&clock);
        let settings = intake::Settings {
            interval,
            clock: Arc::new(move || now.load(Ordering::SeqCst)),
            ..intake::Settings::default()
        };
        let intake = Intake::new(WriteTarget::Journal(Arc::clone(&journal)), settings).unwrap();
        WireFixture { dir, journal, intake: Arc::new(intake), clock }
    }

    /// Captures these packets, and writes each interval apart. Returns when all were read.
    pub(crate) fn capture(&self, keys: &str, packets: Vec<ListedPacket>) -> WireCapture {
        let written = self.intake.meter().counter("topdeck_wire_intervals_total", "", &[]);
        let interval_ns = self.intake.settings().interval.as_nanos() as u64;
        self.start(keys, packets, Some((interval_ns, written)), None)
    }

    /// As [`Self::capture`]; the thread panics before the packet with this index.
    pub(crate) fn capture_with_panic(
        &self,
        keys: &str,
        packets: Vec<ListedPacket>,
        panics_before: usize,
    ) -> WireCapture {
        let written = self.intake.meter().counter("topdeck_wire_intervals_total", "", &[]);
        let interval_ns = self.intake.settings().interval.as_nanos() as u64;
        self.start(keys, packets, Some((interval_ns, written)), Some(panics_before))
    }

    /// As [`Self::capture`], without waiting for the journal.
    pub(crate) fn capture_at_once(&self, keys: &str, packets: Vec<ListedPacket>) -> WireCapture {
        self.start(keys, packets, None, None)
    }

    fn start(
        &self,
        keys: &str,
        packets: Vec<ListedPacket>,
        awaited: Option<(u64, EventCounter)>,
        panics_before: Option<usize>,
    ) -> WireCapture {
        self.start_threads(keys, vec![packets], awaited, panics_before)
    }

    /// Captures with a thread for each list of packets.
    pub(crate) fn capture_by_threads(
        &self,
        keys: &str,
        lists: Vec<Vec<ListedPacket>>,
    ) -> WireCapture {
        self.start_threads(keys, lists, None, None)
    }

    fn start_threads(
        &self,
        keys: &str,
        lists: Vec<Vec<ListedPacket>>,
        awaited: Option<(u64, EventCounter)>,
        panics_before: Option<usize>,
    ) -> WireCapture {
        self.clock.store(lists[0][0].time as i64, Ordering::SeqCst);
        let (mut sources, mut counts) = (Vec::<Box<dyn PacketSource>>::new(), Vec::new());
        for packets in lists {
            let (read, awaited) = (Arc::new(AtomicUsize::new(0)), awaited.clone());
            counts.push((Arc::clone(&read), packets.len()));
            let clock = Arc::clone(&self.clock);
            sources.push(Box::new(PacketList {
                packets,
                read,
                clock,
                awaited,
                ended_intervals: 0,
                panics_before,
            }));
        }
        let settings = CaptureSettings::with_keys("box", keys).unwrap();
        let capture = WireCapture::start_with_sources(&settings, &self.intake, sources).unwrap();
        wait("all packets are read", || {
            counts.iter().all(|(read, count)| read.load(Ordering::SeqCst) == *count)
        });
        capture
    }

    /// Captures what `source` returns. The clock stands at `time`.
    pub(crate) fn capture_source(
        &self,
        keys: &str,
        time: u64,
        source: Box<dyn PacketSource>,
    ) -> WireCapture {
        let settings = CaptureSettings::with_keys("box", keys).unwrap();
        self.capture_with(&settings, time, source)
    }

    /// As [`Self::capture_source`], with settings.
    pub(crate) fn capture_with(
        &self,
        settings: &CaptureSettings,
        time: u64,
        source: Box<dyn PacketSource>,
    ) -> WireCapture {
        self.clock.store(time as i64, Ordering::SeqCst);
        WireCapture::start_with_sources(settings, &self.intake, vec![source]).unwrap()
    }

    /// Rows and gaps of the producer, in order.
    pub(crate) fn contents(&self) -> JournalRows {
        let mut contents = JournalRows::default();
        let mut reader = self.journal.reader(StartPosition::First).unwrap();
        while let Some(item) = reader.next().unwrap() {
            let batch = match item {
                ReadItem::Batch(batch) => batch,
                ReadItem::Gap(gap) => panic!("the journal lost records: {gap:?}"),
            };
            // Tests fill journals with other records too.
            let records = batch.records().filter(|record| record.bytes.first() == Some(&0xd3));
            records.for_each(|record| contents.add(record.bytes));
        }
        contents
    }
}

impl Drop for WireFixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("topdeck-observe-{}-{number}", std::process::id());
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Waits for a condition, at most a minute.
#[track_caller]
pub(crate) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rows and gaps of a journal.
#[derive(Debug, Default)]
pub(crate) struct JournalRows {
    pub(crate) rows: Vec<(Series, Sample)>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) exemplars: Vec<Exemplar>,
}

impl JournalRows {
    fn add(&mut self, bytes: &[u8]) {
        let batch = Batch::decode(bytes.to_vec()).unwrap();
        let mut reader = batch.read();
        for entry in reader.by_ref() {
            let entry = entry.unwrap();
            let BatchSeries::Key(canonical_key) = entry.series else {
                panic!("a journal needs keys")
            };
            let series = Series::from_canonical_key(canonical_key).unwrap();
            let (start, end, value) = (entry.start, entry.end, entry.decode().unwrap());
            if series.name().starts_with("wire_") {
                self.rows.push((series, Sample { start, end, value }));
            }
        }
        self.gaps.extend_from_slice(reader.gaps());
        self.exemplars.extend(reader.exemplars().map(|exemplar| exemplar.unwrap().1));
    }

    /// Samples of the series with this name and these labels.
    pub(crate) fn samples<'a>(
        &'a self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> impl Iterator<Item = &'a Sample> {
        let has = move |series: &Series| {
            let is_equal = |&(name, value): &(&str, &str)| series.label(name) == Some(value);
            series.name() == name && labels.iter().all(is_equal)
        };
        self.rows.iter().filter(move |(series, _)| has(series)).map(|(_, sample)| sample)
    }

    /// All distributions of the series with this name and these labels, merged.
    pub(crate) fn distribution(&self, name: &str, labels: &[(&str, &str)]) -> Histogram {
        let mut all = Histogram::default();
        for sample in self.samples(name, labels) {
            let SampleValue::Histogram(histogram) = &sample.value else { panic!("{sample:?}") };
            all.merge(histogram).unwrap();
        }
        all
    }

    /// Sum of the numbers at the end of an interval.
    pub(crate) fn number_at(&self, end: i64, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.samples(name, labels).filter(|sample| sample.end == end);
        let numbers = samples.map(|sample| match sample.value {
            SampleValue::Number(number) => number,
            _ => panic!("{sample:?}"),
        });
        numbers.sum()
    }

    /// Ends of all intervals.
    pub(crate) fn ends(&self) -> Vec<i64> {
        self.samples("wire_captured_packets_total", &[]).map(|sample| sample.end).collect()
    }
}
