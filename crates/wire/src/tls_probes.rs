//! Reading of TLS at the library: plaintext of the sessions of all processes that use a file, by
//! probes at the library's functions.
//!
//! Opening requires root, or `CAP_BPF` and `CAP_PERFMON`; reading requires nothing. Dropping the
//! probes, or ending this process in any way, removes them from all processes.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use bpf::{BpfMap, MapCells, RingBuffer, TracepointProgram, UprobeLink, UprobeProgram};
use rustix::time::{ClockId, clock_gettime};

use crate::tls_event::{TlsClock, TlsEvent};
use crate::tls_program::{
    self, CALL_KEY, CALL_VALUE, FUNCTIONS, SESSION_KEY, SESSION_VALUE, SocketOffsets, TlsMaps,
};
use crate::tls_target::{TlsLibraryFile, TlsProbeError, TlsTarget, library_files};

/// Memory between the programs and this process.
const RING_BYTES: u32 = 16 << 20;
/// Threads inside of the library, and sessions, that are known to the programs.
const CALLS_MAX: u32 = 32_768;
const SESSIONS_MAX: u32 = 65_536;
const TRACEPOINT: &str = "tcp_rcv_space_adjust";
/// Functions with one program, behind those of [`FUNCTIONS`].
const OTHER_FUNCTIONS: [&str; 3] = ["SSL_new", "SSL_free", "SSL_clear"];
/// Readings of both clocks, of which the one that took the least time counts.
const CLOCK_READINGS: usize = 3;

/// Running probes.
#[derive(Debug)]
pub struct TlsProbes {
    ring: RingBuffer,
    counts: MapCells,
    clock: TlsClock,
    damaged: u64,
    files: Vec<PathBuf>,
    _socket: TracepointProgram,
    _links: Vec<UprobeLink>,
}

/// Programs at the functions of a library, in the order of their names.
struct LibraryPrograms(Vec<ProbeProgram>);

struct ProbeProgram {
    /// Index of the function.
    function: usize,
    is_return: bool,
    program: UprobeProgram,
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
        let files = library_files(targets, &names, Path::new("/proc"))?;
        TlsProbes::attach(files).map_err(TlsProbeError::Bpf)
    }

    fn attach(files: Vec<TlsLibraryFile>) -> Result<TlsProbes, String> {
        let types = bpf::kernel_types()?;
        let calls = BpfMap::lru_hash("topdeck_calls", CALL_KEY, CALL_VALUE, CALLS_MAX)?;
        let sessions = BpfMap::lru_hash("topdeck_tls", SESSION_KEY, SESSION_VALUE, SESSIONS_MAX)?;
        let counts = BpfMap::array("topdeck_counts", 1)?;
        let ring = RingBuffer::create("topdeck_ring", RING_BYTES)?;
        let maps = TlsMaps {
            calls: calls.descriptor(),
            sessions: sessions.descriptor(),
            counts: counts.descriptor(),
            ring: ring.descriptor(),
        };
        let programs = LibraryPrograms::load(&maps)?;
        let code = tls_program::socket_program(&SocketOffsets::find(&types)?, &maps);
        let tracepoint = types.tracepoint(TRACEPOINT)?;
        let socket = TracepointProgram::start("topdeck_socket", tracepoint, &code)?;
        let mut links = Vec::new();
        for file in &files {
            programs.attach(file, &mut links)?;
        }
        Ok(TlsProbes {
            ring,
            counts: counts.cells(0..1)?,
            clock: TlsClock { offset: clock_offset(), epoch: 0 },
            damaged: 0,
            files: files.into_iter().map(|file| file.path).collect(),
            _socket: socket,
            _links: links,
        })
    }

    /// Files with probes.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
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
    fn load(maps: &TlsMaps) -> Result<LibraryPrograms, String> {
        let mut programs = Vec::new();
        for (function, of) in FUNCTIONS.iter().enumerate() {
            // 0 is that of a thread outside of the library.
            let number = function as i32 + 1;
            let entry = tls_program::entry_program(number, of, maps);
            let program = UprobeProgram::load("topdeck_enter", &entry)?;
            programs.push(ProbeProgram { function, is_return: false, program });
            let code = tls_program::return_program(number, of, maps);
            let program = UprobeProgram::load("topdeck_return", &code)?;
            programs.push(ProbeProgram { function, is_return: true, program });
        }
        let others = [
            (tls_program::new_program(maps), true),
            (tls_program::end_program(false, maps), false),
            (tls_program::end_program(true, maps), false),
        ];
        for (index, (code, is_return)) in others.into_iter().enumerate() {
            let program = UprobeProgram::load("topdeck_session", &code)?;
            programs.push(ProbeProgram { function: FUNCTIONS.len() + index, is_return, program });
        }
        Ok(LibraryPrograms(programs))
    }

    /// Attaches the programs of the functions that the file has.
    fn attach(&self, file: &TlsLibraryFile, links: &mut Vec<UprobeLink>) -> Result<(), String> {
        for probe in &self.0 {
            if let Some(offset) = file.functions[probe.function] {
                links.push(probe.program.attach(&file.path, offset, probe.is_return)?);
            }
        }
        Ok(())
    }
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
