//! Finds processes, and looks at them: all of this that is not arithmetic.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use shm::{Attached, Fate, Found, Reader};

use crate::top::close::{Close, Series};
use crate::top::look::Look;
use crate::top::reading::{Reading, Seen};

/// Processes are looked for so often at the most.
const SCAN_NS: u64 = 1_000_000_000;

/// All processes that are looked at.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Only those whose id this is, or whose program has it in its name.
    only: Option<String>,
    scanned_ns: Option<u64>,
    attached: HashMap<PathBuf, One>,
    /// Files that are looked at no more: of those that are gone, or not asked for.
    passed: HashSet<PathBuf>,
    /// What could not be looked at at the last scan.
    pub(crate) problems: Vec<String>,
}

/// A process that is looked at.
#[derive(Debug)]
struct One {
    attached: Attached,
    fate: Fate,
    /// Series that were told whole: they keep their places, and what they are.
    told: usize,
}

impl Watch {
    pub(crate) fn new(only: Option<String>) -> Watch {
        Watch { only: only.map(|only| only.to_lowercase()), ..Watch::default() }
    }

    /// Looks at each process, at some series closely; those that are gone are looked at a last time.
    pub(crate) fn look(&mut self, close: &Close) -> Vec<Look> {
        let now_ns = clock::now();
        if self.scanned_ns.is_none_or(|at| now_ns.saturating_sub(at) >= SCAN_NS * 9 / 10) {
            self.scanned_ns = Some(now_ns);
            self.scan();
        }
        let mut looks: Vec<Look> =
            self.attached.iter_mut().map(|(path, one)| look(path.clone(), one, close)).collect();
        // Rows that have nothing else to tell them apart stand in the order of their ids.
        looks.sort_by(|a, b| a.pid.cmp(&b.pid).then_with(|| a.path.cmp(&b.path)));
        for look in looks.iter().filter(|look| look.fate.is_gone()) {
            self.attached.remove(&look.path);
            self.passed.insert(look.path.clone());
        }
        looks
    }

    fn scan(&mut self) {
        let (all, problems) = shm::processes();
        self.problems = problems.iter().map(ToString::to_string).collect();
        let mut seen = HashSet::new();
        for found in all {
            seen.insert(found.path.clone());
            let fate = found.fate;
            if let Some(known) = self.attached.get_mut(&found.path) {
                known.fate = fate;
            } else if !self.passed.contains(&found.path) {
                self.attach(found, fate);
            }
        }
        // Its file was swept away: it had ended.
        for (path, one) in &mut self.attached {
            if !seen.contains(path) && !one.fate.is_gone() {
                one.fate = Fate::Ended;
            }
        }
        self.passed.retain(|path| seen.contains(path));
    }

    fn attach(&mut self, found: Found, fate: Fate) {
        let path = found.path.clone();
        // One that was gone before is what others show: `top` shows what goes on.
        if fate.is_gone() {
            self.passed.insert(path);
            return;
        }
        match Attached::new(found) {
            Ok(attached) if self.is_wanted(&attached) => {
                self.attached.insert(path, One { attached, fate, told: 0 });
            }
            Ok(_) => {
                self.passed.insert(path);
            }
            // It may be readable at the next scan: it was just being made, or belongs to somebody else.
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    fn is_wanted(&self, one: &Attached) -> bool {
        self.only.as_ref().is_none_or(|only| {
            one.program().to_lowercase().contains(only) || one.pid().to_string() == *only
        })
    }
}

fn look(path: PathBuf, one: &mut One, close: &Close) -> Look {
    let metrics = one.read(close.of(&path)).map_err(|error| error.to_string());
    let at_ns = clock::now();
    let (fate, one) = (one.fate, &one.attached);
    let counts = one.reader().map(shm::Reader::process);
    let (lost, refused) = counts.map_or((0, 0), |process| (process.lost, process.refused));
    let (pid, program) = (one.pid(), one.program().to_owned());
    let (command, format) = (one.command().to_owned(), one.found().format.name());
    Look { path, pid, program, command, format, fate, at_ns, metrics, lost, refused }
}

impl One {
    /// All its series: those that were not told yet whole, of others the value.
    fn read(&mut self, close: Series<'_>) -> shm::Result<Vec<Seen>> {
        let Some(reader) = self.attached.reader_mut() else {
            // Files of others are read whole, and have no buckets.
            return Ok(self.attached.metrics()?.into_iter().map(Seen::Whole).collect());
        };
        reader.refresh()?;
        let told = self.told.min(reader.len());
        let mut seen = known(reader, told, close)?;
        seen.extend(reader.metrics_from(told)?.into_iter().map(Seen::Whole));
        self.told = seen.len();
        Ok(seen)
    }
}

/// Series that were told: of histograms that nobody looks at closely how many values they have, of all others the value.
fn known(reader: &Reader, told: usize, close: Series<'_>) -> shm::Result<Vec<Seen>> {
    let counts = (0..told).map(|at| match close.has(reader.name(at)) {
        true => Ok(None),
        false => reader.recorded(at),
    });
    let counts = counts.collect::<shm::Result<Vec<_>>>()?;
    let places: Vec<usize> = (0..told).filter(|&at| counts[at].is_none()).collect();
    let mut values = reader.values(&places)?.into_iter();
    let reading = |count: Option<u64>| match count {
        Some(count) => Some(Reading::Recorded(count)),
        None => values.next().map(Reading::Of),
    };
    Ok(counts.into_iter().filter_map(reading).map(Seen::Known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a look at this process finds.
    fn seen(watch: &mut Watch, close: &Close) -> Vec<Seen> {
        let mut looks = watch.look(close);
        assert_eq!(looks.len(), 1, "{:?}", watch.problems);
        looks.remove(0).metrics.expect("it can be read")
    }

    #[test]
    fn buckets_are_read_of_what_is_looked_at_closely_only() {
        if shm::status().is_err() {
            return;
        }
        let pid = std::process::id().to_string();
        for label in 0..100 {
            for name in ["top_watch_a", "top_watch_b"] {
                let series = shm::Description::new(name).label("n", label.to_string());
                series.histogram().expect("there is room").record(7);
            }
        }
        let mut watch = Watch::new(Some(pid));
        // The first look has everything, so that what turns out to be the busiest can be shown at the second.
        let first = seen(&mut watch, &Close::default());
        let is_ours =
            |seen: &Seen| matches!(seen, Seen::Whole(one) if one.name.starts_with("top_watch_"));
        let ours: Vec<usize> = (0..first.len()).filter(|&at| is_ours(&first[at])).collect();
        assert!(ours.iter().all(|&at| first[at].is_close()));
        // How many of them are read with their buckets, and how many are counted.
        let read = |watch: &mut Watch, close: &Close| {
            let seen = seen(watch, close);
            let close = ours.iter().filter(|&&at| seen[at].is_close()).count();
            let counted = |at: &&usize| seen[**at] == Seen::Known(Reading::Recorded(1));
            (close, ours.iter().filter(counted).count())
        };
        assert_eq!(read(&mut watch, &Close::default()), (0, 200));
        let path = watch.attached.keys().next().expect("there is one").clone();
        let rows = HashMap::from([(path.clone(), "top_watch_a".to_owned())]);
        assert_eq!(read(&mut watch, &Close { rows, ..Close::default() }), (100, 100));
        let open = Close { process: Some(path), ..Close::default() };
        assert_eq!(read(&mut watch, &open), (200, 0));
        assert_eq!(read(&mut watch, &Close::all()), (200, 0));
    }
}
