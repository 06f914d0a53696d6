//! One process over time: its series, the busiest of them, and what is in flight.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use hist::Histogram;
use shm::Fate;
use shm::show::{InFlight, Role, Value};

use crate::command::plain;
use crate::top::look::Look;
use crate::top::reading::{Reading, Seen};
use crate::top::series::Series;

/// A row shows another metric only once that is so much busier: rows that change their metric every second cannot be read.
const BUSIER: f64 = 1.5;

/// A process over time.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    /// The name of its program, fit for a terminal.
    pub(crate) program: String,
    pub(crate) command: String,
    pub(crate) format: &'static str,
    pub(crate) fate: Fate,
    /// When it was found gone.
    pub(crate) gone_ns: Option<u64>,
    pub(crate) looked_ns: u64,
    /// Why it could not be read.
    pub(crate) trouble: Option<String>,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    /// In the order of the process's own list.
    pub(crate) series: Vec<Series>,
    /// All histograms of a name together, where there are several and they are followed.
    pub(crate) totals: BTreeMap<String, Series>,
    /// The name of the metric that the row of the process shows.
    busiest: Option<String>,
    pending: Option<Pending>,
    errors: Option<Option<f64>>,
}

/// What has begun and not ended, of all metrics of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) count: u64,
    /// The age of the oldest. `None` where none is listed.
    pub(crate) oldest_ns: Option<u64>,
}

impl Process {
    /// A process at the first look.
    pub(crate) fn new(look: Look, is_open: bool) -> Process {
        let mut process = Process {
            path: look.path.clone(),
            pid: look.pid,
            program: plain(name_of(&look.program)),
            command: plain(&look.command),
            format: look.format,
            fate: look.fate,
            gone_ns: None,
            looked_ns: look.at_ns,
            trouble: None,
            lost: 0,
            refused: 0,
            series: Vec::new(),
            totals: BTreeMap::new(),
            busiest: None,
            pending: None,
            errors: None,
        };
        process.look(look, is_open);
        process
    }

    /// Takes note of another look. Of a process that is open all metrics are followed, of others the busiest.
    pub(crate) fn look(&mut self, look: Look, is_open: bool) {
        self.fate = look.fate;
        self.looked_ns = look.at_ns;
        if self.fate.is_gone() {
            self.gone_ns.get_or_insert(look.at_ns);
        }
        (self.lost, self.refused) = (look.lost, look.refused);
        let seen = match look.metrics {
            Ok(seen) => seen,
            Err(why) => {
                self.trouble = Some(plain(&why));
                return;
            }
        };
        self.trouble = None;
        let readings: Vec<Reading> =
            seen.into_iter().enumerate().map(|(at, seen)| self.reading(at, seen)).collect();
        self.series.truncate(readings.len());
        let groups = self.groups(&readings, is_open);
        self.look_at_totals(&readings, &groups, look.at_ns);
        let busiest = self.busiest.take();
        for (series, reading) in self.series.iter_mut().zip(readings) {
            let is_shown =
                busiest.as_ref() == Some(&series.name) && !self.totals.contains_key(&series.name);
            series.look(look.at_ns, reading, is_open || is_shown);
        }
        self.busiest = self.choose(busiest);
        if let Some(name) = &self.busiest
            && !self.totals.contains_key(name)
        {
            self.series.iter_mut().filter(|series| series.name == *name).for_each(Series::follow);
        }
        self.pending = self.all_pending();
        self.errors = self.all_errors();
    }

    /// What was read of the series in a place, of which note is taken if it is a new one.
    fn reading(&mut self, at: usize, seen: Seen) -> Reading {
        let metric = match seen {
            Seen::Known(reading) => return reading,
            Seen::Whole(metric) => metric,
        };
        match self.series.get(at) {
            // A series keeps its place; what has another name there is another series.
            Some(known) if known.is_of(&metric) => {}
            Some(_) => self.series[at] = Series::new(&metric),
            None => self.series.push(Series::new(&metric)),
        }
        Reading::Of(metric.value)
    }

    /// Places of the histograms of each name that has several, if they are followed together.
    fn groups(&self, readings: &[Reading], is_open: bool) -> BTreeMap<String, Vec<usize>> {
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

    fn look_at_totals(
        &mut self,
        readings: &[Reading],
        groups: &BTreeMap<String, Vec<usize>>,
        at_ns: u64,
    ) {
        self.totals.retain(|name, _| groups.contains_key(name));
        for (name, members) in groups {
            let of: Vec<&Series> = members.iter().map(|&at| &self.series[at]).collect();
            let is_new = self.totals.get(name).is_none_or(|total| total.members != members.len());
            if is_new && let Some(mut total) = Series::total(&of) {
                match self.totals.remove(name) {
                    // More series joined, which began at nothing.
                    Some(known) => {
                        let (shown, members) = (total.shown, total.members);
                        total = known;
                        (total.shown, total.members) = (shown, members);
                    }
                    // It is followed from now on; each member knows what it was at the last look.
                    None => {
                        let before = of
                            .iter()
                            .filter_map(|series| series.last.as_ref().map(|last| last.0))
                            .max();
                        if let (Some(before_ns), Some(whole)) = (before, together(&of)) {
                            total.look(before_ns, whole, true);
                        }
                    }
                }
                self.totals.insert(name.clone(), total);
            }
            let values = members.iter().filter_map(|&at| readings[at].histogram());
            let value = match merged(values) {
                Some(whole) => Value::Histogram(Box::new(whole)),
                None => Value::Unknown("its series have buckets that do not fit together"),
            };
            if let Some(total) = self.totals.get_mut(name) {
                total.look(at_ns, Reading::Of(value), true);
            }
        }
    }

    /// The metric that had the most values lately: of those that take times, or else of all histograms.
    fn choose(&self, current: Option<String>) -> Option<String> {
        let mut scores: HashMap<&str, (bool, f64)> = HashMap::new();
        for series in self.series.iter().filter(|series| series.is_histogram()) {
            let score = scores.entry(&series.name).or_insert((series.is_timing(), 0.0));
            score.1 += series.score;
        }
        let key = |name: &str| scores.get(name).copied();
        let best = scores.iter().max_by(|a, b| {
            (a.1.0.cmp(&b.1.0)).then(a.1.1.total_cmp(&b.1.1)).then_with(|| b.0.cmp(a.0))
        });
        let (best, (is_timing, score)) = best?;
        match current {
            Some(name) => match key(&name) {
                Some((kind, own)) if kind == *is_timing && *score <= own * BUSIER => Some(name),
                _ => Some((*best).to_owned()),
            },
            None => Some((*best).to_owned()),
        }
    }

    /// The name of the metric that the row of the process shows.
    pub(crate) fn busiest_name(&self) -> Option<&str> {
        self.busiest.as_deref()
    }

    /// What the row of the process shows: the busiest metric, all its series together.
    pub(crate) fn busiest(&self) -> Option<&Series> {
        let name = self.busiest.as_ref()?;
        self.totals.get(name).or_else(|| self.series.iter().find(|series| series.name == *name))
    }

    /// All rows of the page of the process: histograms first, and totals before their members.
    pub(crate) fn rows(&self) -> Vec<&Series> {
        let mut rows = Vec::with_capacity(self.series.len() + self.totals.len());
        // Members that were registered apart stand together all the same.
        let mut members: HashMap<&str, Vec<&Series>> = HashMap::new();
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
        rows.sort_by_key(|series| !series.is_histogram());
        rows
    }

    /// `None` where nothing of the kind is told.
    pub(crate) fn pending(&self) -> Option<Pending> {
        self.pending
    }

    fn all_pending(&self) -> Option<Pending> {
        let all =
            self.series.iter().filter_map(|series| match series.last.as_ref()?.1.value()? {
                Value::InFlight(table) => Some(pending(table, self.looked_ns)),
                _ => None,
            });
        all.reduce(|a, b| Pending {
            count: a.count.saturating_add(b.count),
            oldest_ns: a.oldest_ns.max(b.oldest_ns),
        })
    }

    /// Errors each second, of all counters that are said to count them; `None` where there are no such, `Some(None)` where it is not
    /// known yet.
    pub(crate) fn errors(&self) -> Option<Option<f64>> {
        self.errors
    }

    fn all_errors(&self) -> Option<Option<f64>> {
        let all = self.series.iter().filter(|series| series.role == Role::Error);
        let rates = all.map(|series| series.interval.as_ref().and_then(|interval| interval.rate()));
        rates.reduce(|a, b| Some(a? + b?))
    }
}

/// What of a table has begun and not ended.
pub(crate) fn pending(table: &InFlight, now_ns: u64) -> Pending {
    let oldest = table.operations.iter().map(|operation| operation.start_ns).min();
    Pending {
        count: table.outstanding(),
        oldest_ns: oldest.map(|start_ns| now_ns.saturating_sub(start_ns)),
    }
}

/// All of them as they were at the last look: with buckets if all were read, else how many values there were.
fn together(of: &[&Series]) -> Option<Reading> {
    // Those that were not there yet had nothing.
    let last = || of.iter().filter_map(|series| Some(&series.last.as_ref()?.1));
    if last().all(|reading| reading.histogram().is_some()) {
        let whole = merged(last().filter_map(Reading::histogram))?;
        return Some(Reading::Of(Value::Histogram(Box::new(whole))));
    }
    let count = last().filter_map(Reading::recorded).fold(0, u64::saturating_add);
    Some(Reading::Recorded(count))
}

fn merged<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Option<Histogram> {
    let mut histograms = histograms;
    let mut whole = histograms.next()?.clone();
    histograms.try_for_each(|one| whole.merge(one)).ok()?;
    Some(whole)
}

/// The last part of a path.
fn name_of(program: &str) -> &str {
    program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::made::{S, in_flight, labelled, look, metric, recorded, two};

    fn after(looks: u64, is_open: bool) -> Process {
        let mut all = (1..=looks).map(|at| two(at, &[1_000, 2_000, 50_000, 3_000]).remove(0));
        let mut process = Process::new(all.next().expect("a look"), is_open);
        all.for_each(|look| process.look(look, is_open));
        process
    }

    #[test]
    fn the_busiest_metric_is_shown_with_all_its_series() {
        let process = after(4, false);
        let busiest = process.busiest().expect("there is one");
        assert_eq!((busiest.shown.as_str(), busiest.members), ("answer_duration, all 2", 2));
        let rate = busiest.interval.as_ref().and_then(|interval| interval.rate());
        assert_eq!(rate, Some(6.0));
        assert!(
            process
                .series
                .iter()
                .all(|series| series.name != "query_duration" || series.past.is_empty())
        );
    }

    #[test]
    fn distributions_of_other_metrics_are_not_among_it() {
        let process = after(4, true);
        assert_eq!(process.totals.len(), 1);
        let names: Vec<&str> = process.rows().iter().map(|series| series.shown.as_str()).collect();
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
    fn a_total_knows_its_interval_at_once() {
        // The second look is the first at which the total is followed.
        let process = after(2, false);
        assert_eq!(process.busiest().and_then(|total| total.figures).map(|f| f.count), Some(6));
    }

    #[test]
    fn a_row_does_not_change_its_metric_for_little() {
        let of = |at: u64, first: usize, second: usize| {
            let metrics = vec![
                metric("a", "ns", recorded(&vec![5; first])),
                metric("b", "ns", recorded(&vec![5; second])),
            ];
            look(1, "x", at * S, metrics)
        };
        let mut process = Process::new(of(1, 10, 8), false);
        process.look(of(2, 20, 20), false);
        assert_eq!(process.busiest().map(|series| series.name.as_str()), Some("a"));
        process.look(of(3, 20, 90), false);
        process.look(of(4, 20, 200), false);
        assert_eq!(process.busiest().map(|series| series.name.as_str()), Some("b"));
    }

    #[test]
    fn what_is_in_flight_is_added_up() {
        let metrics = vec![in_flight("reads", &[S, 3 * S]), in_flight("writes", &[2 * S])];
        let process = Process::new(look(1, "x", 10 * S, metrics), false);
        assert_eq!(process.pending(), Some(Pending { count: 3, oldest_ns: Some(9 * S) }));
        assert_eq!(after(2, false).errors(), Some(Some(3.0)));
        assert_eq!(process.errors(), None);
    }

    #[test]
    fn a_series_that_changes_its_place_begins_anew() {
        let mut process =
            Process::new(look(1, "x", S, vec![labelled("a", "1", recorded(&[5]))]), true);
        process.look(look(1, "x", 2 * S, vec![labelled("b", "1", recorded(&[5, 6]))]), true);
        assert_eq!(process.series[0].shown, "b{route=\"1\"}");
        assert!(process.series[0].interval.is_none());
    }
}
