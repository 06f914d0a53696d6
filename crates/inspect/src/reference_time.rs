//! Reference time of a process' values: now for a running process. For an exited one it is the exit
//! time if the process wrote it; else the latest event in its file.

use shm::snapshot::{MetricValue, ProcessSeries};

use crate::find::MatchedProcess;
use crate::values;
use render::time::format_ns;

/// Reference time and its source.
#[derive(Clone, Debug)]
pub struct ReferenceTime {
    /// Nanoseconds of the machine's CLOCK_MONOTONIC; `None` if unknown.
    pub(crate) ns: Option<u64>,
    /// How it is known, as part of a sentence.
    pub(crate) basis: String,
    /// The same in nanoseconds since the Unix epoch.
    pub(crate) unix_ns: Option<i64>,
}

impl ReferenceTime {
    /// Unknown reference time.
    pub(crate) fn unknown() -> ReferenceTime {
        ReferenceTime { ns: None, basis: "nothing says when".to_owned(), unix_ns: None }
    }

    /// Reference time of `metrics`, which were read just now.
    pub fn for_process(process: &MatchedProcess, metrics: &[ProcessSeries]) -> ReferenceTime {
        if process.running_pid().is_some() {
            let (ns, unix_ns) = (clock::now(), clock::wall().unix_ns);
            return ReferenceTime { ns: Some(ns), basis: "now".to_owned(), unix_ns: Some(unix_ns) };
        }
        let Some(of) = process.attached.reader().map(|reader| reader.process()) else {
            return ReferenceTime::unknown();
        };
        let (ns, basis) = if of.has_exited && of.ended_ns > 0 {
            (of.ended_ns, "its end".to_owned())
        } else {
            let (ns, basis) = last_activity(metrics, &of);
            (ns, format!("its latest sign of life, {basis}"))
        };
        ReferenceTime { ns: Some(ns), basis, unix_ns: unix_ns(&of, ns) }
    }

    /// Age of an operation or beat.
    pub(crate) fn age_ns(&self, start_ns: u64) -> Option<u64> {
        // An operation that started between the read and the clock reading has age 0.
        self.ns.map(|now| now.saturating_sub(start_ns))
    }

    /// Age as text.
    pub(crate) fn age(&self, start_ns: u64) -> String {
        let age = self.age_ns(start_ns);
        age.map_or_else(|| "an unknown time".to_owned(), |age| format_ns(age as f64))
    }

    /// `as of 2026-11-22 17:31:45.123Z, now`.
    pub(crate) fn sentence(&self) -> String {
        match self.unix_ns {
            Some(unix_ns) => format!("as of {}, {}", time_ms_text(unix_ns), self.basis),
            None => format!("as of an unknown time: {}", self.basis),
        }
    }
}

/// Time with milliseconds.
pub(crate) fn time_ms_text(unix_ns: i64) -> String {
    render::time::time_text(unix_ns, 1_000_000)
}

/// Time of a process since the Unix epoch, relative to the creation time of its file.
pub(crate) fn unix_ns(of: &shm::ProcessInfo, ns: u64) -> Option<i64> {
    let since = i128::from(ns) - i128::from(of.created_ns);
    i64::try_from(i128::from(of.created_unix_ns) + since).ok()
}

fn last_activity(metrics: &[ProcessSeries], of: &shm::ProcessInfo) -> (u64, String) {
    let this_process = shm::ProcessIdentity::current();
    // A time in the future is damage and ignored.
    let limit = if of.identity.boot == this_process.boot { clock::now() } else { u64::MAX };
    let limit = if of.ended_ns > 0 { limit.min(of.ended_ns) } else { limit };
    let mut latest = (of.created_ns, "that its file was made".to_owned());
    for metric in metrics {
        let sign = match &metric.value {
            MetricValue::InFlight(in_flight) => {
                let starts = in_flight.operations.iter().map(|operation| operation.start_ns);
                starts
                    .filter(|&start| start <= limit)
                    .max()
                    .zip(Some("the start of an operation of"))
            }
            MetricValue::Heartbeat(beat) => Some((beat.last_ns, "a beat of")),
            _ => None,
        };
        if let Some((ns, what)) = sign
            && ns <= limit
            && ns > latest.0
        {
            latest = (ns, format!("{what} {}", values::series_name(metric)));
        }
    }
    latest
}

/// Exit time of a process, if known: `ended at …`, `found dead at …`.
pub(crate) fn exit_text(of: &shm::ProcessInfo) -> String {
    match (of.has_exited, of.ended_ns) {
        (true, 0) => "it said goodbye, at an unknown time".to_owned(),
        (_, 0) => "time of death unknown".to_owned(),
        (true, ns) => format!("it said goodbye at {}", time_text(of, ns)),
        (false, ns) => format!("it died before {}, when it was found dead", time_text(of, ns)),
    }
}

fn time_text(of: &shm::ProcessInfo, ns: u64) -> String {
    unix_ns(of, ns).map_or_else(|| "an unknown time".to_owned(), time_ms_text)
}
