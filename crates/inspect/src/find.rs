//! Process lookup by id, program name, or file path.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use shm::{AttachedProcess, MetricsFile, ProcessState};

use crate::{InspectError, Result, listing};

/// Limit of candidates in an error message.
const LISTED_MAX: usize = 20;

/// A matched process with its metrics.
#[derive(Debug)]
pub struct MatchedProcess {
    /// Metrics file of the process.
    pub attached: AttachedProcess,
    /// The file is a copy, not the one that the process writes.
    pub(crate) is_copy: bool,
}

impl MatchedProcess {
    /// Program name.
    pub fn program(&self) -> &str {
        let program = self.attached.program();
        program.rsplit('/').next().unwrap_or(program)
    }

    /// PID, if the process runs.
    pub fn running_pid(&self) -> Option<u32> {
        match self.attached.metrics_file().state {
            ProcessState::Running { pid } if !self.is_copy => Some(pid),
            _ => None,
        }
    }

    /// State in a few words.
    pub fn state_text(&self) -> &'static str {
        match self.attached.metrics_file().state {
            ProcessState::Running { .. } if self.is_copy => "running, this is a copy",
            state => state.name(),
        }
    }

    /// `sample (pid 1234)`.
    pub fn name(&self) -> String {
        let program = if self.program().is_empty() { "unknown" } else { self.program() };
        format!("{program} (pid {})", self.attached.pid())
    }
}

/// All processes with metrics, latest first, and errors of those that could not be read.
pub fn find_all() -> (Vec<MatchedProcess>, Vec<String>) {
    let (found, problems) = shm::list_metrics_files();
    let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    (attach_all(found, &mut problems), problems)
}

/// Opens the files; skips those removed since the scan.
fn attach_all(found: Vec<MetricsFile>, problems: &mut Vec<String>) -> Vec<MatchedProcess> {
    let mut processes = Vec::new();
    for found in found {
        match AttachedProcess::new(found) {
            Ok(attached) => processes.push(MatchedProcess { attached, is_copy: false }),
            Err(error) if is_removed(&error) => {}
            Err(error) => problems.push(error.to_string()),
        }
    }
    processes
}

/// Whether the file was removed since the scan.
fn is_removed(error: &shm::Error) -> bool {
    matches!(error, shm::Error::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound)
}

/// Preference among several matches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MatchPreference {
    /// A running process, if there is one.
    Running,
    /// A process that has ended.
    Exited,
}

/// Finds the process for a user's argument, with a remark if the choice is not obvious.
pub fn find_one(text: &str, prefer: MatchPreference) -> Result<(MatchedProcess, Option<String>)> {
    if text.contains('/') {
        return Ok((open_path(Path::new(text))?, None));
    }
    let no_process = |message: String| Err(InspectError::NoProcess(message));
    let Candidates { mut processes, others, errors: problems } = find_candidates(text);
    let states: Vec<ProcessState> =
        processes.iter().map(|one| one.attached.metrics_file().state).collect();
    let mut remark = None;
    let at = match choose(&states, prefer) {
        ProcessChoice::Index(at) => at,
        ProcessChoice::Latest { at, of } => {
            let path = processes[at].attached.metrics_file().path.display();
            remark =
                Some(format!("{of} exited processes match {text:?}; this is the latest: {path}"));
            at
        }
        ProcessChoice::Ambiguous(many) => {
            let list: Vec<String> = many.iter().map(|&at| process_line(&processes[at])).collect();
            let (count, lines) = (list.len(), bullet_lines(&list));
            return no_process(format!(
                "{count} processes are called {text:?}; say which, by its pid:{lines}"
            ));
        }
        ProcessChoice::StillRunning(at) => {
            return no_process(format!(
                "{} runs; see it with `topdeck cat {text}` or `topdeck in-flight {text}`",
                processes[at].name()
            ));
        }
        ProcessChoice::None if Path::new(text).exists() => {
            return Ok((open_path(Path::new(text))?, None));
        }
        ProcessChoice::None => {
            return no_process(no_match_message(text, &others, prefer, &problems));
        }
    };
    Ok((processes.swap_remove(at), remark))
}

/// Whether a text that is not a path matches any process.
pub fn matches_any(text: &str) -> bool {
    !text.contains('/') && !find_candidates(text).processes.is_empty()
}

/// Processes that match a text.
struct Candidates {
    /// Processes with that PID or, if there are none, with that name.
    processes: Vec<MatchedProcess>,
    /// All others, if none match.
    others: Vec<MatchedProcess>,
    /// Errors of those that could not be read.
    errors: Vec<String>,
}

fn find_candidates(text: &str) -> Candidates {
    let (found, problems) = shm::list_metrics_files();
    let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let pid: Option<u32> = text.parse().ok();
    // With a PID, only the file of that process is opened.
    let (of_pid, rest): (Vec<MetricsFile>, Vec<MetricsFile>) =
        found.into_iter().partition(|found| Some(found.pid()) == pid);
    let processes = attach_all(of_pid, &mut problems);
    if !processes.is_empty() {
        return Candidates { processes, others: Vec::new(), errors: problems };
    }
    let (processes, others) =
        attach_all(rest, &mut problems).into_iter().partition(|process| process.program() == text);
    Candidates { processes, others, errors: problems }
}

/// Choice among matching processes.
#[derive(Debug, PartialEq, Eq)]
enum ProcessChoice {
    None,
    Index(usize),
    /// The latest of several exited processes.
    Latest {
        at: usize,
        of: usize,
    },
    /// Several running processes.
    Ambiguous(Vec<usize>),
    /// A running process, although an exited one was requested.
    StillRunning(usize),
}

/// Chooses by state; candidates are sorted latest first.
fn choose(states: &[ProcessState], prefer: MatchPreference) -> ProcessChoice {
    let all = 0..states.len();
    let (run, gone): (Vec<usize>, Vec<usize>) =
        all.partition(|&at| matches!(states[at], ProcessState::Running { .. }));
    match (prefer, &run[..], &gone[..]) {
        (_, [], []) => ProcessChoice::None,
        (MatchPreference::Running, [one], _)
        | (_, [], [one])
        | (MatchPreference::Exited, _, [one]) => ProcessChoice::Index(*one),
        (MatchPreference::Running, [_, _, ..], _) => ProcessChoice::Ambiguous(run),
        (MatchPreference::Exited, [one, ..], []) => ProcessChoice::StillRunning(*one),
        (_, _, [first, ..]) => {
            // A replaced process has a successor with more information.
            let latest = gone.iter().find(|&&at| states[at] != ProcessState::Replaced);
            ProcessChoice::Latest { at: *latest.unwrap_or(first), of: gone.len() }
        }
    }
}

fn process_line(process: &MatchedProcess) -> String {
    format!(
        "{}, {}, since {}",
        process.name(),
        process.state_text(),
        listing::created_text(process)
    )
}

fn bullet_lines(list: &[String]) -> String {
    let mut text: String = list.iter().take(LISTED_MAX).map(|line| format!(" {line};")).collect();
    if list.len() > LISTED_MAX {
        text.push_str(&format!(" and {} more;", list.len() - LISTED_MAX));
    }
    text.trim_end_matches(';').to_owned()
}

fn no_match_message(
    text: &str,
    others: &[MatchedProcess],
    prefer: MatchPreference,
    problems: &[String],
) -> String {
    let who = if prefer == MatchPreference::Exited { "that has exited" } else { "with metrics" };
    let mut message = format!("no process {who} is called {text:?} or has it as its pid");
    let is_wanted =
        |it: &&MatchedProcess| it.running_pid().is_none() == (prefer == MatchPreference::Exited);
    let list: Vec<String> = others.iter().filter(is_wanted).map(process_line).collect();
    if list.is_empty() {
        message.push_str(", and there is no other");
    } else {
        message.push_str(&format!("; there are:{}", bullet_lines(&list)));
    }
    message.push_str("; `topdeck ls --all` lists all; ");
    message.push_str(&no_metrics_advice());
    if !problems.is_empty() {
        message.push_str(&format!("; not read: {}", problems.join("; ")));
    }
    message
}

/// Advice if no process has metrics.
pub fn no_metrics_advice() -> String {
    let dir = match std::env::var(shm::ENV_VARIABLE) {
        Ok(dir) if !dir.is_empty() && dir != "off" => {
            format!(" ({dir} was searched too)")
        }
        _ => String::new(),
    };
    format!(
        "a program has metrics once it has used one; if it runs with another {0} than this, set \
         {0} to the same directory{dir}, or name its file",
        shm::ENV_VARIABLE
    )
}

fn open_path(path: &Path) -> Result<MatchedProcess> {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let here =
        fs::metadata(path).map_err(|cause| InspectError::Path { path: path.to_owned(), cause })?;
    let is_same =
        |found: &MetricsFile| fs::metadata(&found.path).is_ok_and(|there| same(&here, &there));
    if let Some(found) = shm::list_metrics_files().0.into_iter().find(is_same) {
        return Ok(MatchedProcess { attached: AttachedProcess::new(found)?, is_copy: false });
    }
    let found = shm::metrics_file_at(path)?;
    let is_copy = match found.state {
        ProcessState::Running { pid } => !is_open_in(pid, &here),
        _ => false,
    };
    Ok(MatchedProcess { attached: AttachedProcess::new(found)?, is_copy })
}

/// Whether a process has a file open: then it is the original. Mappings are not checked, because
/// that takes a lock (`mmap_lock`) that the process may wait for.
fn is_open_in(pid: u32, file: &fs::Metadata) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::metadata(entry.path()).ok())
        .any(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: ProcessState = ProcessState::Running { pid: 1 };

    #[track_caller]
    fn check(states: &[ProcessState], running: ProcessChoice, gone: ProcessChoice) {
        assert_eq!(choose(states, MatchPreference::Running), running);
        assert_eq!(choose(states, MatchPreference::Exited), gone);
    }

    #[test]
    fn running_or_latest_exited_process_is_chosen() {
        use ProcessChoice::{Ambiguous, Index, Latest, None, StillRunning};
        use ProcessState::{Exited, Replaced, Terminated, Unknown};
        check(&[], None, None);
        check(&[RUNNING], Index(0), StillRunning(0));
        check(&[Terminated], Index(0), Index(0));
        check(&[Terminated, RUNNING], Index(1), Index(0));
        check(&[RUNNING, Terminated, RUNNING], Ambiguous(vec![0, 2]), Index(1));
        check(&[RUNNING, RUNNING], Ambiguous(vec![0, 1]), StillRunning(0));
        check(&[Exited, Terminated], Latest { at: 0, of: 2 }, Latest { at: 0, of: 2 });
        check(&[Replaced, RUNNING, Unknown], Index(1), Latest { at: 2, of: 2 });
        check(&[Replaced, Replaced], Latest { at: 0, of: 2 }, Latest { at: 0, of: 2 });
    }
}
