//! Change sets: parts are written, then one manifest commits them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use hist::codec::header::Temporality;
use journal::supervisor::catch_panic;
use model::{Gap, SeriesId, SeriesKind};

use crate::backend::PartWriter;
use crate::base_parts::BaseParts;
use crate::chunk::{self, ChunkSource};
use crate::error::{Error, Result};
use crate::gather;
use crate::head::Head;
use crate::index::SeriesNumber;
use crate::inner::StoreInner;
use crate::manifest::{Manifest, PartInfo, SourceParts};
use crate::mutex::lock;
use crate::resolution::Resolution;
use crate::row::{Predecessor, Rows};

/// Change set of parts and manifest, committed atomically. Dropping it removes the parts that it
/// began, so that they do not block smaller writes on a full disk.
pub(crate) struct StoreChange<'a> {
    inner: &'a StoreInner,
    /// Manifest when the change began. The caller holds the mutex `work`, so it stays current,
    /// except for its generation and `has_sections`.
    pub(crate) base_manifest: Manifest,
    /// Parts from this number on belong to this change.
    first_part: u64,
    next_part: u64,
    series: u64,
    added: Vec<PartInfo>,
    removed: Vec<u64>,
    /// Rows that could not be written to its parts.
    gaps: Vec<Gap>,
    /// A manifest names its parts, or may name them.
    is_done: bool,
}

impl Drop for StoreChange<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        for number in self.first_part..self.next_part {
            // If this fails, the next opening removes the part.
            if let Err(error) = self.inner.storage.remove_part(number) {
                self.inner.add_warning(error.to_string());
            }
        }
    }
}

impl<'a> StoreChange<'a> {
    pub(crate) fn new(inner: &'a StoreInner) -> Result<StoreChange<'a>> {
        inner.check_running()?;
        let before = Manifest::clone(&inner.state().manifest);
        Ok(StoreChange {
            inner,
            first_part: before.next_part,
            next_part: before.next_part,
            series: before.series,
            base_manifest: before,
            added: Vec::new(),
            removed: Vec::new(),
            gaps: Vec::new(),
            is_done: false,
        })
    }

    /// Makes the canonical keys of new series durable.
    pub(crate) fn add_series(&mut self) -> Result<()> {
        self.series = self.inner.append_keys(true)?;
        Ok(())
    }

    /// Number of series keys that are durable with this change.
    pub(crate) fn series(&self) -> u64 {
        self.series
    }

    /// Begins a part; the file is created with the first rows.
    pub(crate) fn write(&mut self, resolution: Resolution) -> PartBuilder<'a> {
        let number = self.next_part;
        self.next_part = self.next_part.saturating_add(1);
        let info = PartInfo {
            number,
            resolution,
            start: i64::MAX,
            end: i64::MIN,
            bytes: 0,
            chunks: 0,
            rows: 0,
            covers: SourceParts::new(),
            has_dropped_series: false,
        };
        PartBuilder { inner: self.inner, info, writer: None }
    }

    /// Finishes a part. Returns its number, or `None` if it has no rows.
    pub(crate) fn add(
        &mut self,
        writing: PartBuilder<'_>,
        covers: SourceParts,
    ) -> Result<Option<u64>> {
        let PartBuilder { inner, mut info, writer } = writing;
        let Some(writer) = writer else { return Ok(None) };
        info.bytes = writer.finish(&|id| inner.key(id))?;
        info.covers = covers;
        let number = info.number;
        self.added.push(info);
        Ok(Some(number))
    }

    /// Writes the rows of a head that ended within `range` as a part of the base. Returns its
    /// number, or `None` if there are none.
    pub(crate) fn add_head(&mut self, head: &Head, range: &Range<i64>) -> Result<Option<u64>> {
        let mut series: Vec<_> = {
            let index = self.inner.index();
            head.series().map(|number| (index.id(number), number, index.kind(number))).collect()
        };
        series.sort_unstable_by_key(|&(id, ..)| id);
        let mut writing = self.write(Resolution::Base);
        let base = BaseParts::from_manifest(&self.base_manifest);
        let mut gaps = Vec::new();
        for (id, number, kind) in series {
            if lock(&self.inner.quarantine).has_series(&id) {
                gaps.extend(self.gap_for(head, (number, kind), range));
                continue;
            }
            let put = || {
                self.inner.supervisor().failpoint(format_args!("store flush {id}"));
                let predecessor =
                    |end| self.predecessor_in_head(&base, head, (number, id, kind), end);
                let samples = match kind == SeriesKind::Histogram(Temporality::Cumulative) {
                    true => head.samples_of(number, range),
                    false => None,
                };
                if let Some(samples) = samples {
                    let mut samples = samples.peekable();
                    let Some(first) = samples.peek() else { return Ok(()) };
                    let predecessor = predecessor(first.end);
                    let source = ChunkSource::Samples(Box::new(samples));
                    return writing.append(id, kind, source, predecessor);
                }
                let Some(mut rows) = head.rows_of(number, kind, range) else { return Ok(()) };
                rows.normalize(kind);
                let first = rows.first_time().filter(|_| kind.is_cumulative());
                let predecessor = first.map_or(Predecessor::Unknown, |(end, _)| predecessor(end));
                writing.append_rows(id, kind, rows, predecessor)
            };
            // The part is dropped with the change and started again.
            catch_panic(put).unwrap_or_else(|message| {
                let series = self.inner.index().series(number).to_string();
                lock(&self.inner.quarantine).failed_series(id, &series, &message);
                Err(Error::MaintenancePanicked {
                    action: format!("flushing series {series}"),
                    message,
                    seconds: 1,
                })
            })?;
        }
        self.gaps.extend(gaps);
        self.add(writing, SourceParts::new())
    }

    /// Gap that replaces the rows of a series that cannot be flushed.
    fn gap_for(
        &self,
        head: &Head,
        (number, kind): (SeriesNumber, SeriesKind),
        range: &Range<i64>,
    ) -> Option<Gap> {
        let (start, end) = head.series_range(number)?;
        let (start, end) = (start.max(range.start), end.min(range.end));
        // The series has rows in another partition only: no gap.
        if start > end {
            return None;
        }
        // The count may hit the same bug: the number of lost rows is then unknown.
        let lost = catch_panic(|| head.count_rows(number, kind, range)).ok();
        if lost == Some(0) {
            return None;
        }
        let values = catch_panic(|| match head.rows_of(number, kind, range) {
            Some(rows @ Rows::Histograms(_)) => Some(rows.amount()),
            // Samples of cumulative series count the same values repeatedly.
            _ => None,
        });
        let series = self.inner.index().series(number).to_string();
        let mut reason = format!("rows of series {series} not flushed: a panic occurred");
        if let Ok(Some(values)) = values {
            reason.push_str(&format!("; their histograms have {values} values"));
        }
        Some(Gap { start, end, producer: None, lost, reason })
    }

    /// Predecessor of a sample of a head, by its end: an earlier sample of the head, or a stored
    /// one.
    fn predecessor_in_head(
        &self,
        base: &BaseParts<'_>,
        head: &Head,
        (number, id, kind): (SeriesNumber, SeriesId, SeriesKind),
        end: i64,
    ) -> Predecessor {
        let before = end.saturating_sub(1);
        let is_first = |covers: (i64, i64)| covers.0 >= end;
        let mut found = match head.series_range(number).is_none_or(is_first) {
            true => None,
            false => head.last_sample(number, kind, before),
        };
        let is_new = u64::from(number.0) >= self.base_manifest.series;
        let mut gaps = Vec::new();
        if !is_new {
            // Queries report unreadable data; the flush does not wait for it.
            match self.inner.previous_sample(base, &id, kind, before, None, &mut gaps) {
                Ok(stored) => found = gather::later_sample(found, stored, kind),
                Err(_) => return Predecessor::Unknown,
            }
        }
        match found {
            Some(sample) => Predecessor::Sample(sample),
            None if is_new => Predecessor::Nothing,
            // No gap was found, so there was no predecessor; this must be recorded before other
            // rows are dropped.
            None if gaps.is_empty()
                && !self.base_manifest.may_have_dropped_predecessor((i64::MIN, end)) =>
            {
                Predecessor::Nothing
            }
            None => Predecessor::Unknown,
        }
    }

    /// Removes a part.
    pub(crate) fn remove(&mut self, number: u64) {
        self.removed.push(number);
    }

    /// Commits the change; `edit` changes other fields of the manifest.
    pub(crate) fn commit(mut self, edit: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut manifest = std::mem::take(&mut self.base_manifest);
        for number in &self.removed {
            manifest.parts.remove(number);
        }
        manifest
            .parts
            .extend(std::mem::take(&mut self.added).into_iter().map(|part| (part.number, part)));
        manifest.next_part = self.next_part;
        self.gaps.drain(..).for_each(|gap| manifest.add_gap(gap));
        let committed = self.inner.commit_manifest(&self.removed, |current| {
            manifest.has_sections = current.has_sections;
            edit(&mut manifest);
            manifest
        });
        self.is_done = matches!(committed, Ok(()) | Err(Error::FailStop { .. }));
        committed?;
        self.inner.remove_unreferenced();
        Ok(())
    }
}

impl StoreInner {
    /// Replaces the current manifest by another one, which is made of it, with the next generation.
    pub(crate) fn commit_manifest(
        &self,
        removed: &[u64],
        next: impl FnOnce(&Manifest) -> Manifest,
    ) -> Result<()> {
        let _commit = lock(&self.commit);
        let current = Arc::clone(&self.state().manifest);
        let mut manifest = next(&current);
        manifest.generation = current.generation.saturating_add(1);
        drop(current);
        let written = self.manifest_file.replace(&manifest.write());
        if let Err(Error::FailStop { reason }) = &written {
            self.fail_stop(reason);
        }
        written?;
        self.replace_manifest(manifest, removed);
        Ok(())
    }
}

/// Part being written.
pub(crate) struct PartBuilder<'a> {
    inner: &'a StoreInner,
    info: PartInfo,
    writer: Option<Box<dyn PartWriter>>,
}

impl PartBuilder<'_> {
    /// Returns the writer; creates it with the first rows.
    fn begin(&mut self) -> Result<&mut dyn PartWriter> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.inner.storage.create_part(self.info.number)?,
        };
        Ok(&mut **self.writer.insert(writer))
    }

    /// Copies the metadata that rows do not carry from the part being replaced.
    pub(crate) fn replaces(&mut self, part: &PartInfo) {
        self.info.has_dropped_series |= part.has_dropped_series;
    }

    /// Records that a retention rule dropped rows of some series.
    pub(crate) fn drops_series(&mut self) {
        self.info.has_dropped_series = true;
    }

    /// Creates the part even if it has no rows, with time range `range`.
    pub(crate) fn set_range(&mut self, range: Range<i64>) -> Result<()> {
        self.begin()?;
        self.info.start = self.info.start.min(range.start);
        self.info.end = self.info.end.max(range.end);
        Ok(())
    }

    /// Adds normalized rows of a series and, for cumulative series, the predecessor of the first
    /// row.
    pub(crate) fn append_rows(
        &mut self,
        series: SeriesId,
        kind: SeriesKind,
        rows: Rows,
        predecessor: Predecessor,
    ) -> Result<()> {
        match rows.len() {
            0 => Ok(()),
            _ => self.append(series, kind, ChunkSource::Rows(rows), predecessor),
        }
    }

    fn append(
        &mut self,
        series: SeriesId,
        kind: SeriesKind,
        source: ChunkSource<'_>,
        predecessor: Predecessor,
    ) -> Result<()> {
        let mut info = self.info.clone();
        let writer = self.begin()?;
        chunk::encode(series, info.resolution, kind, source, predecessor, |header, bytes| {
            info.start = info.start.min(header.start);
            info.end = info.end.max(header.end);
            info.chunks = info.chunks.saturating_add(1);
            info.rows = info.rows.saturating_add(header.rows as u64);
            writer.put_chunk(&header.info(), bytes)
        })?;
        self.info = info;
        Ok(())
    }
}
