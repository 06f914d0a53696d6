//! Functions of executables and shared libraries by name (ELF, 64 bits, little-endian).
//!
//! Both symbol tables are read: `.dynsym`, which a shared library always has, and `.symtab`, which
//! `strip` removes. Every offset and size is that of a foreign file: reads beyond its end are
//! errors, and nothing larger than the file is allocated. Source: System V ABI, chapter 4; elf(5).

use std::io::{self, Read, Seek, SeekFrom};

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const SECTION_SYMBOLS: u32 = 2;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_EXECUTABLE: u32 = 1;
const SYMBOL_FUNCTION: u8 = 2;
const SYMBOL_BYTES: usize = 24;
/// Symbols that are read at once.
const SYMBOLS_READ: u64 = 4_096;
/// Longest name that is compared, with its final zero.
const NAME_BYTES: usize = 64;
/// Largest table of names: about ten times that of Chromium.
const NAMES_BYTES_MAX: u64 = 512 << 20;

/// Bytes of a segment in the file and in memory.
struct ElfSegment {
    offset: u64,
    address: u64,
    size: u64,
}

/// Offsets of functions in an ELF file, in the order of `names`; `None` for those that it does not
/// define. An error is that of the file, or says that it is none of ELF.
pub(crate) fn find_functions<R: Read + Seek>(
    file: &mut R,
    names: &[&str],
) -> io::Result<Vec<Option<u64>>> {
    let header: [u8; 64] = read_at(file, 0)?;
    if !header.starts_with(MAGIC) {
        return Err(invalid("not a 64-bit little-endian ELF file"));
    }
    let segments = segments(file, &header)?;
    let sections = sections(file, &header)?;
    let mut found = vec![None; names.len()];
    for section in &sections {
        let kind = word32(section, 4);
        if kind != SECTION_SYMBOLS && kind != SECTION_DYNAMIC_SYMBOLS {
            continue;
        }
        let Some(strings) = sections.get(word32(section, 40) as usize) else { continue };
        let strings = read_range(file, word64(strings, 24), word64(strings, 32))?;
        let range = (word64(section, 24), word64(section, 32));
        read_symbols(file, range, &strings, names, &mut |index, address| {
            found[index] = found[index].or_else(|| file_offset(&segments, address));
        })?;
    }
    Ok(found)
}

fn segments<R: Read + Seek>(file: &mut R, header: &[u8; 64]) -> io::Result<Vec<ElfSegment>> {
    let (start, size) = (word64(header, 32), u64::from(word16(header, 54)));
    let mut segments = Vec::new();
    for index in 0..u64::from(word16(header, 56)) {
        let entry: [u8; 56] = read_at(file, start.saturating_add(index * size))?;
        if word32(&entry, 0) == SEGMENT_LOAD && word32(&entry, 4) & SEGMENT_EXECUTABLE != 0 {
            segments.push(ElfSegment {
                offset: word64(&entry, 8),
                address: word64(&entry, 16),
                size: word64(&entry, 32),
            });
        }
    }
    Ok(segments)
}

fn sections<R: Read + Seek>(file: &mut R, header: &[u8; 64]) -> io::Result<Vec<[u8; 64]>> {
    let (start, size) = (word64(header, 40), u64::from(word16(header, 58)));
    let count = u64::from(word16(header, 60));
    (0..count).map(|index| read_at(file, start.saturating_add(index * size))).collect()
}

/// Calls `each` with the index of the name and the address of each function that has one.
fn read_symbols<R: Read + Seek>(
    file: &mut R,
    (start, size): (u64, u64),
    strings: &[u8],
    names: &[&str],
    each: &mut dyn FnMut(usize, u64),
) -> io::Result<()> {
    let piece = SYMBOLS_READ * SYMBOL_BYTES as u64;
    let mut offset = 0;
    while offset < size {
        let bytes = read_range(file, start.saturating_add(offset), piece.min(size - offset))?;
        for symbol in bytes.chunks_exact(SYMBOL_BYTES) {
            // An undefined symbol has no section.
            let is_function = symbol[4] & 0x0f == SYMBOL_FUNCTION && word16(symbol, 6) != 0;
            let name = strings.get(word32(symbol, 0) as usize..).filter(|_| is_function);
            let Some(name) = name else { continue };
            let name = &name[..name.len().min(NAME_BYTES)];
            let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            if let Some(index) = names.iter().position(|of| of.as_bytes() == &name[..length]) {
                each(index, word64(symbol, 8));
            }
        }
        offset += piece;
    }
    Ok(())
}

fn file_offset(segments: &[ElfSegment], address: u64) -> Option<u64> {
    let segment = segments
        .iter()
        .find(|of| address.checked_sub(of.address).is_some_and(|distance| distance < of.size))?;
    (address - segment.address).checked_add(segment.offset)
}

fn read_at<const N: usize, R: Read + Seek>(file: &mut R, offset: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_range<R: Read + Seek>(file: &mut R, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    if size > NAMES_BYTES_MAX {
        return Err(invalid("a table of the ELF file exceeds the limit (512 MiB)"));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from(word16(bytes, at)) | u32::from(word16(bytes, at + 2)) << 16
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const NAMES: [&str; 3] = ["SSL_read", "SSL_write", "SSL_absent"];

    /// A file with one executable segment (offset 0x1000 at address 0x401000), a table of names
    /// and one of symbols: `SSL_read` and `SSL_write`, an object and an undefined function.
    fn example() -> Vec<u8> {
        let names = b"\0SSL_read\0SSL_write\0SSL_absent\0";
        let mut symbols = Vec::new();
        for (name, kind, section, address) in [
            (0_u32, 0_u8, 0_u16, 0_u64),
            (1, 0x12, 5, 0x40_1010),
            (10, 0x12, 5, 0x40_1fff),
            (20, 0x12, 0, 0x40_1020),
            (20, 0x11, 5, 0x40_1030),
            (20, 0x12, 5, 0x50_0000),
        ] {
            symbols.extend(name.to_le_bytes());
            symbols.extend([kind, 0]);
            symbols.extend(section.to_le_bytes());
            symbols.extend(address.to_le_bytes());
            symbols.extend(8_u64.to_le_bytes());
        }
        let (segment, tables) = (64, 64 + 56);
        let (names_at, symbols_at) = (tables + 2 * 64, tables + 2 * 64 + names.len());
        let mut file = vec![0; tables + 2 * 64];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(32, &(segment as u64).to_le_bytes());
        put(40, &(tables as u64).to_le_bytes());
        put(54, &56_u16.to_le_bytes());
        put(56, &1_u16.to_le_bytes());
        put(58, &64_u16.to_le_bytes());
        put(60, &2_u16.to_le_bytes());
        put(segment, &[1, 0, 0, 0, 5, 0, 0, 0]);
        for (at, value) in [(8, 0x1000_u64), (16, 0x40_1000), (32, 0x1000)] {
            put(segment + at, &value.to_le_bytes());
        }
        for (at, kind, start, size) in [
            (tables, 3_u32, names_at, names.len()),
            (tables + 64, SECTION_DYNAMIC_SYMBOLS, symbols_at, symbols.len()),
        ] {
            put(at + 4, &kind.to_le_bytes());
            put(at + 24, &(start as u64).to_le_bytes());
            put(at + 32, &(size as u64).to_le_bytes());
        }
        file.extend(names);
        file.extend(symbols);
        file
    }

    #[test]
    fn functions_have_the_offset_of_their_segment() {
        let found = find_functions(&mut Cursor::new(example()), &NAMES).unwrap();
        assert_eq!(found, [Some(0x1010), Some(0x1fff), None]);
    }

    #[test]
    fn other_files_are_errors() {
        for bytes in [&b""[..], b"\x7fELF", &[0x7f; 64], &[b'#'; 200]] {
            assert!(find_functions(&mut Cursor::new(bytes), &NAMES).is_err());
        }
    }

    #[test]
    fn mutated_files_do_not_panic() {
        let whole = example();
        for at in 0..whole.len() {
            assert!(find_functions(&mut Cursor::new(&whole[..at]), &NAMES).is_err(), "cut at {at}");
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = find_functions(&mut Cursor::new(changed), &NAMES);
            }
        }
    }

    #[test]
    fn functions_of_this_program() {
        let path = std::env::current_exe().unwrap();
        let mut file = std::fs::File::open(path).unwrap();
        let found = find_functions(&mut file, &["main", "SSL_absent"]).unwrap();
        assert!(found[0].is_some() && found[1].is_none(), "{found:?}");
    }
}
