//! Import of a large file: memory at both ends, and nothing lost or counted twice.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use synthetic::{Dataset, DatasetKind, DatasetScale};

use super::growth::check_sum;
use super::path_run::{PathPeer, PathRun, megabytes, progress};
use super::path_table::{PathLimit, PathMeasure};
use super::server::{PathServer, PathServerKind};
use crate::clock::wall_time;
use crate::report::number;
use crate::store::http::percent_encode;
use crate::store::server::PeerServer;

/// Size of the file in bytes.
const SIZE: f64 = 10e9;
/// Minutes of B that repeat in it, each time as much later.
const MINUTES: usize = 240;
const MINUTE_NS: i64 = 60_000_000_000;
const MEMORY_MAX: PathLimit = PathLimit::AtMost(256.0);
const TIMES: [&str; 2] = ["\"start_ns\":", "\"end_ns\":"];

/// Figures of an import.
struct ImportFigures {
    bytes: u64,
    histograms: u64,
    wall: Duration,
    cpu: Duration,
    client_cpu: Duration,
    server_memory: u64,
    client_memory: u64,
}

/// Writes a file of at least `size` bytes, whose samples end where B begins to be in the past.
/// Returns the number of its repetitions.
fn write_file(program: &Path, path: &Path, size: u64) -> Result<u64> {
    let minutes = MINUTES.to_string();
    let mut generate = Command::new(program);
    generate.args(["gen", "http", "--minutes", &minutes]).stderr(Stdio::null());
    let output = generate.output().context("topdeck gen")?;
    ensure!(output.status.success(), "topdeck gen: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let times = size.div_ceil(text.len() as u64);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for time in 0..times {
        let earlier = (times - time) as i64 * MINUTES as i64 * MINUTE_NS;
        for line in text.lines() {
            let mut rest = line;
            for name in TIMES {
                let (before, from) = rest.split_once(name).context("a line without times")?;
                let digits = from.bytes().take_while(u8::is_ascii_digit).count();
                let at: i64 = from[..digits].parse()?;
                write!(out, "{before}{name}{}", at - earlier)?;
                rest = &from[digits..];
            }
            writeln!(out, "{rest}")?;
        }
    }
    out.into_inner()?.sync_all()?;
    Ok(times)
}

/// Checks the number of all values, which is right only if each sample is there once.
fn check(server: &PathServer, dataset: &Dataset, times: u64) -> Result<()> {
    let end = dataset.start_ns(0) / 1_000_000_000;
    let range = times * MINUTES as u64;
    let text = format!("sum(histogram_count(exact_increase(http_request_duration[{range}m])))");
    let path = format!("/api/v1/query?query={}&time={end}", percent_encode(&text));
    let expected = (dataset.total() * times) as f64;
    check_sum(&server.connect()?.get(&path)?.into_body()?, expected).context("the imported values")
}

fn import(peer: &PathPeer, dir: &Path, size: u64) -> Result<ImportFigures> {
    fs::create_dir_all(dir)?;
    let file = dir.join("import.frames");
    progress(&format!("import: writing {} …", file.display()));
    let times = write_file(&peer.program, &file, size)?;
    let scale = DatasetScale { minutes: MINUTES, ..DatasetScale::full(DatasetKind::Http) };
    let dataset = Dataset::new(DatasetKind::Http, scale);
    let mut server = PathServer::start(peer.kind, &peer.program, dir)?;
    server.process.wait_until_idle()?;
    let (cpu, wall) = (server.process.cpu_clock()?, wall_time());
    let mut command = Command::new(&peer.program);
    command.arg("import").arg(&file).arg("--server");
    command.arg(format!("http://127.0.0.1:{}", server.port));
    command.env("XDG_STATE_HOME", dir);
    let log = dir.join("import.log");
    let mut client = PeerServer::start(&mut command, &log)?;
    let (mut client_memory, mut client_cpu) = (0, Duration::ZERO);
    let mut next = Duration::ZERO;
    while !client.has_ended().with_context(|| fs::read_to_string(&log).unwrap_or_default())? {
        // The last readings may fail: the process has just ended.
        client_memory = client.memory_bytes().unwrap_or(client_memory);
        client_cpu = client.cpu_clock().unwrap_or(client_cpu);
        let passed = wall_time() - wall;
        if passed > next {
            let memory = [server.process.memory_bytes()?, client_memory];
            let [server_mb, client_mb] = memory.map(|bytes| number(megabytes(bytes)));
            let seconds = passed.as_secs();
            progress(&format!("import, {seconds} s: server {server_mb} MB, client {client_mb} MB"));
            next += Duration::from_secs(30);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let wall = wall_time() - wall;
    server.wait_until_settled()?;
    let cpu = server.process.cpu_clock()? - cpu;
    let server_memory = server.process.memory_bytes()?;
    check(&server, &dataset, times)?;
    server.stop()?;
    let bytes = fs::metadata(&file)?.len();
    let histograms = (scale.series * MINUTES) as u64 * times;
    Ok(ImportFigures { bytes, histograms, wall, cpu, client_cpu, server_memory, client_memory })
}

impl PathRun {
    /// Import of a large file into topdeck; peers have no such command.
    pub(crate) fn run_import(&mut self) -> Result<()> {
        let is_own = |peer: &&PathPeer| peer.kind == PathServerKind::Topdeck;
        let Some(peer) = self.peers.iter().find(is_own).cloned() else { return Ok(()) };
        let dir = self.empty_dir(&peer, "import")?;
        match import(&peer, &dir, (SIZE * self.scale) as u64) {
            Ok(figures) => self.note_import(peer.column, &figures),
            Err(error) => self.fail(&peer, "import", "a large file", &error),
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        Ok(())
    }

    fn note_import(&mut self, column: usize, figures: &ImportFigures) {
        let size = number(figures.bytes as f64 / 1e9);
        let what = format!("import of {size} GB, {} histograms", figures.histograms);
        let rows = [
            ("peak RSS of the server, MB", Some(MEMORY_MAX), megabytes(figures.server_memory)),
            ("peak RSS of the client, MB", Some(MEMORY_MAX), megabytes(figures.client_memory)),
            ("wall, s", None, figures.wall.as_secs_f64()),
            ("CPU of the server, settled, s", None, figures.cpu.as_secs_f64()),
            ("CPU of the client, s", None, figures.client_cpu.as_secs_f64()),
        ];
        for (measure, limit, value) in rows {
            progress(&format!("{measure}: {}", number(value)));
            self.table.add(PathMeasure::new(what.as_str(), measure).with(limit), column, value);
        }
    }
}
