//! History of one process: series, busiest metric, in-flight operations.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use hist::Histogram;
use shm::ProcessState;
use shm::snapshot::{InFlightSnapshot, MetricRole, MetricValue};

use crate::top::partial_value::{PartialValue, SampledSeries};
use crate::top::process_sample::ProcessSample;
use crate::top::series_history::SeriesHistory;
use render::text::escape_control;

/// A row switches to another metric only if that is busier by this ratio: a row that changes every
/// second is unreadable.
const BUSIER_RATIO: f64 = 1.5;

/// History of a process.
#[derive(Debug)]
pub(crate) struct ProcessHistory {
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    /// Program name, escaped for a terminal.
    pub(crate) program: String,
    pub(crate) command: String,
    pub(crate) format: &'static str,
    pub(crate) state: ProcessState,
    /// Time when it was found ended.
    pub(crate) ended_ns: Option<u64>,
    pub(crate) sampled_ns: u64,
    /// Why it could not be read.
    pub(crate) error: Option<String>,
    pub(crate) dropped: u64,
    pub(crate) rejected: u64,
    /// In the order of the process.
    pub(crate) series: Vec<SeriesHistory>,
    /// Totals of all histograms of a name, if there are several and they are followed.
    pub(crate) totals: BTreeMap<String, SeriesHistory>,
    /// Name of the metric in the row of the process.
    busiest: Option<String>,
    in_flight: Option<OperationsInFlight>,
    errors: Option<Option<f64>>,
}

/// Operations in flight of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationsInFlight {
    pub(crate) count: u64,
    /// Age of the oldest; `None` if none is listed.
    pub(crate) oldest_ns: Option<u64>,
}

impl ProcessHistory {
    /// History that starts with a first sample.
    pub(crate) fn new(sample: ProcessSample, is_open: bool) -> ProcessHistory {
        let mut process = ProcessHistory {
            path: sample.path.clone(),
            pid: sample.pid,
            program: escape_control(file_name(&sample.program)),
            command: escape_control(&sample.command),
            format: sample.format,
            state: sample.state,
            ended_ns: None,
            sampled_ns: sample.at_ns,
            error: None,
            dropped: 0,
            rejected: 0,
            series: Vec::new(),
            totals: BTreeMap::new(),
            busiest: None,
            in_flight: None,
            errors: None,
        };
        process.record(sample, is_open);
        process
    }

    /// Adds a sample. In an open process all metrics are followed, in others the busiest.
    pub(crate) fn record(&mut self, sample: ProcessSample, is_open: bool) {
        self.state = sample.state;
        self.sampled_ns = sample.at_ns;
        if self.state.has_ended() {
            self.ended_ns.get_or_insert(sample.at_ns);
        }
        (self.dropped, self.rejected) = (sample.dropped, sample.rejected);
        let values = match sample.metrics {
            Ok(values) => values,
            Err(reason) => {
                self.error = Some(escape_control(&reason));
                return;
            }
        };
        self.error = None;
        let readings: Vec<PartialValue> = values
            .into_iter()
            .enumerate()
            .map(|(at, value)| self.record_series(at, value))
            .collect();
        self.series.truncate(readings.len());
        let groups = self.groups(&readings, is_open);
        self.record_totals(&readings, &groups, sample.at_ns);
        let busiest = self.busiest.take();
        for (series, reading) in self.series.iter_mut().zip(readings) {
            let is_shown =
                busiest.as_ref() == Some(&series.name) && !self.totals.contains_key(&series.name);
            series.record(sample.at_ns, reading, is_open || is_shown);
        }
        self.busiest = self.choose_busiest(busiest);
        if let Some(name) = &self.busiest
            && !self.totals.contains_key(name)
        {
            self.series
                .iter_mut()
                .filter(|series| series.name == *name)
                .for_each(SeriesHistory::update_stats);
        }
        self.in_flight = self.all_in_flight();
        self.errors = self.all_errors();
    }

    /// Adds the sample of the series at an index; creates the series if it is new.
    fn record_series(&mut self, at: usize, sample: SampledSeries) -> PartialValue {
        let metric = match sample {
            SampledSeries::Known(reading) => return reading,
            SampledSeries::New(metric) => metric,
        };
        match self.series.get(at) {
            // A series keeps its index; another name at the index is another series.
            Some(known) if known.matches(&metric) => {}
            Some(_) => self.series[at] = SeriesHistory::new(&metric),
            None => self.series.push(SeriesHistory::new(&metric)),
        }
        PartialValue::Full(metric.value)
    }

    /// Indexes of the histograms of each name with several, if their total is followed.
    fn groups(&self, readings: &[PartialValue], is_open: bool) -> BTreeMap<String, Vec<usize>> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, (series, reading)) in self.series.iter().zip(readings).enumerate() {
            let is_followed = is_open || self.busiest.as_ref() == Some(&series.name);
            if is_followed && reading.histogram().is_some() {
                match groups.get_mut(&series.name) {
                    Some(members) => members.push(at),
                    None => _ = groups.insert(series.name.clone(), vec![at]),
                }
            }
        }
        groups.retain(|_, members| members.len() > 1);
        groups
    }

    fn record_totals(
        &mut self,
        readings: &[PartialValue],
        groups: &BTreeMap<String, Vec<usize>>,
        at_ns: u64,
    ) {
        self.totals.retain(|name, _| groups.contains_key(name));
        for (name, members) in groups {
            let of: Vec<&SeriesHistory> = members.iter().map(|&at| &self.series[at]).collect();
            let is_new = self.totals.get(name).is_none_or(|total| total.members != members.len());
            if is_new && let Some(mut total) = SeriesHistory::total(&of) {
                match self.totals.remove(name) {
                    // More series joined, starting from zero.
                    Some(known) => {
                        let (total_name, members) = (total.display_name, total.members);
                        total = known;
                        (total.display_name, total.members) = (total_name, members);
                    }
                    // Followed from now on; each member has its value of the last sample.
                    None => {
                        let before = of
                            .iter()
                            .filter_map(|series| series.last.as_ref().map(|last| last.0))
                            .max();
                        if let (Some(before_ns), Some(merged)) = (before, merge_readings(&of)) {
                            total.record(before_ns, merged, true);
                        }
                    }
                }
                self.totals.insert(name.clone(), total);
            }
            let values = members.iter().filter_map(|&at| readings[at].histogram());
            let value = match merge_histograms(values) {
                Some(merged) => MetricValue::Histogram(Box::new(merged)),
                None => MetricValue::Unknown("its series have different bucket layouts"),
            };
            if let Some(total) = self.totals.get_mut(name) {
                total.record(at_ns, PartialValue::Full(value), true);
            }
        }
    }

    /// Metric with the most values lately: among timings, or else among all histograms.
    fn choose_busiest(&self, current: Option<String>) -> Option<String> {
        let mut scores: HashMap<&str, (bool, f64)> = HashMap::new();
        for series in self.series.iter().filter(|series| series.is_histogram()) {
            let score = scores.entry(&series.name).or_insert((series.is_timing(), 0.0));
            score.1 += series.score;
        }
        let key = |name: &str| scores.get(name).copied();
        let best = scores.iter().max_by(|a, b| {
            (a.1.0.cmp(&b.1.0)).then(a.1.1.total_cmp(&b.1.1)).then_with(|| b.0.cmp(a.0))
        });
        let (best, (is_timing, best_score)) = best?;
        match current {
            Some(name) => match key(&name) {
                Some((current_kind, current_score))
                    if current_kind == *is_timing
                        && *best_score <= current_score * BUSIER_RATIO =>
                {
                    Some(name)
                }
                _ => Some((*best).to_owned()),
            },
            None => Some((*best).to_owned()),
        }
    }

    /// Name of the metric in the row of the process.
    pub(crate) fn busiest_name(&self) -> Option<&str> {
        self.busiest.as_deref()
    }

    /// Metric in the row of the process: the busiest, total of all its series.
    pub(crate) fn busiest(&self) -> Option<&SeriesHistory> {
        let name = self.busiest.as_ref()?;
        self.totals.get(name).or_else(|| self.series.iter().find(|series| series.name == *name))
    }

    /// Rows of the screen of the process: histograms first, totals before their members.
    pub(crate) fn rows(&self) -> Vec<&SeriesHistory> {
        let mut rows = Vec::with_capacity(self.series.len() + self.totals.len());
        // Members that were registered separately are listed together.
        let mut members: HashMap<&str, Vec<&SeriesHistory>> = HashMap::new();
        for series in self.series.iter().filter(|one| self.totals.contains_key(&one.name)) {
            members.entry(&series.name).or_default().push(series);
        }
        for series in &self.series {
            match self.totals.get(&series.name) {
                None => rows.push(series),
                Some(total) => {
                    if let Some(all) = members.remove(series.name.as_str()) {
                        rows.push(total);
                        rows.extend(all);
                    }
                }
            }
        }
        model::sort::by_key(&mut rows, |series| !series.is_histogram());
        rows
    }

    /// `None` if the process has no table of operations.
    pub(crate) fn in_flight(&self) -> Option<OperationsInFlight> {
        self.in_flight
    }

    fn all_in_flight(&self) -> Option<OperationsInFlight> {
        let all =
            self.series.iter().filter_map(|series| match series.last.as_ref()?.1.value()? {
                MetricValue::InFlight(table) => Some(in_flight_of(table, self.sampled_ns)),
                _ => None,
            });
        all.reduce(|a, b| OperationsInFlight {
            count: a.count.saturating_add(b.count),
            oldest_ns: a.oldest_ns.max(b.oldest_ns),
        })
    }

    /// Errors per second of all counters with the role error; `None` if there are none,
    /// `Some(None)` if not known yet.
    pub(crate) fn errors(&self) -> Option<Option<f64>> {
        self.errors
    }

    fn all_errors(&self) -> Option<Option<f64>> {
        let all = self.series.iter().filter(|series| series.role == MetricRole::Error);
        let rates = all.map(|series| series.interval.as_ref().and_then(|interval| interval.rate()));
        rates.reduce(|a, b| Some(a? + b?))
    }
}

/// Operations in flight of a table.
pub(crate) fn in_flight_of(table: &InFlightSnapshot, now_ns: u64) -> OperationsInFlight {
    let oldest = table.operations.iter().map(|operation| operation.start_ns).min();
    OperationsInFlight {
        count: table.count(),
        oldest_ns: oldest.map(|start_ns| now_ns.saturating_sub(start_ns)),
    }
}

/// Total at the last sample: with buckets if all were read, else the number of values.
fn merge_readings(of: &[&SeriesHistory]) -> Option<PartialValue> {
    // Series that did not exist yet had no values.
    let last = || of.iter().filter_map(|series| Some(&series.last.as_ref()?.1));
    if last().all(|reading| reading.histogram().is_some()) {
        let merged = merge_histograms(last().filter_map(PartialValue::histogram))?;
        return Some(PartialValue::Full(MetricValue::Histogram(Box::new(merged))));
    }
    let count = last().filter_map(PartialValue::recorded).fold(0, u64::saturating_add);
    Some(PartialValue::CountOnly(count))
}

fn merge_histograms<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Option<Histogram> {
    let mut histograms = histograms;
    let mut merged = histograms.next()?.clone();
    histograms.try_for_each(|one| merged.merge(one)).ok()?;
    Some(merged)
}

/// Last component of a path.
fn file_name(program: &str) -> &str {
    program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::fixtures::{S, in_flight, labelled, metric, process_sample, recorded, two};

    fn after_samples(samples: u64, is_open: bool) -> ProcessHistory {
        let mut all = (1..=samples).map(|at| two(at, &[1_000, 2_000, 50_000, 3_000]).remove(0));
        let mut process = ProcessHistory::new(all.next().expect("a sample"), is_open);
        all.for_each(|sample| process.record(sample, is_open));
        process
    }

    #[test]
    fn busiest_metric_is_summed_over_its_series() {
        let process = after_samples(4, false);
        let busiest = process.busiest().expect("there is one");
        assert_eq!((busiest.display_name.as_str(), busiest.members), ("answer_duration, all 2", 2));
        let rate = busiest.interval.as_ref().and_then(|interval| interval.rate());
        assert_eq!(rate, Some(6.0));
        assert!(
            process
                .series
                .iter()
                .all(|series| series.name != "query_duration" || series.points.is_empty())
        );
    }

    #[test]
    fn total_excludes_other_metrics() {
        let process = after_samples(4, true);
        assert_eq!(process.totals.len(), 1);
        let names: Vec<&str> =
            process.rows().iter().map(|series| series.display_name.as_str()).collect();
        assert_eq!(
            names[..4],
            [
                "answer_duration, all 2",
                "answer_duration{route=\"cart\"}",
                "answer_duration{route=\"search\"}",
                "query_duration"
            ]
        );
    }

    #[test]
    fn total_has_an_interval_at_once() {
        // The total is followed from the second sample on.
        let process = after_samples(2, false);
        assert_eq!(process.busiest().and_then(|total| total.stats).map(|f| f.count), Some(6));
    }

    #[test]
    fn busiest_metric_changes_only_for_a_clear_difference() {
        let of = |at: u64, first: usize, second: usize| {
            let metrics = vec![
                metric("a", "ns", recorded(&vec![5; first])),
                metric("b", "ns", recorded(&vec![5; second])),
            ];
            process_sample(1, "x", at * S, metrics)
        };
        let mut process = ProcessHistory::new(of(1, 10, 8), false);
        process.record(of(2, 20, 20), false);
        assert_eq!(process.busiest().map(|series| series.name.as_str()), Some("a"));
        process.record(of(3, 20, 90), false);
        process.record(of(4, 20, 200), false);
        assert_eq!(process.busiest().map(|series| series.name.as_str()), Some("b"));
    }

    #[test]
    fn operations_in_flight_are_summed() {
        let metrics = vec![in_flight("reads", &[S, 3 * S]), in_flight("writes", &[2 * S])];
        let process = ProcessHistory::new(process_sample(1, "x", 10 * S, metrics), false);
        assert_eq!(
            process.in_flight(),
            Some(OperationsInFlight { count: 3, oldest_ns: Some(9 * S) })
        );
        assert_eq!(after_samples(2, false).errors(), Some(Some(3.0)));
        assert_eq!(process.errors(), None);
    }

    #[test]
    fn series_at_a_new_index_is_reset() {
        let mut process = ProcessHistory::new(
            process_sample(1, "x", S, vec![labelled("a", "1", recorded(&[5]))]),
            true,
        );
        process.record(
            process_sample(1, "x", 2 * S, vec![labelled("b", "1", recorded(&[5, 6]))]),
            true,
        );
        assert_eq!(process.series[0].display_name, "b{route=\"1\"}");
        assert!(process.series[0].interval.is_none());
    }
}
