//! Memory near the stack pointers of a process.

use std::io::{self, Read};
use std::ops::Range;

use crate::core_dump::{CoreDump, FileMapping, segment_at};
use crate::fields::number_at;

/// Bytes kept of the stack of the thread that crashed.
const CRASHED_BYTES: u64 = 128 << 10;
/// Bytes kept of the stacks of other threads, and the number of these.
const OTHER_BYTES: u64 = 8 << 10;
const OTHER_THREADS_MAX: usize = 63;
/// Below a stack pointer the function may use 128 bytes (red zone of the x86-64 ABI).
const RED_ZONE_BYTES: u64 = 128;

/// Windows of memory: at most 1 MiB.
#[derive(Clone, Debug, Default)]
pub struct StackMemory {
    windows: Vec<(u64, Vec<u8>)>,
}

impl StackMemory {
    /// Reads the windows with a function that fills a buffer from an address and returns the number
    /// of bytes. If a signal handler runs on a stack of its own, the interrupted stack is added.
    pub fn read(core: &CoreDump, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) -> StackMemory {
        let mut memory = StackMemory::default();
        for range in wanted(core) {
            memory.add(range, read);
        }
        if let Some(sp) = memory.interrupted_stack(core)
            && let Some(range) = window(core, sp, CRASHED_BYTES)
        {
            memory.add(range, read);
        }
        memory
    }

    /// Reads the windows from the rest of the stream of a core, which ends after the last window.
    pub fn read_stream(core: &CoreDump, reader: &mut dyn Read) -> StackMemory {
        let mut memory = StackMemory::default();
        let mut position = core.position;
        let mut parts: Vec<(u64, Range<u64>)> = wanted(core)
            .into_iter()
            .filter_map(|range| {
                let segment = segment_at(&core.segments, range.start)?;
                let within = range.start - segment.range.start;
                let size = segment.file_bytes.checked_sub(within)?.min(range.end - range.start);
                let end = range.start.checked_add(size)?;
                Some((segment.offset.checked_add(within)?, range.start..end))
            })
            .collect();
        parts.sort_unstable_by_key(|part| part.0);
        for (offset, range) in parts {
            // Windows of two threads may overlap: the second one begins where the first one ends.
            let overlap = position.saturating_sub(offset);
            let Some(size) = (range.end - range.start).checked_sub(overlap) else { continue };
            let gap = (offset + overlap) - position;
            if io::copy(&mut reader.take(gap), &mut io::sink()).is_ok_and(|read| read == gap) {
                let mut bytes = vec![0; size as usize];
                let filled = fill(reader, &mut bytes);
                bytes.truncate(filled);
                position = offset + overlap + filled as u64;
                memory.windows.push((range.start + overlap, bytes));
            } else {
                break;
            }
        }
        memory
    }

    fn add(&mut self, range: Range<u64>, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let filled = read(range.start, &mut bytes).min(bytes.len());
        bytes.truncate(filled);
        self.windows.push((range.start, bytes));
    }

    /// The word at an address, if it was kept.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        self.windows.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            number_at(bytes, at, 8)
        })
    }

    /// Stack pointer of the code that a signal handler interrupted: the frame of a signal is on the
    /// stack of the thread that crashed, and the interrupted stack is not there.
    fn interrupted_stack(&self, core: &CoreDump) -> Option<u64> {
        let (start, bytes) = self.windows.first()?;
        let known = *start..*start + bytes.len() as u64;
        let words = (0..bytes.len() as u64 / 8).map(|index| *start + 8 * index);
        let context = words.filter_map(|at| SignalContext::read(self, at));
        let on_other_stack = context.map(|context| context.sp).filter(|sp| !known.contains(sp));
        on_other_stack.into_iter().find(|&sp| core.memory_end(sp).is_some())
    }
}

/// Registers that a signal handler restores: `ucontext` of x86-64 at an address.
pub(crate) struct SignalContext {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
}

impl SignalContext {
    /// `None` if there is none: its segment registers identify it.
    pub(crate) fn read(memory: &StackMemory, at: u64) -> Option<SignalContext> {
        /// `cs` and `ss` of a program in 64-bit mode.
        const USER_CS: u64 = 0x33;
        const USER_SS: u64 = 0x2b;
        let word = |offset: u64| memory.word(at.checked_add(offset)?);
        let segments = word(184)?;
        if segments & 0xffff != USER_CS || segments >> 48 != USER_SS {
            return None;
        }
        Some(SignalContext { pc: word(168)?, sp: word(160)?, fp: word(120)? })
    }
}

/// Windows of all threads, that of the crashed one first.
fn wanted(core: &CoreDump) -> Vec<Range<u64>> {
    let size = |index| if index == 0 { CRASHED_BYTES } else { OTHER_BYTES };
    let threads = core.threads.iter().take(1 + OTHER_THREADS_MAX).enumerate();
    threads.filter_map(|(index, it)| window(core, it.registers.sp(), size(index))).collect()
}

/// The window at a stack pointer: within its mapping, and below the strings of the process. A
/// mapped file is not read: its file system may be the user's, who may never answer. Without the
/// table of files it is not known what is one.
fn window(core: &CoreDump, sp: u64, size: u64) -> Option<Range<u64>> {
    // A stack that has overflowed points below its mapping.
    let start = [sp.saturating_sub(RED_ZONE_BYTES), sp, sp.saturating_add(4096)]
        .into_iter()
        .map(|address| address & !7)
        .find(|&address| core.memory_end(address).is_some())?;
    let mapping_end = core.memory_end(start)?;
    let end = start.saturating_add(size).min(mapping_end);
    // The strings are in this mapping, or elsewhere.
    let end = if (start..end).contains(&core.strings_start) { core.strings_start } else { end };
    let is_above =
        core.strings_start <= start && core.memory_end(core.strings_start) == Some(mapping_end);
    let is_file = |it: &FileMapping| it.range.start < end && start < it.range.end;
    let may_be_file = core.mappings.is_empty() || core.mappings.iter().any(is_file);
    (start < end && !is_above && !may_be_file).then_some(start..end)
}

/// Fills as much of a buffer as the stream has.
fn fill(reader: &mut dyn Read, bytes: &mut [u8]) -> usize {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    filled
}
