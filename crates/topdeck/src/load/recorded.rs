//! A run that was written as JSON, read back: its histograms, whole.
//!
//! Statistics in the document are for those who only read them; here all is made of the frames.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use hist::Histogram;
use hist::codec::frame::{self, Temporality, Unit};
use serde::Deserialize;

use crate::load::document::{FORMAT, VERSION};

/// What a comparison needs of it.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) target: String,
    pub(crate) schedule: String,
    pub(crate) began_unix_ns: i64,
    /// Why it is not to be trusted.
    pub(crate) doubts: Vec<String>,
    pub(crate) intended: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) unfinished: u64,
    /// Of each second: response and service times. Together they are all there is.
    pub(crate) seconds: Vec<[Histogram; 2]>,
}

/// A run of a day in seconds, with both times of each, and some more.
const BYTES_MAX: u64 = 512 << 20;

impl Recorded {
    pub(crate) fn read(path: &Path) -> Result<Recorded> {
        let name = || path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot read {}", name()))?;
        let mut text = String::new();
        let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
        read.with_context(|| format!("cannot read {}", name()))?;
        if text.len() as u64 > BYTES_MAX {
            bail!("{} is longer than {BYTES_MAX} bytes", name());
        }
        Recorded::parse(&text).with_context(name)
    }

    pub(crate) fn parse(text: &str) -> Result<Recorded> {
        let head: Head = serde_json::from_str(text)
            .context("expected a run as `topdeck load --json` writes it")?;
        if head.format != FORMAT {
            bail!("its format is {:?}, expected {FORMAT:?}", head.format);
        }
        if head.version != VERSION {
            bail!("its version is {}, and this topdeck reads version {VERSION}", head.version);
        }
        let written: Written = serde_json::from_str(text)?;
        let seconds = written.seconds.into_iter().map(|second| {
            let of = |frame: Option<String>| {
                let read = frame.map(|frame| histogram(&frame)).transpose();
                let read = read.with_context(|| format!("second {}", second.second))?;
                Ok::<_, anyhow::Error>(read.unwrap_or_default())
            };
            Ok([of(second.response)?, of(second.service)?])
        });
        let seconds: Vec<[Histogram; 2]> = seconds.collect::<Result<_>>()?;
        for (at, name) in ["response", "service"].into_iter().enumerate() {
            let written = written.times.get(name).with_context(|| format!("no times.{name}"))?;
            let whole = histogram(&written.frame).with_context(|| format!("times.{name}"))?;
            let parts = seconds.iter().fold(0u64, |sum, both| sum.saturating_add(both[at].count()));
            if parts != whole.count() {
                bail!("times.{name} has {} values, but its seconds have {parts}", whole.count());
            }
        }
        let account = written.account;
        Ok(Recorded {
            target: written.target,
            schedule: written.schedule,
            began_unix_ns: written.began_unix_ns,
            doubts: written.doubts.into_iter().map(|doubt| doubt.text).collect(),
            intended: account.intended,
            completed: account.completed,
            failed: account.failed.values().fold(0, |sum, n| sum.saturating_add(*n)),
            unfinished: account.unfinished,
            seconds,
        })
    }
}

fn histogram(text: &str) -> Result<Histogram> {
    let (histogram, meaning) = frame::decode_base64(text)?;
    if meaning.unit != Unit::Nanoseconds || meaning.temporality != Temporality::Delta {
        bail!("a frame that is not in nanoseconds of one interval");
    }
    Ok(histogram)
}

#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
struct Written {
    target: String,
    schedule: String,
    began_unix_ns: i64,
    doubts: Vec<WrittenDoubt>,
    account: Account,
    times: BTreeMap<String, WrittenTime>,
    seconds: Vec<WrittenSecond>,
}

#[derive(Deserialize)]
struct WrittenDoubt {
    text: String,
}

#[derive(Deserialize)]
struct Account {
    intended: u64,
    completed: u64,
    failed: BTreeMap<String, u64>,
    unfinished: u64,
}

#[derive(Deserialize)]
struct WrittenTime {
    frame: String,
}

#[derive(Deserialize)]
struct WrittenSecond {
    second: u64,
    response: Option<String>,
    service: Option<String>,
}

#[cfg(test)]
mod tests;
