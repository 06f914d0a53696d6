//! Finds processes, and looks at them: all of this that is not arithmetic.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use shm::{Attached, Found};

use crate::top::look::{Fate, Look};

/// Processes are looked for so often at the most.
const SCAN_NS: u64 = 1_000_000_000;

/// All processes that are looked at.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Only those whose id this is, or whose program has it in its name.
    only: Option<String>,
    scanned_ns: Option<u64>,
    attached: HashMap<PathBuf, (Attached, Fate)>,
    /// Files that are looked at no more: of those that are gone, or not asked for.
    passed: HashSet<PathBuf>,
    /// What could not be looked at at the last scan.
    pub(crate) problems: Vec<String>,
}

impl Watch {
    pub(crate) fn new(only: Option<String>) -> Watch {
        Watch { only: only.map(|only| only.to_lowercase()), ..Watch::default() }
    }

    /// Looks at each process; those that are gone are looked at a last time.
    pub(crate) fn look(&mut self) -> Vec<Look> {
        let now_ns = clock::now();
        if self.scanned_ns.is_none_or(|at| now_ns.saturating_sub(at) >= SCAN_NS * 9 / 10) {
            self.scanned_ns = Some(now_ns);
            self.scan();
        }
        let mut looks: Vec<Look> = self
            .attached
            .iter_mut()
            .map(|(path, (one, fate))| look(path.clone(), one, *fate))
            .collect();
        // Rows that have nothing else to tell them apart stand in the order of their ids.
        looks.sort_by(|a, b| a.pid.cmp(&b.pid).then_with(|| a.path.cmp(&b.path)));
        for look in looks.iter().filter(|look| look.fate.gone().is_some()) {
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
            let fate = fate(&found);
            if let Some((_, known)) = self.attached.get_mut(&found.path) {
                *known = fate;
            } else if !self.passed.contains(&found.path) {
                self.attach(found, fate);
            }
        }
        // Its file was swept away: it had ended.
        for (path, (_, fate)) in &mut self.attached {
            if !seen.contains(path) && fate.gone().is_none() {
                *fate = Fate::Ended;
            }
        }
        self.passed.retain(|path| seen.contains(path));
    }

    fn attach(&mut self, found: Found, fate: Fate) {
        let path = found.path.clone();
        // One that was gone before is what others show: `top` shows what goes on.
        if fate.gone().is_some() {
            self.passed.insert(path);
            return;
        }
        match Attached::new(found) {
            Ok(one) if self.is_wanted(&one) => {
                self.attached.insert(path, (one, fate));
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

fn fate(found: &Found) -> Fate {
    match found.fate {
        shm::Fate::Runs { .. } => Fate::Runs,
        shm::Fate::Ended => Fate::Ended,
        shm::Fate::Died => Fate::Died,
        shm::Fate::Replaced => Fate::Replaced,
        shm::Fate::Unknown => Fate::Unseen,
    }
}

fn look(path: PathBuf, one: &mut Attached, fate: Fate) -> Look {
    let metrics = one.metrics().map_err(|error| error.to_string());
    let at_ns = clock::now();
    let counts = one.reader().map(shm::Reader::process);
    let (lost, refused) = counts.map_or((0, 0), |process| (process.lost, process.refused));
    let (pid, program) = (one.pid(), one.program().to_owned());
    let (command, format) = (one.command().to_owned(), one.found().format.name());
    Look { path, pid, program, command, format, fate, at_ns, metrics, lost, refused }
}
