//! A machine for the programs, for tests: the instructions and helper functions that they use, maps
//! by key, a ring of records, and the memory of one process.

use std::collections::HashMap;

use bpf::{ATOMIC, CALL, EXIT, HelperFunction, Instruction, LOAD_WIDE, PSEUDO_MAP_VALUE};

use super::{CALL_KEY, CALL_VALUE, GO_CALL_KEY, REGISTERS, SESSION_KEY, SESSION_VALUE, TlsMaps};

pub(super) const MAPS: TlsMaps =
    TlsMaps { calls: 3, sessions: 4, counts: 5, ring: 6, goroutines: 7 };
const STACK_TOP: u64 = 0x1000_0000;
const CONTEXT: u64 = 0x2000_0000;
const COUNTS: u64 = 0x3000_0000;
/// Values of maps and records, each in a region of its own.
const OBJECTS: u64 = 0x4000_0000;
const OBJECT_BYTES: u64 = 0x1_0000;
const OBJECTS_MAX: usize = 0x1_0000;

pub(super) struct TestMachine {
    /// Bytes by address.
    regions: HashMap<u64, Vec<u8>>,
    /// Addresses of values, by map and key.
    values: HashMap<(i32, Vec<u8>), u64>,
    objects: usize,
    reserved: Option<u64>,
    pub(super) records: Vec<Vec<u8>>,
    pub(super) now: u64,
    /// Process in the high half, thread in the low half.
    pub(super) thread: u64,
    /// Value of the counts at their address in the process; `None` if it cannot be read.
    pub(super) moved: Option<u64>,
    pub(super) is_map_full: bool,
    /// Bytes of the process by address: all that may be read there.
    pub(super) memory: HashMap<u64, Vec<u8>>,
}

impl TestMachine {
    pub(super) fn new() -> TestMachine {
        TestMachine {
            regions: HashMap::from([(COUNTS, vec![0; 8])]),
            values: HashMap::new(),
            objects: 0,
            reserved: None,
            records: Vec::new(),
            now: 1_000,
            thread: 7 << 32 | 8,
            moved: None,
            is_map_full: false,
            memory: HashMap::new(),
        }
    }

    pub(super) fn lost(&mut self) -> u64 {
        self.load(COUNTS, 8)
    }

    /// Number of values of a map.
    pub(super) fn values(&self, map: i32) -> usize {
        self.values.keys().filter(|(of, _)| *of == map).count()
    }

    /// Removes all values of a map, as a full one does.
    pub(super) fn clear(&mut self, map: i32) {
        self.values.retain(|(of, _), _| *of != map);
    }

    /// Runs a program at a function with these arguments, or at its return with this result.
    pub(super) fn run(&mut self, code: &[Instruction], arguments: &[u64], result: i64) {
        let mut values = vec![(REGISTERS.stack, 0x7000)];
        match arguments {
            [] => values.push((REGISTERS.result, result as u64)),
            _ => values.extend(REGISTERS.arguments.into_iter().zip(arguments.iter().copied())),
        }
        self.run_with(code, &values);
    }

    /// Runs a program with values of registers, by their offsets.
    pub(super) fn run_with(&mut self, code: &[Instruction], registers: &[(i16, u64)]) {
        let mut context = vec![0; 512];
        for (at, value) in registers {
            let at = *at as usize;
            context[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        self.regions.insert(CONTEXT, context);
        self.regions.insert(STACK_TOP - 512, vec![0xaa; 512]);
        let mut registers = [0_u64; 11];
        (registers[1], registers[10]) = (CONTEXT, STACK_TOP);
        let mut at = 0;
        while code[at].code != EXIT {
            at = self.step(code, at, &mut registers);
        }
        assert_eq!(self.reserved, None, "a record was not submitted");
    }

    fn bytes(&mut self, at: u64, count: u64) -> &mut [u8] {
        let found = self
            .regions
            .iter_mut()
            .find(|(base, bytes)| at >= **base && at + count <= **base + bytes.len() as u64);
        let (base, bytes) = found.unwrap_or_else(|| panic!("nothing is at {at:#x}"));
        &mut bytes[(at - base) as usize..][..count as usize]
    }

    fn load(&mut self, at: u64, width: usize) -> u64 {
        let mut value = [0; 8];
        value[..width].copy_from_slice(self.bytes(at, width as u64));
        u64::from_le_bytes(value)
    }

    fn store(&mut self, at: u64, value: u64, width: usize) {
        self.bytes(at, width as u64).copy_from_slice(&value.to_le_bytes()[..width]);
    }

    fn new_object(&mut self, bytes: Vec<u8>) -> u64 {
        assert!(self.objects < OBJECTS_MAX);
        let at = OBJECTS + OBJECT_BYTES * self.objects as u64;
        self.objects += 1;
        self.regions.insert(at, bytes);
        at
    }

    fn step(&mut self, code: &[Instruction], at: usize, r: &mut [u64; 11]) -> usize {
        let Instruction { code: operation, registers, offset, immediate } = code[at];
        let (to, from) = (usize::from(registers & 15), usize::from(registers >> 4));
        let operand = if operation & 8 != 0 { r[from] } else { i64::from(immediate) as u64 };
        let address = |base: u64| base.wrapping_add_signed(offset.into());
        let width = if operation & 0x18 == 0 { 4 } else { 8 };
        match operation {
            LOAD_WIDE => {
                let high = u64::from(code[at + 1].immediate as u32);
                r[to] = match from as u8 {
                    PSEUDO_MAP_VALUE => COUNTS + high,
                    _ => high << 32 | u64::from(immediate as u32),
                };
                return at + 2;
            }
            CALL => {
                r[0] = self.helper(immediate, *r);
                // What the kernel may overwrite is not used afterwards.
                r[1..=5].fill(0xdead);
            }
            ATOMIC => {
                let sum = self.load(address(r[to]), 8).wrapping_add(r[from]);
                self.store(address(r[to]), sum, 8);
            }
            _ => match operation & 7 {
                1 => r[to] = self.load(address(r[from]), width),
                3 => self.store(address(r[to]), r[from], width),
                5 if is_jump_taken(operation & 0xf0, r[to], operand) => {
                    return at + 1 + offset as usize;
                }
                5 => {}
                _ => r[to] = arithmetic(operation & 0xf0, r[to], operand),
            },
        }
        at + 1
    }

    fn helper(&mut self, function: i32, r: [u64; 11]) -> u64 {
        let is = |helper: HelperFunction| function == helper as i32;
        let (key_bytes, value_bytes) = match r[1] as i32 {
            of if of == MAPS.calls => (CALL_KEY, CALL_VALUE),
            of if of == MAPS.goroutines => (GO_CALL_KEY, CALL_VALUE),
            _ => (SESSION_KEY, SESSION_VALUE),
        };
        let is_of_map = is(HelperFunction::MapLookup)
            || is(HelperFunction::MapUpdate)
            || is(HelperFunction::MapDelete);
        let key = match is_of_map {
            true => (r[1] as i32, self.bytes(r[2], key_bytes.into()).to_vec()),
            false => Default::default(),
        };
        if is(HelperFunction::KtimeGetNs) {
            self.now
        } else if is(HelperFunction::GetCurrentPidTgid) {
            self.thread
        } else if is(HelperFunction::MapLookup) {
            self.values.get(&key).copied().unwrap_or(0)
        } else if is(HelperFunction::MapDelete) {
            self.values.remove(&key).map_or(u64::MAX, |_| 0)
        } else if is(HelperFunction::MapUpdate) {
            if self.is_map_full {
                return u64::MAX;
            }
            let value = self.bytes(r[3], value_bytes.into()).to_vec();
            let at = self.new_object(value);
            self.values.insert(key, at);
            0
        } else if is(HelperFunction::ProbeReadUser)
            && let Some(bytes) = self.memory.get(&r[3]).cloned()
        {
            self.bytes(r[1], r[2]).copy_from_slice(&bytes[..r[2] as usize]);
            0
        } else if is(HelperFunction::ProbeReadUser) {
            let Some(moved) = self.moved.filter(|_| r[2] == 8 && r[3] == 0x9000) else {
                self.bytes(r[1], r[2]).fill(0);
                return u64::from(r[3] == 0x9000);
            };
            self.store(r[1], moved, 8);
            0
        } else if is(HelperFunction::RingReserve) {
            let at = self.new_object(vec![0; r[2] as usize]);
            self.reserved = Some(at);
            at
        } else if is(HelperFunction::RingSubmit) {
            assert_eq!(self.reserved.take(), Some(r[1]));
            self.records.push(self.regions[&r[1]].clone());
            0
        } else {
            panic!("helper function {function}")
        }
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
        0xb0 => left <= right,
        0xc0 => (left as i64) < right as i64,
        other => panic!("jump {other:#x}"),
    }
}

fn arithmetic(what: u8, left: u64, right: u64) -> u64 {
    match what {
        0x00 => left.wrapping_add(right),
        0x10 => left.wrapping_sub(right),
        0x40 => left | right,
        0x50 => left & right,
        0x60 => left << (right & 63),
        0x70 => left >> (right & 63),
        0xb0 => right,
        other => panic!("arithmetic {other:#x}"),
    }
}
