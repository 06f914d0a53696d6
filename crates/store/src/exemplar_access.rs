//! Exemplars of an open store: read from the journal, selected, saved, deleted.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use hist::LimitInclusion;
use model::{BatchReader, Exemplar, SeriesId};

use crate::error::Result;
use crate::exemplars::{self, ExemplarRequest, ExemplarSelection, ExemplarStat};
use crate::inner::StoreInner;
use crate::mutex::lock;
use crate::store::Store;

impl Store {
    /// Selects exemplars. `count_above` is the number of all values above a limit, in the range and
    /// the series of the request, or `None` if it is unknown: then so are the weights.
    pub fn select_exemplars(
        &self,
        request: &ExemplarRequest,
        count_above: &dyn Fn(f64, LimitInclusion) -> Option<f64>,
    ) -> ExemplarSelection {
        let inner = self.inner();
        // What was acknowledged before is included; a failure is reported elsewhere.
        let _ = inner.catch_up();
        let now = inner.now();
        let (candidates, covered_from) = {
            let mut reservoir = lock(&inner.exemplars);
            reservoir.expire(now);
            let kept_from = reservoir.kept_from(now, inner.journal.created_at());
            (exemplars::collect(&reservoir, request), kept_from)
        };
        let matched = candidates.len() as u64;
        // Ingest does not wait for the ranking.
        let chosen = exemplars::choose(candidates, request, count_above);
        let exemplars = exemplars::complete(&lock(&inner.exemplars), &chosen);
        ExemplarSelection { exemplars, matched, covered_from }
    }

    /// State of the exemplars.
    pub fn exemplar_stat(&self) -> ExemplarStat {
        let inner = self.inner();
        let _ = inner.catch_up();
        let now = inner.now();
        let mut reservoir = lock(&inner.exemplars);
        reservoir.expire(now);
        reservoir.stat(now)
    }
}

impl StoreInner {
    /// Offers the exemplars of a batch whose samples were read. To read a record again changes
    /// nothing.
    pub(crate) fn offer_exemplars(&self, reader: &BatchReader<'_>) -> model::Result<()> {
        let mut exemplars = reader.exemplars().peekable();
        if exemplars.peek().is_none() {
            return Ok(());
        }
        let (index, now) = (self.index(), self.now());
        let mut reservoir = lock(&self.exemplars);
        exemplars.try_for_each(|exemplar: model::Result<(SeriesId, Exemplar)>| {
            let (series, exemplar) = exemplar?;
            match index.number(&series) {
                Some(_) => reservoir.offer(series, exemplar, now),
                None => reservoir.count_unknown_series(),
            }
            Ok(())
        })
    }

    /// Saves the exemplars if they have changed: before the records that have them leave the
    /// journal. A failure costs no samples and is reported as a warning.
    pub(crate) fn save_exemplars(&self) {
        if let Err(error) = self.try_save_exemplars() {
            self.add_warning(format!("exemplars are only in memory: {error}"));
        }
    }

    fn try_save_exemplars(&self) -> Result<()> {
        let bytes = {
            let mut reservoir = lock(&self.exemplars);
            reservoir.expire(self.now());
            reservoir.take_changes().then(|| exemplars::encode(&reservoir))
        };
        let Some(bytes) = bytes else { return Ok(()) };
        self.exemplar_file.replace(&bytes).inspect_err(|_| lock(&self.exemplars).set_changed())
    }

    /// Deletes the exemplars of series in a range, and saves the rest: attributes may be personal,
    /// so a failure is the caller's.
    pub(crate) fn delete_exemplars(
        &self,
        series: &dyn Fn(&SeriesId) -> bool,
        range: &Range<i64>,
    ) -> Result<()> {
        lock(&self.exemplars).delete(series, range);
        self.try_save_exemplars()
    }
}
