//! The head of an ELF core, read as a stream: program headers and notes. Memory follows it, and is
//! not read here.
//!
//! Of the notes only registers, signal, file mappings and the address of `AT_RANDOM` are kept; the
//! arguments in `NT_PRPSINFO` are not. Limits bound memory whatever the core claims. Layouts:
//! Linux, `include/uapi/linux/elf.h` and `elfcore.h`, x86-64.

use std::io::{self, Read};
use std::ops::Range;

use crate::fields::{ByteFields, number_at};

/// Most mappings that Linux allows by default (`vm.max_map_count` is 65,530).
const SEGMENTS_MAX: u64 = 1 << 17;
/// Threads whose registers are kept.
const THREADS_MAX: usize = 256;
/// Size of the table of file mappings in bytes; Linux limits it to 4 MiB.
const FILE_TABLE_BYTES_MAX: u64 = 4 << 20;
/// Size of another note whose content is kept.
const NOTE_BYTES_MAX: u64 = 64 << 10;
/// Number of notes; a thread has at most ten.
const NOTES_MAX: u32 = 1 << 20;

const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
const EM_X86_64: u64 = 62;
const NT_PRSTATUS: u64 = 1;
const NT_AUXV: u64 = 6;
const NT_SIGINFO: u64 = 0x5349_4749;
const NT_FILE: u64 = 0x4649_4c45;
const AT_NULL: u64 = 0;
const AT_RANDOM: u64 = 25;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;

/// General registers of a thread on x86-64, numbered as in DWARF: 0 is rax, 6 rbp, 7 rsp, 16 the
/// return address, here rip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers(pub [u64; 17]);

/// Index in `user_regs_struct` of each register.
const KERNEL_INDEX: [usize; 17] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];
/// Offset of `pr_reg` in `elf_prstatus`.
const PRSTATUS_REGISTERS: usize = 112;

impl Registers {
    /// Instruction pointer.
    pub(crate) fn pc(&self) -> u64 {
        self.0[16]
    }

    /// Stack pointer.
    pub(crate) fn sp(&self) -> u64 {
        self.0[7]
    }

    /// Frame pointer, if the function has one.
    pub(crate) fn fp(&self) -> u64 {
        self.0[6]
    }
}

/// A thread of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreThread {
    /// Its number in the process' PID namespace.
    pub tid: u32,
    /// Its registers.
    pub registers: Registers,
}

/// Part of a file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// Addresses.
    pub range: Range<u64>,
    /// Offset in the file.
    pub offset: u64,
    /// Path as the process saw it.
    pub path: String,
    /// Whether code may be executed there.
    pub is_executable: bool,
}

/// Memory in a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreSegment {
    pub(crate) range: Range<u64>,
    /// Where it is in the core.
    pub(crate) offset: u64,
    /// Bytes of it that the core has.
    pub(crate) file_bytes: u64,
    is_executable: bool,
}

/// The head of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreDump {
    /// Signal, or 0.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// Address of a fault (`si_addr`); only for signals that have one.
    pub fault_address: Option<u64>,
    /// Threads; the one that crashed is the first.
    pub threads: Vec<CoreThread>,
    /// Mapped files.
    pub mappings: Vec<FileMapping>,
    pub(crate) segments: Vec<CoreSegment>,
    /// End of what is read of a stack: above it are arguments and environment.
    pub(crate) strings_start: u64,
    /// Bytes read from the stream.
    pub(crate) position: u64,
}

/// Reads a stream and counts.
struct CoreStream<'a> {
    inner: &'a mut dyn Read,
    position: u64,
}

impl CoreStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn skip_to(&mut self, position: u64) -> io::Result<()> {
        let Some(count) = position.checked_sub(self.position) else {
            return Err(invalid("parts of the core overlap"));
        };
        let skipped = io::copy(&mut (&mut *self.inner).take(count), &mut io::sink())?;
        self.position += skipped;
        if skipped < count { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl CoreDump {
    /// Reads the head of a core. A core that is cut within its notes has the threads before.
    pub fn read(reader: &mut dyn Read) -> io::Result<CoreDump> {
        let mut stream = CoreStream { inner: reader, position: 0 };
        let mut header = [0; HEADER_BYTES];
        stream.read(&mut header)?;
        let field = |at, count| number_at(&header, at, count).unwrap_or(0);
        if header[..6] != *b"\x7fELF\x02\x01" || field(16, 2) != 4 {
            return Err(invalid("not a 64-bit little-endian ELF core"));
        }
        if field(18, 2) != EM_X86_64 {
            return Err(invalid("not a core of x86-64"));
        }
        if field(54, 2) != PROGRAM_HEADER_BYTES {
            return Err(invalid("unexpected size of program headers"));
        }
        let mut core = CoreDump { strings_start: u64::MAX, ..CoreDump::default() };
        let notes = core.read_program_headers(&mut stream, field(32, 8), field(56, 2))?;
        for note in notes {
            stream.skip_to(note.start)?;
            match core.read_notes(&mut stream, note.end) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                other => other?,
            }
        }
        core.position = stream.position;
        core.mark_executable();
        match core.threads.is_empty() {
            true => Err(invalid("the core has no registers of a thread")),
            false => Ok(core),
        }
    }

    /// Reads the program headers; returns where the notes are.
    fn read_program_headers(
        &mut self,
        stream: &mut CoreStream<'_>,
        offset: u64,
        count: u64,
    ) -> io::Result<Vec<Range<u64>>> {
        /// The number of headers is elsewhere: here derived from where the first part is.
        const PN_XNUM: u64 = 0xffff;
        stream.skip_to(offset)?;
        let (mut notes, mut count, mut read) = (Vec::new(), count, 0);
        while read < count {
            let mut header = [0; PROGRAM_HEADER_BYTES as usize];
            stream.read(&mut header)?;
            let field = |at, bytes| number_at(&header, at, bytes).unwrap_or(0);
            let (start, size) = (field(8, 8), field(32, 8));
            if read == 0 && count == PN_XNUM {
                count = start.saturating_sub(offset) / PROGRAM_HEADER_BYTES;
            }
            if count > SEGMENTS_MAX {
                return Err(invalid("too many program headers"));
            }
            read += 1;
            match field(0, 4) {
                PT_NOTE if notes.len() < 16 => notes.push(start..start.saturating_add(size)),
                PT_LOAD => {
                    let address = field(16, 8);
                    self.segments.push(CoreSegment {
                        range: address..address.saturating_add(field(40, 8)),
                        offset: start,
                        file_bytes: size,
                        is_executable: field(4, 4) & 1 != 0,
                    });
                }
                _ => {}
            }
        }
        self.segments.sort_unstable_by_key(|segment| segment.range.start);
        Ok(notes)
    }

    fn read_notes(&mut self, stream: &mut CoreStream<'_>, end: u64) -> io::Result<()> {
        for _ in 0..NOTES_MAX {
            if end.saturating_sub(stream.position) < 12 {
                return Ok(());
            }
            let mut header = [0; 12];
            stream.read(&mut header)?;
            let field = |at| number_at(&header, at, 4).unwrap_or(0);
            let (name_bytes, size, kind) = (field(0), field(4), field(8));
            let start = stream.position + name_bytes.next_multiple_of(4);
            let next = start + size.next_multiple_of(4);
            if next > end {
                return Ok(());
            }
            let size_max = if kind == NT_FILE { FILE_TABLE_BYTES_MAX } else { NOTE_BYTES_MAX };
            let is_kept = matches!(kind, NT_PRSTATUS | NT_AUXV | NT_SIGINFO | NT_FILE);
            if is_kept && size <= size_max {
                stream.skip_to(start)?;
                let mut content = vec![0; size as usize];
                stream.read(&mut content)?;
                self.add_note(kind, &content);
            }
            stream.skip_to(next)?;
        }
        Ok(())
    }

    fn add_note(&mut self, kind: u64, note: &[u8]) {
        let number = |at, count| number_at(note, at, count);
        match kind {
            NT_PRSTATUS if self.threads.len() < THREADS_MAX => {
                let register =
                    |index: usize| number(PRSTATUS_REGISTERS + 8 * index, 8).unwrap_or(0);
                if self.threads.is_empty() && self.signal == 0 {
                    self.signal = number(12, 2).unwrap_or(0) as i32;
                }
                let tid = number(32, 4).unwrap_or(0) as u32;
                let registers = Registers(KERNEL_INDEX.map(register));
                self.threads.push(CoreThread { tid, registers });
            }
            NT_SIGINFO => {
                /// SIGILL, SIGTRAP, SIGBUS, SIGFPE and SIGSEGV have an address.
                const WITH_ADDRESS: [i32; 5] = [4, 5, 7, 8, 11];
                let signed = |at| ByteFields::new(note, at).signed(4).unwrap_or(0) as i32;
                (self.signal, self.code) = (signed(0), signed(8));
                // A positive code: sent by the kernel, not by `kill`.
                let has_address = WITH_ADDRESS.contains(&self.signal) && self.code > 0;
                self.fault_address = number(16, 8).filter(|_| has_address);
            }
            NT_FILE => self.mappings = file_mappings(note).unwrap_or_default(),
            NT_AUXV => {
                let entries = note.chunks_exact(16).map(|entry| {
                    (number_at(entry, 0, 8).unwrap_or(0), number_at(entry, 8, 8).unwrap_or(0))
                });
                let random = entries.take_while(|entry| entry.0 != AT_NULL);
                let random = random.filter(|entry| entry.0 == AT_RANDOM);
                self.strings_start = random.map(|entry| entry.1).last().unwrap_or(u64::MAX);
            }
            _ => {}
        }
    }

    /// The note of mappings does not say which are executable; program headers do.
    fn mark_executable(&mut self) {
        for mapping in &mut self.mappings {
            mapping.is_executable = segment_at(&self.segments, mapping.range.start)
                .is_none_or(|segment| segment.is_executable);
        }
    }

    /// Where the core has the memory at an address, and the bytes that follow.
    pub fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        let segment = segment_at(&self.segments, address)?;
        let within = address - segment.range.start;
        let size = segment.file_bytes.checked_sub(within).filter(|&size| size > 0)?;
        Some((segment.offset.checked_add(within)?, size))
    }

    /// End of the mapping of memory that contains an address, also without a file.
    pub(crate) fn memory_end(&self, address: u64) -> Option<u64> {
        Some(segment_at(&self.segments, address)?.range.end)
    }
}

pub(crate) fn segment_at(segments: &[CoreSegment], address: u64) -> Option<&CoreSegment> {
    let after = segments.partition_point(|segment| segment.range.start <= address);
    segments[..after].last().filter(|segment| segment.range.contains(&address))
}

fn file_mappings(note: &[u8]) -> Option<Vec<FileMapping>> {
    let mut fields = ByteFields::new(note, 0);
    let (count, page) = (fields.unsigned(8)?, fields.unsigned(8)?);
    let names_at = usize::try_from(count.checked_mul(24)?.checked_add(16)?).ok()?;
    let mut names = ByteFields::new(note, names_at);
    let mut mappings = Vec::new();
    for _ in 0..count {
        let (start, end) = (fields.unsigned(8)?, fields.unsigned(8)?);
        let offset = fields.unsigned(8)?.saturating_mul(page);
        let path = String::from_utf8_lossy(names.text()?).into_owned();
        mappings.push(FileMapping { range: start..end, offset, path, is_executable: true });
    }
    mappings.sort_unstable_by_key(|mapping| mapping.range.start);
    Some(mappings)
}
