//! ELF headers: whether a program depends on a dynamic linker or on shared libraries.
//!
//! Supports 64-bit little-endian files. Field offsets are those of the System V ABI, chapters "ELF
//! Header", "Section Header" and "Program Header".

use anyhow::{Context as _, Result, bail, ensure};

pub(super) const X86_64: u16 = 62;
pub(super) const AARCH64: u16 = 183;

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;

/// Parsed headers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ElfHeaders {
    pub(super) machine: u16,
    /// Whether a dynamic linker is named (`PT_INTERP`).
    pub(super) has_interpreter: bool,
    /// Number of required shared libraries (`DT_NEEDED`).
    pub(super) library_count: usize,
    pub(super) sections: Vec<String>,
}

impl ElfHeaders {
    pub(super) fn read(bytes: &[u8]) -> Result<ElfHeaders> {
        ensure!(bytes.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
        let mut elf = ElfHeaders {
            machine: u16_at(bytes, 18)?,
            has_interpreter: false,
            library_count: 0,
            sections: sections(bytes)?,
        };
        let (start, size) = (u64_at(bytes, 32)?, u64::from(u16_at(bytes, 54)?));
        for number in 0..u64::from(u16_at(bytes, 56)?) {
            let header = table_offset(start, number, size)?;
            match u32_at(bytes, header)? {
                PT_INTERP => elf.has_interpreter = true,
                PT_DYNAMIC => {
                    elf.library_count += libraries(byte_range(bytes, header + 8, header + 32)?)?
                }
                _ => {}
            }
        }
        Ok(elf)
    }

    pub(super) fn has_section(&self, name: &str) -> bool {
        self.sections.iter().any(|section| section == name)
    }

    /// Fails unless the program starts on any Linux of its architecture without installed
    /// libraries.
    pub(super) fn check_static(&self, machine: u16) -> Result<()> {
        ensure!(self.machine == machine, "machine is {}, expected {machine}", self.machine);
        ensure!(!self.has_interpreter, "it requires a dynamic linker (PT_INTERP)");
        match self.library_count {
            0 => Ok(()),
            count => bail!("it requires {count} shared libraries (DT_NEEDED)"),
        }
    }
}

/// Counts `DT_NEEDED` entries of a dynamic section, which consists of pairs of a tag and a value.
fn libraries(dynamic: &[u8]) -> Result<usize> {
    let mut count = 0;
    for entry in dynamic.chunks_exact(16) {
        match u64_at(entry, 0)? {
            DT_NULL => break,
            DT_NEEDED => count += 1,
            _ => {}
        }
    }
    Ok(count)
}

fn sections(bytes: &[u8]) -> Result<Vec<String>> {
    let (start, size) = (u64_at(bytes, 40)?, u64::from(u16_at(bytes, 58)?));
    let (count, names) = (u16_at(bytes, 60)?, u64::from(u16_at(bytes, 62)?));
    if count == 0 {
        return Ok(Vec::new());
    }
    let header = table_offset(start, names, size)?;
    let names = byte_range(bytes, header + 24, header + 32)?;
    let name = |number: u16| {
        let at = u32_at(bytes, table_offset(start, u64::from(number), size)?)? as usize;
        let text = names.get(at..).context("a section name is outside the string table")?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    };
    (0..count).map(name).collect()
}

/// The bytes of the file whose offset and length are stored at these positions.
fn byte_range(bytes: &[u8], offset: usize, length: usize) -> Result<&[u8]> {
    let start = usize::try_from(u64_at(bytes, offset)?)?;
    let end = start.checked_add(usize::try_from(u64_at(bytes, length)?)?);
    end.and_then(|end| bytes.get(start..end)).context("a section or segment ends beyond the file")
}

fn table_offset(start: u64, number: u64, size: u64) -> Result<usize> {
    let at = size.checked_mul(number).and_then(|offset| offset.checked_add(start));
    Ok(usize::try_from(at.context("a header is outside the file")?)?)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let found = at.checked_add(N).and_then(|end| bytes.get(at..end));
    let found = found.with_context(|| format!("the file ends before byte {at}"))?;
    Ok(found.try_into().expect("BUG: the slice has N bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 64;
    const PROGRAM_HEADER: usize = 56;

    /// A file with a header, program headers of these types, and one dynamic section to which all
    /// of them refer.
    fn file(types: &[u32], tags: &[u64]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(HEADER + PROGRAM_HEADER * types.len(), 0);
        bytes[18..20].copy_from_slice(&X86_64.to_le_bytes());
        bytes[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        bytes[54..56].copy_from_slice(&(PROGRAM_HEADER as u16).to_le_bytes());
        bytes[56..58].copy_from_slice(&(types.len() as u16).to_le_bytes());
        let dynamic = bytes.len() as u64;
        for (number, kind) in types.iter().enumerate() {
            let at = HEADER + PROGRAM_HEADER * number;
            bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&dynamic.to_le_bytes());
            bytes[at + 32..at + 40].copy_from_slice(&(16 * tags.len() as u64).to_le_bytes());
        }
        for tag in tags {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&0u64.to_le_bytes());
        }
        bytes
    }

    #[track_caller]
    fn check(types: &[u32], tags: &[u64], machine: u16, expected: &str) {
        let elf = ElfHeaders::read(&file(types, tags)).unwrap();
        let found =
            elf.check_static(machine).map_or_else(|error| error.to_string(), |()| "static".into());
        assert_eq!(found, expected);
    }

    #[test]
    fn static_and_dynamic_are_distinguished() {
        check(&[1], &[], X86_64, "static");
        // A static program that is loaded at any address (static-pie) has a dynamic section too.
        check(&[1, PT_DYNAMIC], &[5, 6, DT_NULL], X86_64, "static");
        check(&[PT_INTERP, 1], &[], X86_64, "it requires a dynamic linker (PT_INTERP)");
        let two = [DT_NEEDED, DT_NEEDED, DT_NULL, DT_NEEDED];
        check(&[PT_DYNAMIC], &two, X86_64, "it requires 2 shared libraries (DT_NEEDED)");
        check(&[1], &[], AARCH64, "machine is 62, expected 183");
    }

    #[test]
    fn truncated_file_is_an_error() {
        let whole = file(&[PT_INTERP, PT_DYNAMIC], &[DT_NEEDED, DT_NULL]);
        assert!(ElfHeaders::read(&whole).is_ok());
        for length in 0..whole.len() {
            assert!(
                ElfHeaders::read(&whole[..length]).is_err(),
                "{length} of {} bytes",
                whole.len()
            );
        }
    }
}
