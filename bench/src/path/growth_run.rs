//! Cost against size: numbers of counters and of histograms, readers, and the start after kill -9.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::dashboard::READERS;
use super::growth::{self, GrowthFigures};
use super::path_run::{PathPeer, PathRun, progress};
use super::path_table::{PathLimit, PathMeasure};
use super::server::PathServerKind;
use super::workload::PathSet;
use crate::report::number;

/// Largest exponent of a cost against the size that is a target.
pub(super) const EXPONENT_MAX: PathLimit = PathLimit::AtMost(1.1);

impl PathRun {
    /// Cost against the number of counters and of readers.
    pub(crate) fn run_growth(&mut self) -> Result<()> {
        let sizes = growth::SIZES.map(|size| (size as f64 * self.scale) as usize);
        for round in 0..self.rounds {
            let mut all: Vec<Vec<GrowthFigures>> = self.peers.iter().map(|_| Vec::new()).collect();
            for size in sizes {
                let load = growth::workload(size);
                for (at, peer) in self.peers.clone().into_iter().enumerate() {
                    if peer.kind == PathServerKind::VictoriaOwn {
                        continue;
                    }
                    progress(&format!("growth, round {round}: {}, {size} …", peer.kind.key()));
                    let dir = self.empty_dir(&peer, "growth")?;
                    let has_readers = size == sizes[0];
                    let found = growth::measure(peer.kind, &peer.program, &dir, &load, has_readers);
                    match found {
                        Ok(figures) => {
                            self.note_growth(peer.column, size, &figures);
                            all[at].push(figures);
                        }
                        Err(error) => self.fail(&peer, "growth", &size.to_string(), &error),
                    }
                    fs::remove_dir_all(&dir)?;
                }
            }
            for (peer, figures) in self.peers.clone().iter().zip(&all) {
                self.note_exponents(peer.column, sizes, figures);
            }
        }
        Ok(())
    }

    /// Cost against the number of histograms.
    pub(crate) fn run_growth_of_histograms(&mut self) -> Result<()> {
        let sizes =
            growth::SIZES_HISTOGRAMS.map(|size| ((size as f64 * self.scale) as usize).max(2));
        let mut costs: Vec<Vec<f64>> = self.peers.iter().map(|_| Vec::new()).collect();
        for (size, series) in growth::SIZES_HISTOGRAMS.into_iter().zip(sizes) {
            let load = growth::histograms(series);
            for (at, peer) in self.peers.clone().into_iter().enumerate() {
                // As of set B: too many counters.
                if peer.kind.format(PathSet::B) != Some(load.format) {
                    continue;
                }
                for _ in 0..self.rounds {
                    progress(&format!("growth: {}, {series} histograms …", peer.kind.key()));
                    let dir = self.empty_dir(&peer, "growth")?;
                    let found = growth::measure_histograms(peer.kind, &peer.program, &dir, &load);
                    fs::remove_dir_all(&dir)?;
                    let (cpu_us, bytes) = match found {
                        Ok(found) => found,
                        Err(error) => {
                            self.fail(&peer, "growth of histograms", &size.to_string(), &error);
                            continue;
                        }
                    };
                    progress(&format!("{} µs, {} B per series", number(cpu_us), number(bytes)));
                    let what = format!("growth: {series} histograms × 4 samples");
                    let memory = PathMeasure::new(what.as_str(), "RSS, kB per series");
                    let limit =
                        (size == growth::SIZES_HISTOGRAMS[2]).then_some(PathLimit::AtMost(6.0));
                    self.table.add(memory.with(limit), peer.column, bytes / 1e3);
                    let cpu = PathMeasure::new(what, "CPU of ingest, µs per histogram");
                    self.table.add(cpu, peer.column, cpu_us);
                    costs[at].push(cpu_us * load.points as f64);
                }
            }
        }
        // Rounds of the smallest size come first, those of the largest last.
        let what = format!("growth: exponent from {} to {} histograms", sizes[0], sizes[2]);
        for (peer, costs) in self.peers.clone().iter().zip(&costs) {
            if let (Some(&first), Some(&last)) = (costs.first(), costs.last())
                && costs.len() == sizes.len() * self.rounds
            {
                let measure = PathMeasure::new(what.as_str(), "of ingest");
                let found = growth::exponent((sizes[0], sizes[2]), (first, last));
                self.table.add(measure.with(Some(EXPONENT_MAX)), peer.column, found);
            }
        }
        Ok(())
    }

    fn note_growth(&mut self, column: usize, size: usize, figures: &GrowthFigures) {
        let what = format!("growth: {size} counters × 4 samples");
        // Targets are those of the full sizes.
        let (is_middle, is_last) = (size == growth::SIZES[1], size == growth::SIZES[2]);
        let middle = |limit: f64| is_middle.then_some(PathLimit::AtMost(limit));
        let restart = match (is_middle, is_last) {
            (true, _) => Some(PathLimit::AtMost(1.5)),
            (_, true) => Some(PathLimit::AtMost(10.0)),
            _ => None,
        };
        let rows = [
            ("CPU of ingest, to the last answer, s", middle(4.0), figures.answered_cpu),
            ("CPU of ingest, settled, s", middle(4.0), figures.ingest_cpu),
        ];
        for (measure, limit, value) in rows {
            let value = value.as_secs_f64();
            progress(&format!("{measure}: {}", number(value)));
            self.table.add(PathMeasure::new(what.as_str(), measure).with(limit), column, value);
        }
        let memory = PathMeasure::new(what.as_str(), "RSS, kB per series").with(middle(1.0));
        self.table.add(memory, column, figures.bytes_per_series / 1e3);
        let measure = PathMeasure::new(what.as_str(), "kill -9 to the first right answer, s");
        match figures.restart {
            Some(time) => self.table.add(measure.with(restart), column, time.as_secs_f64()),
            None => self.table.say(measure.with(restart), column, "none"),
        }
        for ((title, limit), result) in growth::QUERIES.into_iter().zip(&figures.queries) {
            let what = format!("{what}: {title}");
            let cpu = PathMeasure::new(what.as_str(), "CPU, ms").with(middle(limit));
            match result {
                Ok(cost) => {
                    progress(&format!("{title}: {} ms", number(cost.cpu_ms)));
                    self.table.add(cpu, column, cost.cpu_ms);
                    self.table.add(PathMeasure::new(what, "wall, ms"), column, cost.wall_ms);
                }
                Err(error) => self.table.say(cpu, column, format!("refused: {error}")),
            }
        }
        let what = format!("{what}: the rate of a route");
        for (readers, cost) in READERS.into_iter().zip(&figures.readers) {
            self.note_readers(&what, column, readers, cost);
        }
        if let [first, .., last] = &figures.readers[..] {
            let ends = (READERS[0], READERS[READERS.len() - 1]);
            let what = format!("growth: exponent from {} to {} readers", ends.0, ends.1);
            let measure = PathMeasure::new(what, "of a query of each").with(Some(EXPONENT_MAX));
            let costs = (first.cpu_ms * ends.0 as f64, last.cpu_ms * ends.1 as f64);
            self.table.add(measure, column, growth::exponent(ends, costs));
        }
    }

    /// Exponents of the cost between the smallest and the largest size.
    fn note_exponents(&mut self, column: usize, sizes: [usize; 3], figures: &[GrowthFigures]) {
        let [first, _, last] = figures else { return };
        let ends = (sizes[0], sizes[2]);
        let ingest = (first.ingest_cpu.as_secs_f64(), last.ingest_cpu.as_secs_f64());
        let mut rows = vec![("of ingest", ingest)];
        if let (Some(first), Some(last)) = (first.restart, last.restart) {
            let start = (first.as_secs_f64(), last.as_secs_f64());
            rows.push(("of kill -9 to the first answer", start));
        }
        let search = growth::SEARCH;
        if let (Ok(first), Ok(last)) = (&first.queries[search], &last.queries[search]) {
            rows.push(("of the search by regular expression", (first.cpu_ms, last.cpu_ms)));
        }
        for (measure, costs) in rows {
            let what = format!("growth: exponent from {} to {} counters", ends.0, ends.1);
            let measure = PathMeasure::new(what, measure).with(Some(EXPONENT_MAX));
            self.table.add(measure, column, growth::exponent(ends, costs));
        }
    }

    /// Directory of a server without data.
    pub(super) fn empty_dir(&self, peer: &PathPeer, part: &str) -> Result<PathBuf> {
        let dir = self.dir_of(peer, part);
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        Ok(dir)
    }
}
