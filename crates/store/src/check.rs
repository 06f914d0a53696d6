//! Scrub: verification of all stored parts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use journal::supervisor::catch_panic;

use crate::backend::ChunkLocation;
use crate::chunk;
use crate::error::Result;
use crate::gather;
use crate::inner::StoreInner;
use crate::manifest::PartInfo;
use crate::mutex::lock;
use crate::resolution::Resolution;
use crate::store::Store;

/// Result of a scrub.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// Parts read.
    pub parts: u64,
    /// Chunks read.
    pub chunks: u64,
    /// Bytes of chunks read.
    pub bytes: u64,
    /// Damage found.
    pub damage: Vec<ScrubDamage>,
    /// Days whose rollups were rebuilt: a rollup was damaged and its source parts were intact.
    pub rebuilt_days: Vec<i64>,
}

/// Damage found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubDamage {
    /// The file.
    pub file: String,
    /// Location in the file and cause.
    pub description: String,
    /// Rows that cannot be read because of the damage; `None` if there are none, or the number is
    /// unknown.
    pub rows: Option<u64>,
    /// Whether everything lost can be rebuilt from other parts.
    pub is_rebuildable: bool,
}

/// Progress of a scrub.
#[derive(Clone, Copy, Debug)]
pub struct ScrubProgress {
    /// Bytes of parts verified.
    pub bytes: u64,
    /// Bytes of all parts.
    pub bytes_total: u64,
}

impl Store {
    /// Reads every chunk of every part, compares its checksum and decodes it. Reads at most
    /// `bytes_per_second`, if given.
    pub fn verify(
        &self,
        bytes_per_second: Option<u64>,
        each: &mut dyn FnMut(ScrubProgress),
    ) -> Result<ScrubReport> {
        let parts: Vec<PartInfo> = self.inner().state().manifest.parts.values().cloned().collect();
        let bytes_total = parts.iter().map(|part| part.bytes).sum();
        let (mut report, mut bytes) = (ScrubReport::default(), 0);
        let start = Instant::now();
        report.damage.extend(self.inner().state().warnings().iter().map(|note| ScrubDamage {
            file: "series".to_owned(),
            description: note.clone(),
            rows: None,
            is_rebuildable: true,
        }));
        for part in &parts {
            self.inner().verify_part(part, &mut report);
            bytes = part.bytes.saturating_add(bytes);
            each(ScrubProgress { bytes, bytes_total });
            if let Some(rate) = bytes_per_second.filter(|&rate| rate > 0) {
                let expected_time = Duration::from_secs_f64(bytes as f64 / rate as f64);
                std::thread::sleep(expected_time.saturating_sub(start.elapsed()));
            }
        }
        Ok(report)
    }

    /// Same as [`Self::verify`]; also rebuilds rollups that are damaged while their source parts
    /// are intact.
    pub fn scrub(
        &self,
        bytes_per_second: Option<u64>,
        each: &mut dyn FnMut(ScrubProgress),
    ) -> Result<ScrubReport> {
        let mut report = self.verify(bytes_per_second, each)?;
        let _work = lock(&self.inner().work);
        report.rebuilt_days = self.inner().rebuild_rollups()?;
        Ok(report)
    }
}

/// Least cost of a chunk in bytes: a read and a checksum of few bytes cost about as much as those
/// of a page. A store with very many series that have ended has mostly such chunks.
const CHUNK_COST_MIN: u32 = 4 << 10;
/// Number of locations that are copied from a part at a time.
const LOCATIONS: usize = 256;

/// Position of the background scrub.
#[derive(Debug, Default)]
pub(crate) struct ScrubCursor {
    /// Current part, and the number of its chunks already verified.
    at: (u64, usize),
    /// The next chunks of the part.
    next: VecDeque<ChunkLocation>,
    /// Read budget in bytes.
    bytes: f64,
    /// Work since the start: locations copied, and chunks verified.
    copied: u64,
    verified: u64,
}

impl StoreInner {
    /// Verifies the next chunks. A part whose verification panics is reported and skipped until the
    /// next round.
    pub(crate) fn scrub_step_or_skip(&self, round: &mut ScrubCursor, elapsed: Duration) {
        if let Err(message) = catch_panic(|| self.scrub_step(round, elapsed)) {
            let name = format!("checking part {:016x}", round.at.0);
            self.add_warning(format!("{name} panicked, please report this bug: {message}"));
            self.supervisor().quarantine(name, message);
            *round =
                ScrubCursor { at: (round.at.0.saturating_add(1), 0), ..ScrubCursor::default() };
        }
    }

    /// Verifies as many chunks as the rate allows after `elapsed`, and records damage.
    pub(crate) fn scrub_step(&self, round: &mut ScrubCursor, elapsed: Duration) {
        let rate = self.options.scrub_bytes_per_second as f64;
        round.bytes = (round.bytes + rate * elapsed.as_secs_f64()).min(rate);
        let mut bytes = Vec::new();
        while round.bytes > 0.0 && !self.stop.load(Ordering::Relaxed) {
            let next = {
                let state = self.state();
                state.manifest.parts.range(round.at.0..).next().map(|(_, part)| part.clone())
            };
            let Some(info) = next else {
                // The next round starts at the next call at the earliest.
                round.at = (0, 0);
                return;
            };
            if info.number != round.at.0 {
                round.at = (info.number, 0);
                round.next.clear();
            }
            self.supervisor().failpoint(format_args!("store check {:016x}", info.number));
            let opened = self.part(info.number).and_then(|part| {
                if round.next.is_empty() {
                    round.next = part.chunk_location_range(round.at.1, LOCATIONS)?.into();
                    round.copied = round.copied.saturating_add(round.next.len() as u64);
                }
                Ok(part)
            });
            let part = match opened {
                Ok(part) => part,
                // An unreadable part does not stop the scrub of the others.
                Err(error) => {
                    self.add_warning(error.to_string());
                    round.at = (info.number.saturating_add(1), 0);
                    continue;
                }
            };
            let Some(location) = round.next.pop_front() else {
                let damage = part.damage().unwrap_or_else(|error| vec![error.to_string()]);
                damage.iter().for_each(|what| self.add_warning(format!("{}: {what}", part.name())));
                round.at = (info.number.saturating_add(1), 0);
                continue;
            };
            match gather::read(&*part, &location, &mut bytes) {
                Ok(Ok(_)) => {}
                Ok(Err(gap)) => self.add_warning(gap.reason),
                Err(error) => self.add_warning(error.to_string()),
            }
            round.at.1 = round.at.1.saturating_add(1);
            round.verified = round.verified.saturating_add(1);
            round.bytes -= f64::from(location.length.max(CHUNK_COST_MIN));
        }
    }

    /// Verifies a part.
    pub(crate) fn verify_part(&self, info: &PartInfo, report: &mut ScrubReport) {
        let is_rollup = info.resolution != Resolution::Base && self.is_base_there(info);
        let damage = |file: &str, what: String, rows| ScrubDamage {
            file: file.to_owned(),
            description: what,
            rows,
            is_rebuildable: is_rollup,
        };
        let name = format!("{:016x}.part", info.number);
        let opened = self
            .part(info.number)
            .and_then(|part| part.chunk_locations().map(|locations| (part, locations)));
        let (part, locations) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                return report.damage.push(damage(&name, error.to_string(), Some(info.rows)));
            }
        };
        report.parts = report.parts.saturating_add(1);
        let damaged = part.damage().unwrap_or_else(|error| vec![error.to_string()]);
        report.damage.extend(damaged.into_iter().map(|what| ScrubDamage {
            file: name.clone(),
            description: what,
            rows: None,
            is_rebuildable: true,
        }));
        let mut rows = 0u64;
        let mut bytes = Vec::new();
        for location in &locations {
            report.chunks = report.chunks.saturating_add(1);
            report.bytes = report.bytes.saturating_add(location.length.into());
            let read =
                gather::read(&*part, location, &mut bytes).map_err(|error| error.to_string());
            let read = read.and_then(|read| read.map_err(|gap| gap.reason));
            let read = read.and_then(|header| chunk::decode(&header, &bytes));
            match read {
                Ok((found, _)) => rows = rows.saturating_add(found.len() as u64),
                Err(what) => {
                    report.damage.push(damage(&name, what, Some(location.rows.into())));
                    rows = rows.saturating_add(location.rows.into());
                }
            }
        }
        if let Some(missing @ 1..) = info.rows.checked_sub(rows) {
            let what = format!("{missing} rows are in chunks that cannot be found");
            report.damage.push(damage(&name, what, Some(missing)));
        }
    }

    /// Whether all source parts of a rollup still exist.
    fn is_base_there(&self, info: &PartInfo) -> bool {
        let state = self.state();
        info.covers.values().flatten().all(|number| state.manifest.parts.contains_key(number))
    }

    /// Rebuilds rollups that are damaged while their source parts are intact. The caller holds the
    /// mutex `work`.
    pub(crate) fn rebuild_rollups(&self) -> Result<Vec<i64>> {
        let mut rebuilt = Vec::new();
        loop {
            let parts: Vec<PartInfo> = self.state().manifest.parts.values().cloned().collect();
            let day = parts
                .iter()
                .filter(|part| part.resolution != Resolution::Base && self.is_base_there(part))
                .find_map(|part| {
                    let mut report = ScrubReport::default();
                    self.verify_part(part, &mut report);
                    let is_damaged = report.damage.iter().any(|damage| damage.rows.is_some());
                    part.covers.keys().copied().find(|day| is_damaged && !rebuilt.contains(day))
                });
            let Some(day) = day else { return Ok(rebuilt) };
            self.rollup_day(day)?;
            rebuilt.push(day);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use disk::Disk;
    use journal::Level;
    use model::{BatchWriter, Sample, SampleValue, Series, SeriesKind};
    use sim::SimDisk;

    use super::*;
    use crate::options::Options;

    /// A user saw an idle server with 75,173 series of programs that had exited use 12 to 14 % of
    /// a core, and not end after SIGTERM: for each chunk, the scrub copied the locations of all
    /// chunks of the part, and it verified as many small chunks as are 1 MiB.
    #[test]
    fn scrub_of_many_small_chunks_does_a_bounded_amount_of_work() {
        const SERIES: u64 = 3_000;
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
        let journal = journal::Options { has_background_thread: false, ..Default::default() };
        let options = Options { has_background_thread: false, journal, ..Options::default() };
        let store = Store::open(disk, Path::new("/store"), &options).unwrap();
        let mut batch = BatchWriter::default();
        for number in 0..SERIES {
            let series = Series::new("retired", SeriesKind::Gauge);
            batch.series(&series.with_label("run", number.to_string()).validate().unwrap());
            batch.sample(&Sample { start: 5, end: 5, value: SampleValue::Number(1.0) }).unwrap();
        }
        let _ack = store.ingest(None, &batch.finish(), Level::Process).unwrap();
        store.catch_up().unwrap();
        store.flush().unwrap();
        assert_eq!(store.inner().state().manifest.parts.len(), 1);
        let mut cursor = ScrubCursor::default();
        let second_max = options.scrub_bytes_per_second / u64::from(CHUNK_COST_MIN);
        let mut seconds = 0;
        while cursor.verified < SERIES {
            let before = cursor.verified;
            store.inner().scrub_step(&mut cursor, Duration::from_secs(1));
            seconds += 1;
            assert!((1..=second_max).contains(&(cursor.verified - before)), "{cursor:?}");
            assert!(cursor.copied <= cursor.verified + LOCATIONS as u64, "{cursor:?}");
        }
        assert_eq!(seconds, SERIES.div_ceil(second_max));
        assert_eq!((cursor.verified, cursor.copied), (SERIES, SERIES));
        // A store that stops does not wait for it.
        store.inner().stop.store(true, Ordering::Relaxed);
        store.inner().scrub_step(&mut cursor, Duration::from_secs(1));
        assert_eq!(cursor.verified, SERIES);
    }
}
