//! Peers that are separate programs: built and started if their tools are installed.
//!
//! Such a program gets the same messages in a file, and prints its figures as the last line,
//! separated by tabs. It measures its own CPU time, so that its start and the preparation of its
//! journal do not count.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read as _, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::cost::{JournalCost, stored_bytes};
use super::messages::SIZE;
use super::scratch;

/// Build directory of a peer, in cargo's target directory.
pub(crate) fn build_dir(peer: &str) -> Result<PathBuf> {
    let dir = scratch::target()?.join("journal-peers").join(peer);
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

/// Source directory of a peer.
pub(crate) fn source_dir(peer: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(peer)
}

/// Runs a tool; an error states what is missing, or its last output.
pub(crate) fn run_tool(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{name} is not installed"),
        Err(error) => return Err(error).with_context(|| format!("starting {name}")),
    };
    let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
    ensure!(output.status.success(), "{name} failed, {}: {last}", output.status);
    Ok(())
}

/// Paths of the messages and of the journal for a program.
pub(crate) struct ProgramPaths {
    pub(crate) journal: PathBuf,
    pub(crate) messages: PathBuf,
}

impl ProgramPaths {
    /// Writes the messages to a file; the directory of the journal exists, or the program creates
    /// it.
    pub(crate) fn new(dir: &Path, messages: &[u8]) -> Result<ProgramPaths> {
        let places = ProgramPaths { journal: dir.join("journal"), messages: dir.join("messages") };
        fs::create_dir_all(&places.journal)?;
        fs::write(&places.messages, messages)?;
        Ok(places)
    }
}

/// Starts a program and returns the numbers of its last line.
pub(crate) fn numbers(command: &mut Command) -> Result<Vec<f64>> {
    let mut errors = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{name} is not installed"),
        Err(error) => return Err(error).with_context(|| format!("starting {name}")),
    };
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().expect("is piped")).lines() {
        last = line?;
    }
    let status = child.wait()?;
    ensure!(status.success(), "{name} failed, {status}: {}", last_line(&mut errors)?);
    let numbers: Result<Vec<f64>, _> = last.split('\t').map(str::parse).collect();
    numbers.map_err(|_| anyhow!("{name} printed no figures: {last}"))
}

fn last_line(file: &mut File) -> Result<String> {
    let mut said = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned())
}

/// Cost measured by a program: wall time and CPU time in seconds, and bytes stored and written,
/// which are negative or missing if unknown.
pub(crate) fn run_program(
    command: &mut Command,
    places: &ProgramPaths,
    messages: usize,
) -> Result<JournalCost> {
    let numbers = numbers(command)?;
    let [passed, cpu] = numbers.get(..2).context("two figures or more")? else { unreachable!() };
    let known =
        |at: usize| numbers.get(at).filter(|&&bytes| bytes >= 0.0).map(|&bytes| bytes as u64);
    let left_bytes = match known(2) {
        Some(bytes) => bytes,
        None => stored_bytes(&places.journal)?,
    };
    Ok(JournalCost {
        messages,
        wall: Duration::try_from_secs_f64(*passed)?,
        cpu: Duration::try_from_secs_f64(*cpu)?,
        written_bytes: known(3),
        stored_bytes: left_bytes,
    })
}

/// The version between two texts in a manifest.
pub(crate) fn version<'a>(manifest: &'a str, before: &str, after: &str) -> &'a str {
    let rest = manifest.split_once(before).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split(after).next()).unwrap_or("of unknown version")
}

/// Number of messages in a slice.
pub(crate) fn message_count(messages: &[u8]) -> usize {
    messages.len() / SIZE
}
