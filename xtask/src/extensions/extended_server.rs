//! A running topdeck with an extension of each kind, and its command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::peers;
use crate::clients::TempDir;
use crate::clients::topdeck_server::TopdeckServer;

/// Timeout of values that arrive an interval later.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct ExtendedServer {
    program: PathBuf,
    pub(super) dir: TempDir,
    pub(super) deck: TopdeckServer,
}

impl ExtendedServer {
    pub(super) fn start(program: &Path) -> Result<ExtendedServer> {
        let dir = TempDir::new("extensions")?;
        let tables = format!(
            "[heartbeat]\nperiod = \"20ms\"\n[stopwatch]\nudp = [\"127.0.0.1:0\"]\nprefix = \
             \"race_\"\n[[check]]\nname = \"shard\"\nheader_url = \"http://{}/\"\nheader = \
             \"x-shard\"\ninterval = \"1s\"\n",
            peers::http_server()?
        );
        let deck = TopdeckServer::start(program, &dir.0, &tables)?;
        Ok(ExtendedServer { program: program.to_owned(), dir, deck })
    }

    pub(super) fn stop(mut self) -> Result<()> {
        self.deck.stop()
    }

    /// The end of the server's log.
    pub(super) fn log(&self) -> String {
        self.deck.log()
    }

    /// Runs a subcommand.
    pub(super) fn output(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        let output = command.args(arguments).stdin(Stdio::null()).output();
        output.with_context(|| format!("cannot start {}", self.program.display()))
    }

    /// Runs a subcommand and searches its standard output, in which a line break counts as a space.
    pub(super) fn prints(&self, arguments: &[&str], expected: &str) -> Result<()> {
        let output = self.output(arguments)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(
            output.status.success() && text.contains(expected),
            "`topdeck {}` does not print {expected:?}: {output:?}",
            arguments.join(" ")
        );
        Ok(())
    }

    /// Runs a subcommand that fails, and searches its standard error.
    pub(super) fn fails(&self, arguments: &[&str], expected: &str) -> Result<()> {
        let output = self.output(arguments)?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && text.contains(expected),
            "`topdeck {}` does not fail with {expected:?}: {output:?}",
            arguments.join(" ")
        );
        Ok(())
    }

    /// `topdeck check-config` rejects these settings.
    pub(super) fn rejects(&self, settings: &str, expected: &str) -> Result<()> {
        let path = self.dir.0.join("rejected.toml");
        fs::write(&path, settings).with_context(|| format!("cannot write {}", path.display()))?;
        self.fails(&["check-config", path.to_str().context("the path is not UTF-8")?], expected)
    }

    /// `topdeck check-config` accepts the settings of the server and prints `expected`.
    pub(super) fn accepts(&self, expected: &str) -> Result<()> {
        let path = self.dir.0.join("topdeck.toml");
        self.prints(&["check-config", path.to_str().context("the path is not UTF-8")?], expected)
    }

    /// Sends a GET request with parameters and parses the response.
    pub(super) fn get(&self, path: &str, parameters: &[&str]) -> Result<Value> {
        let encoded = parameters.iter().flat_map(|parameter| ["--data-urlencode", parameter]);
        let options: Vec<&str> = std::iter::once("-G").chain(encoded).collect();
        Ok(serde_json::from_str(&self.deck.curl(&options, path)?)?)
    }

    /// Queries PromQL until the first result is a number that `is_expected` accepts.
    pub(super) fn await_number(
        &self,
        query: &str,
        is_expected: impl Fn(f64) -> bool,
    ) -> Result<()> {
        let parameter = format!("query={query}");
        let number = |answer: &Value| {
            let value = answer["data"]["result"][0]["value"][1].as_str()?;
            value.parse::<f64>().ok()
        };
        self.await_json("/api/v1/query", &[&parameter], |answer| {
            number(answer).is_some_and(&is_expected)
        })
    }

    /// Sends a request until its response is accepted.
    pub(super) fn await_json(
        &self,
        path: &str,
        parameters: &[&str],
        is_expected: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            let answer = self.get(path, parameters);
            if answer.as_ref().is_ok_and(&is_expected) {
                return Ok(());
            }
            let shown = parameters.join("&");
            ensure!(start.elapsed() < TIMEOUT, "{path}?{shown} never has it: {answer:?}");
            sleep(PAUSE);
        }
    }
}
