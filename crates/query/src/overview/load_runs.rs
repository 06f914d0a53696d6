//! Load runs in the data of an overview: they end, so that they are no streams that fall silent.

use std::collections::BTreeSet;

use model::Series;

/// Distributions that `topdeck load` pushes, and the label that names their run.
const METRICS: [&str; 3] = ["load_response_time", "load_service_time", "load_queue_time"];
const RUN_LABEL: &str = "run";

/// Metrics and runs of load tests that were left out.
#[derive(Default)]
pub(super) struct LoadRuns {
    metrics: BTreeSet<&'static str>,
    runs: BTreeSet<String>,
}

impl LoadRuns {
    /// Whether a series is of a load run, which is noted.
    pub(super) fn contains(&mut self, series: &Series) -> bool {
        let metric = METRICS.into_iter().find(|name| *name == series.name());
        let (Some(metric), Some(run)) = (metric, series.label(RUN_LABEL)) else {
            return false;
        };
        self.metrics.insert(metric);
        if !self.runs.contains(run) {
            self.runs.insert(run.to_owned());
        }
        true
    }

    /// Names of the metrics, and why they have no row.
    pub(super) fn unranked(&self) -> Option<(String, String)> {
        let names: Vec<&str> = self.metrics.iter().copied().collect();
        let why = match self.runs.len() {
            0 => return None,
            1 => "a load run ends, and does not fall silent: see Load runs".to_owned(),
            runs => format!("{runs} load runs, which end and do not fall silent: see Load runs"),
        };
        Some((names.join(", "), why))
    }
}
