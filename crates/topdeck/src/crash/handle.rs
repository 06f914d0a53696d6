//! The program that the kernel starts when a process crashes: `topdeck crash handle`.
//!
//! Its standard input is the core. The process is held until that is closed, at most
//! [`HOLD_MAX`]: a partial notice is written, then registers and stack memory are read and files
//! opened, each by a thread that nobody waits for longer. Then the core is closed, or handed over
//! to the former handler, while the stack is walked. A handler that dies itself leaves the partial
//! notice: the kernel starts no handler for it.
//!
//! It runs as root. Notices are written, and the shared memory of the process is read, by threads
//! with the file rights of the agent's user and of the user of the process. docs/crash.md lists
//! what the others open.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ::crash::{
    COMPLETION_MAX, CoreDump, CrashNotice, CrashOrigin, ElfImage, ModuleMap, RandomRead, Spool,
    StackMemory, parse_crash_text, signal_name,
};
use anyhow::{Context as _, Result, ensure};
use rustix::process::setpriority_process;
use serde_json::Value;

use super::core_pattern::FORMER;
use super::dying_process::{DyingProcess, ProcessCheck, read_jvm_text};
use super::file_rights::take_file_rights;
use super::former_handler::{self, KernelValues};
use super::handler_limits::{self, has_notice, take_place};
use super::recorded_input::RecordedInput;

/// Time from the start of the handler after which the process is let go, or handed over.
const HOLD_MAX: Duration = Duration::from_millis(150);
/// Time for the shared memory to be read.
const LAST_STATE_MAX: Duration = Duration::from_secs(5);
/// Value of `%d` for a process that its user may read (`SUID_DUMP_USER` of the kernel).
const READABLE: u32 = 1;
/// Lowest priority.
const LOWEST: i32 = 19;
/// Bytes of files with code that are read for one crash.
const CODE_BYTES_MAX: u64 = 512 << 20;

/// Handle a crash; started by the kernel
#[derive(clap::Args)]
pub(super) struct Options {
    /// File with the former pattern
    #[arg(long, default_value = FORMER)]
    former: PathBuf,

    /// Folder of the locks that limit handlers
    #[arg(long, default_value = handler_limits::FOLDER)]
    limits: PathBuf,

    /// Also look at a process whose core is not being written: for tests
    #[arg(long)]
    any_process: bool,

    /// Data directory, and what the kernel knows, each value behind its letter
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 2..)]
    arguments: Vec<OsString>,
}

/// What is taken of a process before it goes.
struct Capture {
    core: CoreDump,
    memory: StackMemory,
    files: BTreeMap<String, File>,
    jvm_text: Option<File>,
}

/// A capture, or why there is none.
type CaptureResult = Result<Box<Capture>, String>;

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let (began, now, monotonic_ns) = (Instant::now(), journal::wall_clock()(), clock::now());
    let (data_dir, values) = options.arguments.split_first().context("arguments are missing")?;
    let values = KernelValues::parse(values);
    let number = |letter| values.number::<u32>(letter).context("invalid arguments");
    let (pid, uid, gid) = (number(b'P')?, number(b'u')?, number(b'g')?);
    ensure!(pid > 0, "invalid arguments");
    let check = if options.any_process { ProcessCheck::None } else { ProcessCheck::IsDumping };
    let process = DyingProcess::open(pid, uid, check);
    let former = former_handler::command(&options.former, &values);
    let input = RecordedInput::new(former.is_some());
    let notice = first_notice(&values, &process, now);
    let summary = notice.clone();
    // A program with more rights than its user, or that the user may not read, is not looked into.
    let is_readable = values.number(b'd') == Some(READABLE);
    let is_counted_only = !has_notice(&options.limits, uid, monotonic_ns).unwrap_or(true);
    let place = match is_readable && !is_counted_only {
        true => take_place(&options.limits, uid).map_err(|error| error.to_string()),
        false => Err("the user of the process may not read it (setuid, for example)".to_owned()),
    };
    let place = place.and_then(|is_taken| match is_taken {
        true => Ok(()),
        false => Err("too many crashes at a time".to_owned()),
    });
    let process_user = place.is_ok().then_some((uid, gid));
    let (data_dir, is_counted) = (data_dir.into(), is_counted_only);
    let writer = NoticeWriter::start(notice, data_dir, now, process_user, is_counted, monotonic_ns);

    let left = || HOLD_MAX.saturating_sub(began.elapsed());
    let mut partial = None;
    let captured = place.and_then(|()| {
        partial = writer.partial.recv_timeout(left()).ok();
        match &partial {
            Some(_) => capture(process, input.clone(), now, left()),
            None => Err("the notice was not written in time".to_owned()),
        }
    });
    let _ = writer.captured.send(captured);
    let written = thread::spawn(move || writer.wait(partial));
    let handed_over = match former.and_then(former_handler::start) {
        Some(former) => input.feed(former),
        None => RecordedInput::close(),
    };
    let written = written.join().unwrap_or_else(|_| Err(io::Error::other("the handler panicked")));
    if let Err(error) = written {
        tell_kernel(&summary, &error);
        return Err(error).context("cannot write the notice");
    }
    handed_over.map(|()| ExitCode::SUCCESS)
}

fn first_notice(values: &KernelValues, process: &DyingProcess, now: i64) -> CrashNotice {
    const SECOND_NS: i64 = 1_000_000_000;
    // The kernel has seconds: the handler starts some milliseconds after the crash.
    let at = values.number(b't').map_or(now, |at: i64| at.saturating_mul(SECOND_NS));
    let time_ns = if (at..at.saturating_add(2 * SECOND_NS)).contains(&now) { now } else { at };
    let origin = process.origin(values.number(b'I').unwrap_or(0), &values.text(b'e'));
    let reason = signal_name(values.number(b's').unwrap_or(0));
    let mut notice = CrashNotice { time_ns, origin, reason, ..CrashNotice::default() };
    if !process.is_found() {
        notice.remarks.push("the process was gone, such as by SIGKILL".to_owned());
    }
    notice
}

/// Says in the log of the kernel what cannot be said elsewhere.
fn tell_kernel(notice: &CrashNotice, error: &io::Error) {
    if let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") {
        let CrashOrigin { program, pid, .. } = &notice.origin;
        let program: String = program.chars().filter(|c| !c.is_control()).collect();
        let reason = &notice.reason;
        let _ =
            writeln!(log, "<3>topdeck: {program} ({pid}) crashed, {reason}: no notice: {error}");
    }
}

/// Takes of a process what is there in time. A read of its memory, or of a file system of a user,
/// may last as long as that user likes.
fn capture(
    process: DyingProcess,
    input: RecordedInput,
    now: i64,
    time_max: Duration,
) -> CaptureResult {
    let (to, from) = channel();
    // Not joined: the process ends without it.
    thread::spawn(move || to.send(read_process(&process, input, now)));
    from.recv_timeout(time_max).unwrap_or_else(|_| Err("the process was not read in time".into()))
}

fn read_process(process: &DyingProcess, input: RecordedInput, now: i64) -> CaptureResult {
    let has_former = input.is_kept();
    let mut input = BufReader::new(input);
    let core = CoreDump::read(&mut input).map_err(|error| error.to_string())?;
    // Without access to its memory, the core is read up to the last stack. That may be much:
    // nothing else then keeps it.
    let memory = match process.memory() {
        Some(mut memory) => StackMemory::read(&core, &mut memory),
        None if has_former => StackMemory::default(),
        None => StackMemory::read_stream(&core, &mut input),
    };
    let (files, jvm_text) = (process.open_files(&core), process.jvm_text(now));
    Ok(Box::new(Capture { core, memory, files, jvm_text }))
}

/// The thread that writes the notice, and its channels.
struct NoticeWriter {
    /// The partial notice, once it is written.
    partial: Receiver<File>,
    captured: Sender<CaptureResult>,
    written: Receiver<io::Result<()>>,
}

impl NoticeWriter {
    /// Starts it, with the file rights of the owner of the data directory. With the user and group
    /// of the process, its shared memory is read, too.
    fn start(
        mut notice: CrashNotice,
        data_dir: PathBuf,
        now: i64,
        process_user: Option<(u32, u32)>,
        is_counted_only: bool,
        monotonic_ns: u64,
    ) -> NoticeWriter {
        let (to_main, partial) = channel();
        let (captured, from_main) = channel::<CaptureResult>();
        let (ended, written) = channel();
        let (pid, name) = (notice.origin.pid, format!("{now:020}-{}", notice.origin.pid));
        let (wanted, is_wanted) = channel();
        let (state_read, last_state) = channel();
        // Not joined: both end with the process.
        thread::spawn(move || {
            // A file system of the user may not answer, so it is read when the process is gone.
            if let Ok(user) = is_wanted.recv()
                && take_file_rights(user).is_ok()
            {
                let _ = state_read.send(inspect::last_state::read(pid, user.0, monotonic_ns));
            }
        });
        let write = move || -> io::Result<()> {
            // The file system of the data directory may not answer.
            let spool = Spool::new(&data_dir);
            take_file_rights(spool.owner()?)?;
            if is_counted_only {
                return spool.count_dropped();
            }
            // The first notice has no stack: a signature of its own. The agent does not send it
            // while this process has the file.
            let Some(held) = spool.begin(&name, &notice.to_bytes())? else { return Ok(()) };
            let began = Instant::now();
            let _ = to_main.send(held.try_clone()?);
            let captured = from_main.recv().unwrap_or_else(|_| Err("the handler ended".into()));
            // The process is let go: nothing is urgent any more.
            let _ = setpriority_process(None, LOWEST);
            if let Some(user) = process_user {
                let _ = wanted.send(user);
            }
            drop(wanted);
            match captured {
                Ok(capture) => add_capture(&mut notice, *capture, &spool, &name),
                Err(reason) => notice.remarks.push(format!("no stack: {reason}")),
            }
            notice.last_state =
                last_state.recv_timeout(LAST_STATE_MAX).ok().flatten().unwrap_or(Value::Null);
            // The agent sends the partial one.
            if began.elapsed() > COMPLETION_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            spool.finish(&name, &notice.to_bytes())?;
            drop(held);
            Ok(())
        };
        thread::spawn(move || ended.send(write()));
        NoticeWriter { partial, captured, written }
    }

    /// Waits for the notice. After the time limit the agent may send the partial one, even if the
    /// thread that writes does not go on: it holds the file in this process, which then stays.
    fn wait(&self, partial: Option<File>) -> io::Result<()> {
        let written = match self.written.recv_timeout(COMPLETION_MAX) {
            Ok(written) => written,
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the handler panicked")),
        };
        if written.is_err()
            && let Some(partial) = partial.or_else(|| self.partial.try_recv().ok())
        {
            let _ = partial.unlock();
        }
        written
    }
}

/// A file with code: of all of them, a limited number of bytes is read.
struct LimitedFile {
    file: File,
    left: Rc<Cell<u64>>,
}

impl RandomRead for LimitedFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let left = self.left.get().checked_sub(bytes.len() as u64);
        self.left.set(left.ok_or(io::ErrorKind::FileTooLarge)?);
        self.file.read_exact_at(bytes, offset)
    }
}

/// Walks the stack.
fn add_capture(notice: &mut CrashNotice, capture: Capture, spool: &Spool, name: &str) {
    let Capture { core, memory, mut files, jvm_text } = capture;
    let left = Rc::new(Cell::new(CODE_BYTES_MAX));
    let open = |mapping: &::crash::FileMapping| {
        let file = files.remove(&mapping.path)?;
        ElfImage::open(Box::new(LimitedFile { file, left: Rc::clone(&left) })).ok()
    };
    let mut modules = ModuleMap::new(core.mappings.clone(), open);
    let snapshot = notice.add_core(&core, &memory, &mut modules);
    notice.origin.build_id = modules.build_id(&notice.origin.executable);
    if let Err(error) = spool.keep_snapshot(name, snapshot.to_string().as_bytes()) {
        notice.remarks.push(format!("no snapshot: {error}"));
    }
    // The frames of Java are in the error file of the JVM only.
    if let Some(of_jvm) = jvm_text.and_then(|file| parse_crash_text(&read_jvm_text(file))) {
        notice.reason = of_jvm.reason;
        notice.frames = of_jvm.frames;
        notice.origin.thread = of_jvm.origin.thread;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread that writes may wait for ever, and then the process stays.
    #[test]
    fn a_notice_that_is_not_completed_is_released() {
        let path = std::env::temp_dir().join(format!("topdeck-release-{}", std::process::id()));
        for is_known in [true, false] {
            let held = File::create(&path).unwrap();
            held.lock().unwrap();
            let (to_main, partial) = channel();
            let mut known = held.try_clone().ok();
            // It was written too late to be waited for.
            if !is_known {
                to_main.send(known.take().unwrap()).unwrap();
            }
            let writer = NoticeWriter { partial, captured: channel().0, written: channel().1 };
            let other = File::open(&path).unwrap();
            assert!(other.try_lock().is_err());
            assert!(writer.wait(known).is_err() && other.try_lock().is_ok());
            drop(held);
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn files_with_code_are_read_up_to_a_limit() {
        let left = Rc::new(Cell::new(100));
        let file = || File::open("/proc/self/exe").unwrap();
        let files = [(); 2].map(|()| LimitedFile { file: file(), left: Rc::clone(&left) });
        let read = |index: usize, count: usize| files[index].read_exact_at(&mut vec![0; count], 0);
        assert!(read(0, 60).is_ok() && read(1, 60).is_err() && read(1, 40).is_ok());
        assert!(read(0, 1).is_err());
    }
}
