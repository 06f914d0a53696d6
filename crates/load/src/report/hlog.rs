//! Writes a run as an HdrHistogram interval log: a line for response times and one for service
//! times of each second.
//!
//! Values are nanoseconds with three significant digits. A bucket of topdeck goes to the bucket of
//! HdrHistogram that contains its middle.

use codecs::hdr::{HdrHeader, HdrHistogramData};
use codecs::hlog::{HlogInterval, HlogPreamble, HlogWriter};
use hist::Histogram;

use crate::report::error::{ReportError, Result};
use crate::report::run_report::RunReport;

const DIGITS: u32 = 3;
/// An hour; more if something took longer.
const HIGHEST_LEAST: i64 = 3_600_000_000_000;

/// The run as an interval log.
pub fn encode(report: &RunReport) -> Result<Vec<u8>> {
    let run = &report.run;
    let run_start_s = run.start_unix_ns as f64 * 1e-9;
    let preamble = HlogPreamble {
        comments: vec![
            format!("{} {}", report.plan.target, report.plan.schedule).replace(['\r', '\n'], " "),
            "response: by second of the scheduled time; service: by second of the response; \
             unit: nanoseconds"
                .to_owned(),
        ],
        start_time_s: Some((run_start_s * 1e3).round() / 1e3),
        base_time_s: None,
    };
    let maxima = run.per_second.values().chain(report.services.values()).filter_map(Histogram::max);
    let greatest = maxima.map(|max| max.upper).fold(0.0, f64::max);
    // Twice the maximum, so that the middle of its bucket is included.
    let highest = ((greatest * 2.0) as i64).max(HIGHEST_LEAST);
    let header = HdrHeader::new(DIGITS, 1, highest)
        .map_err(|error| unfit(format!("the values exceed the range of HdrHistogram: {error}")))?;
    let mut writer = HlogWriter::new(Vec::new(), &preamble).map_err(unfit)?;
    let all = [("response", &run.per_second), ("service", &report.services)];
    let last = all.iter().filter_map(|(_, seconds)| seconds.keys().last()).max().copied();
    for second in 0..=last.unwrap_or(0) {
        for (tag, seconds) in all {
            let Some(of) = seconds.get(&second) else { continue };
            let histogram = of.convert(&header.scheme()).map_err(unfit)?.histogram;
            let start_s = ((run_start_s + second as f64) * 1e3).round() / 1e3;
            let recording = HdrHistogramData { histogram, header };
            let interval = HlogInterval::new(Some(tag.to_owned()), start_s, 1.0, recording);
            writer.write(&interval).map_err(unfit)?;
        }
    }
    Ok(writer.into_inner())
}

fn unfit(error: impl ToString) -> ReportError {
    ReportError::Unfit(error.to_string())
}
