//! Functions of executables and shared libraries by name (ELF, 64 bits, little-endian).
//!
//! Two symbol tables are read, one of each kind: `.dynsym`, which a shared library always has, and
//! `.symtab`, which `strip` removes. Every offset and size is that of a foreign file, which may be
//! sparse and so as large as its owner likes: all reads are charged to a budget, and tables of
//! names and symbols are read in pieces. Source: System V ABI, chapter 4; elf(5).

use std::io::{self, Read, Seek, SeekFrom};

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const SECTION_SYMBOLS: u32 = 2;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_EXECUTABLE: u32 = 1;
const SYMBOL_FUNCTION: u8 = 2;
const SYMBOL_BYTES: usize = 24;
/// Sizes of the entries of both header tables, of which there are at most 65,535.
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
/// Bytes that are read at once of a table without a limit: a whole number of symbols.
pub(crate) const PIECE_BYTES: usize = SYMBOL_BYTES << 12;
/// Bytes that are read of the names of sections.
const NAMES_BYTES_MAX: u64 = 1 << 16;
/// Places in a table of names at which a name ends as one that is sought. Libraries have a few.
const NAME_OFFSETS_MAX: usize = 4_096;

/// Bytes of a segment in the file and in memory.
struct ElfSegment {
    offset: u64,
    address: u64,
    size: u64,
}

/// Where a table is in the file.
#[derive(Clone, Copy)]
pub(crate) struct TableRange {
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// A name that is sought, by its offset in a table of names.
pub(crate) struct NameOffset {
    pub(crate) offset: u64,
    /// Index of the name.
    pub(crate) index: usize,
}

/// A file, and the bytes that may still be read.
pub(crate) struct ElfReader<'a, R> {
    file: &'a mut R,
    budget_bytes: &'a mut u64,
}

/// Headers of a file.
pub(crate) struct ElfHeaders {
    pub(crate) machine: u16,
    segments: Vec<ElfSegment>,
    sections: Vec<u8>,
    /// Index of the section with the names of sections.
    names: usize,
}

impl ElfHeaders {
    /// Headers of all sections.
    pub(crate) fn sections(&self) -> impl Iterator<Item = &[u8]> {
        self.sections.chunks_exact(SECTION_BYTES)
    }

    /// The first section whose name in `names` ends with this: sections of position-independent
    /// programs may have a longer one.
    pub(crate) fn section(&self, names: &[u8], name: &str) -> Option<&[u8]> {
        self.sections().find(|section| {
            let found = names.get(word32(section, 0) as usize..).unwrap_or_default();
            found.split(|byte| *byte == 0).next().is_some_and(|of| of.ends_with(name.as_bytes()))
        })
    }

    /// Offset in the file of code that is at this address in memory.
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        let mut segments = self.segments.iter();
        let is_in =
            |of: &&ElfSegment| address.checked_sub(of.address).is_some_and(|at| at < of.size);
        let segment = segments.find(is_in)?;
        (address - segment.address).checked_add(segment.offset)
    }
}

/// Offsets of functions in an ELF file, in the order of `names`; `None` for those that it does not
/// define in its bytes. What is read is subtracted from `budget_bytes`. An error is that of the
/// file, or says that it is none of ELF, or that the budget is used up.
pub fn find_functions<R: Read + Seek>(
    file: &mut R,
    names: &[&str],
    budget_bytes: &mut u64,
) -> io::Result<Vec<Option<u64>>> {
    let file_bytes = file.seek(SeekFrom::End(0))?;
    let mut reader = ElfReader::new(file, budget_bytes);
    let headers = reader.headers()?;
    let sections: Vec<&[u8]> = headers.sections().collect();
    let mut found = vec![None; names.len()];
    for kind in [SECTION_DYNAMIC_SYMBOLS, SECTION_SYMBOLS] {
        let symbols = sections.iter().find(|section| word32(section, 4) == kind);
        let Some(symbols) = symbols.filter(|_| found.contains(&None)) else { continue };
        let Some(strings) = sections.get(word32(symbols, 40) as usize) else { continue };
        let name_offsets = reader.name_offsets(table_range(strings), names)?;
        reader.each_function(table_range(symbols), &name_offsets, &mut |index, address| {
            let offset = headers.file_offset(address).filter(|offset| *offset < file_bytes);
            found[index] = found[index].or(offset);
        })?;
    }
    Ok(found)
}

impl<'a, R: Read + Seek> ElfReader<'a, R> {
    pub(crate) fn new(file: &'a mut R, budget_bytes: &'a mut u64) -> ElfReader<'a, R> {
        ElfReader { file, budget_bytes }
    }

    pub(crate) fn headers(&mut self) -> io::Result<ElfHeaders> {
        let header = self.read(0, 64)?;
        if !header.starts_with(MAGIC) {
            return Err(invalid("not a 64-bit little-endian ELF file"));
        }
        let segments = self.segments(&header)?;
        let sections = self.header_table(word64(&header, 40), &header[58..62], SECTION_BYTES)?;
        let names = usize::from(word16(&header, 62));
        Ok(ElfHeaders { machine: word16(&header, 18), segments, sections, names })
    }

    /// Names of the sections.
    pub(crate) fn section_names(&mut self, headers: &ElfHeaders) -> io::Result<Vec<u8>> {
        match headers.sections().nth(headers.names).map(table_range) {
            Some(TableRange { start, size }) => {
                self.read(start, size.min(NAMES_BYTES_MAX) as usize)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Reads a range that is wholly in the file.
    pub(crate) fn read(&mut self, start: u64, size: usize) -> io::Result<Vec<u8>> {
        let left = self.budget_bytes.checked_sub(size as u64);
        let too_large = || {
            let what = "its tables have more bytes than are read";
            io::Error::new(io::ErrorKind::FileTooLarge, what)
        };
        *self.budget_bytes = left.ok_or_else(too_large)?;
        self.file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        self.file.take(size as u64).read_to_end(&mut bytes)?;
        match bytes.len() == size {
            true => Ok(bytes),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads a table of headers. `shape` has the size of an entry and their number.
    fn header_table(
        &mut self,
        start: u64,
        shape: &[u8],
        entry_bytes: usize,
    ) -> io::Result<Vec<u8>> {
        let count = usize::from(word16(shape, 2));
        if count == 0 {
            return Ok(Vec::new());
        }
        if usize::from(word16(shape, 0)) != entry_bytes {
            return Err(invalid("the ELF file has headers of an unknown size"));
        }
        self.read(start, count * entry_bytes)
    }

    /// Segments with code.
    fn segments(&mut self, header: &[u8]) -> io::Result<Vec<ElfSegment>> {
        let table = self.header_table(word64(header, 32), &header[54..58], SEGMENT_BYTES)?;
        let entries = table.chunks_exact(SEGMENT_BYTES);
        let with_code = entries.filter(|entry| {
            word32(entry, 0) == SEGMENT_LOAD && word32(entry, 4) & SEGMENT_EXECUTABLE != 0
        });
        let segments = with_code.map(|entry| ElfSegment {
            offset: word64(entry, 8),
            address: word64(entry, 16),
            size: word64(entry, 32),
        });
        Ok(segments.collect())
    }

    /// Places of `names` in a table of names, ascending. A name may be the end of a longer one.
    pub(crate) fn name_offsets(
        &mut self,
        table: TableRange,
        names: &[&str],
    ) -> io::Result<Vec<NameOffset>> {
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let mut name_offsets = Vec::new();
        // The end of what was read before, and what follows.
        let mut bytes: Vec<u8> = Vec::new();
        let mut offset = 0;
        while offset < table.size {
            let size = (table.size - offset).min(PIECE_BYTES as u64) as usize;
            let start = offset - bytes.len() as u64;
            let kept = bytes.len();
            bytes.extend(self.read(table.start.saturating_add(offset), size)?);
            for end in (kept..bytes.len()).filter(|at| bytes[*at] == 0) {
                for (index, name) in names.iter().enumerate() {
                    if bytes[..end].ends_with(name.as_bytes()) {
                        let offset = start + (end - name.len()) as u64;
                        name_offsets.push(NameOffset { offset, index });
                    }
                }
                if name_offsets.len() > NAME_OFFSETS_MAX {
                    return Err(invalid("the ELF file repeats a name too often"));
                }
            }
            bytes.drain(..bytes.len() - longest.min(bytes.len()));
            offset += size as u64;
        }
        name_offsets.sort_by_key(|of| of.offset);
        Ok(name_offsets)
    }

    /// Calls `each` with the index of the name and the address of each function that has one.
    fn each_function(
        &mut self,
        table: TableRange,
        name_offsets: &[NameOffset],
        each: &mut dyn FnMut(usize, u64),
    ) -> io::Result<()> {
        let mut offset = 0;
        while offset < table.size && !name_offsets.is_empty() {
            let size = (table.size - offset).min(PIECE_BYTES as u64);
            let bytes = self.read(table.start.saturating_add(offset), size as usize)?;
            for symbol in bytes.chunks_exact(SYMBOL_BYTES) {
                // An undefined symbol has no section.
                if symbol[4] & 0x0f != SYMBOL_FUNCTION || word16(symbol, 6) == 0 {
                    continue;
                }
                let name = u64::from(word32(symbol, 0));
                if let Ok(at) = name_offsets.binary_search_by_key(&name, |of| of.offset) {
                    each(name_offsets[at].index, word64(symbol, 8));
                }
            }
            offset += size;
        }
        Ok(())
    }
}

pub(crate) fn table_range(section: &[u8]) -> TableRange {
    TableRange { start: word64(section, 24), size: word64(section, 32) }
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(crate) fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from(word16(bytes, at)) | u32::from(word16(bytes, at + 2)) << 16
}

pub(crate) fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Cursor;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const NAMES: [&str; 3] = ["SSL_read", "SSL_write", "SSL_absent"];
    const BUDGET: u64 = 1 << 20;
    const NAME_TABLE: &[u8] = b"\0SSL_read\0xSSL_write\0SSL_absent\0";
    /// Places of both tables of sections in [`example`].
    const NAMES_SECTION: usize = 64 + 56;
    const SYMBOLS_SECTION: usize = NAMES_SECTION + 64;

    fn find(bytes: &[u8]) -> io::Result<Vec<Option<u64>>> {
        find_functions(&mut Cursor::new(bytes), &NAMES, &mut BUDGET.clone())
    }

    fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A file with one executable segment (offset 0x1000 at address 0x401000), a table of names
    /// and one of symbols: `SSL_read` and `SSL_write`, an object and an undefined function.
    fn example() -> Vec<u8> {
        let mut symbols = Vec::new();
        for (name, kind, section, address) in [
            (0_u32, 0_u8, 0_u16, 0_u64),
            (1, 0x12, 5, 0x40_1010),
            // The end of a longer name.
            (11, 0x12, 5, 0x40_1fff),
            (21, 0x12, 0, 0x40_1020),
            (21, 0x11, 5, 0x40_1030),
            (21, 0x12, 5, 0x50_0000),
        ] {
            symbols.extend(name.to_le_bytes());
            symbols.extend([kind, 0]);
            symbols.extend(section.to_le_bytes());
            symbols.extend(address.to_le_bytes());
            symbols.extend(8_u64.to_le_bytes());
        }
        let names_at = SYMBOLS_SECTION + 64;
        let symbols_at = names_at + NAME_TABLE.len();
        let mut file = vec![0; names_at];
        put(&mut file, 0, MAGIC);
        put(&mut file, 32, &64_u64.to_le_bytes());
        put(&mut file, 40, &(NAMES_SECTION as u64).to_le_bytes());
        for (at, number) in [(54, 56_u16), (56, 1), (58, 64), (60, 2)] {
            put(&mut file, at, &number.to_le_bytes());
        }
        put(&mut file, 64, &[1, 0, 0, 0, 5, 0, 0, 0]);
        for (at, value) in [(8, 0x1000_u64), (16, 0x40_1000), (32, 0x1000)] {
            put(&mut file, 64 + at, &value.to_le_bytes());
        }
        for (at, kind, start, size) in [
            (NAMES_SECTION, 3_u32, names_at, NAME_TABLE.len()),
            (SYMBOLS_SECTION, SECTION_DYNAMIC_SYMBOLS, symbols_at, symbols.len()),
        ] {
            put(&mut file, at + 4, &kind.to_le_bytes());
            put(&mut file, at + 24, &(start as u64).to_le_bytes());
            put(&mut file, at + 32, &(size as u64).to_le_bytes());
        }
        file.extend(NAME_TABLE);
        file.extend(symbols);
        file
    }

    /// The example with code.
    fn whole() -> Vec<u8> {
        let mut file = example();
        file.resize(0x2000, 0x90);
        file
    }

    #[test]
    fn functions_have_the_offset_of_their_segment() {
        assert_eq!(find(&whole()).unwrap(), [Some(0x1010), Some(0x1fff), None]);
    }

    #[test]
    fn a_function_behind_the_end_of_the_file_is_not_defined() {
        let mut file = whole();
        file.truncate(0x1fff);
        assert_eq!(find(&file).unwrap(), [Some(0x1010), None, None]);
    }

    #[test]
    fn names_are_found_where_pieces_of_their_table_meet() {
        let small = whole();
        for before in [PIECE_BYTES - 9, PIECE_BYTES - 8, PIECE_BYTES - 1, PIECE_BYTES, 100_001] {
            let mut file = small.clone();
            let (table, place) = (file.len() as u64, before as u32);
            file.resize(file.len() + before, b'.');
            file.extend(b"SSL_read\0");
            put(&mut file, NAMES_SECTION + 24, &table.to_le_bytes());
            put(&mut file, NAMES_SECTION + 32, &(before as u64 + 9).to_le_bytes());
            let symbols = SYMBOLS_SECTION + 64 + NAME_TABLE.len();
            put(&mut file, symbols + SYMBOL_BYTES, &place.to_le_bytes());
            assert_eq!(find(&file).unwrap(), [Some(0x1010), None, None], "{before}");
        }
    }

    #[test]
    fn other_files_are_errors() {
        for bytes in [&b""[..], b"\x7fELF", &[0x7f; 64], &[b'#'; 200]] {
            assert!(find(bytes).is_err());
        }
        let mut small_entries = whole();
        put(&mut small_entries, 58, &32_u16.to_le_bytes());
        assert!(find(&small_entries).unwrap_err().to_string().contains("unknown size"));
    }

    /// As a user makes it to hold up a reader: tables of a TiB without a block on the disk.
    #[test]
    fn tables_of_a_sparse_file_are_read_up_to_the_budget() {
        for section in [NAMES_SECTION, SYMBOLS_SECTION] {
            let mut head = whole();
            put(&mut head, section + 32, &(1_u64 << 40).to_le_bytes());
            let name = format!("topdeck-sparse-{section}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            file.write_all_at(&head, 0).unwrap();
            if let Err(error) = file.set_len((1 << 40) + 0x2000) {
                return println!("skipped: no sparse file of a TiB: {error}");
            }
            let mut budget = BUDGET;
            let error = find_functions(&mut &file, &NAMES, &mut budget).unwrap_err();
            assert_eq!(error.to_string(), "its tables have more bytes than are read");
            assert!(budget < PIECE_BYTES as u64, "{budget} are left");
        }
    }

    #[test]
    fn one_symbol_table_of_a_kind_is_read() {
        let mut file = example();
        let sections = file.len();
        let copies: Vec<u8> = file[NAMES_SECTION..SYMBOLS_SECTION + 64].to_vec();
        file.extend(&copies);
        // 65,533 more sections that name the same tables.
        file.extend(copies[64..].repeat(65_533));
        put(&mut file, 40, &(sections as u64).to_le_bytes());
        put(&mut file, 60, &65_535_u16.to_le_bytes());
        let mut budget = 6 << 20;
        let found = find_functions(&mut Cursor::new(&file), &NAMES, &mut budget).unwrap();
        assert_eq!(found, [Some(0x1010), Some(0x1fff), None]);
    }

    #[test]
    fn a_name_that_is_repeated_without_end_is_an_error() {
        let mut file = whole();
        let table = file.len() as u64;
        file.extend(b"SSL_read\0".repeat(NAME_OFFSETS_MAX + 1));
        put(&mut file, NAMES_SECTION + 24, &table.to_le_bytes());
        put(&mut file, NAMES_SECTION + 32, &(9 * (NAME_OFFSETS_MAX as u64 + 1)).to_le_bytes());
        assert!(find(&file).unwrap_err().to_string().contains("repeats a name too often"));
    }

    #[test]
    fn mutated_files_do_not_panic() {
        let whole = example();
        for at in 0..whole.len() {
            assert!(find(&whole[..at]).is_err(), "cut at {at}");
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = find(&changed);
            }
        }
    }

    #[test]
    fn functions_of_this_program() {
        let path = std::env::current_exe().unwrap();
        let mut file = File::open(path).unwrap();
        let mut budget = 512 << 20;
        let found = find_functions(&mut file, &["main", "SSL_absent"], &mut budget).unwrap();
        assert!(found[0].is_some() && found[1].is_none(), "{found:?}");
    }
}
