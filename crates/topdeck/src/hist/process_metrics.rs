//! Histograms of a process in shared memory as input.

use std::path::PathBuf;

use anyhow::{Result, bail};
use decode::{DecodedSample, DecodedValue, SampleSink, SampleTemporality};
use shm::snapshot;

use crate::hist::exit_with_usage_error;
use crate::hist::options::Options;
use crate::process_argument::find_process;
use inspect::find::{self, MatchPreference, MatchedProcess};
use inspect::metric_patterns::MetricPatterns;
use inspect::values;

/// Process and names of some of its metrics.
#[derive(Clone, Debug)]
pub(crate) struct ProcessMetrics {
    process: String,
    metrics: Vec<String>,
}

/// Resolves the input if the first argument is a process and not a file. An existing file is a
/// file, unless it is a metrics file.
pub(crate) fn resolve_process(options: &Options) -> Result<Option<Options>> {
    let [first, metrics @ ..] = &options.files[..] else { return Ok(None) };
    let Some(text) = first.to_str() else { return Ok(None) };
    let is_process = match first.try_exists() {
        Ok(true) => first.is_file() && first.extension().is_some_and(|end| end == "tdk"),
        Ok(false) => text != "-" && find::matches_any(text),
        Err(_) => false,
    };
    if !is_process {
        // Neither a file nor a process. Text that does not look like a path may mean either, so the
        // message names both.
        let is_name = text != "-" && !text.contains(['/', '.']);
        if is_name
            && !options.files.iter().any(|file| file.exists())
            && let Err(error) = find::find_one(text, MatchPreference::Running)
        {
            bail!("no file {text:?} found, and {:#}", anyhow::Error::from(error));
        }
        return Ok(None);
    }
    // A file name in this directory without a slash is still a path.
    let process =
        if first.is_file() && !text.contains('/') { format!("./{text}") } else { text.to_owned() };
    let mut found = find_process(&process, MatchPreference::Running)?;
    if metrics.is_empty() {
        exit_with_usage_error(format!(
            "{} is a process; select some of its histograms: {}",
            found.name(),
            metric_names(&mut found)?
        ));
    }
    if options.compare {
        exit_with_usage_error(
            "--compare requires two files; `topdeck diff` compares processes".to_owned(),
        );
    }
    let metrics = metrics.iter().map(|metric| metric.to_string_lossy().into_owned()).collect();
    let process_metrics = Some(ProcessMetrics { process, metrics });
    Ok(Some(Options {
        files: vec![PathBuf::from(found.name())],
        process_metrics,
        ..options.clone()
    }))
}

fn metric_names(process: &mut MatchedProcess) -> Result<String> {
    let metrics = process.attached.metrics()?;
    let histograms =
        metrics.iter().filter(|metric| matches!(metric.value, snapshot::MetricValue::Histogram(_)));
    let mut names: Vec<&str> = histograms.map(|metric| &metric.name[..]).collect();
    model::sort::by(&mut names, Ord::cmp);
    names.dedup();
    Ok(if names.is_empty() { "it has none".to_owned() } else { names.join(", ") })
}

impl ProcessMetrics {
    /// Passes the selected histograms to a sink.
    pub(crate) fn read(&self, sink: &mut dyn SampleSink) -> Result<()> {
        let mut process = find_process(&self.process, MatchPreference::Running)?;
        let metrics = process.attached.metrics()?;
        let patterns = MetricPatterns::new(&self.metrics);
        if !metrics.iter().any(|metric| patterns.matches(metric)) {
            bail!("{}", patterns.no_match_message(&process.name(), &metrics));
        }
        for metric in metrics.into_iter().filter(|metric| patterns.matches(metric)) {
            let unit = values::parse_unit(&metric.unit);
            let histogram = match metric.value {
                snapshot::MetricValue::Histogram(histogram) => histogram,
                snapshot::MetricValue::Counter(_) => {
                    sink.skipped("a counter");
                    continue;
                }
                snapshot::MetricValue::Gauge(_) => {
                    sink.skipped("a gauge");
                    continue;
                }
                _ => {
                    sink.skipped("a metric of another kind");
                    continue;
                }
            };
            sink.sample(DecodedSample {
                metric: metric.name,
                labels: metric.labels,
                unit,
                start: None,
                end: None,
                temporality: SampleTemporality::Cumulative,
                value: DecodedValue::Histogram(histogram),
            });
        }
        Ok(())
    }
}
