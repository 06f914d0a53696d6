//! ELF files of 64 bits: build ID, names of functions, and where call frame information is.
//!
//! Untrusted: all reads have limits, and a table of symbols is read in pieces.

use std::fs::File;
use std::io;

use crate::core_dump::invalid;
use crate::fields::{ByteFields, number_at};

/// Number of program headers and sections that are read.
const PROGRAM_HEADERS_MAX: u64 = 256;
const SECTIONS_MAX: u64 = 16_384;
/// Parts in memory that are kept: each address is looked up in them.
const LOADS_MAX: usize = 16;
/// Bytes of a table of symbols that are read: two million functions.
const SYMBOL_BYTES_MAX: u64 = 48 << 20;
/// Longest name of a function in bytes; those of C++ and Rust templates are longer, and are cut.
const NAME_BYTES_MAX: usize = 1_024;
const SYMBOL_BYTES: usize = 24;
const SECTION_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const BUILD_ID_BYTES_MAX: usize = 64;

/// Bytes at offsets.
pub trait RandomRead {
    /// Fills the buffer with the bytes at an offset.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl RandomRead for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, bytes, offset)
    }
}

impl RandomRead for Vec<u8> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| self.get(start..start.checked_add(bytes.len())?));
        let found = found.ok_or_else(|| invalid("the file ends early"))?;
        bytes.copy_from_slice(found);
        Ok(())
    }
}

/// Part of the file in memory.
struct Load {
    address: u64,
    offset: u64,
    size: u64,
}

/// A table of symbols and that of its names.
struct ElfSymbols {
    offset: u64,
    size: u64,
    names_offset: u64,
    names_size: u64,
}

/// An ELF file.
pub struct ElfImage {
    file: Box<dyn RandomRead>,
    loads: Vec<Load>,
    symbols: Vec<ElfSymbols>,
    /// Address of `.eh_frame_hdr`.
    pub(crate) frame_table: Option<u64>,
    /// Build ID in hexadecimal digits; empty if there is none.
    pub build_id: String,
}

impl ElfImage {
    /// Reads the headers of a file.
    pub fn open(file: Box<dyn RandomRead>) -> io::Result<ElfImage> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0)?;
        if header[..6] != *b"\x7fELF\x02\x01" {
            return Err(invalid("not a 64-bit little-endian ELF file"));
        }
        let field = |at, count| number_at(&header, at, count).unwrap_or(0);
        let (headers_at, headers) = (field(32, 8), field(56, 2).min(PROGRAM_HEADERS_MAX));
        let (sections_at, sections) = (field(40, 8), field(60, 2).min(SECTIONS_MAX));
        let mut image = ElfImage {
            file,
            loads: Vec::new(),
            symbols: Vec::new(),
            frame_table: None,
            build_id: String::new(),
        };
        image.read_program_headers(headers_at, headers)?;
        // A file without sections has been stripped of them, or lies: it has no names.
        let _ = image.read_sections(sections_at, sections);
        Ok(image)
    }

    fn read_program_headers(&mut self, offset: u64, count: u64) -> io::Result<()> {
        const PT_LOAD: u64 = 1;
        const PT_NOTE: u64 = 4;
        const PT_GNU_EH_FRAME: u64 = 0x6474_e550;
        let mut headers = vec![0; count as usize * PROGRAM_HEADER_BYTES];
        self.file.read_exact_at(&mut headers, offset)?;
        for header in headers.chunks_exact(PROGRAM_HEADER_BYTES) {
            let field = |at, bytes| number_at(header, at, bytes).unwrap_or(0);
            let (offset, address, size) = (field(8, 8), field(16, 8), field(32, 8));
            match field(0, 4) {
                PT_LOAD if self.loads.len() < LOADS_MAX => {
                    self.loads.push(Load { address, offset, size });
                }
                PT_NOTE if self.build_id.is_empty() => {
                    self.build_id = self.read_build_id(offset, size).unwrap_or_default();
                }
                PT_GNU_EH_FRAME => self.frame_table = Some(address),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_build_id(&self, offset: u64, size: u64) -> Option<String> {
        const NT_GNU_BUILD_ID: u64 = 3;
        const NOTES_BYTES_MAX: u64 = 4_096;
        let mut notes = vec![0; size.min(NOTES_BYTES_MAX) as usize];
        self.file.read_exact_at(&mut notes, offset).ok()?;
        let mut fields = ByteFields::new(&notes, 0);
        loop {
            let (name, size) = (fields.unsigned(4)? as usize, fields.unsigned(4)? as usize);
            let kind = fields.unsigned(4)?;
            let name = fields.take(name.next_multiple_of(4))?;
            let content = fields.take(size.next_multiple_of(4))?;
            if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && size <= BUILD_ID_BYTES_MAX {
                let digits = content[..size].iter().map(|byte| format!("{byte:02x}"));
                return Some(digits.collect());
            }
        }
    }

    fn read_sections(&mut self, offset: u64, count: u64) -> io::Result<()> {
        const SHT_SYMTAB: u64 = 2;
        const SHT_DYNSYM: u64 = 11;
        let mut sections = vec![0; count as usize * SECTION_BYTES];
        self.file.read_exact_at(&mut sections, offset)?;
        for section in sections.chunks_exact(SECTION_BYTES) {
            let field = |at, bytes| number_at(section, at, bytes).unwrap_or(0);
            if !matches!(field(4, 4), SHT_SYMTAB | SHT_DYNSYM) {
                continue;
            }
            let names = sections.chunks_exact(SECTION_BYTES).nth(field(40, 4) as usize);
            let names_field = |at| names.and_then(|names| number_at(names, at, 8)).unwrap_or(0);
            let table = ElfSymbols {
                offset: field(24, 8),
                size: field(32, 8),
                names_offset: names_field(24),
                names_size: names_field(32),
            };
            // The complete table first.
            let at = if field(4, 4) == SHT_SYMTAB { 0 } else { self.symbols.len() };
            if self.symbols.len() < 2 {
                self.symbols.insert(at, table);
            }
        }
        Ok(())
    }

    /// Address in the file's own numbering of what is at an offset of the file.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        self.loads.iter().find_map(|load| {
            let within = offset.checked_sub(load.offset).filter(|&within| within < load.size)?;
            load.address.checked_add(within)
        })
    }

    /// Reads up to `size` bytes at an address; fewer where the part of the file ends.
    pub(crate) fn read(&self, address: u64, size: usize) -> Option<Vec<u8>> {
        self.loads.iter().find_map(|load| {
            let within = address.checked_sub(load.address).filter(|&within| within < load.size)?;
            let mut bytes = vec![0; (load.size - within).min(size as u64) as usize];
            self.file.read_exact_at(&mut bytes, load.offset.checked_add(within)?).ok()?;
            Some(bytes)
        })
    }

    /// Names of the functions that contain these addresses. The tables are read once.
    pub(crate) fn function_names(&self, addresses: &[u64]) -> Vec<Option<String>> {
        let mut names = vec![None; addresses.len()];
        for table in &self.symbols {
            let found = self.find_symbols(table, addresses);
            for (name, at) in names.iter_mut().zip(found) {
                if name.is_none() {
                    *name = at.and_then(|at| self.symbol_name(table, at));
                }
            }
        }
        names
    }

    /// Offsets of the names in their table.
    fn find_symbols(&self, table: &ElfSymbols, addresses: &[u64]) -> Vec<Option<u64>> {
        const PIECE_BYTES: u64 = (SYMBOL_BYTES * 4_096) as u64;
        const STT_FUNC: u8 = 2;
        const STT_GNU_IFUNC: u8 = 10;
        let mut found = vec![None; addresses.len()];
        // Those without a name, sorted: a hostile table has millions of functions.
        let mut left: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
        left.sort_unstable();
        let (mut at, size) = (0, table.size.min(SYMBOL_BYTES_MAX));
        while at < size && !left.is_empty() {
            let mut piece = vec![0; (size - at).min(PIECE_BYTES) as usize];
            let offset = table.offset.saturating_add(at);
            at += piece.len() as u64;
            if self.file.read_exact_at(&mut piece, offset).is_err() {
                break;
            }
            for symbol in piece.chunks_exact(SYMBOL_BYTES) {
                let field = |at, count| number_at(symbol, at, count).unwrap_or(0);
                if !matches!(symbol[4] & 15, STT_FUNC | STT_GNU_IFUNC) || field(6, 2) == 0 {
                    continue;
                }
                let (start, size) = (field(8, 8), field(16, 8));
                let first = left.partition_point(|&(address, _)| address < start);
                let count = left[first..].partition_point(|&(address, _)| address - start < size);
                for (_, index) in left.drain(first..first + count) {
                    found[index] = Some(field(0, 4));
                }
            }
        }
        found
    }

    fn symbol_name(&self, table: &ElfSymbols, at: u64) -> Option<String> {
        let size = table.names_size.checked_sub(at)?.min(NAME_BYTES_MAX as u64);
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, table.names_offset.checked_add(at)?).ok()?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        (end > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}
