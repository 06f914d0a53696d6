//! A program that records metrics into shared memory on request, and a directory for its files.
//!
//! The program is this binary again, with its role in [`ROLE`] and a name of its own, because
//! several tests and collectors run at once: the series of a test are those of its programs' names.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory;

/// Program name: other programs may run on this host.
pub(crate) const NAME: &str = "host_it_programs";
const ROLE: &str = "TOPDECK_HOST_IT_ROLE";
/// Printed by a program when it records, followed by the start time of its stuck operation.
pub(crate) const READY: &str = "ready ";

/// A program that records on request.
pub(crate) struct RecordingProgram {
    child: Child,
    commands: ChildStdin,
    responses: BufReader<std::process::ChildStdout>,
    /// Start time of its stuck operation.
    pub(crate) stuck_since_ns: u64,
}

impl RecordingProgram {
    pub(crate) fn start(memory: &MemoryDir) -> RecordingProgram {
        RecordingProgram::start_as("program", memory)
    }

    pub(crate) fn start_as(role: &str, memory: &MemoryDir) -> RecordingProgram {
        let mut child = Command::new(&memory.program)
            .args(["--exact", "recording_program::program", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(shm::ENV_VARIABLE, &memory.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let stuck_since_ns = loop {
            let mut line = String::new();
            assert!(answers.read_line(&mut line).unwrap() > 0, "the program did not start");
            if let Some(number) = line.strip_prefix(READY) {
                break number.trim().parse().unwrap();
            }
        };
        RecordingProgram { child, commands: orders, responses: answers, stuck_since_ns }
    }

    /// Records that many values before it returns.
    pub(crate) fn record(&mut self, count: u8) {
        self.commands.write_all(&[count]).unwrap();
        let mut done = [0];
        self.responses.read_exact(&mut done).unwrap();
    }

    /// Kills the program.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets the program exit regularly.
    pub(crate) fn end(self) {
        let RecordingProgram { mut child, commands: orders, .. } = self;
        drop(orders);
        child.wait().unwrap();
    }
}

/// The program.
#[test]
#[ignore = "a program that other tests start"]
fn program() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let own = || shm::MetricBuilder::new(format!("topdeck_{NAME}_total")).counter().unwrap();
    let _own = (role == "topdeck").then(own);
    let counter = || shm::MetricBuilder::new(format!("{NAME}_total"));
    if let Some(number) = role.to_str().and_then(|role| role.strip_prefix("wide ")) {
        // Two of these programs do not fit in one batch.
        for at in 0..40 {
            let wide = shm::MetricBuilder::new(format!("{NAME}_wide_total"));
            let wide = wide.label("at", at.to_string()).label("number", number);
            wide.label("long", "x".repeat(1_000)).counter().unwrap().add(1);
        }
    }
    let counted = counter().label("kind", "a").label("host", "theirs").counter().unwrap();
    let took = shm::MetricBuilder::new(format!("{NAME}_took")).unit("ns").histogram().unwrap();
    let text = shm::MetricBuilder::new(format!("{NAME}_text")).text().unwrap();
    let work = shm::MetricBuilder::new(format!("{NAME}_work")).in_flight(&["device"]).unwrap();
    let device = shm::Tag::new("sda").unwrap();
    text.set("first");
    // More than fits in one batch.
    for number in 0..300 {
        let many =
            shm::MetricBuilder::new(format!("{NAME}_many")).label("number", number.to_string());
        many.label("long", "x".repeat(1_000)).gauge().unwrap().set(number);
    }
    // An operation that never ends, with a start time long ago: at half of the machine's uptime.
    let stuck_since_ns = clock::now() / 2;
    let _stuck = work.begin_at(stuck_since_ns, 1, &[device]);
    println!("\n{READY}{stuck_since_ns}");
    let mut orders = std::io::stdin().lock().bytes();
    while let Some(Ok(count)) = orders.next() {
        for value in 0..u64::from(count) {
            counted.add(1);
            took.record(value);
            drop(work.begin(value, &[device]));
        }
        std::io::stdout().write_all(b".").unwrap();
        std::io::stdout().flush().unwrap();
    }
}

/// Directory for the files of a test's programs, and their executable. In the default directory,
/// files of other programs influence how long a file is kept.
pub(crate) struct MemoryDir {
    pub(crate) path: PathBuf,
    pub(crate) program: PathBuf,
}

impl MemoryDir {
    /// `None`, with a message, if there is no memory to record into.
    pub(crate) fn new() -> Option<MemoryDir> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !memory::has_space() {
            return None;
        }
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("topdeck-host-it-{}-{number}", std::process::id());
            let path = Path::new("/dev/shm").join(&name);
            // Independent of the umask: a directory writable by others is refused.
            match fs::DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => {
                    let own = std::env::current_exe().unwrap();
                    let program = own.with_file_name(name);
                    let _ = fs::remove_file(&program);
                    // A user may not link to a file of another one.
                    let linked = fs::hard_link(&own, &program);
                    linked.or_else(|_| fs::copy(&own, &program).map(drop)).unwrap();
                    return Some(MemoryDir { path, program });
                }
                // Left by another process with the same PID.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    println!("skipped: there is no tmpfs at /dev/shm: {error}");
                    return None;
                }
            }
        }
    }

    /// Name of the test's programs.
    pub(crate) fn name(&self) -> &str {
        self.program.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for MemoryDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_file(&self.program);
    }
}
