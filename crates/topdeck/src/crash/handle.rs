//! The program that the kernel starts when a process crashes: `topdeck crash handle`.
//!
//! Its standard input is the core. The process is held until that is read or closed, so the order
//! is: a partial notice; registers, stack memory and open files; then standard input is closed, or
//! read to its end for the former handler, while the stack is walked. A handler that dies itself
//! leaves the partial notice: the kernel starts no handler for it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, StdinLock, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use ::crash::{
    CoreDump, CrashNotice, CrashOrigin, ElfImage, ModuleMap, Spool, StackMemory, parse_crash_text,
    signal_name,
};
use anyhow::{Context as _, Result, ensure};

use super::dying_process::{DyingProcess, read_jvm_text};
use super::trusted_file::read_trusted;

/// Handle a crash; started by the kernel
#[derive(clap::Args)]
pub(super) struct Options {
    /// Data directory, file of the former pattern, and what the kernel knows
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 12)]
    arguments: Vec<OsString>,
}

/// What the kernel says: `core_pattern::SPECIFIERS`.
struct KernelArguments {
    /// `%P`: PID on the host.
    pid: u32,
    /// `%s`
    signal: i32,
    /// `%u`
    uid: u32,
    /// `%t`: seconds since the Unix epoch.
    time: i64,
    /// `%I`: thread that crashed, on the host.
    thread: u32,
    /// `%e`: name of the thread.
    command: String,
    /// By letter, for the former handler.
    texts: [(char, String); 10],
}

impl KernelArguments {
    fn parse(arguments: &[OsString]) -> Option<KernelArguments> {
        let text = |at: usize| arguments.get(at).map(|text| text.to_string_lossy().into_owned());
        let letters = ['P', 's', 'u', 'g', 't', 'c', 'I', 'd', 'h', 'e'];
        let mut texts = letters.map(|letter| (letter, String::new()));
        for (at, own) in texts.iter_mut().enumerate() {
            own.1 = text(at)?;
        }
        Some(KernelArguments {
            pid: texts[0].1.parse().ok()?,
            signal: texts[1].1.parse().ok()?,
            uid: texts[2].1.parse().ok()?,
            time: texts[4].1.parse().ok()?,
            thread: texts[6].1.parse().ok()?,
            command: texts[9].1.clone(),
            texts,
        })
    }

    /// An argument of the former pattern: `%P` and the like are replaced.
    fn expand(&self, word: &str) -> String {
        let (mut text, mut letters) = (String::new(), word.chars());
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            // PIDs of the namespace of the process are those of the host.
            let letter = match letters.next() {
                Some('p') => 'P',
                Some('i') => 'I',
                Some('f' | 'E') => 'e',
                Some(letter) => letter,
                None => break,
            };
            match self.texts.iter().find(|own| own.0 == letter) {
                Some((_, own)) => text.push_str(own),
                None if letter == '%' => text.push('%'),
                None => {}
            }
        }
        text
    }
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let (arguments, now) = (&options.arguments, journal::wall_clock()());
    let monotonic_ns = clock::now();
    ensure!(arguments.len() == 12, "expected 12 arguments; the kernel starts this command");
    let kernel = KernelArguments::parse(&arguments[2..]).context("invalid arguments")?;
    let spool = Spool::new(Path::new(&arguments[0]));
    let process = DyingProcess::new(kernel.pid);
    let mut origin = process.origin(kernel.thread, &kernel.command);
    origin.uid = kernel.uid;
    let mut notice = first_notice(&kernel, origin, now);
    let name = format!("{now:020}-{}", kernel.pid);
    // The first notice has no stack: a signature of its own.
    // The agent does not send it while this process has the file.
    let partial = match spool.begin(&name, notice.to_json().to_string().as_bytes()) {
        Ok(Some(partial)) => Some(partial),
        Ok(None) => return hand_over(&kernel, &arguments[1], Vec::new(), io::stdin().lock()),
        Err(error) => {
            tell_kernel(&notice, &error);
            None
        }
    };
    let slot = spool.handler_slot();
    if slot.is_none() {
        notice.remarks.push("no stack: too many crashes at a time".to_owned());
    }
    let is_recorded = former_pattern(&arguments[1]).is_some();
    let mut input = RecordedInput { input: io::stdin().lock(), is_recorded, read: Vec::new() };
    let core = slot.as_ref().map(|_| CoreDump::read(&mut input));
    let captured = core.and_then(|core| match core {
        Ok(core) => Some(Capture::new(core, &process, &mut input)),
        Err(error) => {
            notice.remarks.push(format!("no stack: {error}"));
            None
        }
    });
    let jvm_text = process.jvm_text();
    let RecordedInput { input, read, .. } = input;
    std::thread::scope(|threads| -> Result<ExitCode> {
        let former = match former_handler(&kernel, &arguments[1]) {
            // The lock of standard input stays in this thread: another one completes the notice.
            Some(former) => Some(former),
            None => {
                release(&input)?;
                None
            }
        };
        let completing =
            threads.spawn(|| complete(notice, captured, jvm_text, &spool, &name, monotonic_ns));
        let handed_over = former.map_or(Ok(()), |former| feed(former, &read, input));
        let completed = completing.join();
        drop((slot, partial));
        handed_over?;
        completed.map_err(|_| anyhow::anyhow!("the handler panicked"))??;
        Ok(ExitCode::SUCCESS)
    })
}

fn first_notice(kernel: &KernelArguments, origin: CrashOrigin, now: i64) -> CrashNotice {
    const SECOND_NS: i64 = 1_000_000_000;
    // The kernel has seconds: the handler starts some milliseconds after the crash.
    let at = kernel.time.saturating_mul(SECOND_NS);
    let time_ns = if (at..at.saturating_add(2 * SECOND_NS)).contains(&now) { now } else { at };
    CrashNotice { time_ns, origin, reason: signal_name(kernel.signal), ..CrashNotice::default() }
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

/// Standard input, and what was read of it, for a former handler.
struct RecordedInput {
    input: StdinLock<'static>,
    is_recorded: bool,
    read: Vec<u8>,
}

impl Read for RecordedInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(bytes)?;
        if self.is_recorded {
            self.read.extend_from_slice(&bytes[..count]);
        }
        Ok(count)
    }
}

/// What is taken of a process before it goes.
struct Capture {
    core: CoreDump,
    memory: StackMemory,
    files: std::collections::BTreeMap<String, File>,
}

impl Capture {
    fn new(core: CoreDump, process: &DyingProcess, input: &mut RecordedInput) -> Capture {
        // Without access to its memory, the core is read up to the last stack. That may be much:
        // nothing else then keeps it.
        let memory = match process.memory() {
            Some(mut memory) => StackMemory::read(&core, &mut memory),
            None if input.is_recorded => StackMemory::default(),
            None => StackMemory::read_stream(&core, input),
        };
        let files = process.open_files(&core);
        Capture { core, memory, files }
    }
}

/// Closes standard input: the kernel stops writing the core, and the process ends.
fn release(_input: &StdinLock<'static>) -> Result<()> {
    let null = File::open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&null).context("cannot close standard input")
}

/// Walks the stack, and replaces the partial notice.
fn complete(
    mut notice: CrashNotice,
    captured: Option<Capture>,
    jvm_text: Option<File>,
    spool: &Spool,
    name: &str,
    monotonic_ns: u64,
) -> Result<()> {
    if let Some(Capture { core, memory, mut files }) = captured {
        let open = |mapping: &::crash::FileMapping| {
            ElfImage::open(Box::new(files.remove(&mapping.path)?)).ok()
        };
        let mut modules = ModuleMap::new(core.mappings.clone(), open);
        let snapshot = notice.add_core(&core, &memory, &mut modules);
        notice.origin.build_id = modules.build_id(&notice.origin.executable);
        if let Err(error) = spool.keep_snapshot(name, snapshot.to_string().as_bytes()) {
            notice.remarks.push(format!("no snapshot: {error}"));
        }
    }
    // The frames of Java are in the error file of the JVM only.
    if let Some(of_jvm) = jvm_text.and_then(|file| parse_crash_text(&read_jvm_text(file))) {
        notice.reason = of_jvm.reason;
        notice.frames = of_jvm.frames;
        notice.origin.thread = of_jvm.origin.thread;
    }
    notice.last_state =
        inspect::last_state::read(notice.origin.pid, monotonic_ns).unwrap_or_default();
    spool
        .finish(name, notice.to_json().to_string().as_bytes())
        .inspect_err(|error| tell_kernel(&notice, error))
        .context("cannot write the notice")
}

/// Command line of the handler before topdeck was installed; `None` if there was none, or if others
/// than root can change what is read.
fn former_pattern(path: &OsString) -> Option<String> {
    let pattern = read_trusted(Path::new(path)).ok()?;
    // As the kernel, no path is searched.
    pattern.strip_prefix('|').filter(|command| command.starts_with('/')).map(str::to_owned)
}

/// That handler, started.
fn former_handler(kernel: &KernelArguments, path: &OsString) -> Option<std::process::Child> {
    let pattern = former_pattern(path)?;
    let mut words = pattern.split_ascii_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words.map(|word| kernel.expand(word)));
    command.stdin(Stdio::piped()).spawn().ok()
}

/// Writes the core to the former handler, and waits for it.
fn feed(mut former: std::process::Child, read: &[u8], mut input: StdinLock<'_>) -> Result<()> {
    let mut to = former.stdin.take().context("the former handler has no input")?;
    // It may have read enough.
    let _ = to.write_all(read).and_then(|()| io::copy(&mut input, &mut to));
    drop(to);
    former.wait().context("cannot wait for the former handler")?;
    Ok(())
}

fn hand_over(
    kernel: &KernelArguments,
    path: &OsString,
    read: Vec<u8>,
    input: StdinLock<'_>,
) -> Result<ExitCode> {
    if let Some(former) = former_handler(kernel, path) {
        feed(former, &read, input)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_former_handler_are_expanded() {
        let texts = ["7", "11", "0", "0", "1767600000", "0", "8", "1", "web-1", "my prog"];
        let kernel = KernelArguments::parse(&texts.map(OsString::from)).unwrap();
        assert_eq!((kernel.pid, kernel.signal, kernel.thread), (7, 11, 8));
        assert_eq!(kernel.expand("%P-%p:%s"), "7-7:11");
        assert_eq!(kernel.expand("%e"), "my prog");
        assert_eq!(kernel.expand("100%%%Z%"), "100%");
        assert!(KernelArguments::parse(&[OsString::from("7")]).is_none());
    }
}
