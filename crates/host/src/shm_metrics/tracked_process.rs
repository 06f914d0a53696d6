//! Tracked process and its last reported values.

use std::collections::HashMap;

use shm::snapshot::{MetricValue, ProcessSeries};
use shm::{AttachedProcess, MetricsFile, ProcessIdentity, ProcessState};

use crate::cgroup_owner::OwnerLabels;
use crate::shm_metrics::exit_totals::ExitTotals;
use crate::shm_metrics::generation_table::{ProgramName, SeriesShare};
use crate::shm_metrics::in_flight_by_age::InFlightByAge;
use crate::shm_metrics::rows::{LastReported, MetricDescriptor, SeriesContext, ShmRowWriter};

/// Series about processes in addition to their own metrics; `docs/host.md` lists them.
const UP: &str = "process_up";
pub(crate) const END: &str = "process_exit_info";
const IN_FLIGHT: &str = "process_in_flight";
const OLDEST: &str = "process_in_flight_oldest_seconds";
pub(crate) const STARTED: &str = "process_operations_started_total";
pub(crate) const ENDED: &str = "process_operations_finished_total";
pub(crate) const BEATS: &str = "process_heartbeats_total";
const BEAT_AGE: &str = "process_heartbeat_age_seconds";

/// A running process whose file is not found for this time has exited.
const MISSING_NS: i64 = 10_000_000_000;

/// Process whose metrics are collected.
#[derive(Debug)]
pub(crate) struct TrackedProcess {
    /// `None` after everything was reported.
    attached: Option<AttachedProcess>,
    pub(crate) identity: ProcessIdentity,
    state: ProcessState,
    pub(crate) program: ProgramName,
    /// `None` while nothing of it is stored: it is young, or above the limit of generations.
    share: Option<SeriesShare>,
    /// Labels of its series.
    labels: Vec<(String, String)>,
    /// Labels of its operations in flight: the unit or container that it runs in.
    owner: OwnerLabels,
    /// Start of its counters; `None` if unknown.
    pub(crate) start: Option<i64>,
    /// End of the last scrape.
    last_end: i64,
    /// Time of exit: a final scrape follows and none after it.
    exited_at: Option<i64>,
    /// Since when its file is not found.
    missing_since: Option<i64>,
    reported: LastReported,
    /// By labels, including the table's name.
    in_flight_tables: HashMap<Vec<(String, String)>, InFlightByAge>,
}

impl TrackedProcess {
    /// Opens the metrics file of a process.
    pub(crate) fn new(found: MetricsFile, now: i64) -> shm::Result<TrackedProcess> {
        let (identity, state) = (found.identity, found.state);
        let created_at = std::fs::metadata(&found.path).and_then(|file| file.created());
        let format = found.format.name();
        // Copied, not mapped: a writer may truncate its file, which would raise SIGBUS here.
        let attached = AttachedProcess::open_copied(found)?;
        let process = attached.program().to_owned();
        // Two formats of one process are two sources.
        let format = if format == "topdeck" { "" } else { format };
        let program = ProgramName { process, format: format.to_owned() };
        let start = match attached.reader() {
            Some(reader) => Some(reader.process().created_unix_ns),
            None => created_at.ok().and_then(|created_at| {
                let since = created_at.duration_since(std::time::UNIX_EPOCH).ok()?;
                i64::try_from(since.as_nanos()).ok()
            }),
        };
        // The start may lie between the boundary and now, or after a clock that was set back:
        // values read now were recorded before now.
        let start = start.map(|start| start.min(now.saturating_sub(1)));
        Ok(TrackedProcess {
            attached: Some(attached),
            identity,
            state,
            program,
            share: None,
            labels: Vec::new(),
            owner: OwnerLabels::new(),
            start,
            last_end: i64::MIN,
            exited_at: None,
            missing_since: None,
            reported: LastReported::new(),
            in_flight_tables: HashMap::new(),
        })
    }

    /// Whether there is more to report.
    pub(crate) fn is_open(&self) -> bool {
        self.attached.is_some()
    }

    /// Stores the process under the series of a share; `start` is the start of its counters there.
    pub(crate) fn assign(&mut self, share: SeriesShare, start: i64) {
        self.labels = labels(&self.program, share);
        self.share = Some(share);
        self.start = self.start.map(|_| start);
    }

    /// Sets the unit or container that it runs in.
    pub(crate) fn set_owner(&mut self, owner: OwnerLabels) {
        self.owner = owner;
    }

    /// The share that it is stored under, if any.
    pub(crate) fn share(&self) -> Option<SeriesShare> {
        self.share
    }

    /// Time of exit, if it has exited.
    pub(crate) fn exited_at(&self) -> Option<i64> {
        self.exited_at
    }

    /// PID as seen from here, while it runs.
    pub(crate) fn live_pid(&self) -> Option<u32> {
        match self.state {
            ProcessState::Running { pid } => Some(pid),
            _ => None,
        }
    }

    /// How long it has run, in nanoseconds; `None` if its start is unknown.
    pub(crate) fn age(&self, now: i64) -> Option<i64> {
        Some(self.exited_at.unwrap_or(now).saturating_sub(self.start?))
    }

    /// Updates the state of the process.
    pub(crate) fn update_state(&mut self, state: ProcessState, now: i64) {
        self.state = state;
        // A replaced file ends where its successor starts; `ShmCollector` sets that.
        if state.has_ended() && state != ProcessState::Replaced {
            self.report_exit(now);
        }
    }

    /// Whether its file is gone for good. A file in a container is not found for a moment if the
    /// process through which the container is seen exits.
    pub(crate) fn is_missing(&mut self, is_missing: bool, now: i64) -> bool {
        self.missing_since = is_missing.then(|| self.missing_since.unwrap_or(now));
        self.missing_since.is_some_and(|since| now.saturating_sub(since) >= MISSING_NS)
    }

    /// Whether another file of the same process replaced this one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.state == ProcessState::Replaced
    }

    /// Marks the process as exited by that time; a final scrape follows. Returns the time of exit:
    /// the first one reported, but not before the last scrape.
    pub(crate) fn report_exit(&mut self, by: i64) -> i64 {
        if let Some(over) = self.exited_at {
            return over;
        }
        let ended_ns = self.attached.as_mut().and_then(|attached| {
            attached.metrics().ok()?;
            Some(attached.reader()?.process().ended_ns).filter(|&ended_ns| ended_ns > 0)
        });
        let at = ended_ns.map_or(by, |ended_ns| {
            let ago = clock::now().saturating_sub(ended_ns);
            by.min(clock::wall().unix_ns.saturating_sub_unsigned(ago))
        });
        let first = self.start.map_or(i64::MIN, |start| start.saturating_add(1));
        *self.exited_at.insert(at.max(self.last_end).max(first))
    }

    /// After the final scrape: closes the file, and returns the end of its last row, if it holds a
    /// generation.
    pub(crate) fn commit(&mut self) -> Option<i64> {
        let exited_at = self.exited_at?;
        if !self.is_open() || !matches!(self.share, Some(SeriesShare::Generation(_))) {
            return None;
        }
        self.skip();
        // The markers of its series follow its last rows.
        Some(exited_at.max(self.last_end).saturating_add(1))
    }

    /// Makes the next scrape report everything again.
    pub(crate) fn rollback(&mut self) {
        self.reported.clear();
    }

    /// Whether the process is a topdeck: metrics of topdeck start with its name.
    pub(crate) fn is_topdeck(&mut self) -> bool {
        let metrics = self.attached.as_mut().and_then(|attached| attached.metrics().ok());
        has_topdeck_metric(&metrics.unwrap_or_default())
    }

    /// Reports nothing more of the process.
    pub(crate) fn skip(&mut self) {
        self.attached = None;
        (self.reported, self.in_flight_tables) = (LastReported::new(), HashMap::new());
    }

    /// Adds the final values of an exited process to a sum; `last_end` is the end of the sum's last
    /// row.
    pub(crate) fn add_to(&mut self, sums: &mut ExitTotals, last_end: i64) -> shm::Result<()> {
        let (Some(attached), Some(share)) = (&mut self.attached, self.share) else { return Ok(()) };
        let metrics = attached.metrics()?;
        let now_ns = clock::now();
        let (mut in_flight, mut oldest) = (0, 0);
        for metric in &metrics {
            if let MetricValue::InFlight(found) = &metric.value {
                let starts = found.operations.iter().map(|operation| operation.start_ns);
                in_flight += found.count();
                oldest = oldest.max(starts.min().map_or(0, |at| now_ns.saturating_sub(at)));
            }
        }
        // A regular exit of a short process is no event.
        let exit = exit_message(self.state, in_flight, oldest);
        let exit = exit.filter(|_| self.state != ProcessState::Exited || in_flight > 0);
        let start = self.start.unwrap_or(last_end).max(last_end);
        sums.add(&self.program, share, start, metrics, exit);
        Ok(())
    }

    /// Reports all current metrics, or nothing of a topdeck unless `with_topdecks`. Returns how
    /// many have an unsupported value.
    pub(crate) fn read(
        &mut self,
        out: &mut ShmRowWriter<'_>,
        with_topdecks: bool,
    ) -> shm::Result<u64> {
        let Some(attached) = &mut self.attached else { return Ok(0) };
        let end = self.exited_at.unwrap_or(out.end);
        // The clock was set back: a counter reported twice for one time would look like a new
        // counter.
        if end <= self.last_end && self.exited_at.is_none() {
            return Ok(0);
        }
        let metrics = attached.metrics()?;
        if !with_topdecks && has_topdeck_metric(&metrics) {
            self.skip();
            return Ok(0);
        }
        // Taken after the values, so that no age is negative.
        let now_ns = clock::now();
        let start = self.start.unwrap_or(end);
        let mut whose = SeriesContext {
            labels: &self.labels,
            start,
            end,
            reported: &mut self.reported,
            is_final: self.exited_at.is_some(),
        };
        let (mut unknown, mut in_flight, mut oldest) = (0, 0, 0);
        for ProcessSeries { name, labels, unit, value, .. } in metrics {
            let named = MetricDescriptor { name: &name, unit: &unit, labels: &labels };
            match value {
                MetricValue::Counter(number) => out.count(&mut whose, named, number.as_float()),
                MetricValue::Gauge(number) => out.gauge(&mut whose, named, number.as_float()),
                MetricValue::Text(text) => out.text(&mut whose, named, text),
                MetricValue::Histogram(histogram) => out.distribution(&mut whose, named, histogram),
                MetricValue::InFlight(found) => {
                    let labels = prepend_label(&labels, "operation", &name);
                    let flight = self.in_flight_tables.entry(labels.clone()).or_default();
                    let age_ns = flight.count(&found, now_ns);
                    let owned = own_labels(&labels, &self.owner);
                    report_in_flight(out, &mut whose, &owned, flight, age_ns);
                    for (name, count) in [(STARTED, found.started), (ENDED, found.ended)] {
                        out.count(
                            &mut whose,
                            MetricDescriptor { name, unit: "", labels: &labels },
                            count as f64,
                        );
                    }
                    in_flight += found.count();
                    oldest = oldest.max(age_ns);
                }
                MetricValue::Heartbeat(beat) => {
                    let labels = &prepend_label(&labels, "heartbeat", &name);
                    let of = |name, unit| MetricDescriptor { name, unit, labels };
                    out.count(&mut whose, of(BEATS, ""), beat.beats as f64);
                    if beat.last_ns > 0 {
                        let age = now_ns.saturating_sub(beat.last_ns) as f64 / 1e9;
                        out.gauge(&mut whose, of(BEAT_AGE, "s"), age);
                    }
                }
                _ => unknown += 1,
            }
        }
        let named = |name| MetricDescriptor { name, unit: "", labels: &[] };
        match (self.exited_at, self.state) {
            (Some(_), _) => out.gauge(&mut whose, named(UP), 0.0),
            (None, ProcessState::Running { .. }) => out.gauge(&mut whose, named(UP), 1.0),
            // The process is in a PID namespace that is not visible from here.
            _ => {}
        }
        if let Some(end) = exit_message(self.state, in_flight, oldest) {
            out.text(&mut whose, named(END), end);
        }
        self.last_end = end;
        Ok(unknown)
    }
}

/// Labels of the series of a program, in addition to `host`.
pub(crate) fn labels(program: &ProgramName, share: SeriesShare) -> Vec<(String, String)> {
    let label = |name: &str, value: String| (name.to_owned(), value);
    let mut labels =
        vec![label("process", program.process.clone()), label("generation", share.label())];
    if !program.format.is_empty() {
        labels.push(label("format", program.format.clone()));
    }
    labels
}

fn has_topdeck_metric(metrics: &[ProcessSeries]) -> bool {
    metrics.iter().any(|metric| metric.name.starts_with("topdeck_"))
}

fn report_in_flight(
    out: &mut ShmRowWriter<'_>,
    context: &mut SeriesContext<'_>,
    labels: &[(String, String)],
    flight: &InFlightByAge,
    oldest_ns: u64,
) {
    for (tags, age, count) in flight.iter() {
        let mut labels = prepend_label(labels, "age", age);
        labels.extend(tags.iter().cloned());
        let named = MetricDescriptor { name: IN_FLIGHT, unit: "", labels: &labels };
        out.gauge(context, named, count as f64);
    }
    out.gauge(
        context,
        MetricDescriptor { name: OLDEST, unit: "s", labels },
        oldest_ns as f64 / 1e9,
    );
}

/// Labels with those of the owner after the first one, `operation`.
fn own_labels(labels: &[(String, String)], owner: &OwnerLabels) -> Vec<(String, String)> {
    let (first, others) = labels.split_at(1.min(labels.len()));
    [first, owner, others].concat()
}

/// Labels with one more at the front; of two labels with one name the later is renamed.
pub(crate) fn prepend_label(
    labels: &[(String, String)],
    name: &str,
    value: &str,
) -> Vec<(String, String)> {
    let first = (name.to_owned(), value.to_owned());
    std::iter::once(first).chain(labels.iter().cloned()).collect()
}

/// Text of `process_exit_info`.
fn exit_message(state: ProcessState, in_flight: u64, oldest_ns: u64) -> Option<String> {
    let how = match state {
        ProcessState::Exited | ProcessState::Terminated => state.name(),
        ProcessState::Replaced => "replaced (exec or new file)",
        _ => return None,
    };
    Some(match in_flight {
        0 => how.to_owned(),
        1 => format!("{how} with 1 operation in flight for {:.3} s", oldest_ns as f64 / 1e9),
        many => format!(
            "{how} with {many} operations in flight, oldest {:.3} s",
            oldest_ns as f64 / 1e9
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_labels_of_their_unit_before_their_own() {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let labels = prepend_label(&[label("unit", "of the program")], "operation", "requests");
        let owned = own_labels(&labels, &vec![label("unit", "shop.service")]);
        let expected = [
            label("operation", "requests"),
            label("unit", "shop.service"),
            label("unit", "of the program"),
        ];
        assert_eq!(owned, expected);
        // The later one is renamed.
        let pairs = crate::shm_metrics::rows::labels("web-1", &[], &owned);
        let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(names, ["host", "operation", "unit", "exported_unit"]);
        assert_eq!(own_labels(&labels, &OwnerLabels::new()), labels);
    }
}
