//! Series of the rows of an overview.
//!
//! A row has histograms, buckets of classic histograms, or both. Buckets are counted before they
//! are collected: a histogram has one for each bound, and a sender chooses its bounds.

use std::collections::{BTreeMap, BTreeSet};

use model::{Selector, SeriesKind, selector};
use store::{ReadView, SeriesEntryRef};

use super::load_runs::LoadRuns;
use super::{RowGroup, RowKey, SERIES_MAX};
use crate::classic_buckets::{bound_count, each_bucket};

/// Memory of a bucket before its row is read, in bytes: its name and labels.
const BUCKET_BYTES: usize = 1024;

/// Rows and their series.
pub(super) struct FoundRows {
    pub(super) rows: BTreeMap<RowKey, Vec<SeriesEntryRef>>,
    /// Metrics without a row, and why.
    pub(super) unranked: Vec<(String, String)>,
}

/// Name and service of a row.
type RowService = (String, Option<(String, String)>);

impl FoundRows {
    /// Rows of a group, with at most so many bytes of buckets.
    pub(super) fn find(view: &ReadView, group: RowGroup, bucket_bytes_max: usize) -> FoundRows {
        let mut found = FoundRows { rows: BTreeMap::new(), unranked: Vec::new() };
        let is_distribution = |kind: SeriesKind| matches!(kind, SeriesKind::Histogram(_));
        let kinds = selector::KINDS.iter().filter(|(kind, _)| is_distribution(*kind));
        let kinds = kinds.map(|(_, name)| Selector::label_equals(selector::KIND, *name));
        let mut load_runs = LoadRuns::default();
        for series in view.select(&Selector::or(kinds.collect())) {
            let key = RowKey::of(&series.series);
            if key.group() == group && !load_runs.contains(&series.series) {
                found.rows.entry(key).or_default().push(series);
            }
        }
        found.unranked.extend(load_runs.unranked());
        found.add_buckets(view, group, bucket_bytes_max / BUCKET_BYTES);
        found
    }

    fn add_buckets(&mut self, view: &ReadView, group: RowGroup, buckets_max: usize) {
        let selected = match bound_count(view) > buckets_max {
            true => Some(self.select_rows(view, group, buckets_max)),
            false => None,
        };
        let service = |key: &RowKey| -> RowService { (key.name.clone(), key.service.clone()) };
        let with_histograms: BTreeSet<RowService> = self.rows.keys().map(service).collect();
        let mut in_other_unit: BTreeMap<String, usize> = BTreeMap::new();
        each_bucket(view, &mut |bucket| {
            let key = RowKey::of(&bucket.series);
            let is_left_out = selected.as_ref().is_some_and(|selected| !selected.contains(&key));
            if key.group() != group || is_left_out {
                return;
            }
            // A metric of a service has one row, in the unit of its histograms.
            if !self.rows.contains_key(&key) && with_histograms.contains(&service(&key)) {
                *in_other_unit.entry(key.name).or_default() += 1;
                return;
            }
            self.rows.entry(key).or_default().push(bucket);
        });
        self.unranked.extend(in_other_unit.into_iter().map(|(name, buckets)| {
            let why = format!(
                "{buckets} counters {name}_bucket are left out: their unit is not that of the \
                 histograms {name}"
            );
            (name, why)
        }));
    }

    /// The first rows whose buckets are within the limits.
    fn select_rows(
        &mut self,
        view: &ReadView,
        group: RowGroup,
        buckets_max: usize,
    ) -> BTreeSet<RowKey> {
        let mut counts: BTreeMap<RowKey, usize> = BTreeMap::new();
        each_bucket(view, &mut |bucket| {
            let key = RowKey::of(&bucket.series);
            if key.group() == group {
                *counts.entry(key).or_default() += 1;
            }
        });
        let (mut all, mut selected) = (0, BTreeSet::new());
        let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
        for (key, buckets) in counts {
            if buckets > SERIES_MAX {
                self.unranked.push((key.name, too_many_series(buckets)));
            } else if all + buckets > buckets_max {
                *left_out.entry(key.name).or_default() += buckets;
            } else {
                all += buckets;
                selected.insert(key);
            }
        }
        self.unranked.extend(left_out.into_iter().map(|(name, buckets)| {
            let why = format!(
                "memory limit ({buckets_max} buckets) exceeded: {buckets} counters \
                 {name}_bucket are left out; send native histograms"
            );
            (name, why)
        }));
        selected
    }
}

pub(super) fn too_many_series(found: usize) -> String {
    format!("series limit ({SERIES_MAX}) exceeded: it has {found}")
}
