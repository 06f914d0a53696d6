//! Reads a run from JSON, with its complete histograms.
//!
//! Statistics in the document are for other readers; everything here comes from the frames.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use codecs::frame_text;
use hist::Histogram;
use hist::codec::frame::{FrameUnit, Temporality};
use serde::Deserialize;

use crate::report::error::{ReportError, Result};
use crate::report::run_document::{FORMAT, VERSION};

/// The parts of a run that a comparison needs.
#[derive(Debug)]
pub struct StoredRun {
    /// Target of the run.
    pub target: String,
    /// Description of the schedule.
    pub schedule: String,
    /// Start in nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
    /// Why the run is invalid.
    pub invalid_reasons: Vec<String>,
    /// Requests scheduled.
    pub scheduled: u64,
    /// Requests completed.
    pub completed: u64,
    /// Requests failed.
    pub failed: u64,
    /// Requests without response at the end.
    pub unfinished: u64,
    /// Response and service times of each second; complete.
    pub seconds: Vec<[Histogram; 2]>,
}

/// A run of a day, with both times of each second, and a reserve.
const BYTES_MAX: u64 = 512 << 20;

impl StoredRun {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<StoredRun> {
        let read_error = |cause| ReportError::Read { path: path.to_owned(), cause };
        let file = File::open(path).map_err(read_error)?;
        let mut text = String::new();
        file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(read_error)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(damaged(format!("{} exceeds {BYTES_MAX} bytes", path.display())));
        }
        StoredRun::parse(&text).map_err(error_in(path.display()))
    }

    /// Parses a document.
    pub fn parse(text: &str) -> Result<StoredRun> {
        let head: HeaderDto = serde_json::from_str(text)
            .map_err(error_in("expected a run as `topdeck load --json` writes it"))?;
        if head.format != FORMAT {
            return Err(damaged(format!("format is {:?}, expected {FORMAT:?}", head.format)));
        }
        if !(1..=VERSION).contains(&head.version) {
            return Err(damaged(format!(
                "version {} is not supported; this topdeck reads versions 1 to {VERSION}",
                head.version
            )));
        }
        let run: RunDto = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        let seconds = run.seconds.into_iter().map(|second| {
            let of = |frame: Option<String>| {
                let read = frame.map(|frame| histogram(&frame)).transpose();
                let read = read.map_err(error_in(format_args!("second {}", second.second)))?;
                Ok::<_, ReportError>(read.unwrap_or_default())
            };
            Ok([of(second.response)?, of(second.service)?])
        });
        let seconds: Vec<[Histogram; 2]> = seconds.collect::<Result<_>>()?;
        for (at, name) in ["response", "service"].into_iter().enumerate() {
            let time = run.times.get(name).ok_or_else(|| damaged(format!("no times.{name}")))?;
            let total = histogram(&time.frame).map_err(error_in(format_args!("times.{name}")))?;
            let parts = seconds.iter().fold(0u64, |sum, both| sum.saturating_add(both[at].count()));
            if parts != total.count() {
                let total = total.count();
                let message =
                    format!("times.{name} has {total} values, but its seconds have {parts}");
                return Err(damaged(message));
            }
        }
        let counts = run.counts;
        Ok(StoredRun {
            target: run.target,
            schedule: run.schedule,
            start_unix_ns: run.start_unix_ns,
            invalid_reasons: run.invalid_reasons.into_iter().map(|reason| reason.text).collect(),
            scheduled: counts.scheduled,
            completed: counts.completed,
            failed: counts.failed.values().fold(0, |sum, n| sum.saturating_add(*n)),
            unfinished: counts.unfinished,
            seconds,
        })
    }
}

fn damaged(message: String) -> ReportError {
    ReportError::Damaged(message)
}

/// Names the place of an error.
fn error_in<E: Display>(location: impl Display) -> impl FnOnce(E) -> ReportError {
    move |error| damaged(format!("{location}: {error}"))
}

fn histogram(text: &str) -> Result<Histogram> {
    let decoded = frame_text::decode(text).map_err(|error| damaged(error.to_string()))?;
    let (histogram, meaning) = decoded;
    if meaning.unit != FrameUnit::Nanoseconds || meaning.temporality != Temporality::Delta {
        return Err(damaged("expected a frame in nanoseconds of one interval".to_owned()));
    }
    Ok(histogram)
}

#[derive(Deserialize)]
struct HeaderDto {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
struct RunDto {
    target: String,
    schedule: String,
    /// Version 1: `began_unix_ns`.
    #[serde(alias = "began_unix_ns")]
    start_unix_ns: i64,
    /// Version 1: `doubts`. First documents of version 2: `warnings`.
    #[serde(alias = "doubts", alias = "warnings")]
    invalid_reasons: Vec<InvalidReasonDto>,
    /// Version 1, and first documents of version 2: `account`.
    #[serde(alias = "account")]
    counts: CountsDto,
    times: BTreeMap<String, TimeDto>,
    seconds: Vec<SecondDto>,
}

#[derive(Deserialize)]
struct InvalidReasonDto {
    text: String,
}

#[derive(Deserialize)]
struct CountsDto {
    /// Version 1: `intended`.
    #[serde(alias = "intended")]
    scheduled: u64,
    completed: u64,
    failed: BTreeMap<String, u64>,
    unfinished: u64,
}

#[derive(Deserialize)]
struct TimeDto {
    frame: String,
}

#[derive(Deserialize)]
struct SecondDto {
    second: u64,
    response: Option<String>,
    service: Option<String>,
}

#[cfg(test)]
pub mod tests;
