//! Maps series sequentially or on several threads.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use store::DecodedChunks;

use crate::error::{Error, Result};
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::query_warnings::QueryWarnings;
use crate::source::SeriesHandle;

/// Maps one series.
type MapSeries<'a, T> =
    dyn Fn(&mut Evaluation<'_>, LabelSet, &[SeriesHandle]) -> Result<Option<T>> + Sync + 'a;

impl Evaluation<'_> {
    /// Results in the order of the series. On error, the error of the earliest series that was
    /// started.
    pub(crate) fn map_series<T: Send>(
        &mut self,
        series: Vec<(LabelSet, Vec<SeriesHandle>)>,
        map: &MapSeries<'_, T>,
    ) -> Result<Vec<T>> {
        self.map_parallel(&series, &|evaluation, (labels, handles)| {
            map(evaluation, labels.clone(), handles)
        })
    }

    /// The same for any items.
    pub(crate) fn map_parallel<I: Sync, T: Send>(
        &mut self,
        items: &[I],
        map: &(dyn Fn(&mut Evaluation<'_>, &I) -> Result<Option<T>> + Sync),
    ) -> Result<Vec<T>> {
        let threads = self.settings.threads.min(items.len());
        if threads < 2 {
            let made = items.iter().map(|item| map(self, item));
            return made.filter_map(Result::transpose).collect();
        }
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let worker = || {
            let mut evaluation = Evaluation {
                source: self.source,
                settings: self.settings,
                budget: Arc::clone(&self.budget),
                warnings: QueryWarnings::default(),
                gaps: Vec::new(),
                shared: HashMap::new(),
                is_range_of_one_step: false,
                keeps_units_apart: false,
                decoded_chunks: DecodedChunks::default(),
            };
            let mut made: Vec<(usize, Result<T, Error>)> = Vec::new();
            // Each index is taken once, in any order; joining the threads synchronises the results.
            while !has_failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { break };
                match map(&mut evaluation, item) {
                    Ok(None) => {}
                    Ok(Some(value)) => made.push((at, Ok(value))),
                    Err(error) => {
                        has_failed.store(true, Ordering::Relaxed);
                        made.push((at, Err(error)));
                    }
                }
            }
            (made, evaluation.warnings, evaluation.gaps)
        };
        let workers: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut all = Vec::with_capacity(items.len());
        for (made, notes, gaps) in workers {
            all.extend(made);
            self.warnings.append(notes);
            self.gaps.extend(gaps);
        }
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, made)| made).collect()
    }
}
