//! Series that a page had and has no more: marked as ended, so that a question does not go on with their last value.
//!
//! Prometheus' marker is a NaN of certain bits: <https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness>

use std::collections::HashMap;

use collect::Rows;
use model::{Gap, Kind, Result, Sample, Series, SeriesId, Value};

/// The bits of Prometheus' stale marker.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Numbers that the last page had.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashMap<SeriesId, Series>);

impl Seen {
    /// Series that are not in `before`.
    pub(crate) fn added(&self, before: &Seen) -> usize {
        self.0.keys().filter(|id| !before.0.contains_key(*id)).count()
    }

    /// Marks those of `self` that are not in `now` as ended.
    pub(crate) fn end(&self, now: &Seen, at: i64, rows: &mut dyn Rows) -> Result<()> {
        for (_, series) in self.0.iter().filter(|(id, _)| !now.0.contains_key(*id)) {
            rows.series(&series.form(), &mut || Ok(series.clone()))?;
            let value = Value::Number(f64::from_bits(STALE_BITS));
            rows.sample(&Sample { start: at, end: at, value })?;
        }
        Ok(())
    }
}

/// Rows that remember which series of numbers they were of.
pub(crate) struct Watching<'a> {
    pub(crate) rows: &'a mut dyn Rows,
    pub(crate) seen: Seen,
    series: Option<Series>,
    pub(crate) samples: u64,
}

impl<'a> Watching<'a> {
    pub(crate) fn new(rows: &'a mut dyn Rows) -> Watching<'a> {
        Watching { rows, seen: Seen::default(), series: None, samples: 0 }
    }
}

impl Rows for Watching<'_> {
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()> {
        self.series = None;
        let found = series()?;
        self.rows.series(key, &mut || Ok(found.clone()))?;
        self.series = Some(found);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        self.rows.sample(sample)?;
        self.samples += 1;
        // A page that gives times itself says itself until when: only what was read just now can end.
        if let Some(series) = self.series.take()
            && matches!(series.kind(), Kind::Counter(_) | Kind::Gauge)
        {
            self.seen.0.insert(series.id(), series);
        }
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.rows.gap(gap);
    }
}
