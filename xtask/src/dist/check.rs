//! Smoke test of a built program.
//!
//! It sends a measurement to a server, queries it, kills the server (SIGKILL), and queries again
//! after a restart. This covers listener, journal, store, query engine and page. `topdeck audit`
//! reaches the server as `localhost`, which /etc/hosts resolves.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::target::ProgramStarter;
use crate::command_line::root;

/// Timeout of a response; qemu on a busy machine is slow.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// A built `topdeck`, and how to start it on this machine.
pub(crate) struct DistProgram<'a> {
    pub(crate) path: &'a Path,
    pub(crate) starter: ProgramStarter,
}

impl DistProgram<'_> {
    pub(crate) fn command(&self) -> Command {
        let mut command = match self.starter {
            ProgramStarter::Directly => Command::new(self.path),
            ProgramStarter::Emulator(emulator) => {
                let mut command = Command::new(emulator);
                command.arg(self.path);
                command
            }
        };
        command.current_dir(root()).stdin(Stdio::null());
        command
    }

    /// Runs the program and returns its standard output.
    pub(crate) fn stdout(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command().args(arguments).output();
        let output = output.with_context(|| format!("cannot start {}", self.path.display()))?;
        let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
        let words = arguments.join(" ");
        ensure!(output.status.success(), "`topdeck {words}` exited with {}: {err}", output.status);
        String::from_utf8(out).with_context(|| format!("`topdeck {words}` wrote invalid UTF-8"))
    }
}

/// Runs the smoke test. `dir` holds the files of the server; it is created, and removed on
/// success. A released binary `has_page`.
pub(crate) fn check(program: &DistProgram, dir: &Path, has_page: bool) -> Result<()> {
    let version = program.stdout(&["--version"])?;
    ensure!(
        version.starts_with("topdeck ") && version.contains("\nweb page: included"),
        "`topdeck --version` wrote {version:?}"
    );
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(dir)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    // Only /etc/hosts may resolve the name; it need not contain ::1.
    let settings = format!(
        "[http]\nlisten = [\"127.0.0.1:{port}\"]\n[host]\nprocfs = false\nblock_io = \
         false\nrun_queue = false\nprocesses = false\nhiccup = false\nshm_metrics = \
         false\ncgroups = false\n"
    );
    fs::write(dir.join("topdeck.toml"), settings)?;
    let mut server = DistServer::start(program, dir, port)?;
    server.request("POST", "/v1/record?metric=took&unit=ms", "1730\n12\n")?;
    expect_count(&server)?;
    if has_page {
        expect_page(&server)?;
    }
    let by_name = format!("http://localhost:{port}");
    program
        .stdout(&["audit", "--server", &by_name])
        .context("cannot query the server by a name of /etc/hosts")?;
    server.kill()?;
    let server = DistServer::start(program, dir, port).context("after SIGKILL")?;
    expect_count(&server).context("after SIGKILL")?;
    drop(server);
    fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}

/// The store reads the journal shortly after the acknowledgement.
fn expect_count(server: &DistServer) -> Result<()> {
    let began = Instant::now();
    loop {
        let query = "/api/v1/query?query=exact_increase(took%5B1h%5D)";
        let answers = [
            server.request("GET", "/v1/histogram?selector=took&above=1.5s", ""),
            server.request("GET", query, ""),
        ];
        let has =
            |answer: &Result<String>, text: &str| answer.as_ref().is_ok_and(|it| it.contains(text));
        if has(&answers[0], "\"count\":2") && has(&answers[1], "\"status\":\"success\"") {
            return Ok(());
        }
        ensure!(began.elapsed() < TIMEOUT, "sent 2 values, got {answers:?}");
        sleep(PAUSE);
    }
}

/// The embedded page equals the built one byte for byte.
fn expect_page(server: &DistServer) -> Result<()> {
    let page = server.request("GET", "/index.html", "")?;
    let built = fs::read_to_string(root().join("web/dist/index.html"));
    ensure!(built.is_ok_and(|built| built == page), "the embedded page differs from web/dist");
    Ok(())
}

struct DistServer {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl DistServer {
    fn start(program: &DistProgram, dir: &Path, port: u16) -> Result<DistServer> {
        let log = dir.join("log");
        let file = fs::File::options().create(true).append(true).open(&log)?;
        let mut command = program.command();
        command.arg("serve").arg("--config").arg(dir.join("topdeck.toml"));
        command.arg("--data-dir").arg(dir.join("data"));
        command.current_dir(dir).stdout(file.try_clone()?).stderr(file);
        let child =
            command.spawn().with_context(|| format!("cannot start {}", program.path.display()))?;
        let mut server = DistServer { child, port, log };
        let began = Instant::now();
        while server.request("GET", "/health", "").is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("`topdeck serve` exited with {status}: {}", server.log());
            }
            ensure!(
                began.elapsed() < TIMEOUT,
                "`topdeck serve` does not respond: {}",
                server.log()
            );
            sleep(PAUSE);
        }
        Ok(server)
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the body of a successful response. HTTP/1.0: the body ends with the connection.
    fn request(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").context("incomplete response head")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        ensure!(
            status.starts_with('2'),
            "{method} {path}: {}: {body}",
            head.lines().next().unwrap_or_default()
        );
        Ok(body.to_owned())
    }

    /// `Child::kill` sends SIGKILL.
    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for DistServer {
    fn drop(&mut self) {
        // Fails if the process was killed already.
        let _ = self.kill();
    }
}
