//! Classic histograms (`_bucket` with `le`, `_sum`, `_count`) as histograms with custom buckets.

use std::collections::BTreeMap;

use query::{FloatHistogram, LabelSet, NAME, ResetHint, SeriesPoint, StepValue};

use crate::script::LoadCommand;

/// Series of one histogram at one timestamp.
#[derive(Default)]
struct ClassicSamples {
    /// Cumulative counts by upper bound, in any order.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

/// Histograms among the series of a `load` command.
pub(crate) fn histograms(load: &LoadCommand) -> Result<Vec<(LabelSet, Vec<SeriesPoint>)>, String> {
    let mut all: BTreeMap<LabelSet, BTreeMap<i64, ClassicSamples>> = BTreeMap::new();
    for loaded in &load.series {
        let name = loaded.labels.name();
        let Some((base, part)) = name.rsplit_once('_') else { continue };
        let labels = loaded.labels.with(NAME, base).with("le", "");
        let bound = match part {
            "bucket" => match loaded.labels.get("le").parse::<f64>() {
                Ok(bound) if !bound.is_nan() => bound,
                _ => continue,
            },
            "sum" | "count" => f64::NAN,
            _ => continue,
        };
        for (at, item) in loaded.values.iter().enumerate() {
            let Some(StepValue::Number(number)) = item.as_ref().map(|written| &written.value)
            else {
                continue;
            };
            let timestamps = all.entry(labels.clone()).or_default();
            let said = timestamps.entry(load.step * at as i64).or_default();
            match part {
                "bucket" => said.buckets.push((bound, *number)),
                "sum" => said.sum = *number,
                _ => said.count = Some(*number),
            }
        }
    }
    let mut histograms = Vec::with_capacity(all.len());
    for (labels, timestamps) in all {
        let mut samples = Vec::with_capacity(timestamps.len());
        for (time, said) in timestamps {
            let histogram = said.histogram().map_err(|wrong| format!("{labels}: {wrong}"))?;
            let value = StepValue::Histogram(histogram.into());
            samples.push(SeriesPoint { start: None, time, value });
        }
        histograms.push((labels, samples));
    }
    Ok(histograms)
}

impl ClassicSamples {
    fn histogram(mut self) -> Result<FloatHistogram, String> {
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.buckets.dedup_by(|a, b| a.0 == b.0);
        let highest = self.buckets.last().map_or(0.0, |bucket| bucket.1);
        let count = self.count.unwrap_or(highest);
        if self.buckets.last().is_none_or(|bucket| bucket.0 != f64::INFINITY) {
            self.buckets.push((f64::INFINITY, count));
        }
        let mut positive = Vec::new();
        let mut below = 0.0;
        for (at, &(bound, upto)) in self.buckets.iter().enumerate() {
            if upto < below {
                return Err(format!("{upto} up to {bound} is less than {below} below it"));
            }
            if upto != below {
                positive.push((at as i32, upto - below));
            }
            below = upto;
        }
        if count != below && !count.is_nan() {
            return Err(format!("the count is {count}, all buckets are {below}"));
        }
        let bounds = self.buckets[..self.buckets.len() - 1].iter().map(|bucket| bucket.0);
        Ok(FloatHistogram {
            grid: query::BucketGrid::Custom(bounds.collect()),
            zero_threshold: 0.0,
            zero_count: 0.0,
            count,
            sum: self.sum,
            positive,
            negative: Vec::new(),
            hint: ResetHint::Unknown,
        })
    }
}
