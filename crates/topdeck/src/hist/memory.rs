//! Histograms of a process, out of shared memory: what `topdeck hist PROCESS METRIC` reads instead of files.

use std::path::PathBuf;

use anyhow::{Result, bail};
use collect::{Over, Reading, Sink, Value};
use shm::show;

use crate::hist::options::Options;
use crate::hist::usage;
use crate::processes::find::{self, Prefer, Process};
use crate::processes::pattern::Patterns;
use crate::processes::values;

/// A process and some of its metrics.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    process: String,
    metrics: Vec<String>,
}

/// The options as they are meant, if the first argument is no file but a process. A file always is a file, but that of a process.
pub(crate) fn meant(options: &Options) -> Result<Option<Options>> {
    let [first, metrics @ ..] = &options.files[..] else { return Ok(None) };
    let Some(text) = first.to_str() else { return Ok(None) };
    let is_process = match first.try_exists() {
        Ok(true) => first.is_file() && first.extension().is_some_and(|end| end == "tdk"),
        Ok(false) => text != "-" && find::is_anybody(text),
        Err(_) => false,
    };
    if !is_process {
        // Neither a file nor a process: what is written like no path was meant as one of both, and both are told.
        let is_name = text != "-" && !text.contains(['/', '.']);
        if is_name
            && !options.files.iter().any(|file| file.exists())
            && let Err(error) = find::one(text, Prefer::Running)
        {
            bail!("there is no file {text:?}, and {error:#}");
        }
        return Ok(None);
    }
    // A name of a file in this folder is a path all the same.
    let process =
        if first.is_file() && !text.contains('/') { format!("./{text}") } else { text.to_owned() };
    let mut found = find::one(&process, Prefer::Running)?;
    if metrics.is_empty() {
        usage(format!(
            "{} is a process; say which of its histograms: {}",
            found.name(),
            names(&mut found)?
        ));
    }
    if options.compare {
        usage("--compare takes two files; `topdeck diff` compares processes".to_owned());
    }
    let metrics = metrics.iter().map(|metric| metric.to_string_lossy().into_owned()).collect();
    let memory = Some(Memory { process, metrics });
    Ok(Some(Options { files: vec![PathBuf::from(found.name())], memory, ..options.clone() }))
}

fn names(process: &mut Process) -> Result<String> {
    let metrics = process.attached.metrics()?;
    let histograms =
        metrics.iter().filter(|metric| matches!(metric.value, show::Value::Histogram(_)));
    let mut names: Vec<&str> = histograms.map(|metric| &metric.name[..]).collect();
    names.sort_unstable();
    names.dedup();
    Ok(if names.is_empty() { "it has none".to_owned() } else { names.join(", ") })
}

impl Memory {
    /// Gives all histograms that are wanted to a sink.
    pub(crate) fn read(&self, sink: &mut impl Sink) -> Result<()> {
        let mut process = find::one(&self.process, Prefer::Running)?;
        let metrics = process.attached.metrics()?;
        let wanted = Patterns::new(&self.metrics);
        if !metrics.iter().any(|metric| wanted.take(metric)) {
            bail!("{}", wanted.nothing(&process.name(), &metrics));
        }
        for metric in metrics.into_iter().filter(|metric| wanted.take(metric)) {
            let unit = values::unit(&metric.unit);
            let histogram = match metric.value {
                show::Value::Histogram(histogram) => histogram,
                show::Value::Counter(_) => {
                    sink.skipped("a counter");
                    continue;
                }
                show::Value::Gauge(_) => {
                    sink.skipped("a gauge");
                    continue;
                }
                _ => {
                    sink.skipped("a metric of another kind");
                    continue;
                }
            };
            sink.reading(Reading {
                metric: metric.name,
                labels: metric.labels,
                unit,
                start: None,
                end: None,
                over: Over::Total,
                value: Value::Histogram(histogram),
            });
        }
        Ok(())
    }
}
