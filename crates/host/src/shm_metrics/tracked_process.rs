//! Tracked process and its last reported values.

use std::collections::HashMap;

use shm::snapshot::{MetricValue, ProcessMetric};
use shm::{AttachedProcess, MetricsFile, ProcessIdentity, ProcessState};

use crate::shm_metrics::in_flight_by_age::InFlightByAge;
use crate::shm_metrics::rows::{LastReported, MetricName, SeriesContext, ShmRowWriter};

/// Series about processes in addition to their own metrics; `docs/host.md` lists them.
const UP: &str = "process_up";
const END: &str = "process_exit_info";
const IN_FLIGHT: &str = "process_in_flight";
const OLDEST: &str = "process_in_flight_oldest_seconds";
const STARTED: &str = "process_operations_started_total";
const ENDED: &str = "process_operations_finished_total";
const BEATS: &str = "process_heartbeats_total";
const BEAT_AGE: &str = "process_heartbeat_age_seconds";

/// Process whose metrics are collected.
#[derive(Debug)]
pub(crate) struct TrackedProcess {
    /// `None` after everything was reported.
    attached: Option<AttachedProcess>,
    pub(crate) identity: ProcessIdentity,
    state: ProcessState,
    /// Labels that identify the process.
    pub(crate) labels: Vec<(String, String)>,
    /// Start of its counters; `None` if unknown.
    pub(crate) start: Option<i64>,
    /// End of the last reading.
    pub(crate) last_end: i64,
    /// Time of exit: a final reading follows and none after it.
    exited_at: Option<i64>,
    reported: LastReported,
    /// By labels, including the table's name.
    in_flight_tables: HashMap<Vec<(String, String)>, InFlightByAge>,
}

impl TrackedProcess {
    /// Opens the metrics file of a process. `this_process` is topdeck.
    pub(crate) fn new(
        found: MetricsFile,
        this_process: &ProcessIdentity,
        now: i64,
    ) -> shm::Result<TrackedProcess> {
        let (identity, state) = (found.identity, found.state);
        let created_at = std::fs::metadata(&found.path).and_then(|file| file.created());
        let format = found.format.name();
        // Copied, not mapped: a writer may truncate its file, which would raise SIGBUS here.
        let attached = AttachedProcess::open_copied(found)?;
        let label = |name: &str, value: String| (name.to_owned(), value);
        let mut labels = vec![
            label("process", attached.program().to_owned()),
            // PID in the process' own namespace: the PID seen from here is known only while it
            // runs.
            label("pid", identity.pid.to_string()),
        ];
        if identity.pid_namespace != this_process.pid_namespace && identity.pid_namespace != 0 {
            labels.push(label("pid_namespace", identity.pid_namespace.to_string()));
        }
        if format != "topdeck" {
            // Two formats of one process are two sources.
            labels.push(label("format", format.to_owned()));
        }
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
            labels,
            start,
            last_end: i64::MIN,
            exited_at: None,
            reported: LastReported::new(),
            in_flight_tables: HashMap::new(),
        })
    }

    /// Whether there is more to report.
    pub(crate) fn is_open(&self) -> bool {
        self.attached.is_some()
    }

    /// Updates the state of the process.
    pub(crate) fn update_state(&mut self, state: ProcessState, now: i64) {
        self.state = state;
        // A replaced file ends where its successor starts; `ShmCollector` sets that.
        if state.has_exited() && state != ProcessState::Replaced {
            self.report_exit(now);
        }
    }

    /// Whether another file of the same process replaced this one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.state == ProcessState::Replaced
    }

    /// Marks the process as exited by that time; a final reading follows. Returns the time of exit:
    /// the first one reported, but not before the last reading.
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

    /// After the final reading: closes the file.
    pub(crate) fn commit(&mut self) {
        if self.exited_at.is_some() {
            self.attached = None;
            (self.reported, self.in_flight_tables) = (LastReported::new(), HashMap::new());
        }
    }

    /// Makes the next reading report everything again.
    pub(crate) fn rollback(&mut self) {
        self.reported.clear();
    }

    /// Whether the process is a topdeck: metrics of topdeck start with its name.
    pub(crate) fn is_topdeck(&mut self) -> bool {
        let metrics = self.attached.as_mut().and_then(|attached| attached.metrics().ok());
        has_topdeck_metric(&metrics.unwrap_or_default())
    }

    /// Reports nothing of the process.
    pub(crate) fn skip(&mut self) {
        self.attached = None;
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
        let mut whose =
            SeriesContext { labels: &self.labels, start, end, reported: &mut self.reported };
        let (mut unknown, mut in_flight, mut oldest) = (0, 0, 0);
        for ProcessMetric { name, labels, unit, value, .. } in metrics {
            let named = MetricName { name: &name, unit: &unit, labels: &labels };
            match value {
                MetricValue::Counter(number) => out.count(&mut whose, named, number.as_float()),
                MetricValue::Gauge(number) => out.gauge(&mut whose, named, number.as_float()),
                MetricValue::Text(text) => out.text(&mut whose, named, text),
                MetricValue::Histogram(histogram) => out.distribution(&mut whose, named, histogram),
                MetricValue::InFlight(found) => {
                    let labels = prepend_label(&labels, "operation", &name);
                    let flight = self.in_flight_tables.entry(labels.clone()).or_default();
                    let age_ns = flight.count(&found, now_ns);
                    report_in_flight(out, &mut whose, &labels, flight, age_ns);
                    for (name, count) in [(STARTED, found.started), (ENDED, found.ended)] {
                        out.count(
                            &mut whose,
                            MetricName { name, unit: "", labels: &labels },
                            count as f64,
                        );
                    }
                    in_flight += found.count();
                    oldest = oldest.max(age_ns);
                }
                MetricValue::Heartbeat(beat) => {
                    let labels = &prepend_label(&labels, "heartbeat", &name);
                    let of = |name, unit| MetricName { name, unit, labels };
                    out.count(&mut whose, of(BEATS, ""), beat.beats as f64);
                    if beat.last_ns > 0 {
                        let age = now_ns.saturating_sub(beat.last_ns) as f64 / 1e9;
                        out.gauge(&mut whose, of(BEAT_AGE, "s"), age);
                    }
                }
                _ => unknown += 1,
            }
        }
        let named = |name| MetricName { name, unit: "", labels: &[] };
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

fn has_topdeck_metric(metrics: &[ProcessMetric]) -> bool {
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
        let named = MetricName { name: IN_FLIGHT, unit: "", labels: &labels };
        out.gauge(context, named, count as f64);
    }
    out.gauge(context, MetricName { name: OLDEST, unit: "s", labels }, oldest_ns as f64 / 1e9);
}

/// Labels with one more at the front; of two labels with one name the later is renamed.
fn prepend_label(labels: &[(String, String)], name: &str, value: &str) -> Vec<(String, String)> {
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
