//! Reads a run from JSON, with its complete histograms.
//!
//! Statistics in the document are for other readers; everything here comes from the frames.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use codecs::frame_text;
use hist::Histogram;
use hist::codec::frame::{Temporality, Unit};
use serde::Deserialize;

use crate::load::run_document::{FORMAT, VERSION};

/// The parts of a run that a comparison needs.
#[derive(Debug)]
pub(crate) struct StoredRun {
    pub(crate) target: String,
    pub(crate) schedule: String,
    pub(crate) start_unix_ns: i64,
    /// Why the run is invalid.
    pub(crate) warnings: Vec<String>,
    pub(crate) scheduled: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) unfinished: u64,
    /// Response and service times of each second; complete.
    pub(crate) seconds: Vec<[Histogram; 2]>,
}

/// A run of a day, with both times of each second, and a reserve.
const BYTES_MAX: u64 = 512 << 20;

impl StoredRun {
    pub(crate) fn read(path: &Path) -> Result<StoredRun> {
        let name = || path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot read {}", name()))?;
        let mut text = String::new();
        let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
        read.with_context(|| format!("cannot read {}", name()))?;
        if text.len() as u64 > BYTES_MAX {
            bail!("{} exceeds {BYTES_MAX} bytes", name());
        }
        StoredRun::parse(&text).with_context(name)
    }

    pub(crate) fn parse(text: &str) -> Result<StoredRun> {
        let head: HeaderDto = serde_json::from_str(text)
            .context("expected a run as `topdeck load --json` writes it")?;
        if head.format != FORMAT {
            bail!("format is {:?}, expected {FORMAT:?}", head.format);
        }
        if !(1..=VERSION).contains(&head.version) {
            bail!(
                "version {} is not supported; this topdeck reads versions 1 to {VERSION}",
                head.version
            );
        }
        let run: RunDto = serde_json::from_str(text)?;
        let seconds = run.seconds.into_iter().map(|second| {
            let of = |frame: Option<String>| {
                let read = frame.map(|frame| histogram(&frame)).transpose();
                let read = read.with_context(|| format!("second {}", second.second))?;
                Ok::<_, anyhow::Error>(read.unwrap_or_default())
            };
            Ok([of(second.response)?, of(second.service)?])
        });
        let seconds: Vec<[Histogram; 2]> = seconds.collect::<Result<_>>()?;
        for (at, name) in ["response", "service"].into_iter().enumerate() {
            let time = run.times.get(name).with_context(|| format!("no times.{name}"))?;
            let total = histogram(&time.frame).with_context(|| format!("times.{name}"))?;
            let parts = seconds.iter().fold(0u64, |sum, both| sum.saturating_add(both[at].count()));
            if parts != total.count() {
                bail!("times.{name} has {} values, but its seconds have {parts}", total.count());
            }
        }
        let account = run.account;
        Ok(StoredRun {
            target: run.target,
            schedule: run.schedule,
            start_unix_ns: run.start_unix_ns,
            warnings: run.warnings.into_iter().map(|warning| warning.text).collect(),
            scheduled: account.scheduled,
            completed: account.completed,
            failed: account.failed.values().fold(0, |sum, n| sum.saturating_add(*n)),
            unfinished: account.unfinished,
            seconds,
        })
    }
}

fn histogram(text: &str) -> Result<Histogram> {
    let (histogram, meaning) = frame_text::decode(text)?;
    if meaning.unit != Unit::Nanoseconds || meaning.temporality != Temporality::Delta {
        bail!("expected a frame in nanoseconds of one interval");
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
    /// Version 1: `doubts`.
    #[serde(alias = "doubts")]
    warnings: Vec<WarningDto>,
    account: AccountDto,
    times: BTreeMap<String, TimeDto>,
    seconds: Vec<SecondDto>,
}

#[derive(Deserialize)]
struct WarningDto {
    text: String,
}

#[derive(Deserialize)]
struct AccountDto {
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
pub(crate) mod tests;
