//! Places for probes in the machine code of a function of Go.
//!
//! A function begins with a comparison of the stack pointer with the limit of the goroutine's
//! stack. If the stack is too small, the runtime moves it, and the function begins again: the
//! probe of the start is behind that comparison, where all arguments are still in their registers.
//! A uretprobe changes the return address on the stack, which the runtime does not expect when it
//! moves it. So the end of a call is seen by a probe at each return instruction.
//!
//! Instructions of x86-64 are decoded one after the other for their lengths; those of aarch64 have
//! four bytes. A function with an instruction that is unknown here, with a jump out of it, or with
//! one into an instruction, has no offsets: a probe inside an instruction would crash the program.
//! Sources: Intel SDM, volume 2, appendix A; Arm ARM, C4.1; Go,
//! cmd/internal/obj/x86/obj6.go and cmd/internal/obj/arm64/obj7.go (`stacksplit`).

/// Machine of an ELF file.
pub(crate) const MACHINE_X86_64: u16 = 62;
pub(crate) const MACHINE_AARCH64: u16 = 183;

/// `cmp rsp, [r14 + 16]` and `cmp r12, [r14 + 16]`, without the first byte.
const COMPARE_WITH_LIMIT: [u8; 3] = [0x3b, 0x66, 0x10];
/// `ldr x16, [x28, #16]`.
const LOAD_LIMIT: u32 = 0xf940_0b90;
/// Instructions between the load of the limit and the branch.
const COMPARISON_MAX: usize = 3;
const AARCH64_RETURN: u32 = 0xd65f_03c0;

/// Offsets of probes in a function, in bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeOffsets {
    /// Behind the comparison of the stack.
    pub(crate) entry: u64,
    /// Of all return instructions.
    pub(crate) returns: Vec<u64>,
}

/// The offsets of a function of Go with this code; `None` if it is not understood.
pub(crate) fn find_probe_offsets(machine: u16, code: &[u8]) -> Option<ProbeOffsets> {
    match machine {
        MACHINE_X86_64 => find_probe_offsets_x86_64(code),
        MACHINE_AARCH64 => find_probe_offsets_aarch64(code),
        _ => None,
    }
}

fn find_probe_offsets_x86_64(code: &[u8]) -> Option<ProbeOffsets> {
    let mut at = 0;
    if code.starts_with(&[0x4c, 0x8d]) {
        // `lea r12, [rsp - frame]`, of a large frame.
        at = instruction_length(code)?;
    }
    let compare = code.get(at..at + 4)?;
    if !matches!(compare[0], 0x49 | 0x4d) || compare[1..] != COMPARE_WITH_LIMIT {
        return None;
    }
    let entry = match code.get(at + 4..at + 6)? {
        [0x76, _] => at + 6,
        [0x0f, 0x86] => at + 10,
        _ => return None,
    };
    let (mut returns, mut targets) = (Vec::new(), vec![entry]);
    let mut is_start = vec![false; code.len()];
    at = 0;
    while at < code.len() {
        is_start[at] = true;
        let rest = &code[at..];
        let next = at + instruction_length(rest)?;
        match rest[0] {
            0xc3 => returns.push(at as u64),
            // `ret imm16`, and prefixes of either one.
            0xc2 => return None,
            0xf2 | 0xf3 if matches!(rest.get(1), Some(0xc2 | 0xc3)) => return None,
            _ => {}
        }
        if let Some(distance) = jump_distance(rest) {
            targets.push(next.checked_add_signed(distance)?);
        }
        at = next;
    }
    let is_known = |target: &usize| is_start.get(*target).is_some_and(|is_start| *is_start);
    targets.iter().all(is_known).then_some(ProbeOffsets { entry: entry as u64, returns })
}

/// Distance of a jump, conditional or not, from the next instruction to its target.
fn jump_distance(code: &[u8]) -> Option<isize> {
    let wide = match code {
        [0x70..=0x7f | 0xe0..=0xe3 | 0xeb, distance, ..] => return Some(*distance as i8 as isize),
        [0xe9, rest @ ..] | [0x0f, 0x80..=0x8f, rest @ ..] => rest,
        _ => return None,
    };
    wide.first_chunk().map(|bytes| i32::from_le_bytes(*bytes) as isize)
}

fn find_probe_offsets_aarch64(code: &[u8]) -> Option<ProbeOffsets> {
    let words: Vec<u32> = code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if *words.first()? != LOAD_LIMIT {
        return None;
    }
    // `b.ls`, the branch to the part that enlarges the stack.
    let is_branch = |word: &u32| word & 0xff00_001f == 0x5400_0009;
    let branch = words.iter().take(2 + COMPARISON_MAX).position(is_branch)?;
    let mut returns = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if *word == AARCH64_RETURN {
            returns.push(4 * index as u64);
        }
        // `b`, with a distance of 26 bits in words.
        let distance = i64::from((word << 6) as i32 >> 4);
        if word & 0xfc00_0000 == 0x1400_0000 && !is_inside(4 * index, distance, code) {
            return None;
        }
    }
    Some(ProbeOffsets { entry: 4 * (branch as u64 + 1), returns })
}

fn is_inside(from: usize, distance: i64, code: &[u8]) -> bool {
    from.checked_add_signed(distance as isize).is_some_and(|target| target < code.len())
}

/// What follows an opcode.
#[derive(Clone, Copy)]
struct OperandShape {
    has_mode: bool,
    immediate_bytes: usize,
}

/// The opcode has these operands: a ModR/M byte, and bytes of a constant.
const fn shape(has_mode: bool, immediate_bytes: usize) -> Option<OperandShape> {
    Some(OperandShape { has_mode, immediate_bytes })
}

/// Length of the first instruction of x86-64; `None` if it is unknown or cut.
fn instruction_length(code: &[u8]) -> Option<usize> {
    let (mut at, mut is_short) = (0, false);
    loop {
        match code.get(at)? {
            0x66 => is_short = true,
            0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            _ => break,
        }
        at += 1;
    }
    let prefix = code[at];
    let is_wide = prefix & 0xf8 == 0x48;
    if prefix & 0xf0 == 0x40 {
        at += 1;
    }
    let opcode = *code.get(at)?;
    at += 1;
    // A constant as wide as an operand, but of at most 32 bits.
    let constant = if is_short && !is_wide { 2 } else { 4 };
    let operands = match opcode {
        0x0f => {
            let second = *code.get(at)?;
            // These two are the first bytes of longer opcodes.
            at += 1 + usize::from(matches!(second, 0x38 | 0x3a));
            two_byte_shape(second)
        }
        // VEX.
        0xc5 => {
            at += 2;
            two_byte_shape(*code.get(at - 1)?)
        }
        0xc4 => {
            let map = code.get(at)? & 0x1f;
            at += 3;
            match map {
                1 => two_byte_shape(*code.get(at - 1)?),
                2 => shape(true, 0),
                3 => shape(true, 1),
                _ => None,
            }
        }
        0xf6 | 0xf7 => {
            // The operations 0 and 1 of this group are tests with a constant.
            let has_constant = code.get(at)? & 0x30 == 0;
            let bytes = if opcode == 0xf6 { 1 } else { constant };
            shape(true, if has_constant { bytes } else { 0 })
        }
        0xb8..=0xbf => shape(false, if is_wide { 8 } else { constant }),
        _ => one_byte_shape(opcode, constant),
    }?;
    if operands.has_mode {
        at += mode_bytes(code.get(at..)?)?;
    }
    at += operands.immediate_bytes;
    (at <= code.len()).then_some(at)
}

fn one_byte_shape(opcode: u8, constant: usize) -> Option<OperandShape> {
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => shape(true, 0),
            4 => shape(false, 1),
            5 => shape(false, constant),
            _ => None,
        },
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => shape(true, 0),
        0x69 | 0x81 | 0xc7 => shape(true, constant),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => shape(true, 1),
        0x68 | 0xa9 => shape(false, constant),
        0xe8 | 0xe9 => shape(false, 4),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe3 | 0xeb => shape(false, 1),
        0xc2 => shape(false, 2),
        0x50..=0x5f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => shape(false, 0),
        0xc3 | 0xc9 | 0xcc | 0xf4 | 0xf5 | 0xf8..=0xfd => shape(false, 0),
        _ => None,
    }
}

/// Opcodes behind 0x0f; 0x38 and 0x3a stand for all that begin with them.
fn two_byte_shape(opcode: u8) -> Option<OperandShape> {
    match opcode {
        0x05 | 0x0b | 0x31 | 0x77 | 0xa2 | 0xc8..=0xcf => shape(false, 0),
        0x80..=0x8f => shape(false, 4),
        0x3a | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => shape(true, 1),
        0x01 | 0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x38 | 0x40..=0x6f | 0x74..=0x76 => {
            shape(true, 0)
        }
        0x7c..=0x7f | 0x90..=0x9f | 0xa3 | 0xa5 | 0xab | 0xad..=0xb9 => shape(true, 0),
        0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xff => shape(true, 0),
        _ => None,
    }
}

/// Bytes of ModR/M, SIB and displacement.
fn mode_bytes(code: &[u8]) -> Option<usize> {
    let (mode, operand) = (code.first()? >> 6, code[0] & 7);
    if mode == 3 {
        return Some(1);
    }
    let base = if operand == 4 { code.get(1)? & 7 } else { operand };
    let displacement = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (0, _) => 0,
        _ => 1,
    };
    Some(1 + usize::from(operand == 4) + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a text of hexadecimal numbers.
    fn bytes(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    /// Instructions as the assembler of Go writes them, with their forms of operands.
    const INSTRUCTIONS: &str = "\
        493b6610|0f867a030000|55|4889e5|4883ec58|66440fd67c2450|4889442468|c644241f00\n\
        48c744242000000000|440f117c2430|90|488d1d1c955300|e8f0070000|6690|c3|e94afcffff|cc\n\
        4c8da42470feffff|4881ec08020000|48898c2428020000|eb03|8b8850030000|0fbae100|83c901\n\
        f0480fc14108|f0410fb19650030000|48b8efcdab8967452301|b801000000|66b80100|6681380001\n\
        48a901000000|f7c100010000|f6c101|f7d9|48f7f1|f6d8|ff2425c0a04800|ffe0|41ff24c4\n\
        0f1f840000000000|660f1f440000|f30f6f06|c5fe6f06|c4e27d5a06|c4e37d39c101|c5f877\n\
        660f3a0fc108|660f38dcc1|0fb6443801|480fafc1|69c010270000|6bc00a|f3480fb8c1|0f94c0\n\
        0f0b|0f05|d1e8|c1e008|48c1e83f|a801|3c7f|3d00010000|0408|63c1|4863c1|d9c0|6a01\n\
        6800010000|f3a4|f348a5|87c8|480fbcc1|480fc8|8b042500010000\n";

    #[test]
    fn instructions_have_their_lengths() {
        let all = INSTRUCTIONS.split(['|', '\n']).map(str::trim).filter(|text| !text.is_empty());
        for text in all {
            let code = bytes(text);
            assert_eq!(instruction_length(&code), Some(code.len()), "{text}");
            let followed = [&code[..], &[0; 16]].concat();
            assert_eq!(instruction_length(&followed), Some(code.len()), "{text}");
            assert_eq!(instruction_length(&code[..code.len() - 1]), None, "{text} is cut");
        }
        for unknown in ["62f17c481000", "06", "9a", "0f04", "c4e07810c0", "ea", "", "67", "66"] {
            assert_eq!(instruction_length(&bytes(unknown)), None, "{unknown}");
        }
    }

    const BEGIN: &str = "49 3b 66 10 76 06 55 48 89 e5 5d c3";
    /// The call that enlarges the stack, and the jump to the start.
    const FINISH: &str = "e8 00 00 00 00 eb ed cc cc";

    fn x86_64(code: &str) -> Option<(u64, Vec<u64>)> {
        find_probe_offsets(MACHINE_X86_64, &bytes(code)).map(|found| (found.entry, found.returns))
    }

    #[test]
    fn a_function_has_a_probe_behind_its_start_and_at_each_return() {
        assert_eq!(x86_64(&format!("{BEGIN} {FINISH}")), Some((6, vec![11])));
        // 0xc3 in a constant and in an operand is no return.
        let others = "b8 c3 c3 c3 c3 48 89 c3 c3";
        assert_eq!(x86_64(&format!("{BEGIN} {others}")), Some((6, vec![11, 20])));
        let long = "49 3b 66 10 0f 86 01 00 00 00 c3 cc";
        assert_eq!(x86_64(long), Some((10, vec![10])));
        let large_frame = "4c 8d a4 24 70 fe ff ff 4d 3b 66 10 0f 86 01 00 00 00 c3 cc";
        assert_eq!(x86_64(large_frame), Some((18, vec![18])));
    }

    #[test]
    fn a_function_that_is_not_understood_has_no_offsets() {
        // Of Go before 1.17, whose arguments are on the stack; and of C.
        for start in ["64 48 8b 0c 25 f8 ff ff ff 48 3b 61 10 76 01 c3 cc", "55 48 89 e5 5d c3", ""]
        {
            assert_eq!(x86_64(start), None, "{start}");
        }
        // A jump out of it, into an instruction, another kind of return, an unknown instruction, a
        // cut one.
        for end in [
            "eb fb b8 00 00",
            "74 ff",
            "0f 84 fb ff ff ff",
            "eb 10",
            "e9 00 10 00 00",
            "eb 80",
            "c2 08 00",
            "f3 c3",
            "06",
            "e8 00 00",
        ] {
            assert_eq!(x86_64(&format!("{BEGIN} {end}")), None, "{end}");
        }
        assert_eq!(find_probe_offsets(40, &bytes(BEGIN)), None, "another machine");
    }

    #[test]
    fn returns_of_aarch64_are_words() {
        // ldr x16, [x28, #16]; cmp sp, x16; b.ls +16; str x30, [sp, #-32]!; ret; bl; b to the start
        let words = [0xf940_0b90, 0xeb30_63ff, 0x5400_0089, 0xf81e_0ffe, 0xd65f_03c0, 0x9400_0010];
        let code = |last: u32| -> Vec<u8> {
            words.into_iter().chain([last]).flat_map(u32::to_le_bytes).collect()
        };
        let found = find_probe_offsets(MACHINE_AARCH64, &code(0x17ff_fffa)).unwrap();
        assert_eq!((found.entry, found.returns), (12, vec![16]));
        assert_eq!(
            find_probe_offsets(MACHINE_AARCH64, &code(0x17ff_fff9)),
            None,
            "before the start"
        );
        assert_eq!(find_probe_offsets(MACHINE_AARCH64, &code(0x1400_0001)), None, "behind the end");
        assert_eq!(find_probe_offsets(MACHINE_AARCH64, &code(0)[4..]), None, "no comparison");
    }

    #[test]
    fn any_bytes_have_offsets_inside_or_none() {
        let program = include_bytes!("../../../testdata/wire/go_program");
        for machine in [MACHINE_X86_64, MACHINE_AARCH64] {
            for start in 0..program.len() {
                let code = &program[start..];
                if let Some(found) = find_probe_offsets(machine, code) {
                    assert!(found.returns.iter().all(|at| *at < code.len() as u64));
                }
                instruction_length(code);
            }
        }
    }
}
