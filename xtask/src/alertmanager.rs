//! The part `alertmanager`: amtool, which is built first, adds and queries alerts and silences of a
//! running topdeck.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::ci_part::PartOutcome;
use crate::clients::TempDir;
use crate::clients::topdeck_server::TopdeckServer;
use crate::command_line::{CommandLine, target};
use crate::part_log::PartLog;
use crate::test_report::TestReport;

/// Module and version of amtool.
const MODULE: &str = "github.com/prometheus/alertmanager/cmd/amtool";
const VERSION: &str = "v0.35.0";

pub(crate) fn run(log: &PartLog, topdeck: &Path) -> Result<PartOutcome> {
    let amtool = match build(log)? {
        Ok(program) => program,
        Err(reason) => return Ok(PartOutcome::Skipped(reason)),
    };
    let dir = TempDir::new("alertmanager")?;
    let mut deck = TopdeckServer::start(topdeck, &dir.0, SETTINGS)?;
    let tool = AmTool { program: amtool, url: format!("http://{}", deck.http()) };
    let checks = [check_alerts, check_silences, check_status];
    for check in checks {
        check(&tool).with_context(|| deck.log())?;
    }
    deck.stop()?;
    Ok(PartOutcome::Tests(TestReport { passed: checks.len() as u64, ..TestReport::default() }))
}

/// A route, so that alerts have a receiver. Nothing listens at the address.
const SETTINGS: &str = "[[contact]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \
                        \"http://127.0.0.1:9/\"\n[route]\nreceiver = \"hook\"\ngroup_wait = \
                        \"1h\"\n";

/// The program, or a reason to skip the part.
fn build(log: &PartLog) -> Result<std::result::Result<PathBuf, String>> {
    let dir = target().join("clients").join(format!("amtool-{VERSION}"));
    let program = dir.join("amtool");
    if program.exists() {
        return Ok(Ok(program));
    }
    if !CommandLine::new("go version").succeeds() {
        return Ok(Err("Go is not installed (Debian package golang-go)".to_owned()));
    }
    fs::create_dir_all(&dir)?;
    let path = dir.to_str().context("the path of the repository is not UTF-8")?;
    log.note("building amtool, once; this takes minutes");
    let install = CommandLine::new("go install").arg(&format!("{MODULE}@{VERSION}"));
    let failed = install.env("GOBIN", path).fetch(log)?;
    Ok(failed.map_or(Ok(program), |reason| Err(format!("cannot build amtool: {reason}"))))
}

struct AmTool {
    program: PathBuf,
    url: String,
}

impl AmTool {
    /// Standard output of a successful run.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--alertmanager.url").arg(&self.url);
        let output = command.stdin(Stdio::null()).output().context("cannot start amtool")?;
        let (out, err) = (&output.stdout, &output.stderr);
        let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
        ensure!(output.status.success(), "amtool {}: {out}{err}", arguments.join(" "));
        Ok(out.into_owned())
    }

    fn expect(&self, arguments: &[&str], parts: &[&str]) -> Result<String> {
        let found = self.run(arguments)?;
        for part in parts {
            ensure!(found.contains(part), "amtool {}: no {part:?}: {found}", arguments.join(" "));
        }
        Ok(found)
    }
}

fn check_alerts(tool: &AmTool) -> Result<()> {
    tool.run(&["alert", "add", "Down", "instance=db1", "--annotation=summary=db1 is down"])?;
    tool.run(&["alert", "add", "Up", "instance=db2"])?;
    tool.expect(&["alert", "query"], &["Down", "Up", "db1 is down", "active"])?;
    let one = tool.expect(&["alert", "query", "instance=db1", "-o", "extended"], &["Down"])?;
    ensure!(!one.contains("Up"), "the matcher is ignored: {one}");
    tool.expect(&["alert", "query", "--receiver=hook"], &["Down"])?;
    let none = tool.run(&["alert", "query", "--receiver=other", "-o", "json"])?;
    ensure!(none.trim() == "[]", "the receiver is ignored: {none}");
    Ok(())
}

fn check_silences(tool: &AmTool) -> Result<()> {
    let add = ["silence", "add", "instance=~db1|db3", "--duration=1h", "--comment=upgrade"];
    let id = tool.run(&[&add[..], &["--author=ann"]].concat())?;
    let id = id.trim();
    tool.expect(&["silence", "query"], &[id, "ann", "upgrade", "instance=~\"db1|db3\""])?;
    let active = tool.run(&["alert", "query"])?;
    ensure!(!active.contains("Down"), "the alert is not silenced: {active}");
    tool.expect(&["alert", "query", "--silenced"], &["Down"])?;
    tool.run(&["silence", "update", id, "--duration=2h", "--comment=longer"])?;
    tool.expect(&["silence", "query"], &[id, "longer"])?;
    tool.run(&["silence", "expire", id])?;
    let left = tool.run(&["silence", "query", "-q"])?;
    ensure!(left.trim().is_empty(), "the silence is active: {left}");
    tool.expect(&["silence", "query", "--expired"], &[id])?;
    tool.expect(&["alert", "query"], &["Down"])?;
    let wrong = tool.run(&["silence", "expire", "0b2f3c1e-7d44-4b0e-9a51-3c8f5f0d6a10"]);
    ensure!(wrong.is_err(), "an unknown silence is expired");
    Ok(())
}

fn check_status(tool: &AmTool) -> Result<()> {
    tool.expect(&["cluster", "show"], &["disabled"])?;
    Ok(())
}
