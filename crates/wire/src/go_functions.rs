//! Functions of programs of Go by name, and the offsets of probes in their code.
//!
//! A program of Go has a table of all of its functions for its runtime, which `strip` keeps:
//!
//! ```text
//! offset  size  field
//!      0     4  magic: 0xfffffff0 of Go 1.18, 0xfffffff1 since Go 1.20
//!      7     1  bytes of a pointer
//!      8     8  number of functions
//!     24     8  address of the code; 0 since Go 1.26
//!     32     8  offset of the names, each of which ends with a zero byte
//!     40     8  offset of what follows the names
//!     64     8  offset of the functions
//! functions: an entry for each, and one with the end of the code; then their records
//! entry   offset of the function in the code u32, of its record from the first entry u32
//! record  offset in the code u32, offset of the name u32, …
//! ```
//!
//! Entries and records have the same order. The address of the code is also in `.go.module` (Go
//! 1.26). The linker writes it into position-independent programs, and those with C, only as a
//! relocation. It is the right one if all functions that are needed begin as those of Go do.
//! Sources: Go, runtime/symtab.go (`pcHeader`, `moduledata`, `_func`), debug/gosym/pclntab.go.

use std::io::{self, Read, Seek};
use std::ops::Range;

use crate::elf_symbols::{
    ElfHeaders, ElfReader, NameOffset, PIECE_BYTES, TableRange, invalid, table_range, word32,
    word64,
};
use crate::machine_code::{ProbeOffsets, find_probe_offsets};

/// Section with the table.
const TABLE: &str = ".gopclntab";
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
const HEADER_BYTES: usize = 72;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 8;
/// Entries that are read at once, and the bytes of their records: some times those of programs.
const ENTRIES: u64 = 4_096;
const RECORDS_BYTES_MAX: u64 = 4 << 20;
const FUNCTIONS_MAX: u64 = 1 << 24;
/// Section with the data of the runtime for the program, and the place of the address of the code.
const MODULE: &str = ".go.module";
const MODULE_CODE: u64 = 176;
/// Place of the address of the code in the table.
const TABLE_CODE: u64 = 24;
const SECTION_RELOCATIONS: u32 = 4;
const RELOCATION_BYTES: usize = 24;
/// `R_X86_64_RELATIVE` and `R_AARCH64_RELATIVE`.
const RELATIVE: [u32; 2] = [8, 1_027];
/// Code of a function, and its return instructions: some times those of the largest one.
const CODE_BYTES_MAX: u64 = 1 << 16;
const RETURNS_MAX: usize = 64;

/// Why TLS of a program of Go is not read, with the remedy.
pub(crate) fn not_read(cause: &str) -> String {
    format!(
        "encrypted, Go crypto/tls is not read: {cause}; let the program write a key log \
         (KeyLogWriter of tls.Config), and read a capture file with --key-log"
    )
}

/// Places for probes in functions of a program of Go, by offsets in the file, in the order of
/// `names`. `None` if it is none of Go, or does not have the first two of them. What is read is
/// subtracted from `budget_bytes`. An error of the kind `Unsupported` tells why its functions are
/// not found.
pub(crate) fn find_go_functions<R: Read + Seek>(
    file: &mut R,
    names: &[&str],
    budget_bytes: &mut u64,
) -> io::Result<Option<Vec<Option<ProbeOffsets>>>> {
    let mut reader = ElfReader::new(file, budget_bytes);
    let headers = reader.headers()?;
    let section_names = reader.section_names(&headers)?;
    let Some(section) = headers.section(&section_names, TABLE) else { return Ok(None) };
    let table = table_range(section);
    let header = reader.read(table.start, HEADER_BYTES)?;
    let unsupported = |cause| io::Error::new(io::ErrorKind::Unsupported, not_read(cause));
    if !MAGICS.contains(&word32(&header, 0)) || header[7] != 8 {
        let is_absent = reader.name_offsets(table, &names[..1])?.is_empty();
        let cause = "its table of functions is none of Go 1.18 or later";
        return if is_absent { Ok(None) } else { Err(unsupported(cause)) };
    }
    let size = word64(&header, 40).saturating_sub(word64(&header, 32));
    let start = table.start.saturating_add(word64(&header, 32));
    let name_offsets = reader.name_offsets(TableRange { start, size }, names)?;
    let mut ranges = vec![None; names.len()];
    if name_offsets.iter().any(|of| of.index == 0) {
        function_ranges(&mut reader, table, &header, &name_offsets, &mut ranges)?;
    }
    if ranges[..2].contains(&None) {
        return Ok(None);
    }
    for address in code_addresses(&mut reader, &headers, &section_names, section)? {
        let found = ranges.iter().map(|range| match range {
            Some(range) => probe_offsets(&mut reader, &headers, address, range),
            None => Ok(None),
        });
        let found: Vec<Option<ProbeOffsets>> = found.collect::<io::Result<_>>()?;
        if found[..2].iter().all(Option::is_some) {
            return Ok(Some(found));
        }
    }
    Err(unsupported("the code of its functions is not understood"))
}

/// Finds where in the code the functions with these names are.
fn function_ranges<R: Read + Seek>(
    reader: &mut ElfReader<'_, R>,
    table: TableRange,
    header: &[u8],
    name_offsets: &[NameOffset],
    ranges: &mut [Option<Range<u64>>],
) -> io::Result<()> {
    let damaged = || invalid("the table of functions of Go is damaged");
    let base = table.start.saturating_add(word64(header, 64));
    let count = word64(header, 8);
    if count > FUNCTIONS_MAX {
        return Err(damaged());
    }
    for first in (0..count).step_by(ENTRIES as usize) {
        let entries = (count - first).min(ENTRIES) as usize;
        let start = base.saturating_add(first * ENTRY_BYTES as u64);
        let table = reader.read(start, (entries + 1) * ENTRY_BYTES)?;
        let record = |index: usize| u64::from(word32(&table, index * ENTRY_BYTES + 4));
        let (low, high) = (record(0), record(entries - 1));
        let size = high.checked_sub(low).filter(|size| *size < RECORDS_BYTES_MAX);
        let size = size.ok_or_else(damaged)? as usize + ENTRY_BYTES;
        let records = reader.read(base.saturating_add(low), size)?;
        for index in 0..entries {
            let at = record(index).checked_sub(low).filter(|at| *at <= high - low);
            let name = u64::from(word32(&records, at.ok_or_else(damaged)? as usize + 4));
            if let Ok(at) = name_offsets.binary_search_by_key(&name, |of| of.offset) {
                let code = |index: usize| u64::from(word32(&table, index * ENTRY_BYTES));
                ranges[name_offsets[at].index] = Some(code(index)..code(index + 1));
            }
        }
    }
    Ok(())
}

/// Where the code of the program may be in memory.
fn code_addresses<R: Read + Seek>(
    reader: &mut ElfReader<'_, R>,
    headers: &ElfHeaders,
    names: &[u8],
    table: &[u8],
) -> io::Result<Vec<u64>> {
    let address = |section: &[u8]| word64(section, 16);
    let mut places = vec![(table_range(table).start, address(table), TABLE_CODE)];
    if let Some(module) = headers.section(names, MODULE) {
        places.push((table_range(module).start, address(module), MODULE_CODE));
    }
    let mut found = Vec::new();
    for (start, _, offset) in &places {
        found.push(word64(&reader.read(start.saturating_add(*offset), 8)?, 0));
    }
    for section in headers.sections().filter(|of| word32(of, 4) == SECTION_RELOCATIONS) {
        let TableRange { start, size } = table_range(section);
        for offset in (0..size).step_by(PIECE_BYTES) {
            let piece = (size - offset).min(PIECE_BYTES as u64) as usize;
            let relocations = reader.read(start.saturating_add(offset), piece)?;
            for relocation in relocations.chunks_exact(RELOCATION_BYTES) {
                let target = word64(relocation, 0);
                let is_sought =
                    places.iter().any(|(_, start, at)| start.checked_add(*at) == Some(target));
                if is_sought && RELATIVE.contains(&word32(relocation, 8)) {
                    found.push(word64(relocation, 16));
                }
            }
        }
    }
    found.extend(headers.section(names, ".text").map(address));
    found.retain(|address| *address != 0);
    Ok(found)
}

/// Places in a function, if the code is at this address.
fn probe_offsets<R: Read + Seek>(
    reader: &mut ElfReader<'_, R>,
    headers: &ElfHeaders,
    code_address: u64,
    range: &Range<u64>,
) -> io::Result<Option<ProbeOffsets>> {
    let size = range.end.saturating_sub(range.start);
    let offset = code_address.checked_add(range.start).and_then(|at| headers.file_offset(at));
    let Some(offset) = offset.filter(|_| size <= CODE_BYTES_MAX) else { return Ok(None) };
    let code = reader.read(offset, size as usize)?;
    let found = find_probe_offsets(headers.machine, &code);
    Ok(found.filter(|found| found.returns.len() <= RETURNS_MAX).map(|found| ProbeOffsets {
        entry: offset.saturating_add(found.entry),
        returns: found.returns.iter().map(|at| offset.saturating_add(*at)).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::tls_program::GO_SYMBOLS;

    /// Made by the assembler from `go_program.s`.
    const PROGRAM: &[u8] = include_bytes!("../../../testdata/wire/go_program");
    /// Offsets in it: headers of sections, the table, and the word with the address of the code in
    /// the data of the runtime.
    const TEXT_SECTION: usize = 0x470;
    const RODATA_SECTION: usize = 0x4b0;
    const TABLE_SECTION: usize = 0x4f0;
    const TABLE_START: usize = 0x208;
    const MODULE_WORD: usize = 0x3f4;
    const CODE: u64 = 0x40_0080;
    const BUDGET: u64 = 1 << 20;

    fn find(file: &[u8]) -> io::Result<Option<Vec<Option<ProbeOffsets>>>> {
        find_go_functions(&mut Cursor::new(file), &GO_SYMBOLS, &mut BUDGET.clone())
    }

    fn put(file: &mut [u8], at: usize, value: u64) {
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// The program, whose table and section do not tell where the code is.
    fn without_address() -> Vec<u8> {
        let mut file = PROGRAM.to_vec();
        put(&mut file, TABLE_START + 24, 0);
        put(&mut file, TEXT_SECTION + 16, 0x40_0040);
        file
    }

    #[track_caller]
    fn check_offsets(file: &[u8]) {
        let found = find(file).unwrap().unwrap();
        let offsets =
            |entry, returns: &[u64]| Some(ProbeOffsets { entry, returns: returns.to_vec() });
        let expected = [
            offsets(0x86, &[0xa5, 0xa9]),
            offsets(0xc6, &[0xdc]),
            offsets(0x106, &[0x10d]),
            None,
            offsets(0x126, &[0x12d]),
        ];
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn check_cause(file: &[u8], cause: &str) {
        let error = find(file).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::Unsupported, not_read(cause))
        );
    }

    #[test]
    fn functions_are_found_by_the_table_of_the_runtime() {
        check_offsets(PROGRAM);
        let mut older = PROGRAM.to_vec();
        older[TABLE_START] = 0xf0;
        check_offsets(&older);
        let mut other = PROGRAM.to_vec();
        let name = other.windows(5).position(|bytes| bytes == b"Write").unwrap();
        other[name] = b'X';
        assert_eq!(find(&other).unwrap(), None, "it does not write");
    }

    #[test]
    fn the_address_of_the_code_is_found_in_all_places() {
        check_cause(&without_address(), "the code of its functions is not understood");
        let mut by_section = PROGRAM.to_vec();
        put(&mut by_section, TABLE_START + 24, 0);
        check_offsets(&by_section);
        let mut by_module = without_address();
        put(&mut by_module, MODULE_WORD, CODE);
        check_offsets(&by_module);
        // A relocation of the word in the table, behind others of another kind or word.
        let word = 0x40_0000 + TABLE_START as u64 + 24;
        let relocations = [[word, 1, CODE + 1], [word + 8, 8, CODE + 2], [word, 8, CODE]];
        let mut by_relocation = without_address();
        by_relocation[RODATA_SECTION + 4] = SECTION_RELOCATIONS as u8;
        let end = by_relocation.len() as u64;
        put(&mut by_relocation, RODATA_SECTION + 24, end);
        put(&mut by_relocation, RODATA_SECTION + 32, 72);
        by_relocation.extend(relocations.concat().into_iter().flat_map(u64::to_le_bytes));
        check_offsets(&by_relocation);
        // An address at which something else is.
        let mut wrong = PROGRAM.to_vec();
        put(&mut wrong, TABLE_START + 24, CODE + 1);
        check_offsets(&wrong);
    }

    #[test]
    fn a_table_of_another_version_is_told() {
        let cause = "its table of functions is none of Go 1.18 or later";
        for (at, byte) in [(0, 0xfa), (0, 0xfb), (7, 4)] {
            let mut file = PROGRAM.to_vec();
            file[TABLE_START + at] = byte;
            check_cause(&file, cause);
        }
        let mut without_tls = PROGRAM.to_vec();
        without_tls[TABLE_START] = 0xfa;
        let name = without_tls.windows(4).position(|bytes| bytes == b"Read").unwrap();
        without_tls[name] = b'X';
        assert_eq!(find(&without_tls).unwrap(), None);
    }

    #[test]
    fn code_that_is_not_understood_is_told() {
        let mut file = PROGRAM.to_vec();
        // The first function begins otherwise.
        file[0x80] = 0x90;
        check_cause(&file, "the code of its functions is not understood");
    }

    #[test]
    fn damaged_tables_do_not_panic_and_are_read_up_to_the_budget() {
        for at in 0..PROGRAM.len() {
            let _ = find(&PROGRAM[..at]);
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = PROGRAM.to_vec();
                changed[at] = byte;
                let _ = find(&changed);
            }
        }
        let mut large = PROGRAM.to_vec();
        put(&mut large, TABLE_START + 8, 1 << 23);
        assert!(find(&large).is_err());
        put(&mut large, TABLE_SECTION + 32, 1 << 50);
        put(&mut large, TABLE_START + 40, 1 << 50);
        assert!(find(&large).is_err());
    }
}
