//! Samples of many series in one range: what the series share is looked up once.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;
use std::ops::Range;

use model::{Gap, Sample, SampleValue, SeriesKind};

use crate::chunk::NumberDecoder;
use crate::error::Result;
use crate::index::SelectedSeries;
use crate::manifest::PartInfo;
use crate::resolution::Resolution;
use crate::row::{Row, Rows};

use super::opened_part::OpenedPart;
use super::{ReadView, SERIES_AT_ONCE};

/// Reads samples of series in one range.
pub struct SampleReader<'v> {
    view: &'v ReadView,
    range: Range<i64>,
    /// Known gaps in the range, of any series.
    gaps: Vec<Gap>,
    /// Partitions of the range, and the parts that may have rows of them.
    partitions: Vec<(Range<i64>, Vec<OpenedPart<'v>>)>,
    /// Series read so far.
    series: usize,
    /// Memory for chunks, and for rows of numbers.
    bytes: Vec<u8>,
    numbers: Vec<Row<f64>>,
    decoder: NumberDecoder,
}

impl ReadView {
    /// Reader of base rows that ended in a range. Rows that arrive later may be missed.
    pub fn sample_reader(&self, range: Range<i64>) -> SampleReader<'_> {
        let partition = Resolution::Base.partition();
        let mut starts: BTreeSet<i64> =
            self.manifest.base_parts().map(|part| part.partition().start).collect();
        starts.extend(self.heads().flat_map(|head| head.partitions().collect::<Vec<_>>()));
        let mut partitions = Vec::new();
        for start in starts {
            let piece = start.max(range.start)..start.saturating_add(partition).min(range.end);
            if piece.is_empty() {
                continue;
            }
            let is_read = |info: &&PartInfo| info.end > piece.start && info.start <= piece.end;
            let parts = self.manifest.base_parts().filter(is_read);
            let parts = parts.map(|info| self.open_part(info)).collect();
            partitions.push((piece, parts));
        }
        let gaps = self.known_gaps(&range);
        let (bytes, numbers, decoder) = Default::default();
        SampleReader { view: self, range, gaps, partitions, series: 0, bytes, numbers, decoder }
    }

    /// Base rows of one series, ordered by end.
    pub fn samples(
        &self,
        series: &impl AsRef<SelectedSeries>,
        range: Range<i64>,
        each: &mut dyn FnMut(Sample),
    ) -> Result<Vec<Gap>> {
        self.sample_reader(range).samples(series, each)
    }
}

impl SampleReader<'_> {
    /// Rows of one series, ordered by end, and the known gaps.
    pub fn samples(
        &mut self,
        series: &impl AsRef<SelectedSeries>,
        each: &mut dyn FnMut(Sample),
    ) -> Result<Vec<Gap>> {
        if self.series.is_multiple_of(SERIES_AT_ONCE) {
            self.view.check()?;
        }
        self.series = self.series.saturating_add(1);
        let series = series.as_ref();
        let mut gaps = self.gaps.clone();
        self.view.retain_gaps_of(std::slice::from_ref(series), &mut gaps);
        gaps.extend(self.view.dropped_samples(series, &self.range)?);
        if matches!(series.kind, SeriesKind::Counter(_) | SeriesKind::Gauge) {
            self.numbers(series, &mut gaps, each)?;
            return Ok(gaps);
        }
        for (piece, parts) in &self.partitions {
            let infos = parts.iter().map(|part| part.info);
            let rows = self.view.base_rows_of(series, piece, infos, &mut gaps)?;
            for_each_sample(rows.into_normalized(series.kind).0, each);
        }
        Ok(gaps)
    }

    /// Samples of a series of numbers; the memory of chunks and rows serves very many series.
    fn numbers(
        &mut self,
        series: &SelectedSeries,
        gaps: &mut Vec<Gap>,
        each: &mut dyn FnMut(Sample),
    ) -> Result<()> {
        let SampleReader { view, partitions, bytes, numbers, decoder, .. } = self;
        // The first part of each series is not worth a check.
        let mut is_first = true;
        for (piece, parts) in &*partitions {
            let mut found = std::mem::take(numbers);
            for part in parts {
                if !std::mem::take(&mut is_first) {
                    view.check()?;
                }
                part.chunks(&series.id, piece, bytes, gaps, &mut |_, header, bytes| {
                    let rows = decoder.decode(header, bytes)?;
                    // A row belongs to the nanosecond before its end.
                    found.extend(rows.filter(|row| piece.contains(&row.end.saturating_sub(1))));
                    Ok(())
                });
            }
            let mut rows = Rows::Numbers(found);
            for head in view.heads() {
                head.add_rows(series.number, piece, &mut rows, series.kind);
            }
            rows.normalize(series.kind);
            let Rows::Numbers(mut found) = rows else { continue };
            for Row { start, end, value } in found.drain(..) {
                each(Sample { start, end, value: SampleValue::Number(value) });
            }
            *numbers = found;
        }
        Ok(())
    }
}

fn for_each_sample(rows: Rows, each: &mut dyn FnMut(Sample)) {
    match rows {
        Rows::Histograms(rows) | Rows::Cumulative(rows) => {
            for Row { start, end, value } in rows {
                each(Sample { start, end, value: SampleValue::Histogram(Box::new(value)) });
            }
        }
        Rows::Numbers(rows) => {
            for Row { start, end, value } in rows {
                each(Sample { start, end, value: SampleValue::Number(value) });
            }
        }
        Rows::Texts(rows) => {
            for Row { start, end, value } in rows {
                each(Sample { start, end, value: SampleValue::Text(value) });
            }
        }
        Rows::Aggregates(_) => panic!("BUG: the base has no summaries"),
    }
}
