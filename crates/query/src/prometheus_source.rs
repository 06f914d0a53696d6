//! Series under the names that Prometheus would give them.
//!
//! A PromQL query reads the store through this source. A selector with a name, exact or by a regex,
//! also finds
//!
//! * `x_bucket`, `x_count` and `x_sum` of a stored histogram `x` ([`ClassicPart`]),
//! * metrics and labels of OpenTelemetry by their translated names ([`prometheus_name`]), and
//! * metrics in ns, us or ms by their name in seconds, in seconds ([`converted_unit`]).
//!
//! A stored series wins: a computed series with the labels of a stored one is left out, and a
//! histogram that a regex matches by its own name is not found a second time by its suffixes.
//!
//! [`prometheus_name`]: crate::prometheus_name

mod bucket_tables;
mod classic_series;
mod classic_source;
mod converted_unit;
mod found_buckets;
mod named_series;
mod selection;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hist::Mixture;
use model::{Gap, Selector, Series, SeriesKind};
use store::{HistogramIncrements, NumberAggregate, TimeGrid};

use crate::classic_part::{self, ClassicPart};
use crate::context::QueryContext;
use crate::error::Result;
use crate::labels::LabelSet;
use crate::limits::SAMPLE_BYTES;
use crate::prometheus_name::labeled_series;
use crate::source::{
    self, FreshCount, NumberGroups, SeriesHandle, Source, SourceRead, StoredMetric,
};
use crate::stream::SeriesPoint;

use classic_series::ClassicSeries;
use classic_source::ClassicSource;
use found_buckets::{BoundsRead, FoundBuckets};
pub use named_series::{NamedSeries, select_named_series};
pub(crate) use selection::{BOUND, conditions, exact_name, has_bound};
use selection::{ClassicSuffix, SeriesMatch};

/// Source that finds series under the names that Prometheus would give them.
pub(crate) struct PrometheusSource<'a> {
    stored: &'a dyn Source,
    context: &'a dyn QueryContext,
    /// Series under other labels; the keys of their handles are indices from [`ENTRY`] on. Handles
    /// of series under their own labels are those of the store.
    entries: Mutex<Vec<Arc<SourceSeries>>>,
    /// Selections without computed series: the unit of a result selects what it was computed from.
    selected: Mutex<Vec<(Selector, Arc<[SeriesHandle]>)>>,
    /// Kinds and units of selections whose labels were not read.
    grouped: Mutex<Vec<(Selector, SeriesKind, String)>>,
    /// All stored metrics, if they were needed.
    metrics: Mutex<Option<Arc<Vec<StoredMetric>>>>,
    reserved_bytes: AtomicU64,
    /// Hints about selectors that match no bucket.
    hints: Mutex<Vec<String>>,
}

/// First key of the handles of this source; a store has fewer series.
const ENTRY: usize = 1 << (usize::BITS - 1);

enum SourceSeries {
    /// Under the name and the labels that Prometheus would give it.
    Renamed(RenamedSeries),
    Classic(ClassicSeries),
}

/// Stored series under other labels, perhaps in another unit.
struct RenamedSeries {
    handle: SeriesHandle,
    unit: String,
    /// Number by which stored values are divided.
    divisor: f64,
}

/// Which buckets of a histogram are found.
enum BucketSearch {
    /// One series without `le` for all buckets: nothing is read.
    WithoutBounds,
    /// The buckets of all samples in a range.
    Samples(Range<i64>),
    /// The buckets of the increase in a range and of its last samples: a fast list.
    List(Range<i64>),
}

impl<'a> PrometheusSource<'a> {
    pub(crate) fn new(
        stored: &'a dyn Source,
        context: &'a dyn QueryContext,
    ) -> PrometheusSource<'a> {
        let (entries, selected, grouped) = Default::default();
        let (metrics, reserved_bytes, hints) = Default::default();
        PrometheusSource {
            stored,
            context,
            entries,
            selected,
            grouped,
            metrics,
            reserved_bytes,
            hints,
        }
    }

    /// Series under other labels; `None` for a series as it is stored.
    fn entry(&self, handle: &SeriesHandle) -> Option<Arc<SourceSeries>> {
        let at = handle.key.checked_sub(ENTRY)?;
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&entries[at]))
    }

    /// Stored names of the series that a selector matches under the names of Prometheus.
    pub(crate) fn stored_names(&self, selector: &Selector) -> Result<BTreeSet<String>> {
        let found = self.find(selector, &BucketSearch::WithoutBounds)?;
        let entries = found.iter().filter_map(|handle| self.entry(handle));
        let name_of = |entry: Arc<SourceSeries>| match &*entry {
            SourceSeries::Renamed(series) => Some(series.handle.labels.name().to_owned()),
            SourceSeries::Classic(ClassicSeries { histogram, .. }) => {
                histogram.handles.first().map(|handle| handle.labels.name().to_owned())
            }
        };
        Ok(entries.filter_map(name_of).collect())
    }

    fn add(&self, labels: LabelSet, kind: SeriesKind, series: SourceSeries) -> SeriesHandle {
        let unit = match &series {
            SourceSeries::Renamed(series) => series.unit.clone(),
            SourceSeries::Classic(ClassicSeries { histogram, part: ClassicPart::Sum, .. }) => {
                histogram.unit.clone()
            }
            SourceSeries::Classic(_) => String::new(),
        };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let key = ENTRY + entries.len();
        entries.push(Arc::new(series));
        SeriesHandle { labels, kind, unit, key }
    }

    /// Stored metrics, read once.
    fn metrics(&self) -> Result<Arc<Vec<StoredMetric>>> {
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*metrics {
            return Ok(Arc::clone(known));
        }
        let all = Arc::new(self.stored.metrics()?);
        *metrics = Some(Arc::clone(&all));
        Ok(all)
    }

    fn candidates(&self, selector: &Selector, is_unknown: bool) -> Result<Option<Selector>> {
        selection::candidates(selector, is_unknown, &|| self.metrics())
    }

    /// Whether a selector with stored series may mean others by the names of Prometheus.
    fn has_computed(&self, selector: &Selector) -> Result<bool> {
        Ok(match self.candidates(selector, false)? {
            Some(candidates) => self.stored.select_count(&candidates)? > 0,
            None => false,
        })
    }

    /// Stored series and computed ones.
    fn find(&self, selector: &Selector, search: &BucketSearch) -> Result<Vec<SeriesHandle>> {
        let mut selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = selected.iter().find(|(known, _)| known == selector) {
            return Ok(found.to_vec());
        }
        let mut found = self.stored.select(selector)?;
        let computed = match self.candidates(selector, found.is_empty())? {
            Some(candidates) => {
                selection::matches(selector, self.stored.select(&candidates)?, &found)
            }
            None => Vec::new(),
        };
        if computed.is_empty() {
            selected.push((selector.clone(), Arc::from(&*found)));
            return Ok(found);
        }
        drop(selected);
        let stored: HashSet<LabelSet> = found.iter().map(|handle| handle.labels.clone()).collect();
        let mut buckets: Vec<FoundBuckets> = Vec::new();
        for SeriesMatch { labels, suffix, unit, divisor, mut handles } in computed {
            let kind = handles[0].kind;
            let Some(suffix) = suffix else {
                if !stored.contains(&labels) {
                    let series = RenamedSeries { handle: handles.remove(0), unit, divisor };
                    found.push(self.add(labels, kind, SourceSeries::Renamed(series)));
                }
                continue;
            };
            let kind = match kind {
                SeriesKind::Histogram(temporality) => SeriesKind::Counter(temporality),
                kind => kind,
            };
            let histogram = ClassicSource { handles, unit, divisor };
            let part = match (suffix, search) {
                (ClassicSuffix::Count, _) => ClassicPart::Count,
                (ClassicSuffix::Sum, _) => ClassicPart::Sum,
                (ClassicSuffix::Bucket, BucketSearch::WithoutBounds) => {
                    ClassicPart::Bucket(f64::INFINITY)
                }
                (ClassicSuffix::Bucket, search) => {
                    let (own, read) = match search {
                        BucketSearch::List(range) => {
                            (histogram.list_bounds(self.stored, range)?, BoundsRead::default())
                        }
                        BucketSearch::Samples(range) => self.read_bounds(&histogram, range)?,
                        BucketSearch::WithoutBounds => continue,
                    };
                    let (histogram, bounds) = (Arc::new(histogram), Vec::new());
                    buckets.push(FoundBuckets { labels, kind, histogram, own, bounds, read });
                    continue;
                }
            };
            if !stored.contains(&labels) {
                let series = ClassicSeries { histogram: Arc::new(histogram), tables: None, part };
                found.push(self.add(labels, kind, SourceSeries::Classic(series)));
            }
        }
        let warnings = found_buckets::share_bounds(&mut buckets);
        if matches!(search, BucketSearch::Samples(_)) {
            warnings.into_iter().for_each(|warning| self.add_hint(warning));
        }
        self.add_buckets(selector, buckets, &stored, &mut found);
        Ok(found)
    }

    /// Adds the bucket series of histograms that a selector matches.
    fn add_buckets(
        &self,
        selector: &Selector,
        buckets: Vec<FoundBuckets>,
        stored: &HashSet<LabelSet>,
        found: &mut Vec<SeriesHandle>,
    ) {
        for FoundBuckets { labels, kind, histogram, bounds, read, .. } in buckets {
            let labels_of = |&bound: &f64| {
                Some((selection::bucket_labels(selector, &labels, kind, bound)?, bound))
            };
            let mut selected: Vec<(LabelSet, f64)> = bounds.iter().filter_map(labels_of).collect();
            if selected.is_empty() && !bounds.is_empty() {
                self.add_hint(bound_hint(labels.name(), &histogram.unit, &bounds));
            }
            selected.retain(|(labels, _)| !stored.contains(labels));
            model::sort::by(&mut selected, |a, b| a.0.cmp(&b.0));
            let of_selected = selected.iter().map(|(_, bound)| *bound).collect();
            let tables = Arc::new(read.into_tables(of_selected));
            for (labels, bound) in selected {
                let (histogram, tables) = (Arc::clone(&histogram), Some(Arc::clone(&tables)));
                let series = ClassicSeries { histogram, tables, part: ClassicPart::Bucket(bound) };
                found.push(self.add(labels, kind, SourceSeries::Classic(series)));
            }
        }
    }

    fn add_hint(&self, hint: String) {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }

    /// Reserves memory until the source is dropped.
    fn reserve(&self, samples: u64) -> Result<()> {
        let bytes = samples.saturating_mul(SAMPLE_BYTES);
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.context.reserve_memory(bytes)
    }

    /// Stored series of handles.
    fn stored_handles(&self, series: &[&SeriesHandle]) -> Vec<SeriesHandle> {
        let mut stored = Vec::with_capacity(series.len());
        for handle in series {
            match self.entry(handle).as_deref() {
                None => stored.push((*handle).clone()),
                Some(SourceSeries::Renamed(series)) => stored.push(series.handle.clone()),
                Some(SourceSeries::Classic(series)) => {
                    stored.extend_from_slice(&series.histogram.handles)
                }
            }
        }
        stored
    }

    /// Distributions of some series in columns, read by `read`: those in the same unit together.
    fn histograms_by_unit(
        &self,
        series: &[&SeriesHandle],
        read: &dyn Fn(&[&SeriesHandle]) -> Result<SourceRead<Mixture>>,
    ) -> Result<SourceRead<Mixture>> {
        let mut by_divisor: BTreeMap<u64, Vec<&SeriesHandle>> = BTreeMap::new();
        for handle in series {
            let divisor = self.entry(handle).map_or(1.0, |series| series.divisor());
            by_divisor.entry(divisor.to_bits()).or_default().push(handle);
        }
        let mut all: Option<SourceRead<Mixture>> = None;
        for (divisor, series) in by_divisor {
            let handles = self.stored_handles(&series);
            let mut columns = read(&handles.iter().collect::<Vec<_>>())?;
            converted_unit::divide_mixtures(&mut columns, f64::from_bits(divisor));
            match &mut all {
                None => all = Some(columns),
                Some(all) => converted_unit::add_mixtures(all, columns)?,
            }
        }
        // Without series, the store knows the columns.
        all.map_or_else(|| read(&[]), Ok)
    }
}

/// Whether all series are under their own labels.
fn are_stored<'s>(mut series: impl Iterator<Item = &'s SeriesHandle>) -> bool {
    series.all(|handle| handle.key < ENTRY)
}

impl SourceSeries {
    fn divisor(&self) -> f64 {
        match self {
            SourceSeries::Renamed(series) => series.divisor,
            SourceSeries::Classic(series) => series.histogram.divisor,
        }
    }
}

/// Hint about a selector that matches none of the buckets: `le` is in the unit of the values.
fn bound_hint(name: &str, unit: &str, bounds: &[f64]) -> String {
    let mut finite = bounds.iter().copied().filter(|bound| bound.is_finite());
    let first = finite.next().unwrap_or(f64::INFINITY);
    let last = finite.next_back().unwrap_or(first);
    let (first, last) = (classic_part::bound_label(first), classic_part::bound_label(last));
    let unit = if unit.is_empty() { String::new() } else { format!(" in {unit}") };
    let histogram = name.strip_suffix("_bucket").unwrap_or(name);
    format!(
        "{name} has no bucket with this le: its bounds are{unit}, from le=\"{first}\" to \
         le=\"{last}\"; histogram_count_below(250ms, {histogram}) takes any limit"
    )
}

/// Series that a selector matches only under the names of Prometheus. Buckets have `le` if `range`
/// is given: those with values in that range.
pub fn select_by_prometheus_name(
    source: &dyn Source,
    selector: &Selector,
    range: Option<Range<i64>>,
    context: &dyn QueryContext,
) -> Result<Vec<Series>> {
    let names = PrometheusSource::new(source, context);
    let search = range.map_or(BucketSearch::WithoutBounds, BucketSearch::List);
    let found = names.find(selector, &search)?;
    let computed = found.iter().filter(|handle| match names.entry(handle).as_deref() {
        None => false,
        Some(SourceSeries::Renamed(stored)) => stored.handle.labels != handle.labels,
        Some(SourceSeries::Classic(_)) => true,
    });
    let series = |handle: &SeriesHandle| labeled_series(&handle.labels, &handle.unit, handle.kind);
    Ok(computed.filter_map(series).collect())
}

/// Names of the series of a classic histogram.
pub fn classic_names(histogram: &str) -> impl Iterator<Item = String> {
    selection::SUFFIXES.into_iter().map(move |(suffix, _)| format!("{histogram}{suffix}"))
}

/// Whether a selector depends on the buckets of histograms.
pub fn selects_buckets(selector: &Selector) -> bool {
    selection::has_bound(selector)
}

impl Drop for PrometheusSource<'_> {
    fn drop(&mut self) {
        self.context.release_memory(*self.reserved_bytes.get_mut());
    }
}

impl Source for PrometheusSource<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        self.find(selector, &BucketSearch::WithoutBounds)
    }

    fn select_in_range(
        &self,
        selector: &Selector,
        range: &Range<i64>,
    ) -> Result<Vec<SeriesHandle>> {
        self.find(selector, &BucketSearch::Samples(range.clone()))
    }

    fn bucket_count(&self, selector: &Selector) -> u64 {
        self.stored.bucket_count(selector)
    }

    fn add_classic(&self, selector: &Selector, found: &mut Vec<SeriesHandle>) -> Result<()> {
        self.stored.add_classic(selector, found)
    }

    fn shared_unit(&self, selector: &Selector) -> Result<Option<(SeriesKind, String)>> {
        let grouped = self.grouped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kind, unit)) = grouped.iter().find(|(known, ..)| known == selector) {
            return Ok(Some((*kind, unit.clone())));
        }
        drop(grouped);
        let selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = selected.iter().find(|(known, _)| known == selector) {
            return Ok(source::shared_unit(found));
        }
        drop(selected);
        Ok(source::shared_unit(&self.find(selector, &BucketSearch::WithoutBounds)?))
    }

    fn take_hints(&self) -> Vec<String> {
        std::mem::take(&mut self.hints.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn select_count(&self, selector: &Selector) -> Result<u64> {
        let stored = self.stored.select_count(selector)?;
        let Some(candidates) = self.candidates(selector, stored == 0)? else { return Ok(stored) };
        // Mostly no series has another name.
        match self.stored.select_count(&candidates)? {
            0 => Ok(stored),
            _ => Ok(self.find(selector, &BucketSearch::WithoutBounds)?.len() as u64),
        }
    }

    fn time_range(&self, series: &[SeriesHandle], range: Range<i64>) -> Result<Option<Range<i64>>> {
        if are_stored(series.iter()) {
            return self.stored.time_range(series, range);
        }
        let handles = self.stored_handles(&series.iter().collect::<Vec<_>>());
        self.stored.time_range(&handles, range)
    }

    fn gaps(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Vec<Gap> {
        if are_stored(series.iter().copied()) {
            return self.stored.gaps(series, range);
        }
        let handles = self.stored_handles(series);
        self.stored.gaps(&handles.iter().collect::<Vec<_>>(), range)
    }

    fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        self.stored.estimate_rows(series, range, step)
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        match self.entry(series).as_deref() {
            None => self.stored.samples(series, range),
            Some(SourceSeries::Renamed(series)) => {
                let mut read = self.stored.samples(&series.handle, range)?;
                converted_unit::divide_samples(&mut read, series.divisor);
                Ok(read)
            }
            Some(SourceSeries::Classic(classic)) => self.classic_samples(classic, range),
        }
    }

    fn each_samples(
        &self,
        series: &[&SeriesHandle],
        range: Range<i64>,
        each: &mut dyn FnMut(usize, SourceRead<SeriesPoint>) -> Result<()>,
    ) -> Result<()> {
        if are_stored(series.iter().copied()) {
            return self.stored.each_samples(series, range, each);
        }
        let samples =
            |(at, series): (usize, &&SeriesHandle)| each(at, self.samples(series, range.clone())?);
        series.iter().enumerate().try_for_each(samples)
    }

    fn read_ahead(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Result<()> {
        match are_stored(series.iter().copied()) {
            true => self.stored.read_ahead(series, range),
            false => Ok(()),
        }
    }

    fn end_read_ahead(&self) {
        self.stored.end_read_ahead();
    }

    fn count_fresh(&self, selector: &Selector, range: &Range<i64>) -> Result<Option<FreshCount>> {
        if self.has_computed(selector)? {
            return Ok(None);
        }
        // A selector without stored series may mean others.
        Ok(self.stored.count_fresh(selector, range)?.filter(|count| count.selected > 0))
    }

    fn number_groups(
        &self,
        selector: &Selector,
        range: &Range<i64>,
        series_min: u64,
        keeps: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Box<dyn NumberGroups + '_>>> {
        if self.has_computed(selector)? {
            return Ok(None);
        }
        let found = self.stored.number_groups(selector, range, series_min, keeps)?;
        if let Some(groups) = &found {
            let known = (selector.clone(), groups.kind(), groups.unit().to_owned());
            self.grouped.lock().unwrap_or_else(PoisonError::into_inner).push(known);
        }
        Ok(found)
    }

    fn increments(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        match self.entry(series).as_deref() {
            None => self.stored.increments(series, range),
            Some(SourceSeries::Renamed(series)) => {
                let (mut increments, gaps) = self.stored.increments(&series.handle, range)?;
                if let Some(increments) = &mut increments {
                    increments.divide(series.divisor);
                }
                Ok((increments, gaps))
            }
            Some(SourceSeries::Classic(_)) => Ok((None, Vec::new())),
        }
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        self.histograms_by_unit(series, &|stored| self.stored.histograms(stored, grid))
    }

    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Mixture>> {
        self.histograms_by_unit(series, &|stored| self.stored.histograms_by_start(stored, grid))
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        let entries: Vec<Option<Arc<SourceSeries>>> =
            series.iter().map(|handle| self.entry(handle)).collect();
        let mut stored: BTreeMap<u64, Vec<&SeriesHandle>> = BTreeMap::new();
        for (handle, entry) in series.iter().zip(&entries) {
            let (handle, divisor) = match entry.as_deref() {
                None => (*handle, 1f64),
                Some(SourceSeries::Renamed(series)) => (&series.handle, series.divisor),
                Some(SourceSeries::Classic(_)) => continue,
            };
            stored.entry(divisor.to_bits()).or_default().push(handle);
        }
        if series.is_empty() {
            return self.stored.numbers(series, grid);
        }
        let mut all = SourceRead { values: vec![None; grid.columns as usize], gaps: Vec::new() };
        for (divisor, handles) in stored {
            let mut more = self.stored.numbers(&handles, grid)?;
            converted_unit::divide_numbers(&mut more, f64::from_bits(divisor));
            converted_unit::add_numbers(&mut all, more);
        }
        for entry in &entries {
            let Some(SourceSeries::Classic(classic)) = entry.as_deref() else { continue };
            converted_unit::add_numbers(&mut all, self.classic_numbers(classic, grid)?);
        }
        Ok(all)
    }
}
