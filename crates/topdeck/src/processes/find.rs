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
            Fate::Runs { .. } => "runs",
            Fate::Ended => "ended",
            Fate::Died => "died",
            Fate::Replaced => "replaced",
            Fate::Unknown => "unknown",
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
    let mut processes = Vec::new();
    for found in found {
        match Attached::new(found) {
            Ok(attached) => processes.push(Process { attached, is_copy: false }),
            Err(error) if is_gone(&error) => {}
            Err(error) => problems.push(error.to_string()),
        }
    }
    (processes, problems)
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
    let (processes, problems) = all();
    let (mut matching, others): (Vec<Process>, Vec<Process>) =
        processes.into_iter().partition(|process| is_meant(process, text));
    if matching.is_empty() {
        if Path::new(text).exists() {
            return at_path(Path::new(text));
        }
        bail!("{}", nobody(text, &others, prefer, &problems));
    }
    let is_wanted =
        |process: &Process| (process.runs_as().is_some()) == (prefer == Prefer::Running);
    let wanted: Vec<usize> =
        matching.iter().enumerate().filter(|(_, it)| is_wanted(it)).map(|(at, _)| at).collect();
    match (prefer, &wanted[..]) {
        (_, [one]) => Ok(matching.swap_remove(*one)),
        (Prefer::Running, [_, _, ..]) => {
            let list = wanted.iter().map(|&at| line(&matching[at])).collect::<Vec<_>>();
            bail!(
                "{} processes are called {text:?}; say which, by its pid:{}",
                list.len(),
                lines(&list)
            )
        }
        (Prefer::Gone, []) => {
            bail!(
                "{} runs; see it with `topdeck cat {text}` or `topdeck inflight {text}`",
                matching[0].name()
            )
        }
        // The latest stands first; one that was only replaced has a successor that says more.
        _ => {
            let is_replaced = |it: &&Process| it.attached.found().fate == Fate::Replaced;
            let gone = matching.iter().filter(|it| it.runs_as().is_none());
            let (replaced, gone): (Vec<&Process>, Vec<&Process>) = gone.partition(is_replaced);
            let latest = gone.first().or(replaced.first()).context("BUG: nothing is left")?;
            let (path, count) = (latest.attached.found().path.clone(), gone.len() + replaced.len());
            if count > 1 {
                let path = path.display();
                say(format_args!(
                    "{count} that are gone are called {text:?}; this is the latest, {path}"
                ));
            }
            let at = matching.iter().position(|it| it.attached.found().path == path);
            Ok(matching.swap_remove(at.context("BUG: it was there")?))
        }
    }
}

/// Whether anybody is meant by a text that is no path.
pub(crate) fn is_anybody(text: &str) -> bool {
    !text.contains('/') && all().0.iter().any(|process| is_meant(process, text))
}

fn is_meant(process: &Process, text: &str) -> bool {
    text.parse() == Ok(process.attached.pid()) || process.program() == text
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
