//! Chronicle Queue: a queue in memory-mapped files, in a separate Java program, `peers/chronicle`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, anyhow};

use super::cost::JournalCost;
use super::messages::SIZE;
use super::program::{self, ProgramPaths};
use super::{AppendContender, ContenderLabel, ReadContender};

const PROMISES: &str = "visible, kill";
/// Internal packages of the JVM that the libraries access, from their documentation.
const ADD_OPENS: [&str; 11] = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED",
    "--add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
];
/// Disables the library's usage reports.
const QUIET: &str = "-Dchronicle.analytics.disable=true";

pub(crate) fn append_contenders() -> Vec<Box<dyn AppendContender>> {
    vec![Box::new(ChronicleAppender)]
}

fn name() -> String {
    const MANIFEST: &str = include_str!("../../peers/chronicle/pom.xml");
    const VERSION_PREFIX: &str = "<artifactId>chronicle-queue</artifactId>\n      <version>";
    format!("Chronicle Queue {}", program::version(MANIFEST, VERSION_PREFIX, "<"))
}

fn command(mode: &str, places: &ProgramPaths) -> Result<Command> {
    static BUILD: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILD.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    let built = built.as_ref().map_err(|error| anyhow!("{error}"))?;
    let mut command = Command::new("java");
    command.args(ADD_OPENS).arg(QUIET).arg("-cp");
    command.arg(format!("{0}/classes:{0}/lib/*", built.display()));
    command.arg("topdeck.Chronicle").arg(mode).arg(&places.journal).arg(&places.messages);
    command.arg(SIZE.to_string());
    Ok(command)
}

fn build() -> Result<PathBuf> {
    let dir = program::build_dir("chronicle")?;
    program::run_tool(Command::new("java").arg("-version"))?;
    let mut build = Command::new("mvn");
    build.args(["--quiet", "--batch-mode", "compile", "--file"]);
    build.arg(program::source_dir("chronicle").join("pom.xml"));
    build.arg(format!("-Dtopdeck.build={}", dir.display()));
    program::run_tool(&mut build)?;
    Ok(dir)
}

struct ChronicleAppender;

impl AppendContender for ChronicleAppender {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new(name(), PROMISES)
    }

    fn append(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        let places = ProgramPaths::new(dir, messages)?;
        let mut command = command("append", &places)?;
        program::run_program(&mut command, &places, program::message_count(messages))
    }
}

pub(crate) struct ChronicleReader;

impl ReadContender for ChronicleReader {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new(format!("{}, tailer", name()), PROMISES)
    }

    fn prepare(&self, dir: &Path, messages: &[u8]) -> Result<()> {
        ChronicleAppender.append(dir, messages).map(|_| ())
    }

    fn read(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        let places = ProgramPaths::new(dir, messages)?;
        let mut command = command("read", &places)?;
        program::run_program(&mut command, &places, program::message_count(messages))
    }
}
