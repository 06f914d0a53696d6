//! NATS JetStream with file storage: a server and its client in one program of their own, in `peers/nats`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::cost::Cost;
use super::durable::Acknowledged;
use super::messages::{Messages, SIZE};
use super::program::{self, Places};
use super::{Acknowledge, Append, Label, Read};

const PROMISES: &str = "checksum, visible, kill";
const PROMISES_SYNC: &str = "checksum, visible, kill, power";
const MESSAGES: usize = 100_000;

pub(crate) fn appending() -> Vec<Box<dyn Append>> {
    vec![Box::new(Appender)]
}

fn name() -> String {
    const MANIFEST: &str = include_str!("../../peers/nats/go.mod");
    format!("NATS JetStream {}", program::version(MANIFEST, "nats-server/v2 v", "\n"))
}

fn command(mode: &str, places: &Places, arguments: &[usize]) -> Result<Command> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    let mut command = Command::new(built.as_ref().map_err(|error| anyhow!("{error}"))?);
    command.arg(mode).arg(&places.journal).arg(&places.messages).arg(SIZE.to_string());
    command.args(arguments.iter().map(usize::to_string));
    Ok(command)
}

fn build() -> Result<PathBuf> {
    let program = program::build_folder("nats")?.join("nats");
    let mut build = Command::new("go");
    build.current_dir(program::source_folder("nats"));
    build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
    program::run_tool(&mut build)?;
    Ok(program)
}

struct Appender;

impl Append for Appender {
    fn label(&self) -> Label {
        Label::new(format!("{}, async publish", name()), PROMISES)
    }

    fn messages(&self) -> usize {
        MESSAGES
    }

    fn append(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let places = Places::new(folder, messages)?;
        let mut command = command("append", &places, &[])?;
        program::cost(&mut command, &places, program::count(messages))
    }
}

pub(crate) struct Durable;

impl Acknowledge for Durable {
    fn label(&self) -> Label {
        Label::new(format!("{}, sync always", name()), PROMISES_SYNC)
    }

    fn acknowledge(
        &self,
        folder: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<Acknowledged> {
        let milliseconds = time.as_millis() as usize;
        program::acknowledged(folder, messages, |places| {
            command("acknowledge", places, &[producers, milliseconds])
        })
    }
}

pub(crate) struct Reader;

impl Read for Reader {
    fn label(&self) -> Label {
        Label::new(format!("{}, ordered consumer", name()), PROMISES)
    }

    fn messages(&self) -> usize {
        MESSAGES
    }

    fn prepare(&self, folder: &Path, messages: &[u8]) -> Result<()> {
        Appender.append(folder, messages).map(|_| ())
    }

    fn read(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let places = Places::new(folder, messages)?;
        let mut command = command("read", &places, &[])?;
        program::cost(&mut command, &places, program::count(messages))
    }
}
