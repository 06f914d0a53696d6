//! Hostile files that claim more than they contain: the cost of reading is bounded by their memory.

use std::path::PathBuf;

use shm::MetricsFileReader;
use shm::layout::{self, header, kind};
use shm::snapshot::MetricValue;

use crate::checks::sparse;

/// A file with contents chosen by a test.
struct HostileFile {
    words: Vec<u8>,
    entries: usize,
    texts: usize,
    lanes: usize,
}

impl HostileFile {
    fn new(lanes: usize) -> HostileFile {
        HostileFile { words: Vec::new(), entries: 0, texts: 8, lanes }
    }

    fn set(&mut self, offset: usize, word: u64) {
        self.words.extend(u32::try_from(offset).expect("the first 4 GiB").to_le_bytes());
        self.words.extend(word.to_ne_bytes());
    }

    /// Position of a text.
    fn text(&mut self, text: &str) -> u64 {
        let at = self.texts;
        self.set(layout::STRINGS + at, text.len() as u64);
        for (number, bytes) in text.as_bytes().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.set(layout::STRINGS + at + 8 + number * 8, u64::from_le_bytes(word));
        }
        self.texts += 8 + text.len().next_multiple_of(8);
        (at / 8) as u64
    }

    fn entry(&mut self, kind: u64, name: u64, (small, large): (usize, usize), parameter: u64) {
        let cells = small as u64 | (large as u64) << 32;
        let at = layout::REGISTRY_OFFSET + self.entries * layout::ENTRY_BYTES;
        for (number, word) in [kind, name, 0, 0, 0, cells, 0, parameter].into_iter().enumerate() {
            self.set(at + number * 8, word);
        }
        self.entries += 1;
    }

    /// Result of each way of attaching.
    fn read(mut self, name: &str) -> [shm::Result<Vec<shm::snapshot::ProcessSeries>>; 2] {
        let fields = [
            (header::MAGIC, layout::MAGIC),
            (header::VERSION, layout::VERSION),
            (header::STATE, layout::state::LIVE),
            (header::REGISTRY, layout::REGISTRY_OFFSET as u64),
            (header::REGISTRY_CAPACITY, layout::ENTRIES_MAX as u64),
            (header::REGISTRY_COUNT, self.entries as u64),
            (header::STRINGS, layout::STRINGS as u64),
            (header::STRINGS_CAPACITY, layout::STRINGS_BYTES as u64),
            (header::STRINGS_USED, self.texts as u64),
            (header::LANES, layout::LANES_OFFSET as u64),
            (header::LANE_STRIDE, layout::LANE_STRIDE as u64),
            (header::LANE_CAPACITY, layout::LANES_MAX as u64),
            (header::LANES_USED, self.lanes as u64),
            (header::SMALL_CAPACITY, layout::SMALL_BYTES as u64),
        ];
        fields.into_iter().for_each(|(at, word)| self.set(at * 8, word));
        for lane in 0..self.lanes {
            self.set(layout::HEADER_BYTES + lane * layout::LANE_BYTES, layout::PAGE as u64);
        }
        let file = format!("topdeck-hostile-{name}-{}.tdk", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(file);
        sparse(&path, &self.words, self.lanes);
        let metrics = [MetricsFileReader::attach_copy, MetricsFileReader::attach]
            .map(|attach| attach(&path).and_then(|mut reader| reader.metrics()));
        let _ = std::fs::remove_file(path);
        metrics
    }
}

#[test]
fn sparse_histograms_are_read_once() {
    let (lanes, histograms) = (20, 60);
    let mut file = HostileFile::new(lanes);
    let name = file.text("a");
    for number in 0..histograms {
        let (small, large) = (number * 64, layout::SMALL_BYTES + number * layout::BUCKETS_BYTES);
        file.entry(kind::HISTOGRAM, name, (small, large), 0);
        for lane in 0..lanes {
            // A record was started and never completed; all buckets have space.
            file.set(layout::lane_offset(lane) + small, 1);
            file.set(layout::lane_offset(lane) + small + 48, u64::MAX);
        }
    }
    let [copied, _] = file.read("holes");
    let error = copied.expect_err("it says that it has 20 MB of buckets");
    assert!(error.to_string().contains("read aborted"), "{error}");
}

#[test]
fn operations_with_long_tags_are_bounded() {
    let slots = 5_000;
    let mut file = HostileFile::new(1);
    let name = file.text("work");
    let tags = file.text("a\0b\0c\0d");
    let long = file.text(&"x".repeat(layout::STRING_MAX));
    let (small, large) = (0, layout::SMALL_BYTES);
    file.entry(kind::IN_FLIGHT, name, (small, large), tags);
    file.set(layout::LANES_OFFSET, slots as u64);
    file.set(layout::LANES_OFFSET + 24, slots as u64);
    for number in 0..slots {
        let slot = layout::LANES_OFFSET + large + number * layout::SLOT_BYTES;
        for (at, word) in
            [1_000, number as u64, long | long << 32, long | long << 32].iter().enumerate()
        {
            file.set(slot + at * 8, *word);
        }
    }
    for metrics in file.read("tags") {
        let metrics = metrics.expect("it can be read");
        let [MetricValue::InFlight(table)] =
            &metrics.iter().map(|one| one.value.clone()).collect::<Vec<_>>()[..]
        else {
            panic!("one table")
        };
        assert_eq!(table.started, 5_000);
        let bytes: usize =
            table.operations.iter().flat_map(|one| &one.tags).map(|(_, value)| value.len()).sum();
        assert!(bytes > 32 << 20 && bytes <= 64 << 20, "{bytes} bytes of tags");
        assert_eq!(table.operations.len() as u64 + table.count_untracked(), 5_000);
    }
}
