//! Verification and repair. `repair` quarantines damaged bytes, keeps valid frames and records what
//! was lost as gaps.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, File, IoContext, OpenMode};

use crate::buffer::{Buffer, BufferLayout, FlushMark};
use crate::checkpoint::{self, Checkpoint, CheckpointKind};
use crate::error::{Error, Result};
use crate::frame;
use crate::gap::{GapReason, GapSet, RecordGap};
use crate::handle_locks::{self, HandleLocks, OpenLock};
use crate::mapped_journal::StoredSettings;
use crate::open_journal;
use crate::paths::Paths;
use crate::recovery;
use crate::segment::{self, ScanItem, SegmentHeader, SegmentScan};
use crate::settings::Settings;

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Bytes read.
    pub done_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
}

/// Damage found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// File.
    pub path: PathBuf,
    /// Byte range in the file; empty if the damage has no place in it.
    pub bytes: Range<u64>,
    /// Positions of the unreadable records; may be empty.
    pub positions: Range<u64>,
    /// Description for users.
    pub description: &'static str,
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Segments read.
    pub segments: u64,
    /// Valid frames.
    pub frames: u64,
    /// Records in those frames.
    pub records: u64,
    /// Positions from the first to the end of the last record in segments.
    pub positions: Range<u64>,
    /// Damage found.
    pub damages: Vec<FileDamage>,
    /// Bytes after the last frame that were never published: normal after a crash, not damage.
    pub torn_bytes: u64,
    /// Known gaps.
    pub explained_gaps: Vec<RecordGap>,
    /// Actions of `repair`, one line each; empty after `verify`.
    pub repaired: Vec<String>,
}

/// Reads and checks everything; the journal may be in use.
pub fn verify(
    disk: &dyn Disk,
    dir: &Path,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let paths = Paths::new(dir);
    Verifier::begin(disk, &paths, progress, false)?.verify()
}

/// Repairs a journal that must not be in use. Invalid bytes are moved to `DIR/quarantine`, valid
/// frames are kept, and lost records become gaps.
pub fn repair(
    disk: &dyn Disk,
    dir: &Path,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let paths = Paths::new(dir);
    // First check that the directory is a journal.
    settings(disk, &paths)?;
    for directory in [paths.segments(), paths.checkpoints(), paths.locks()] {
        disk.create_dir(&directory).io_context("create", &directory)?;
    }
    let guard = OpenLock::begin(disk, &paths)?;
    let _alone = HandleLocks::begin(disk, &paths, true, &guard)?;
    let mut check = Verifier::begin(disk, &paths, progress, true)?;
    let mut report = check.verify()?;
    check.repair(&mut report)?;
    Ok(report)
}

/// State of the settings superblock.
enum SettingsState {
    Intact,
    OneCopy,
    Lost,
}

/// Reads the settings and their state. If both copies are corrupt, they are rebuilt from the
/// segments.
fn settings(disk: &dyn Disk, paths: &Paths) -> Result<(StoredSettings, SettingsState)> {
    match StoredSettings::read(disk, paths) {
        Ok((stored_settings, false)) => Ok((stored_settings, SettingsState::Intact)),
        Ok((stored_settings, true)) => Ok((stored_settings, SettingsState::OneCopy)),
        Err(error @ Error::SettingsLost { .. }) => {
            let stored_settings = StoredSettings::from_segments(disk, paths, Settings::default())?;
            stored_settings
                .map(|stored_settings| (stored_settings, SettingsState::Lost))
                .ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// Byte range of a segment without valid frames, with the data needed for repair.
struct DamagedRange {
    first: u64,
    bytes: Range<u64>,
    positions: Range<u64>,
}

/// Segment metadata before reading.
struct SegmentInfo {
    first: u64,
    /// First position of the next segment.
    next: Option<u64>,
    /// Offset at which reading ends.
    limit: u64,
    /// Published flush mark, for the active segment.
    flushed_to: Option<FlushMark>,
}

struct Verifier<'a> {
    disk: &'a dyn Disk,
    paths: &'a Paths,
    progress: &'a mut dyn FnMut(CheckProgress),
    stored_settings: StoredSettings,
    settings_state: SettingsState,
    /// Damaged ranges for the repair.
    damaged_ranges: Vec<DamagedRange>,
    headerless: Vec<u64>,
    /// The caller excludes all other processes.
    is_exclusive: bool,
    checkpoints: Vec<Checkpoint>,
    corrupt_checkpoints: Vec<String>,
    are_gaps_intact: bool,
}

impl<'a> Verifier<'a> {
    fn begin(
        disk: &'a dyn Disk,
        paths: &'a Paths,
        progress: &'a mut dyn FnMut(CheckProgress),
        alone: bool,
    ) -> Result<Verifier<'a>> {
        let (stored_settings, settings_state) = settings(disk, paths)?;
        let (checkpoints, lost_checkpoints) = checkpoint::list(disk, paths)?;
        Ok(Verifier {
            disk,
            paths,
            progress,
            stored_settings,
            settings_state,
            damaged_ranges: Vec::new(),
            headerless: Vec::new(),
            is_exclusive: alone,
            checkpoints,
            corrupt_checkpoints: lost_checkpoints,
            are_gaps_intact: true,
        })
    }

    fn verify(&mut self) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let mut damage = |path: PathBuf, what| {
            report.damages.push(FileDamage {
                path,
                bytes: 0..0,
                positions: 0..0,
                description: what,
            });
        };
        match self.settings_state {
            SettingsState::Intact => {}
            SettingsState::OneCopy => {
                damage(self.paths.settings(), "settings degraded: one superblock copy is corrupt");
            }
            SettingsState::Lost => {
                damage(
                    self.paths.settings(),
                    "settings lost: both superblock copies are missing or corrupt",
                );
            }
        }
        for name in &self.corrupt_checkpoints {
            damage(
                self.paths.checkpoint(name)?,
                "checkpoint lost: both superblock copies are corrupt",
            );
        }
        for checkpoint in self.checkpoints.iter().filter(|checkpoint| checkpoint.is_degraded) {
            damage(
                self.paths.checkpoint(&checkpoint.name)?,
                "checkpoint degraded: one superblock copy is corrupt",
            );
        }
        let (gaps, is_valid) = GapSet::load(self.disk, self.paths)?;
        self.are_gaps_intact = is_valid;
        if !is_valid {
            damage(self.paths.gaps(), "gaps file corrupt: its gaps will be reported as damage");
        }
        report.explained_gaps = gaps.iter().cloned().collect();
        self.segments(&mut report, &gaps)?;
        Ok(report)
    }

    fn segments(&mut self, report: &mut CheckReport, gaps: &GapSet) -> Result<()> {
        let firsts = segment::list(self.disk, self.paths)?;
        let (live, counted) = self.read_flush_mark()?;
        let mut progress = CheckProgress {
            done_bytes: 0,
            total_bytes: segment::total_bytes(self.disk, self.paths)?,
        };
        let mut expected = firsts.first().copied().unwrap_or(0);
        report.positions = expected..expected;
        for (i, &first) in firsts.iter().enumerate() {
            let next = firsts.get(i.saturating_add(1)).copied();
            let counted = counted.filter(|mark| mark.segment <= first);
            if live && counted.is_some_and(|mark| mark.segment < first) {
                // Created in the meantime.
                break;
            }
            let counted = counted.filter(|mark| mark.segment == first);
            let mut scan =
                match SegmentScan::open(self.disk, self.paths, self.stored_settings.id, first) {
                    Ok(scan) => scan,
                    // Deleted since it was listed.
                    Err(error) if error.is_not_found() => {
                        expected = next.unwrap_or(expected);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
            let limit = match counted.filter(|_| live) {
                Some(mark) => mark.offset,
                None => scan.file_bytes()?,
            };
            if first > expected {
                let what = "records before this segment are missing";
                self.record_missing(report, gaps, scan.path(), 0..0, expected..first, what);
            }
            if !scan.has_valid_header() {
                self.headerless.push(first);
                let what = "segment header corrupt";
                let path = scan.path().to_owned();
                report.damages.push(FileDamage {
                    path,
                    bytes: 0..0,
                    positions: 0..0,
                    description: what,
                });
            }
            report.segments = report.segments.saturating_add(1);
            let survey = SegmentInfo { first, next, limit, flushed_to: counted };
            expected =
                self.segment(report, gaps, &mut scan, &survey, expected.max(first), progress)?;
            progress.done_bytes = progress.done_bytes.saturating_add(scan.file_bytes()?);
            (self.progress)(progress);
        }
        report.positions.end = expected;
        Ok(())
    }

    /// Reads one segment, whose first record should be at `expected`; returns the position after
    /// its last record.
    fn segment(
        &mut self,
        report: &mut CheckReport,
        gaps: &GapSet,
        scan: &mut SegmentScan,
        survey: &SegmentInfo,
        mut expected: u64,
        progress: CheckProgress,
    ) -> Result<u64> {
        let path = scan.path().to_owned();
        let mut raw = Vec::new();
        // Adjacent invalid bytes form one damaged range.
        let mut damaged: Option<Range<u64>> = None;
        let end = loop {
            let (at, upto) = match scan.next(survey.limit)? {
                ScanItem::Frame { head, offset, body } => {
                    let done_bytes = progress.done_bytes.saturating_add(offset);
                    (self.progress)(CheckProgress { done_bytes, ..progress });
                    if scan.body(&head, body, &mut raw) {
                        let records = u64::from(head.records);
                        report.frames = report.frames.saturating_add(1);
                        report.records = report.records.saturating_add(records);
                        let bytes = damaged.take().unwrap_or(offset..offset);
                        let lost = expected..head.first;
                        self.record_damage(report, gaps, survey.first, &path, bytes, lost);
                        expected = head.positions().end;
                        continue;
                    }
                    (offset, offset.saturating_add(head.frame_bytes()))
                }
                ScanItem::Damage { offset, end } => (offset, end),
                ScanItem::End { offset, torn_bytes } => {
                    let begin = damaged.take().map_or(offset, |damaged| damaged.start);
                    break begin..offset.saturating_add(torn_bytes);
                }
            };
            damaged = Some(damaged.map_or(at, |damaged| damaged.start)..upto);
        };
        if let Some(next) = survey.next {
            self.record_damage(report, gaps, survey.first, &path, end, expected..next);
            return Ok(expected);
        }
        // Everything below the mark was published. Bytes after it are left by a crash: opening
        // truncates them.
        let counted =
            survey.flushed_to.map_or(end.start, |mark| mark.offset.clamp(end.start, end.end));
        if counted > end.start {
            let lost =
                expected..survey.flushed_to.map_or(expected, |mark| mark.position.max(expected));
            self.record_damage(report, gaps, survey.first, &path, end.start..counted, lost.clone());
            expected = lost.end;
        }
        report.torn_bytes = end.end.saturating_sub(counted);
        Ok(expected)
    }

    /// Whether the journal is open, and the flush mark if the buffer has a valid one.
    fn read_flush_mark(&self) -> Result<(bool, Option<FlushMark>)> {
        let live = !self.is_exclusive && self.is_open()?;
        let path = self.paths.buffer();
        let size = BufferLayout::new(
            self.stored_settings.settings.buffer_bytes,
            self.stored_settings.settings.dedup_producers,
        );
        let Ok(file) = self.disk.open(&path, OpenMode::Write) else { return Ok((live, None)) };
        if file.len().io_context("get the length of", &path)? < size.file_bytes() {
            return Ok((live, None));
        }
        let memory = file.map(size.file_bytes()).io_context("map", &path)?;
        let buffer = Buffer::new(memory, size, self.stored_settings.id);
        let mark = match (buffer.is_same_journal(self.stored_settings.id), live) {
            (true, true) => Some(buffer.mark()),
            (true, false) => buffer.latest_valid_mark(),
            (false, _) => None,
        };
        Ok((live, mark.filter(|mark| mark.offset > 0)))
    }

    /// Whether any process has the journal open.
    fn is_open(&self) -> Result<bool> {
        // Holding the opening lock prevents a concurrent open. A directory whose lock files cannot
        // be opened is not in use.
        let Ok(_opening) = OpenLock::begin(self.disk, self.paths) else { return Ok(false) };
        let attached = handle_locks::open(self.disk, self.paths, "attached")?;
        Ok(!attached.try_lock().io_context("lock", &self.paths.lock("attached"))?)
    }

    fn record_damage(
        &mut self,
        report: &mut CheckReport,
        gaps: &GapSet,
        first: u64,
        path: &Path,
        bytes: Range<u64>,
        lost: Range<u64>,
    ) {
        if bytes.is_empty() && lost.is_empty() {
            return;
        }
        // Only positions are missing: nothing to quarantine.
        if !bytes.is_empty() {
            self.damaged_ranges.push(DamagedRange {
                first,
                bytes: bytes.clone(),
                positions: lost.clone(),
            });
        }
        self.record_missing(report, gaps, path, bytes, lost, "invalid frame bytes");
    }

    fn record_missing(
        &mut self,
        report: &mut CheckReport,
        gaps: &GapSet,
        path: &Path,
        bytes: Range<u64>,
        positions: Range<u64>,
        what: &'static str,
    ) {
        if bytes.is_empty() && gaps.contains(&positions) {
            return;
        }
        report.damages.push(FileDamage {
            path: path.to_owned(),
            bytes,
            positions,
            description: what,
        });
    }

    fn repair(&mut self, report: &mut CheckReport) -> Result<()> {
        let (disk, paths) = (self.disk, self.paths);
        let restored = match self.settings_state {
            SettingsState::Intact => None,
            SettingsState::OneCopy => Some("settings: both superblock copies restored"),
            SettingsState::Lost => Some("settings: lost; defaults written, set the limits again"),
        };
        if let Some(restored) = restored {
            self.stored_settings.create(disk, paths)?;
            report.repaired.push(restored.to_owned());
        }
        let positions: Vec<u64> = self.checkpoints.iter().map(|c| c.position).collect();
        let (mut gaps, _) = GapSet::load(disk, paths)?;
        for damage in report.damages.iter().filter(|damage| !damage.positions.is_empty()) {
            gaps.add(RecordGap::unknown(damage.positions.clone(), GapReason::Damaged), &positions);
        }
        let known: Vec<RecordGap> = gaps.iter().cloned().collect();
        if !self.are_gaps_intact || known != report.explained_gaps {
            gaps.save(disk, paths)?;
            let lost = report.damages.iter().map(|damage| range_len(&damage.positions));
            let count = lost.fold(0, u64::saturating_add);
            report.repaired.push(format!("gaps: {count} lost records added"));
        }
        let mut sick: Vec<u64> = self
            .damaged_ranges
            .iter()
            .map(|damaged| damaged.first)
            .chain(self.headerless.iter().copied())
            .collect();
        sick.sort_unstable();
        sick.dedup();
        for first in sick {
            self.rebuild(first, report)?;
        }
        for checkpoint in self.checkpoints.iter().filter(|checkpoint| checkpoint.is_degraded) {
            checkpoint::create(disk, paths, checkpoint)?;
            report
                .repaired
                .push(format!("checkpoint {:?}: both superblock copies restored", checkpoint.name));
        }
        let first = segment::list(disk, paths)?.first().copied().unwrap_or(report.positions.end);
        for name in &self.corrupt_checkpoints {
            let checkpoint = Checkpoint {
                name: name.clone(),
                position: first,
                committed_at: self.stored_settings.created,
                kind: CheckpointKind::Subscriber,
                pins_records: true,
                is_degraded: false,
            };
            checkpoint::create(disk, paths, &checkpoint)?;
            report.repaired.push(format!(
                "checkpoint {name:?}: lost; recreated as a subscriber at the first retained \
                 position {first}"
            ));
        }
        let buffer = open_journal::map(disk, paths, &self.stored_settings)?;
        let opened = recovery::recover(disk, paths, &self.stored_settings, &buffer)?;
        if opened.torn_bytes > 0 {
            report.repaired.push(format!(
                "{} bytes of a torn tail truncated; none was acknowledged at level disk",
                opened.torn_bytes
            ));
        }
        if opened.from_buffer > 0 {
            report.repaired.push(format!(
                "{} records are still in the buffer and are retained",
                opened.from_buffer
            ));
        }
        report.repaired.extend(opened.damaged_files);
        Ok(())
    }

    /// Rewrites a segment from its valid frames; the bytes between them go to the quarantine.
    fn rebuild(&mut self, first: u64, report: &mut CheckReport) -> Result<()> {
        let (disk, paths) = (self.disk, self.paths);
        let path = paths.segment(first);
        let file = disk.open(&path, OpenMode::Read).io_context("open", &path)?;
        let quarantine = paths.quarantine();
        disk.create_dir(&quarantine).io_context("create", &quarantine)?;
        let mut lost = 0;
        for damaged in self
            .damaged_ranges
            .iter()
            .filter(|damaged| damaged.first == first && !damaged.bytes.is_empty())
        {
            let name = format!("{first:016x}-{:08x}.bytes", damaged.bytes.start);
            let copy = quarantine.join(&name);
            let out = disk.open(&copy, OpenMode::Create).io_context("create", &copy)?;
            copy_bytes(&*file, &path, damaged.bytes.clone(), &*out, &copy, 0)?;
            out.sync().io_context("fsync", &copy)?;
            let size = range_len(&damaged.bytes);
            lost = range_len(&damaged.positions).saturating_add(lost);
            report.repaired.push(format!(
                "segments/{first:016x}.seg: {size} bytes at {} moved to quarantine/{name}",
                damaged.bytes.start
            ));
        }
        disk.sync_dir(&quarantine).io_context("fsync directory", &quarantine)?;
        let head = match SegmentHeader::read(&*file, &path, self.stored_settings.id, first)? {
            Some(head) => head,
            None => {
                report.repaired.push(format!("segments/{first:016x}.seg: header rewritten"));
                let created = self.stored_settings.created;
                SegmentHeader {
                    journal_id: self.stored_settings.id,
                    first,
                    created,
                    producers: Vec::new(),
                }
            }
        };
        let fresh = path.with_added_extension("new");
        let out = disk.open(&fresh, OpenMode::Create).io_context("create", &fresh)?;
        out.set_len(0).io_context("truncate", &fresh)?;
        out.write_all_at(&head.encode(), 0).io_context("write", &fresh)?;
        let mut at = head.frames_offset();
        let shared: Arc<dyn File> =
            disk.open(&path, OpenMode::Read).io_context("open", &path)?.into();
        let from = SegmentHeader::read(&*file, &path, self.stored_settings.id, first)?
            .map_or(0, |head| head.frames_offset());
        let mut scan = SegmentScan::at(
            shared,
            path.clone(),
            frame::salt(self.stored_settings.id, first),
            from,
            first,
        );
        let limit = scan.file_bytes()?;
        let (mut frames, mut raw) = (0, Vec::new());
        loop {
            match scan.next(limit)? {
                ScanItem::Frame { head, offset, body } => {
                    if scan.body(&head, body, &mut raw) {
                        let bytes = offset..offset.saturating_add(head.frame_bytes());
                        copy_bytes(&*file, &path, bytes, &*out, &fresh, at)?;
                        at = at.saturating_add(head.frame_bytes());
                        frames = 1_u64.saturating_add(frames);
                    }
                }
                ScanItem::Damage { .. } => {}
                ScanItem::End { .. } => break,
            }
        }
        out.sync().io_context("fsync", &fresh)?;
        disk.rename(&fresh, &path).io_context("rename", &path)?;
        let dir = paths.segments();
        disk.sync_dir(&dir).io_context("fsync directory", &dir)?;
        report.repaired.push(format!(
            "segments/{first:016x}.seg: {frames} valid frames retained, {lost} records lost"
        ));
        Ok(())
    }
}

/// Length of a range; 0 if it ends before it begins: mixed segments of two journals overlap.
fn range_len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

fn copy_bytes(
    from: &dyn File,
    from_path: &Path,
    bytes: Range<u64>,
    to: &dyn File,
    to_path: &Path,
    at: u64,
) -> Result<()> {
    let mut piece = vec![0; range_len(&bytes).min(256 << 10) as usize];
    let (mut done, mut at) = (bytes.start, at);
    while done < bytes.end {
        let want = range_len(&(done..bytes.end)).min(piece.len() as u64) as usize;
        let have = from.read_full_at(&mut piece[..want], done).io_context("read", from_path)?;
        if have == 0 {
            break;
        }
        to.write_all_at(&piece[..have], at).io_context("write", to_path)?;
        done = done.saturating_add(have as u64);
        at = at.saturating_add(have as u64);
    }
    Ok(())
}
