//! Reading of TLS at the library: plaintext of the sessions of all processes that use a file, by
//! probes at the library's functions.
//!
//! Opening requires root, or `CAP_BPF` and `CAP_PERFMON`; reading requires nothing. Dropping the
//! probes, or ending this process in any way, removes them from all processes.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use bpf::{
    BpfMap, Instruction, MapCells, RingBuffer, TracepointProgram, UprobeLink, UprobeProgram,
};
use rustix::time::{ClockId, clock_gettime};

use crate::go_functions;
use crate::machine_code::ProbeOffsets;
use crate::tls_event::{TlsClock, TlsEvent};
use crate::tls_library::{LeftOutLibraries, TlsLibraries, TlsLibraryFile, find_libraries};
use crate::tls_program::{
    self, CALL_KEY, CALL_VALUE, FUNCTIONS, GO_CALL_KEY, GO_FUNCTIONS, GO_SYMBOLS, SESSION_KEY,
    SESSION_VALUE, SocketOffsets, TlsMaps,
};
use crate::tls_target::{TlsProbeError, TlsTarget};

/// Memory between the programs and this process.
pub const TLS_RING_BYTES: usize = 16 << 20;
/// Threads inside of the library, and sessions, that are known to the programs.
const CALLS_MAX: u32 = 32_768;
const SESSIONS_MAX: u32 = 65_536;
const TRACEPOINT: &str = "tcp_rcv_space_adjust";
/// Helper function that programs for Go need (Linux 5.15).
const GO_HELPER: &str = "bpf_task_pt_regs";
/// Functions with one program, behind those of [`FUNCTIONS`].
const OTHER_FUNCTIONS: [&str; 4] = ["SSL_new", "SSL_free", "SSL_clear", "SSL_shutdown"];
/// Readings of both clocks, of which the one that took the least time counts.
const CLOCK_READINGS: usize = 3;

/// Running probes.
#[derive(Debug)]
pub struct TlsProbes {
    ring: RingBuffer,
    counts: MapCells,
    clock: TlsClock,
    damaged: u64,
    files: Vec<String>,
    left_out: LeftOutLibraries,
    _socket: TracepointProgram,
    _links: Vec<UprobeLink>,
}

/// Programs at the functions of a library.
struct LibraryPrograms(Vec<ProbeProgram>);

struct ProbeProgram {
    function: ProbedFunction,
    phase: AttachmentPhase,
    program: UprobeProgram,
}

/// Index of a function.
#[derive(Clone, Copy)]
enum ProbedFunction {
    Library(usize),
    /// Of [`GO_SYMBOLS`].
    Go(usize),
}

/// Order in which probes are attached. A call whose start was seen has a return that is seen, an
/// object that is given up is forgotten before its address is used again, and a session is taken
/// for new only if all of its calls are seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttachmentPhase {
    Returns,
    Ends,
    Entries,
    NewSessions,
}

impl AttachmentPhase {
    const ALL: [AttachmentPhase; 4] = [
        AttachmentPhase::Returns,
        AttachmentPhase::Ends,
        AttachmentPhase::Entries,
        AttachmentPhase::NewSessions,
    ];

    fn is_return(self) -> bool {
        matches!(self, AttachmentPhase::Returns | AttachmentPhase::NewSessions)
    }

    /// Places of its probes in a function of Go.
    fn offsets(self, of: &ProbeOffsets) -> &[u64] {
        match self {
            AttachmentPhase::Returns => &of.returns,
            _ => std::slice::from_ref(&of.entry),
        }
    }
}

impl TlsProbes {
    /// Attaches probes to the files of the targets.
    pub fn open(targets: &[TlsTarget]) -> Result<TlsProbes, TlsProbeError> {
        if !tls_program::IS_SUPPORTED {
            let cause = "the probes know the registers of x86-64 and aarch64 only";
            return Err(TlsProbeError::Bpf(cause.to_owned()));
        }
        let names: Vec<&str> =
            FUNCTIONS.iter().map(|of| of.symbol).chain(OTHER_FUNCTIONS).collect();
        let libraries = find_libraries(targets, &names, Path::new("/proc"))?;
        TlsProbes::attach(libraries).map_err(TlsProbeError::Bpf)
    }

    fn attach(libraries: TlsLibraries) -> Result<TlsProbes, String> {
        let types = bpf::kernel_types()?;
        let TlsLibraries { files, mut left_out } = match types.function(GO_HELPER) {
            Ok(_) => libraries,
            Err(_) => without_go(libraries)?,
        };
        let has_go = files.iter().any(|file| !file.go.is_empty());
        let calls = BpfMap::lru_hash("topdeck_calls", CALL_KEY, CALL_VALUE, CALLS_MAX)?;
        let goroutines = if has_go { CALLS_MAX } else { 1 };
        let goroutines = BpfMap::lru_hash("topdeck_go", GO_CALL_KEY, CALL_VALUE, goroutines)?;
        let sessions = BpfMap::lru_hash("topdeck_tls", SESSION_KEY, SESSION_VALUE, SESSIONS_MAX)?;
        let counts = BpfMap::array("topdeck_counts", 1)?;
        let ring = RingBuffer::create("topdeck_ring", TLS_RING_BYTES as u32)?;
        let maps = TlsMaps {
            calls: calls.descriptor(),
            goroutines: goroutines.descriptor(),
            sessions: sessions.descriptor(),
            counts: counts.descriptor(),
            ring: ring.descriptor(),
        };
        let programs = LibraryPrograms::load(has_go, &maps)?;
        let code = tls_program::socket_program(&SocketOffsets::find(&types)?, has_go, &maps);
        let tracepoint = types.tracepoint(TRACEPOINT)?;
        let (files, links) = programs.attach(files, &mut left_out)?;
        // Last: the call of a thread that reads a socket has a return that is seen.
        let socket = TracepointProgram::start("topdeck_socket", tracepoint, &code)?;
        Ok(TlsProbes {
            ring,
            counts: counts.cells(0..1)?,
            clock: TlsClock { offset: clock_offset(), epoch: 0 },
            damaged: 0,
            files,
            left_out,
            _socket: socket,
            _links: links,
        })
    }

    /// Files with probes.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Files that processes use, and that are not read.
    pub fn left_out(&self) -> &LeftOutLibraries {
        &self.left_out
    }

    /// Calls `each` with the events up to now. Returns their number. Does not wait: programs do
    /// not wake this process up, which would cost them more than the event.
    pub fn read(&mut self, each: &mut dyn FnMut(&TlsEvent<'_>)) -> usize {
        self.clock = self.clock.follow(clock_offset());
        let (clock, damaged) = (self.clock, &mut self.damaged);
        self.ring.read(&mut |record| match TlsEvent::decode(record, clock) {
            Some(event) => each(&event),
            None => *damaged += 1,
        })
    }

    /// Chunks that were lost because the ring buffer was full. Each is part of a gap.
    pub fn lost_events(&self) -> u64 {
        // Relaxed: the count publishes no other data.
        self.counts[0].load(Ordering::Relaxed) + self.damaged
    }
}

impl LibraryPrograms {
    fn load(has_go: bool, maps: &TlsMaps) -> Result<LibraryPrograms, String> {
        let mut programs = if has_go { LibraryPrograms::load_go(maps)? } else { Vec::new() };
        for (index, of) in FUNCTIONS.iter().enumerate() {
            let (function, number) = (ProbedFunction::Library(index), index as i32 + 1);
            let entry = tls_program::entry_program(number, of, maps);
            let program = UprobeProgram::load("topdeck_enter", &entry)?;
            programs.push(ProbeProgram { function, phase: AttachmentPhase::Entries, program });
            let code = tls_program::return_program(number, of, maps);
            let program = UprobeProgram::load("topdeck_return", &code)?;
            programs.push(ProbeProgram { function, phase: AttachmentPhase::Returns, program });
        }
        let others = [
            (tls_program::new_program(maps), AttachmentPhase::NewSessions),
            (tls_program::end_program(false, maps), AttachmentPhase::Ends),
            (tls_program::end_program(true, maps), AttachmentPhase::Ends),
            (tls_program::shutdown_program(maps), AttachmentPhase::Ends),
        ];
        for (index, (code, phase)) in others.into_iter().enumerate() {
            let program = UprobeProgram::load("topdeck_session", &code)?;
            let function = ProbedFunction::Library(FUNCTIONS.len() + index);
            programs.push(ProbeProgram { function, phase, program });
        }
        Ok(LibraryPrograms(programs))
    }

    fn load_go(maps: &TlsMaps) -> Result<Vec<ProbeProgram>, String> {
        let end = GO_SYMBOLS.len() - 1;
        let mut programs = Vec::new();
        for index in 0..end {
            let (number, of) = (index as i32 + 1, GO_FUNCTIONS.get(index));
            let (phase, entry) = match of {
                Some(of) => {
                    let entry = tls_program::go_entry_program(number, of, maps);
                    (AttachmentPhase::Entries, entry)
                }
                None => {
                    let entry = tls_program::go_handshake_program(number, maps);
                    (AttachmentPhase::NewSessions, entry)
                }
            };
            programs.push((index, phase, entry));
            let code = tls_program::go_return_program(number, of, maps);
            programs.push((index, AttachmentPhase::Returns, code));
        }
        programs.push((end, AttachmentPhase::Ends, tls_program::go_end_program(maps)));
        let load = |(index, phase, code): (usize, AttachmentPhase, Vec<Instruction>)| {
            let program = UprobeProgram::load("topdeck_go", &code)?;
            Ok(ProbeProgram { function: ProbedFunction::Go(index), phase, program })
        };
        programs.into_iter().map(load).collect()
    }

    /// Attaches the programs of the functions that the files have. Returns the files with probes.
    /// One that `auto` has found is left out if it refuses a probe.
    fn attach(
        &self,
        files: Vec<TlsLibraryFile>,
        left_out: &mut LeftOutLibraries,
    ) -> Result<(Vec<String>, Vec<UprobeLink>), String> {
        let mut attached: Vec<(TlsLibraryFile, Vec<UprobeLink>)> =
            files.into_iter().map(|file| (file, Vec::new())).collect();
        for phase in AttachmentPhase::ALL {
            let mut kept = Vec::new();
            for (file, mut links) in attached {
                match self.attach_phase(phase, &file, &mut links) {
                    Ok(()) => kept.push((file, links)),
                    Err(cause) if file.is_optional => left_out.add(&file.path, &cause),
                    Err(cause) => return Err(format!("{}: {cause}", file.path)),
                }
            }
            attached = kept;
        }
        if attached.is_empty() {
            return Err(match left_out.files.first() {
                Some(first) => format!("no library can be probed; {first}"),
                None => "no library can be probed".to_owned(),
            });
        }
        let (files, links): (Vec<_>, Vec<_>) = attached.into_iter().unzip();
        let paths = files.into_iter().map(|file| file.path).collect();
        Ok((paths, links.into_iter().flatten().collect()))
    }

    fn attach_phase(
        &self,
        phase: AttachmentPhase,
        file: &TlsLibraryFile,
        links: &mut Vec<UprobeLink>,
    ) -> Result<(), String> {
        let of = file.file.as_fd();
        for probe in self.0.iter().filter(|probe| probe.phase == phase) {
            match probe.function {
                ProbedFunction::Library(index) => {
                    if let Some(offset) = file.functions.get(index).copied().flatten() {
                        links.push(probe.program.attach(of, offset, phase.is_return())?);
                    }
                }
                // No uretprobe: the runtime of Go moves stacks.
                ProbedFunction::Go(index) => {
                    let Some(of_function) = file.go.get(index).and_then(Option::as_ref) else {
                        continue;
                    };
                    for offset in phase.offsets(of_function) {
                        links.push(probe.program.attach(of, *offset, false)?);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Leaves out files of Go.
fn without_go(libraries: TlsLibraries) -> Result<TlsLibraries, String> {
    let TlsLibraries { mut files, mut left_out } = libraries;
    let cause = go_functions::not_read("the kernel is older than Linux 5.15");
    for file in files.iter_mut().filter(|file| !file.go.is_empty()) {
        file.go = Vec::new();
        match file.is_optional {
            true => left_out.add(&file.path, &cause),
            false => return Err(format!("{}: {cause}", file.path)),
        }
    }
    files.retain(|file| !file.functions.is_empty());
    Ok(TlsLibraries { files, left_out })
}

/// Wall clock minus monotonic clock, in nanoseconds.
fn clock_offset() -> i64 {
    let read = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    };
    let readings = (0..CLOCK_READINGS).map(|_| {
        let before = read(ClockId::Monotonic);
        let wall = read(ClockId::Realtime);
        let after = read(ClockId::Monotonic);
        (after - before, wall - (before + (after - before) / 2))
    });
    readings.min_by_key(|(duration, _)| *duration).map_or(0, |(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// Libraries of two pages with these names, offsets of their functions, and whether `auto` has
    /// found them.
    fn attach(libraries: &[(&str, u64, bool)]) -> Result<TlsProbes, String> {
        let path = std::env::temp_dir().join(format!("topdeck-probes-{}", std::process::id()));
        let files = libraries.iter().map(|(name, offset, is_optional)| {
            fs::write(&path, [0x90; 0x2000]).unwrap();
            let file = File::open(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let functions = vec![Some(*offset); FUNCTIONS.len() + OTHER_FUNCTIONS.len()];
            let (path, go) = ((*name).to_owned(), Vec::new());
            TlsLibraryFile { file, path, functions, go, is_optional: *is_optional }
        });
        let files = files.collect();
        TlsProbes::attach(TlsLibraries { files, left_out: LeftOutLibraries::default() })
    }

    #[test]
    fn a_library_of_auto_that_refuses_probes_is_left_out() {
        match attach(&[("good", 0x1000, true)]) {
            Ok(_) => {}
            Err(reason) if reason.contains("verifier") => panic!("{reason}"),
            Err(reason) => return println!("skipped: {reason}"),
        }
        const BEHIND_THE_END: u64 = 1 << 40;
        let probes = attach(&[("bad", BEHIND_THE_END, true), ("good", 0x1000, true)]).unwrap();
        assert_eq!((probes.files(), probes.left_out().count), (&["good".to_owned()][..], 1));
        let text = &probes.left_out().files[0];
        assert!(text.starts_with("bad: cannot attach a probe: "), "{text}");
        for (name, is_optional) in [("named", false), ("found", true)] {
            let error = attach(&[(name, BEHIND_THE_END, is_optional)]).unwrap_err();
            assert!(error.contains(&format!("{name}: cannot attach a probe: ")), "{error}");
        }
    }
}
