//! Process monitor: discovery and sampling.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use shm::{AttachedProcess, MetricsFile, MetricsFileReader, ProcessState};

use crate::top::detail_selection::{DetailSelection, SeriesSelection};
use crate::top::partial_value::{PartialValue, SampledSeries};
use crate::top::process_sample::ProcessSample;

/// Interval of scans for processes. A sample that is up to a tenth early scans too.
const SCAN_INTERVAL_NS: u64 = 1_000_000_000;

/// Monitor of all processes.
#[derive(Debug, Default)]
pub struct ProcessMonitor {
    /// Only processes with this PID, or with this text in their name.
    only: Option<String>,
    scanned_ns: Option<u64>,
    attached: HashMap<PathBuf, WatchedProcess>,
    /// Files not read any more: of ended or filtered processes.
    ignored: HashSet<PathBuf>,
    /// Errors of the last scan.
    pub errors: Vec<String>,
}

/// A monitored process.
#[derive(Debug)]
struct WatchedProcess {
    attached: AttachedProcess,
    state: ProcessState,
    /// Number of series already described: they keep their indexes and descriptions.
    known_series: usize,
}

impl ProcessMonitor {
    /// Monitor of all processes, or of those that match a part of the name or a PID.
    pub fn new(only: Option<String>) -> ProcessMonitor {
        ProcessMonitor { only: only.map(|only| only.to_lowercase()), ..ProcessMonitor::default() }
    }

    /// Samples each process, some series in detail; ended processes are sampled a last time.
    pub(crate) fn sample_all(&mut self, detail: &DetailSelection) -> Vec<ProcessSample> {
        let now_ns = clock::now();
        if self.scanned_ns.is_none_or(|at| now_ns.saturating_sub(at) >= SCAN_INTERVAL_NS * 9 / 10) {
            self.scanned_ns = Some(now_ns);
            self.scan();
        }
        let mut samples: Vec<ProcessSample> = self
            .attached
            .iter_mut()
            .map(|(path, one)| sample_process(path.clone(), one, detail))
            .collect();
        // Rows that compare equal are sorted by PID.
        model::sort::by(&mut samples, |a, b| a.pid.cmp(&b.pid).then_with(|| a.path.cmp(&b.path)));
        for sample in samples.iter().filter(|sample| sample.state.has_ended()) {
            self.attached.remove(&sample.path);
            self.ignored.insert(sample.path.clone());
        }
        samples
    }

    fn scan(&mut self) {
        let (all, problems) = shm::list_metrics_files();
        self.errors = problems.iter().map(ToString::to_string).collect();
        let mut found_paths = HashSet::new();
        for found in all {
            found_paths.insert(found.path.clone());
            let state = found.state;
            if let Some(known) = self.attached.get_mut(&found.path) {
                known.state = state;
            } else if !self.ignored.contains(&found.path) {
                self.attach(found, state);
            }
        }
        // Its file was removed: the process had exited.
        for (path, one) in &mut self.attached {
            if !found_paths.contains(path) && !one.state.has_ended() {
                one.state = ProcessState::Exited;
            }
        }
        self.ignored.retain(|path| found_paths.contains(path));
    }

    fn attach(&mut self, found: MetricsFile, state: ProcessState) {
        let path = found.path.clone();
        // Processes that exited before the start are not part of `top`.
        if state.has_ended() {
            self.ignored.insert(path);
            return;
        }
        match AttachedProcess::new(found) {
            Ok(attached) if self.matches(&attached) => {
                self.attached.insert(path, WatchedProcess { attached, state, known_series: 0 });
            }
            Ok(_) => {
                self.ignored.insert(path);
            }
            // It may be readable at the next scan: it was just being created, or belongs to another
            // user.
            Err(error) => self.errors.push(error.to_string()),
        }
    }

    fn matches(&self, one: &AttachedProcess) -> bool {
        self.only.as_ref().is_none_or(|only| {
            one.program().to_lowercase().contains(only) || one.pid().to_string() == *only
        })
    }
}

fn sample_process(
    path: PathBuf,
    one: &mut WatchedProcess,
    detail: &DetailSelection,
) -> ProcessSample {
    let metrics = one.read_series(detail.series_of(&path)).map_err(|error| error.to_string());
    let at_ns = clock::now();
    let (state, one) = (one.state, &one.attached);
    let counts = one.reader().map(shm::MetricsFileReader::process);
    let (dropped, rejected) =
        counts.map_or((0, 0), |process| (process.lost_values, process.rejected_series));
    let (pid, program) = (one.pid(), one.program().to_owned());
    let (command, format) = (one.command().to_owned(), one.metrics_file().format.name());
    ProcessSample { path, pid, program, command, format, state, at_ns, metrics, dropped, rejected }
}

impl WatchedProcess {
    /// All series: new ones with their description, others with their value only.
    fn read_series(&mut self, detail: SeriesSelection<'_>) -> shm::Result<Vec<SampledSeries>> {
        let Some(reader) = self.attached.reader_mut() else {
            // Files of other formats are read completely, and have no buckets.
            return Ok(self.attached.metrics()?.into_iter().map(SampledSeries::New).collect());
        };
        reader.refresh()?;
        let known_count = self.known_series.min(reader.len());
        let mut series = read_known_series(reader, known_count, detail)?;
        series.extend(reader.metrics_from(known_count)?.into_iter().map(SampledSeries::New));
        self.known_series = series.len();
        Ok(series)
    }
}

/// Values of known series: of unselected histograms only the number of values.
fn read_known_series(
    reader: &MetricsFileReader,
    known_count: usize,
    detail: SeriesSelection<'_>,
) -> shm::Result<Vec<SampledSeries>> {
    let counts = (0..known_count).map(|at| match detail.contains(reader.name(at)) {
        true => Ok(None),
        false => reader.histogram_count(at),
    });
    let counts = counts.collect::<shm::Result<Vec<_>>>()?;
    let places: Vec<usize> = (0..known_count).filter(|&at| counts[at].is_none()).collect();
    let mut values = reader.values(&places)?.into_iter();
    let reading = |count: Option<u64>| match count {
        Some(count) => Some(PartialValue::CountOnly(count)),
        None => values.next().map(PartialValue::Full),
    };
    Ok(counts.into_iter().filter_map(reading).map(SampledSeries::Known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sample of this process.
    fn sample_one(watch: &mut ProcessMonitor, detail: &DetailSelection) -> Vec<SampledSeries> {
        let mut samples = watch.sample_all(detail);
        assert_eq!(samples.len(), 1, "{:?}", watch.errors);
        samples.remove(0).metrics.expect("it can be read")
    }

    #[test]
    fn buckets_are_read_only_for_selected_series() {
        if shm::status().is_err() {
            return;
        }
        let pid = std::process::id().to_string();
        for label in 0..100 {
            for name in ["top_watch_a", "top_watch_b"] {
                let series = shm::MetricBuilder::new(name).label("n", label.to_string());
                series.histogram().expect("there is room").record(7);
            }
        }
        let mut watch = ProcessMonitor::new(Some(pid));
        // The first sample has everything, so that the busiest metric can be shown at the second.
        let first = sample_one(&mut watch, &DetailSelection::default());
        let is_ours = |seen: &SampledSeries| matches!(seen, SampledSeries::New(one) if one.name.starts_with("top_watch_"));
        let ours: Vec<usize> = (0..first.len()).filter(|&at| is_ours(&first[at])).collect();
        assert!(ours.iter().all(|&at| first[at].has_buckets()));
        // Number of series read with buckets, and number only counted.
        let read = |watch: &mut ProcessMonitor, detail: &DetailSelection| {
            let seen = sample_one(watch, detail);
            let detail = ours.iter().filter(|&&at| seen[at].has_buckets()).count();
            let counted =
                |at: &&usize| seen[**at] == SampledSeries::Known(PartialValue::CountOnly(1));
            (detail, ours.iter().filter(counted).count())
        };
        assert_eq!(read(&mut watch, &DetailSelection::default()), (0, 200));
        let path = watch.attached.keys().next().expect("there is one").clone();
        let rows = HashMap::from([(path.clone(), "top_watch_a".to_owned())]);
        assert_eq!(
            read(&mut watch, &DetailSelection { rows, ..DetailSelection::default() }),
            (100, 100)
        );
        let open = DetailSelection { process: Some(path), ..DetailSelection::default() };
        assert_eq!(read(&mut watch, &open), (200, 0));
        assert_eq!(read(&mut watch, &DetailSelection::all()), (200, 0));
    }
}
