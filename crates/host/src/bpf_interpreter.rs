//! BPF interpreter for tests.
//!
//! It supports only the instructions that `bpf::Assembler` emits.

use bpf::{
    ATOMIC, ATOMIC_ADD, ATOMIC_COMPARE_EXCHANGE, CALL, EXIT, HelperFunction, Instruction,
    LOAD_WIDE, PSEUDO_BTF_ID, PSEUDO_MAP_VALUE,
};

/// Address of the map's value.
pub(crate) const MAP: u64 = 1 << 32;
/// Address of the arguments.
const CONTEXT: u64 = 2 << 32;
/// Address of every kernel variable, whatever its BTF id.
pub(crate) const VARIABLE: u64 = 3 << 32;

/// Address of the stack.
const STACK: u64 = 4 << 32;
const STACK_BYTES: u64 = 512;
/// Loads below this address return 0, as loads through a null pointer do in the kernel.
const NULL_PAGE_END: u64 = 1 << 16;

/// BPF interpreter for tests.
pub(crate) struct BpfInterpreter {
    regions: Vec<(u64, Vec<u8>)>,
    pub(crate) now: u64,
    /// Bytes that the program wrote to its reader, by call.
    pub(crate) output: Vec<Vec<u8>>,
}

impl BpfInterpreter {
    /// Interpreter with a map whose value has `words` words, all zero.
    pub(crate) fn new(words: usize) -> BpfInterpreter {
        let stack = (STACK, vec![0xaa; STACK_BYTES as usize]);
        let regions = vec![(MAP, vec![0; 8 * words]), stack];
        BpfInterpreter { regions, now: 0, output: Vec::new() }
    }

    /// The map's value.
    pub(crate) fn map(&self) -> Vec<u64> {
        let words = self.regions[0].1.chunks_exact(8);
        words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// Puts an object at an address and replaces the previous one.
    pub(crate) fn put(&mut self, at: u64, fields: &[(i16, u64)]) {
        let mut bytes = vec![0; 4096];
        for &(offset, value) in fields {
            // Fields may have four bytes: the bytes after the field are not overwritten.
            let width = if value <= u64::from(u32::MAX) { 4 } else { 8 };
            bytes[offset as usize..][..width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        self.regions.retain(|region| region.0 != at);
        self.regions.push((at, bytes));
    }

    fn bytes(&mut self, at: u64, width: usize) -> &mut [u8] {
        let region = self
            .regions
            .iter_mut()
            .find(|(base, bytes)| at >= *base && at + width as u64 <= base + bytes.len() as u64);
        let (base, bytes) = region.unwrap_or_else(|| panic!("nothing is at {at:#x}"));
        &mut bytes[(at - *base) as usize..][..width]
    }

    fn load(&mut self, at: u64, width: usize) -> u64 {
        if at < NULL_PAGE_END {
            return 0;
        }
        let mut value = [0; 8];
        value[..width].copy_from_slice(self.bytes(at, width));
        u64::from_le_bytes(value)
    }

    fn store(&mut self, at: u64, value: u64, width: usize) {
        self.bytes(at, width).copy_from_slice(&value.to_le_bytes()[..width]);
    }

    /// Runs a program with these arguments.
    pub(crate) fn run(&mut self, code: &[Instruction], arguments: &[u64]) {
        self.regions.retain(|region| region.0 != CONTEXT);
        let context = arguments.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.regions.push((CONTEXT, context));
        let mut registers = [0u64; 11];
        registers[1] = CONTEXT;
        registers[10] = STACK + STACK_BYTES;
        let mut at = 0;
        while code[at].code != EXIT {
            at = self.step(code, at, &mut registers);
        }
    }

    /// Runs one instruction and returns the position of the next.
    fn step(&mut self, code: &[Instruction], at: usize, r: &mut [u64; 11]) -> usize {
        let Instruction { code: operation, registers, offset, immediate } = code[at];
        let (to, from) = (usize::from(registers & 15), usize::from(registers >> 4));
        let operand = if operation & 8 != 0 { r[from] } else { i64::from(immediate) as u64 };
        let address = |base: u64| base.wrapping_add_signed(offset.into());
        let width = if operation & 0x18 == 0 { 4 } else { 8 };
        match operation {
            LOAD_WIDE => {
                let high = code[at + 1].immediate;
                r[to] = match from as u8 {
                    PSEUDO_MAP_VALUE => MAP + high as u64,
                    PSEUDO_BTF_ID => VARIABLE,
                    _ => u64::from(high as u32) << 32 | u64::from(immediate as u32),
                };
                return at + 2;
            }
            CALL if immediate == HelperFunction::KtimeGetNs as i32 => r[0] = self.now,
            CALL if immediate == HelperFunction::SeqWrite as i32 => {
                let bytes = self.bytes(r[2], r[3] as usize).to_vec();
                self.output.push(bytes);
                r[0] = 0;
            }
            CALL if immediate == HelperFunction::ThisCpuPtr as i32 => r[0] = r[1],
            ATOMIC => {
                let old = self.load(address(r[to]), 8);
                match immediate {
                    ATOMIC_ADD => self.store(address(r[to]), old.wrapping_add(r[from]), 8),
                    ATOMIC_COMPARE_EXCHANGE => {
                        if old == r[0] {
                            self.store(address(r[to]), r[from], 8);
                        }
                        r[0] = old;
                    }
                    other => panic!("atomic operation {other:#x}"),
                }
            }
            _ => match operation & 7 {
                1 => r[to] = self.load(address(r[from]), width),
                3 => self.store(address(r[to]), r[from], width),
                5 if is_jump_taken(operation & 0xf0, r[to], operand) => {
                    return at + 1 + offset as usize;
                }
                5 => {}
                7 => r[to] = arithmetic(operation & 0xf0, r[to], operand),
                other => panic!("instruction {operation:#x} of class {other}"),
            },
        }
        at + 1
    }
}

fn is_jump_taken(when: u8, left: u64, right: u64) -> bool {
    match when {
        0x00 => true,
        0x10 => left == right,
        0x20 => left > right,
        0x40 => left & right != 0,
        0x50 => left != right,
        0x70 => left as i64 >= right as i64,
        0xa0 => left < right,
        0xc0 => (left as i64) < right as i64,
        0xb0 => left <= right,
        other => panic!("jump {other:#x}"),
    }
}

fn arithmetic(what: u8, left: u64, right: u64) -> u64 {
    match what {
        0x00 => left.wrapping_add(right),
        0x10 => left.wrapping_sub(right),
        0x20 => left.wrapping_mul(right),
        0x40 => left | right,
        0x50 => left & right,
        0x60 => left << (right & 63),
        0x70 => left >> (right & 63),
        0xb0 => right,
        other => panic!("arithmetic {other:#x}"),
    }
}
