//! `verify`: reading everything that is there, changing nothing, and saying what is wrong. `repair`: making
//! what is wrong harmless, keeping what it takes away, and saying what was lost.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, File, Mode};

use crate::checkpoint::{self, Checkpoint, Kind};
use crate::codec::Decompressor;
use crate::error::{Doing, Error, Result};
use crate::frame::{self, Records};
use crate::gap::{Gap, Gaps, Reason};
use crate::journal;
use crate::opening;
use crate::places::Places;
use crate::presence::{self, Opening, Presence};
use crate::segment::{self, Found, Scan, SegmentHead};
use crate::settings::Settings;
use crate::store::Born;

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have been read.
    pub done_bytes: u64,
    /// Bytes there are.
    pub total_bytes: u64,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes; empty when it is not about a place in the file.
    pub bytes: Range<u64>,
    /// The positions of records that cannot be read for it; may be empty.
    pub positions: Range<u64>,
    /// What it is, for people.
    pub what: &'static str,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Segments read.
    pub segments: u64,
    /// Sound frames in them.
    pub frames: u64,
    /// Records in those.
    pub records: u64,
    /// Positions from the first to the end of the last record in segments.
    pub positions: Range<u64>,
    /// What is damaged.
    pub damages: Vec<Damage>,
    /// Bytes behind the last frame that were never counted: what a crash leaves, no damage.
    pub torn_bytes: u64,
    /// Gaps that are known and explained.
    pub known_gaps: Vec<Gap>,
    /// What `repair` did, a line each, for people; empty after `verify`.
    pub repaired: Vec<String>,
}

/// Reads everything; the journal may be in use.
pub fn verify(disk: &dyn Disk, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
    let places = Places::new(dir);
    Check::begin(disk, &places, progress)?.verify()
}

/// Repairs; the journal must not be in use. Bytes that are no frame are moved to `DIR/quarantine`, the sound
/// frames around them kept, and what was lost noted as gaps.
pub fn repair(disk: &dyn Disk, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
    let places = Places::new(dir);
    // Not before it is known that there is a journal.
    settings(disk, &places)?;
    for folder in [places.segments(), places.checkpoints(), places.locks()] {
        disk.create_dir(&folder).doing("create it", &folder)?;
    }
    let turn = Opening::begin(disk, &places)?;
    let _alone = Presence::begin(disk, &places, true, &turn)?;
    let mut check = Check::begin(disk, &places, progress)?;
    let mut report = check.verify()?;
    check.repair(&mut report)?;
    Ok(report)
}

/// The settings, and what is wrong with them. When both copies are damaged they follow from the segments.
fn settings(disk: &dyn Disk, places: &Places) -> Result<(Born, Option<&'static str>)> {
    match Born::read(disk, places) {
        Ok((born, false)) => Ok((born, None)),
        Ok((born, true)) => Ok((born, Some("one of the two copies of the settings is damaged"))),
        Err(error @ Error::Settings { .. }) => {
            for first in segment::list(disk, places)? {
                let path = places.segment(first);
                let file = disk.open(&path, Mode::Read).doing("open it", &path)?;
                if let Some(head) = SegmentHead::read(&*file, &path)? {
                    let born = Born {
                        id: head.journal_id,
                        created: head.created,
                        settings: Settings::default(),
                    };
                    return Ok((born, Some("both copies of the settings are damaged")));
                }
            }
            // Without a segment that says whose it is, nothing in the journal can be read.
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// A segment's bytes that are no frame, and what the repair needs to know.
struct Wound {
    first: u64,
    bytes: Range<u64>,
    positions: Range<u64>,
}

struct Check<'a> {
    disk: &'a dyn Disk,
    places: &'a Places,
    progress: &'a mut dyn FnMut(Progress),
    born: Born,
    settings_damage: Option<&'static str>,
    /// Segments with damage, for the repair.
    wounds: Vec<Wound>,
    headless: Vec<u64>,
    checkpoints: Vec<Checkpoint>,
    lost_checkpoints: Vec<String>,
    gaps_sound: bool,
}

impl<'a> Check<'a> {
    fn begin(
        disk: &'a dyn Disk,
        places: &'a Places,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Check<'a>> {
        let (born, settings_damage) = settings(disk, places)?;
        let (checkpoints, lost_checkpoints) = checkpoint::list(disk, places)?;
        Ok(Check {
            disk,
            places,
            progress,
            born,
            settings_damage,
            wounds: Vec::new(),
            headless: Vec::new(),
            checkpoints,
            lost_checkpoints,
            gaps_sound: true,
        })
    }

    fn verify(&mut self) -> Result<Report> {
        let mut report = Report::default();
        let mut damage = |path: PathBuf, what| {
            report.damages.push(Damage { path, bytes: 0..0, positions: 0..0, what });
        };
        if let Some(what) = self.settings_damage {
            damage(self.places.settings(), what);
        }
        for name in &self.lost_checkpoints {
            damage(self.places.checkpoint(name)?, "both copies of the checkpoint are damaged");
        }
        for checkpoint in self.checkpoints.iter().filter(|checkpoint| checkpoint.damaged) {
            damage(
                self.places.checkpoint(&checkpoint.name)?,
                "one of the two copies of the checkpoint is damaged",
            );
        }
        let (gaps, sound) = Gaps::load(self.disk, self.places)?;
        self.gaps_sound = sound;
        if !sound {
            damage(
                self.places.gaps(),
                "the list of gaps is damaged; those it had will show as damage",
            );
        }
        report.known_gaps = gaps.iter().cloned().collect();
        self.segments(&mut report, &gaps)?;
        Ok(report)
    }

    fn segments(&mut self, report: &mut Report, gaps: &Gaps) -> Result<()> {
        let firsts = segment::list(self.disk, self.places)?;
        let live = self.live_end()?;
        let mut total_bytes = 0;
        for &first in &firsts {
            let path = self.places.segment(first);
            match self.disk.open(&path, Mode::Read) {
                Ok(file) => total_bytes += file.len().doing("ask for its length", &path)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).doing("open it", &path),
            }
        }
        let mut done_bytes = 0;
        let mut expected = firsts.first().copied().unwrap_or(0);
        report.positions = expected..expected;
        for (i, &first) in firsts.iter().enumerate() {
            let path = self.places.segment(first);
            let mut scan = match Scan::open(self.disk, self.places, self.born.id, first) {
                Ok(scan) => scan,
                // Freed since it was listed.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    expected = firsts.get(i + 1).copied().unwrap_or(expected);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let last = i + 1 == firsts.len();
            let limit = match live {
                Some((segment, offset)) if segment == first => offset,
                // Begun since.
                Some((segment, _)) if segment < first => continue,
                _ => scan.file_bytes()?,
            };
            report.segments += 1;
            if first > expected {
                self.missing(
                    report,
                    gaps,
                    &path,
                    0..0,
                    expected..first,
                    "records before this segment are missing",
                );
            }
            expected = expected.max(first);
            let file = self.disk.open(&path, Mode::Read).doing("open it", &path)?;
            if SegmentHead::read(&*file, &path)?.is_none() {
                self.headless.push(first);
                let what = "the segment's head is damaged";
                report.damages.push(Damage {
                    path: path.clone(),
                    bytes: 0..0,
                    positions: 0..0,
                    what,
                });
            }
            let mut decompressor = Decompressor::default();
            let mut raw = Vec::new();
            let mut wound: Option<Range<u64>> = None;
            loop {
                let found = scan.next(limit)?;
                let (at, upto, what) = match found {
                    Found::Frame { head, offset, body } => {
                        (self.progress)(Progress { done_bytes: done_bytes + offset, total_bytes });
                        raw.resize(head.raw_bytes as usize, 0);
                        let sound = decompressor.decompress(head.codec, scan.bytes(body), &mut raw)
                            && Records::new(&raw, head.first).are(u64::from(head.records));
                        if sound {
                            report.frames += 1;
                            report.records += u64::from(head.records);
                            let lost = expected..head.first;
                            let bytes = wound.take().unwrap_or(offset..offset);
                            if !lost.is_empty() || !bytes.is_empty() {
                                self.wound(report, gaps, first, &path, bytes, lost);
                            }
                            expected = head.positions().end;
                            continue;
                        }
                        (offset, offset + head.frame_bytes(), false)
                    }
                    Found::Damage { offset, end } => (offset, end, false),
                    Found::End { offset, torn_bytes } => (offset, offset + torn_bytes, true),
                };
                // Neighbouring bytes that are no frame are one wound.
                let begin = wound.take().map_or(at, |wound| wound.start);
                wound = Some(begin..upto);
                if what {
                    break;
                }
            }
            let bytes = wound.unwrap_or(0..0);
            let next = firsts.get(i + 1).copied();
            match next {
                Some(next) if !bytes.is_empty() => {
                    self.wound(report, gaps, first, &path, bytes, expected..next)
                }
                // What a crash leaves; opening cuts it off.
                None if last => report.torn_bytes = bytes.end - bytes.start,
                _ => {}
            }
            done_bytes += scan.file_bytes()?;
            (self.progress)(Progress { done_bytes: done_bytes.min(total_bytes), total_bytes });
        }
        report.positions.end = expected;
        Ok(())
    }

    /// Where the segment being written ends, when somebody has the journal open.
    fn live_end(&self) -> Result<Option<(u64, u64)>> {
        let attached = match presence::open(self.disk, self.places, "attached") {
            Ok(attached) => attached,
            // A folder that cannot be written to has nobody in it who writes.
            Err(_) => return Ok(None),
        };
        if attached.try_lock().doing("lock it", &self.places.lock("attached"))? {
            return Ok(None);
        }
        let buffer = journal::map(self.disk, self.places, &self.born)?;
        let mark = buffer.mark();
        Ok(buffer.is_ours(self.born.id).then_some((mark.segment, mark.offset)))
    }

    fn wound(
        &mut self,
        report: &mut Report,
        gaps: &Gaps,
        first: u64,
        path: &Path,
        bytes: Range<u64>,
        lost: Range<u64>,
    ) {
        // Where only positions are missing there is nothing to cut out.
        if !bytes.is_empty() {
            self.wounds.push(Wound { first, bytes: bytes.clone(), positions: lost.clone() });
        }
        self.missing(report, gaps, path, bytes, lost, "bytes that are no sound frame");
    }

    fn missing(
        &mut self,
        report: &mut Report,
        gaps: &Gaps,
        path: &Path,
        bytes: Range<u64>,
        positions: Range<u64>,
        what: &'static str,
    ) {
        if bytes.is_empty() && gaps.knows(&positions) {
            return;
        }
        report.damages.push(Damage { path: path.to_owned(), bytes, positions, what });
    }

    fn repair(&mut self, report: &mut Report) -> Result<()> {
        let (disk, places) = (self.disk, self.places);
        if let Some(what) = self.settings_damage {
            self.born.create(disk, places)?;
            let lost = what.starts_with("both");
            report.repaired.push(match lost {
                false => "settings: both copies are whole again".to_owned(),
                true => "settings: were lost; the defaults stand in their place, its limits must be set again".to_owned(),
            });
        }
        let positions: Vec<u64> = self.checkpoints.iter().map(|c| c.position).collect();
        let (mut gaps, _) = Gaps::load(disk, places)?;
        for damage in report.damages.iter().filter(|damage| !damage.positions.is_empty()) {
            gaps.add(Gap::unknown(damage.positions.clone(), Reason::Damaged), &positions);
        }
        let known: Vec<Gap> = gaps.iter().cloned().collect();
        if !self.gaps_sound || known != report.known_gaps {
            gaps.save(disk, places)?;
            let count: u64 =
                report.damages.iter().map(|d| d.positions.end - d.positions.start).sum();
            report.repaired.push(format!("gaps: {count} lost records noted"));
        }
        let mut sick: Vec<u64> = self
            .wounds
            .iter()
            .map(|wound| wound.first)
            .chain(self.headless.iter().copied())
            .collect();
        sick.sort_unstable();
        sick.dedup();
        for first in sick {
            self.rebuild(first, report)?;
        }
        for checkpoint in self.checkpoints.iter().filter(|checkpoint| checkpoint.damaged) {
            checkpoint::create(disk, places, checkpoint)?;
            report
                .repaired
                .push(format!("checkpoint {:?}: both copies are whole again", checkpoint.name));
        }
        let first = segment::list(disk, places)?.first().copied().unwrap_or(report.positions.end);
        for name in &self.lost_checkpoints {
            let checkpoint = Checkpoint {
                name: name.clone(),
                position: first,
                moved: self.born.created,
                kind: Kind::Subscriber,
                holds: true,
                damaged: false,
            };
            checkpoint::create(disk, places, &checkpoint)?;
            report.repaired.push(format!("checkpoint {name:?}: was lost; it is a subscriber again, at position {first}, the first kept"));
        }
        let buffer = journal::map(disk, places, &self.born)?;
        let opened = opening::recover(disk, places, &self.born, &buffer)?;
        if opened.torn_bytes > 0 {
            report.repaired.push(format!(
                "{} bytes of a torn end cut off; nothing in them was acknowledged at level disk",
                opened.torn_bytes
            ));
        }
        if opened.from_buffer > 0 {
            report.repaired.push(format!(
                "{} records are still in the buffer, and are kept",
                opened.from_buffer
            ));
        }
        report.repaired.extend(opened.damaged_files);
        Ok(())
    }

    /// Writes a segment anew from its sound frames; what was between them goes to the quarantine.
    fn rebuild(&mut self, first: u64, report: &mut Report) -> Result<()> {
        let (disk, places) = (self.disk, self.places);
        let path = places.segment(first);
        let file = disk.open(&path, Mode::Read).doing("open it", &path)?;
        let quarantine = places.quarantine();
        disk.create_dir(&quarantine).doing("create it", &quarantine)?;
        let mut lost = 0;
        for wound in
            self.wounds.iter().filter(|wound| wound.first == first && !wound.bytes.is_empty())
        {
            let name = format!("{first:016x}-{:08x}.bytes", wound.bytes.start);
            let copy = quarantine.join(&name);
            let out = disk.open(&copy, Mode::Create).doing("create it", &copy)?;
            copy_bytes(&*file, &path, wound.bytes.clone(), &*out, &copy, 0)?;
            out.sync().doing("make it durable", &copy)?;
            let size = wound.bytes.end - wound.bytes.start;
            lost += wound.positions.end - wound.positions.start;
            report.repaired.push(format!(
                "segments/{first:016x}.seg: {size} bytes at {} moved to quarantine/{name}",
                wound.bytes.start
            ));
        }
        disk.sync_dir(&quarantine).doing("make new names in it durable", &quarantine)?;
        let head = match SegmentHead::read(&*file, &path)? {
            Some(head) => head,
            None => {
                report
                    .repaired
                    .push(format!("segments/{first:016x}.seg: its head was written anew"));
                let created = self.born.created;
                SegmentHead { journal_id: self.born.id, first, created, producers: Vec::new() }
            }
        };
        let fresh = path.with_added_extension("new");
        let out = disk.open(&fresh, Mode::Create).doing("create it", &fresh)?;
        out.set_len(0).doing("empty it", &fresh)?;
        out.write_all_at(&head.encode(), 0).doing("write it", &fresh)?;
        let mut at = head.frames_offset();
        let shared: Arc<dyn File> = disk.open(&path, Mode::Read).doing("open it", &path)?.into();
        let from = SegmentHead::read(&*file, &path)?.map_or(0, |head| head.frames_offset());
        let mut scan =
            Scan::at(shared, path.clone(), frame::salt(self.born.id, first), from, first);
        let limit = scan.file_bytes()?;
        let mut frames = 0;
        loop {
            match scan.next(limit)? {
                Found::Frame { head, offset, body } => {
                    let mut raw = vec![0; head.raw_bytes as usize];
                    if Decompressor::default().decompress(head.codec, scan.bytes(body), &mut raw) {
                        let bytes = offset..offset + head.frame_bytes();
                        copy_bytes(&*file, &path, bytes, &*out, &fresh, at)?;
                        at += head.frame_bytes();
                        frames += 1;
                    }
                }
                Found::Damage { .. } => {}
                Found::End { .. } => break,
            }
        }
        out.sync().doing("make it durable", &fresh)?;
        disk.rename(&fresh, &path).doing("give it its name", &path)?;
        let dir = places.segments();
        disk.sync_dir(&dir).doing("make new names in it durable", &dir)?;
        report.repaired.push(format!(
            "segments/{first:016x}.seg: {frames} sound frames kept, {lost} records lost"
        ));
        Ok(())
    }
}

fn copy_bytes(
    from: &dyn File,
    from_path: &Path,
    bytes: Range<u64>,
    to: &dyn File,
    to_path: &Path,
    at: u64,
) -> Result<()> {
    let mut piece = vec![0; (bytes.end - bytes.start).min(256 << 10) as usize];
    let mut done = bytes.start;
    while done < bytes.end {
        let want = (bytes.end - done).min(piece.len() as u64) as usize;
        let have = from.read_full_at(&mut piece[..want], done).doing("read it", from_path)?;
        if have == 0 {
            break;
        }
        to.write_all_at(&piece[..have], at + done - bytes.start).doing("write it", to_path)?;
        done += have as u64;
    }
    Ok(())
}
