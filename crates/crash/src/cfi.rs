//! Call frame information of `.eh_frame`: registers of the caller from those of the callee.
//!
//! Format: Linux Standard Base 5.0, "Exception Frames", and DWARF 5, section 6.4. Expressions are
//! not evaluated: compilers use them in stubs, and the walk then follows the frame pointer.

use crate::core_dump::Registers;
use crate::elf_image::ElfImage;
use crate::fields::ByteFields;
use crate::stack_memory::StackMemory;

/// Longest entry that is read, in bytes; those of compilers have some dozens.
const ENTRY_BYTES_MAX: usize = 16 << 10;
/// Instructions of an entry that are executed, and depth of saved states.
const INSTRUCTIONS_MAX: u32 = 4_096;
const STATES_MAX: usize = 16;

/// How the value of a register in the caller is found.
#[derive(Clone, Copy, PartialEq)]
enum RegisterRule {
    Same,
    /// The caller has none: of the return address, the walk ends.
    Undefined,
    /// In memory, at this distance from the frame address.
    Saved(i64),
    /// The frame address plus this.
    Value(i64),
    Register(usize),
    Expression,
}

/// Rules at an instruction.
#[derive(Clone)]
struct UnwindRow {
    /// Register and offset of the frame address; `None` for an expression.
    frame_address: Option<(usize, i64)>,
    rules: [RegisterRule; 17],
}

/// Common information of several entries.
struct CommonEntry {
    code_factor: u64,
    data_factor: i64,
    address_encoding: u8,
    has_augmentation: bool,
    instructions: Vec<u8>,
}

/// The caller of a function.
pub(crate) enum Caller {
    Frame(Registers),
    /// The function is the first of its thread.
    None,
}

/// The caller of the function at `address`, which is in the image's own numbering. `None` if
/// nothing is known.
pub(crate) fn caller(
    image: &ElfImage,
    address: u64,
    registers: &Registers,
    memory: &StackMemory,
) -> Option<Caller> {
    let entry_at = find_entry(image, address)?;
    let (common, start, instructions) = read_entry(image, entry_at, address)?;
    let first = UnwindRow { frame_address: None, rules: [RegisterRule::Same; 17] };
    let first = execute(&common, &common.instructions, first.clone(), &first, start, u64::MAX)?;
    let row = execute(&common, &instructions, first.clone(), &first, start, address)?;
    apply(&row, registers, memory)
}

/// Searches the sorted table of `.eh_frame_hdr`; returns the address of an entry.
fn find_entry(image: &ElfImage, address: u64) -> Option<u64> {
    let table = image.frame_table?;
    let head = image.read(table, 12)?;
    // Version 1; offsets of 4 bytes, relative to the table.
    if head.get(..4)? != [1, 0x1b, 0x03, 0x3b] {
        return None;
    }
    let count = ByteFields::new(&head, 8).unsigned(4)?;
    let row = |index: u64| {
        let bytes = image.read(table.checked_add(12 + 8 * index)?, 8)?;
        let mut fields = ByteFields::new(&bytes, 0);
        let (start, entry) = (fields.signed(4)?, fields.signed(4)?);
        Some((table.wrapping_add_signed(start), table.wrapping_add_signed(entry)))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if row(middle)?.0 <= address { low = middle + 1 } else { high = middle }
    }
    Some(row(low.checked_sub(1)?)?.1)
}

/// An entry at an address: what it shares, start of its function, and instructions.
fn read_entry(image: &ElfImage, at: u64, address: u64) -> Option<(CommonEntry, u64, Vec<u8>)> {
    let bytes = read_with_length(image, at)?;
    let mut fields = ByteFields::new(&bytes, 0);
    let common_at = (at + 4).checked_sub(fields.unsigned(4)?)?;
    let common = CommonEntry::read(&read_with_length(image, common_at)?)?;
    let start = encoded(&mut fields, common.address_encoding, at + 4)?;
    let size = encoded(&mut fields, common.address_encoding & 0x0f, 0)?;
    if address.wrapping_sub(start) >= size {
        return None;
    }
    if common.has_augmentation {
        let size = fields.uleb()?;
        fields.take(usize::try_from(size).ok()?)?;
    }
    Some((common, start, bytes.get(fields.at..)?.to_vec()))
}

/// The bytes after the length of an entry.
fn read_with_length(image: &ElfImage, at: u64) -> Option<Vec<u8>> {
    let length = ByteFields::new(&image.read(at, 4)?, 0).unsigned(4)? as usize;
    if !(4..=ENTRY_BYTES_MAX).contains(&length) {
        return None;
    }
    image.read(at.checked_add(4)?, length).filter(|bytes| bytes.len() == length)
}

/// An encoded pointer; `base` is the address of the fields' first byte.
fn encoded(fields: &mut ByteFields<'_>, encoding: u8, base: u64) -> Option<u64> {
    let at = base.wrapping_add(fields.at as u64);
    let value = match encoding & 0x0f {
        0x00 | 0x04 => fields.unsigned(8)?,
        0x03 => fields.unsigned(4)?,
        0x0b => fields.signed(4)?.cast_unsigned(),
        0x0c => fields.signed(8)?.cast_unsigned(),
        _ => return None,
    };
    match encoding & 0xf0 {
        0x00 => Some(value),
        0x10 => Some(at.wrapping_add(value)),
        _ => None,
    }
}

impl CommonEntry {
    fn read(bytes: &[u8]) -> Option<CommonEntry> {
        let mut fields = ByteFields::new(bytes, 0);
        let (id, version) = (fields.unsigned(4)?, fields.unsigned(1)?);
        if id != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let augmentation = fields.text()?;
        let (code_factor, data_factor) = (fields.uleb()?, fields.sleb()?);
        let return_register = if version == 1 { fields.unsigned(1)? } else { fields.uleb()? };
        if return_register != 16 {
            return None;
        }
        let has_augmentation = augmentation.first() == Some(&b'z');
        let mut entry = CommonEntry {
            code_factor,
            data_factor,
            address_encoding: 0,
            has_augmentation,
            instructions: Vec::new(),
        };
        if has_augmentation {
            let size = usize::try_from(fields.uleb()?).ok()?;
            let after = fields.at.checked_add(size)?;
            for letter in &augmentation[1..] {
                match letter {
                    b'R' => entry.address_encoding = fields.unsigned(1)? as u8,
                    b'L' => _ = fields.unsigned(1)?,
                    b'P' => {
                        let encoding = fields.unsigned(1)? as u8;
                        // Only its length counts.
                        encoded(&mut fields, encoding & 0x0f, 0)?;
                    }
                    _ => {}
                }
            }
            fields.at = after;
        }
        entry.instructions = bytes.get(fields.at..)?.to_vec();
        Some(entry)
    }
}

/// Executes instructions from `row` up to an address. `first` has the rules that an instruction
/// restores.
fn execute(
    common: &CommonEntry,
    instructions: &[u8],
    mut row: UnwindRow,
    first: &UnwindRow,
    start: u64,
    until: u64,
) -> Option<UnwindRow> {
    let mut fields = ByteFields::new(instructions, 0);
    let (mut at, mut saved, mut executed) = (start, Vec::new(), 0);
    while fields.at < instructions.len() {
        executed += 1;
        if executed > INSTRUCTIONS_MAX {
            return None;
        }
        let opcode = fields.unsigned(1)? as u8;
        let low = usize::from(opcode & 0x3f);
        let advance = match (opcode >> 6, opcode) {
            (1, _) => low as u64,
            (0, 0x02) => fields.unsigned(1)?,
            (0, 0x03) => fields.unsigned(2)?,
            (0, 0x04) => fields.unsigned(4)?,
            (0, 0x0a) => {
                if saved.len() >= STATES_MAX {
                    return None;
                }
                saved.push(row.clone());
                continue;
            }
            (0, 0x0b) => {
                row = saved.pop()?;
                continue;
            }
            _ => {
                set_rule(common, &mut fields, opcode, &mut row, first)?;
                continue;
            }
        };
        at = at.checked_add(advance.checked_mul(common.code_factor)?)?;
        if at > until {
            break;
        }
    }
    Some(row)
}

/// Executes an instruction that changes a rule.
fn set_rule(
    common: &CommonEntry,
    fields: &mut ByteFields<'_>,
    opcode: u8,
    row: &mut UnwindRow,
    first: &UnwindRow,
) -> Option<()> {
    let low = usize::from(opcode & 0x3f);
    let scaled = |value: i64| value.checked_mul(common.data_factor);
    let number = |fields: &mut ByteFields<'_>| i64::try_from(fields.uleb()?).ok();
    let register = |fields: &mut ByteFields<'_>| usize::try_from(fields.uleb()?).ok();
    let (register, rule) = match (opcode >> 6, opcode) {
        (2, _) => (low, RegisterRule::Saved(scaled(number(fields)?)?)),
        (3, _) => (low, first.rules.get(low).copied().unwrap_or(RegisterRule::Same)),
        (_, 0x00) => return Some(()),
        (_, 0x05) => (register(fields)?, RegisterRule::Saved(scaled(number(fields)?)?)),
        (_, 0x06) => {
            let register = register(fields)?;
            (register, first.rules.get(register).copied().unwrap_or(RegisterRule::Same))
        }
        (_, 0x07) => (register(fields)?, RegisterRule::Undefined),
        (_, 0x08) => (register(fields)?, RegisterRule::Same),
        (_, 0x09) => (register(fields)?, RegisterRule::Register(register(fields)?)),
        (_, 0x10 | 0x16) => {
            let register = register(fields)?;
            skip_block(fields)?;
            (register, RegisterRule::Expression)
        }
        (_, 0x11) => (register(fields)?, RegisterRule::Saved(scaled(fields.sleb()?)?)),
        (_, 0x14) => (register(fields)?, RegisterRule::Value(scaled(number(fields)?)?)),
        (_, 0x15) => (register(fields)?, RegisterRule::Value(scaled(fields.sleb()?)?)),
        // DW_CFA_GNU_args_size.
        (_, 0x2e) => return fields.uleb().map(|_| ()),
        (_, 0x0c) => return set_frame_address(row, register(fields)?, number(fields)?),
        (_, 0x12) => return set_frame_address(row, register(fields)?, scaled(fields.sleb()?)?),
        (_, 0x0d) => {
            let offset = row.frame_address?.1;
            return set_frame_address(row, register(fields)?, offset);
        }
        (_, 0x0e) => return set_frame_address(row, row.frame_address?.0, number(fields)?),
        (_, 0x13) => return set_frame_address(row, row.frame_address?.0, scaled(fields.sleb()?)?),
        (_, 0x0f) => {
            row.frame_address = None;
            return skip_block(fields);
        }
        _ => return None,
    };
    // Vector registers have rules too; they are not followed.
    if let Some(of) = row.rules.get_mut(register) {
        *of = rule;
    }
    Some(())
}

fn set_frame_address(row: &mut UnwindRow, register: usize, offset: i64) -> Option<()> {
    row.frame_address = Some((register, offset));
    Some(())
}

fn skip_block(fields: &mut ByteFields<'_>) -> Option<()> {
    let size = usize::try_from(fields.uleb()?).ok()?;
    fields.take(size).map(|_| ())
}

/// Registers of the caller.
fn apply(row: &UnwindRow, registers: &Registers, memory: &StackMemory) -> Option<Caller> {
    let (register, offset) = row.frame_address?;
    let frame_address = registers.0.get(register)?.wrapping_add_signed(offset);
    let mut caller = *registers;
    for (index, rule) in row.rules.iter().enumerate() {
        caller.0[index] = match *rule {
            RegisterRule::Same | RegisterRule::Expression => continue,
            RegisterRule::Undefined if index == 16 => return Some(Caller::None),
            RegisterRule::Undefined => 0,
            RegisterRule::Saved(offset) => {
                memory.word(frame_address.wrapping_add_signed(offset))?
            }
            RegisterRule::Value(offset) => frame_address.wrapping_add_signed(offset),
            RegisterRule::Register(other) => *registers.0.get(other)?,
        };
    }
    if matches!(row.rules[16], RegisterRule::Same | RegisterRule::Expression) {
        return None;
    }
    // By definition the stack pointer of the caller.
    caller.0[7] = frame_address;
    Some(Caller::Frame(caller))
}
