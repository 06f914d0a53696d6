//! From what a person types to a process: its id, its program's name, or the path of its file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use shm::{Attached, Fate, Found};

use crate::command::say;
use crate::processes::listing;

/// Candidates that a message lists.
const LISTED_MAX: usize = 20;

/// A process whose metrics are read.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) attached: Attached,
    /// Its file is not the one it writes to, but was copied from that.
    pub(crate) is_copy: bool,
}

impl Process {
    /// The name of its program.
    pub(crate) fn program(&self) -> &str {
        let program = self.attached.program();
        program.rsplit('/').next().unwrap_or(program)
    }

    /// Its id where it runs.
    pub(crate) fn runs_as(&self) -> Option<u32> {
        match self.attached.found().fate {
            Fate::Runs { pid } if !self.is_copy => Some(pid),
            _ => None,
        }
    }

    /// What became of it, in a word or a few.
    pub(crate) fn state(&self) -> &'static str {
        match self.attached.found().fate {
            Fate::Runs { .. } if self.is_copy => "runs, this is a copy",
            fate => fate.name(),
        }
    }

    /// `sample (pid 1234)`.
    pub(crate) fn name(&self) -> String {
        let program = if self.program().is_empty() { "unknown" } else { self.program() };
        format!("{program} (pid {})", self.attached.pid())
    }
}

/// All that show metrics, the latest first, and what could not be read.
pub(crate) fn all() -> (Vec<Process>, Vec<String>) {
    let (found, problems) = shm::processes();
    let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    (attached(found, &mut problems), problems)
}

/// Opens their files, but for those that were removed meanwhile.
fn attached(found: Vec<Found>, problems: &mut Vec<String>) -> Vec<Process> {
    let mut processes = Vec::new();
    for found in found {
        match Attached::new(found) {
            Ok(attached) => processes.push(Process { attached, is_copy: false }),
            Err(error) if is_gone(&error) => {}
            Err(error) => problems.push(error.to_string()),
        }
    }
    processes
}

/// Whether a file was removed meanwhile.
fn is_gone(error: &shm::Error) -> bool {
    matches!(error, shm::Error::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound)
}

/// Which of several of one name is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefer {
    Running,
    Gone,
}

/// The process that a person means.
pub(crate) fn one(text: &str, prefer: Prefer) -> Result<Process> {
    if text.contains('/') {
        return at_path(Path::new(text));
    }
    let Meant { mut processes, others, problems } = meant(text);
    let fates: Vec<Fate> = processes.iter().map(|one| one.attached.found().fate).collect();
    let at = match choose(&fates, prefer) {
        Choice::This(at) => at,
        Choice::Latest { at, of } => {
            let path = processes[at].attached.found().path.display();
            say(format_args!("{of} that are gone are called {text:?}; this is the latest, {path}"));
            at
        }
        Choice::Many(many) => {
            let list: Vec<String> = many.iter().map(|&at| line(&processes[at])).collect();
            let (count, lines) = (list.len(), lines(&list));
            bail!("{count} processes are called {text:?}; say which, by its pid:{lines}")
        }
        Choice::Runs(at) => bail!(
            "{} runs; see it with `topdeck cat {text}` or `topdeck inflight {text}`",
            processes[at].name()
        ),
        Choice::None if Path::new(text).exists() => return at_path(Path::new(text)),
        Choice::None => bail!("{}", nobody(text, &others, prefer, &problems)),
    };
    Ok(processes.swap_remove(at))
}

/// Whether anybody is meant by a text that is no path.
pub(crate) fn is_anybody(text: &str) -> bool {
    !text.contains('/') && !meant(text).processes.is_empty()
}

/// Who may be meant by a text.
struct Meant {
    /// Those that have it as their pid or, if there are none, as their name.
    processes: Vec<Process>,
    /// All others, if nobody is meant.
    others: Vec<Process>,
    /// Why some could not be read.
    problems: Vec<String>,
}

fn meant(text: &str) -> Meant {
    let (found, problems) = shm::processes();
    let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let pid: Option<u32> = text.parse().ok();
    // Of the one that is known by its pid the file is opened, and of no other.
    let (of_pid, rest): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|found| Some(found.pid()) == pid);
    let processes = attached(of_pid, &mut problems);
    if !processes.is_empty() {
        return Meant { processes, others: Vec::new(), problems };
    }
    let (processes, others) =
        attached(rest, &mut problems).into_iter().partition(|process| process.program() == text);
    Meant { processes, others, problems }
}

/// Which of those that may be meant.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    None,
    This(usize),
    /// The latest of so many that are gone.
    Latest {
        at: usize,
        of: usize,
    },
    /// Any of these, all of which run.
    Many(Vec<usize>),
    /// One that runs, where one that is gone was asked for.
    Runs(usize),
}

/// Chooses by what became of them, the latest first.
fn choose(fates: &[Fate], prefer: Prefer) -> Choice {
    let all = 0..fates.len();
    let (run, gone): (Vec<usize>, Vec<usize>) =
        all.partition(|&at| matches!(fates[at], Fate::Runs { .. }));
    match (prefer, &run[..], &gone[..]) {
        (_, [], []) => Choice::None,
        (Prefer::Running, [one], _) | (_, [], [one]) | (Prefer::Gone, _, [one]) => {
            Choice::This(*one)
        }
        (Prefer::Running, [_, _, ..], _) => Choice::Many(run),
        (Prefer::Gone, [one, ..], []) => Choice::Runs(*one),
        (_, _, [first, ..]) => {
            // One that was only replaced has a successor that says more.
            let latest = gone.iter().find(|&&at| fates[at] != Fate::Replaced);
            Choice::Latest { at: *latest.unwrap_or(first), of: gone.len() }
        }
    }
}

fn line(process: &Process) -> String {
    format!("{}, {}, since {}", process.name(), process.state(), listing::since(process))
}

fn lines(list: &[String]) -> String {
    let mut text: String = list.iter().take(LISTED_MAX).map(|line| format!(" {line};")).collect();
    if list.len() > LISTED_MAX {
        text.push_str(&format!(" and {} more;", list.len() - LISTED_MAX));
    }
    text.trim_end_matches(';').to_owned()
}

fn nobody(text: &str, others: &[Process], prefer: Prefer, problems: &[String]) -> String {
    let who = if prefer == Prefer::Gone { "that is gone" } else { "that shows metrics here" };
    let mut message = format!("no process {who} is called {text:?} or has it as its pid");
    let is_wanted = |it: &&Process| it.runs_as().is_none() == (prefer == Prefer::Gone);
    let list: Vec<String> = others.iter().filter(is_wanted).map(line).collect();
    if list.is_empty() {
        message.push_str(", and there is no other");
    } else {
        message.push_str(&format!("; there are:{}", lines(&list)));
    }
    message.push_str("; `topdeck ls --all` lists all; ");
    message.push_str(&advice());
    if !problems.is_empty() {
        message.push_str(&format!("; not read: {}", problems.join("; ")));
    }
    message
}

/// What to do where nobody shows anything.
pub(crate) fn advice() -> String {
    let folder = match std::env::var(shm::VARIABLE) {
        Ok(folder) if !folder.is_empty() && folder != "off" => {
            format!(" ({folder} was looked at, too)")
        }
        _ => String::new(),
    };
    format!(
        "a program shows metrics once it has used one; if it runs with another {0} than this, set {0} to the same \
         folder{folder}, or name its file",
        shm::VARIABLE
    )
}

fn at_path(path: &Path) -> Result<Process> {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let here = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let is_same = |found: &Found| fs::metadata(&found.path).is_ok_and(|there| same(&here, &there));
    if let Some(found) = shm::processes().0.into_iter().find(is_same) {
        return Ok(Process { attached: Attached::new(found)?, is_copy: false });
    }
    let found = shm::found_at(path)?;
    let is_copy = match found.fate {
        Fate::Runs { pid } => !is_open_in(pid, &here),
        _ => false,
    };
    Ok(Process { attached: Attached::new(found)?, is_copy })
}

/// Whether a process has a file open: then it is the one that it writes to. Its mappings are not looked at: that takes a lock
/// which it may wait for.
fn is_open_in(pid: u32, file: &fs::Metadata) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::metadata(entry.path()).ok())
        .any(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: Fate = Fate::Runs { pid: 1 };

    #[track_caller]
    fn check(fates: &[Fate], running: Choice, gone: Choice) {
        assert_eq!(choose(fates, Prefer::Running), running);
        assert_eq!(choose(fates, Prefer::Gone), gone);
    }

    #[test]
    fn one_that_runs_is_chosen_or_the_latest_that_is_gone() {
        use Choice::{Latest, Many, None, Runs, This};
        use Fate::{Died, Ended, Replaced, Unknown};
        check(&[], None, None);
        check(&[RUNS], This(0), Runs(0));
        check(&[Died], This(0), This(0));
        check(&[Died, RUNS], This(1), This(0));
        check(&[RUNS, Died, RUNS], Many(vec![0, 2]), This(1));
        check(&[RUNS, RUNS], Many(vec![0, 1]), Runs(0));
        check(&[Ended, Died], Latest { at: 0, of: 2 }, Latest { at: 0, of: 2 });
        check(&[Replaced, RUNS, Unknown], This(1), Latest { at: 2, of: 2 });
        check(&[Replaced, Replaced], Latest { at: 0, of: 2 }, Latest { at: 0, of: 2 });
    }
}
