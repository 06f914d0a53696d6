//! A run as an interval log of HdrHistogram: a line for the response and one for the service times of each second.
//!
//! Values are nanoseconds, in three digits. A bucket of ours goes whole to the one of HdrHistogram's that holds its middle.

use anyhow::{Context as _, Result};
use hist::Histogram;
use hist::codec::hdr::{Header, Recording};
use hist::codec::hlog::{Interval, Preamble, Writer};

use crate::load::report::Report;

const DIGITS: u32 = 3;
/// An hour; longer, if something took longer.
const HIGHEST_LEAST: i64 = 3_600_000_000_000;

pub(crate) fn of(report: &Report) -> Result<Vec<u8>> {
    let run = &report.run;
    let began_s = run.began_unix_ns as f64 * 1e-9;
    let preamble = Preamble {
        comments: vec![
            format!("{} {}", report.plan.target, report.plan.schedule).replace(['\r', '\n'], " "),
            "response: by the second in which a request was due; service: by that of its answer; in nanoseconds".to_owned(),
        ],
        start_time_s: Some((began_s * 1e3).round() / 1e3),
        base_time_s: None,
    };
    let maxima = run.by_second.values().chain(report.services.values()).filter_map(Histogram::max);
    let greatest = maxima.map(|max| max.upper).fold(0.0, f64::max);
    // Twice the greatest, so that the middle of its bucket is inside too.
    let highest = ((greatest * 2.0) as i64).max(HIGHEST_LEAST);
    let header = Header::new(DIGITS, 1, highest).context("no grid of HdrHistogram is so wide")?;
    let mut writer = Writer::new(Vec::new(), &preamble)?;
    let all = [("response", &run.by_second), ("service", &report.services)];
    let last = all.iter().filter_map(|(_, seconds)| seconds.keys().last()).max().copied();
    for second in 0..=last.unwrap_or(0) {
        for (tag, seconds) in all {
            let Some(of) = seconds.get(&second) else { continue };
            let histogram = of.convert(&header.scheme())?.histogram;
            let start_s = ((began_s + second as f64) * 1e3).round() / 1e3;
            let recording = Recording { histogram, header };
            writer.write(&Interval::new(Some(tag.to_owned()), start_s, 1.0, recording))?;
        }
    }
    Ok(writer.into_inner())
}
