//! As of when something is told of a process. Of one that runs that is now. Of one that is gone
//! nobody knows when it went, unless it said goodbye; then it is the latest sign of life that its
//! file holds.

use shm::snapshot::{MetricValue, ProcessMetric};

use crate::find::MatchedProcess;
use crate::values;
use render::time::format_ns;

/// Reference time and its source.
#[derive(Clone, Debug)]
pub struct ReferenceTime {
    /// Nanoseconds of the machine's CLOCK_MONOTONIC; none where nothing is known.
    pub(crate) ns: Option<u64>,
    /// How it is known, as a part of a sentence.
    pub(crate) basis: String,
    /// The same moment since 1970.
    pub(crate) unix_ns: Option<i64>,
}

impl ReferenceTime {
    /// Nothing is known.
    pub(crate) fn unknown() -> ReferenceTime {
        ReferenceTime { ns: None, basis: "nothing says when".to_owned(), unix_ns: None }
    }

    /// As of when `metrics`, which were read just now, are.
    pub fn for_process(process: &MatchedProcess, metrics: &[ProcessMetric]) -> ReferenceTime {
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

    /// How old what began then is.
    pub(crate) fn age_ns(&self, start_ns: u64) -> Option<u64> {
        // What began between the reading and the look at the clock is new.
        self.ns.map(|now| now.saturating_sub(start_ns))
    }

    /// The same in words.
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

/// A time to the millisecond.
pub(crate) fn time_ms_text(unix_ns: i64) -> String {
    render::time::time_text(unix_ns, 1_000_000)
}

/// A moment of a process since 1970, by the time at which its file was made.
pub(crate) fn unix_ns(of: &shm::ProcessInfo, ns: u64) -> Option<i64> {
    let since = i128::from(ns) - i128::from(of.created_ns);
    i64::try_from(i128::from(of.created_unix_ns) + since).ok()
}

fn last_activity(metrics: &[ProcessMetric], of: &shm::ProcessInfo) -> (u64, String) {
    let own = shm::ProcessIdentity::current();
    // What would lie ahead is damage, and no sign.
    let limit = if of.identity.boot == own.boot { clock::now() } else { u64::MAX };
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

/// When a process that is gone went, as far as that is known: `ended at …`, `found dead at …`.
pub(crate) fn exit_text(of: &shm::ProcessInfo) -> String {
    match (of.has_exited, of.ended_ns) {
        (true, 0) => "it said goodbye, at an unknown time".to_owned(),
        (_, 0) => "nobody saw when it died".to_owned(),
        (true, ns) => format!("it said goodbye at {}", time_text(of, ns)),
        (false, ns) => format!("it died before {}, when it was found dead", time_text(of, ns)),
    }
}

fn time_text(of: &shm::ProcessInfo, ns: u64) -> String {
    unix_ns(of, ns).map_or_else(|| "an unknown time".to_owned(), time_ms_text)
}
