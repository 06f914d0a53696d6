//! BPF instructions and the little assembler that puts them together.
//!
//! An instruction has 8 bytes: operation, registers, offset (i16, of memory in bytes, of jumps in
//! instructions) and immediate (i32); a load of 64 bits takes two. Jumps are forward only: programs
//! here have no loops. Source: kernel, Documentation/bpf/standardization/instruction-set.rst and
//! include/uapi/linux/bpf.h.

/// One instruction in the kernel's encoding.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination in the low four bits, source in the high four bits.
    pub registers: u8,
    /// Of memory in bytes, of jumps in instructions.
    pub offset: i16,
    /// Constant operand.
    pub immediate: i32,
}

/// A register. `R0` holds results; `R1` to `R5` hold arguments and are clobbered by calls; `R6` to
/// `R9` are preserved. The program's stack is the 512 bytes below the address in `R10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the documentation of the type has the roles")]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessWidth {
    /// `BPF_W`.
    Bits32 = 0x00,
    /// `BPF_DW`.
    Bits64 = 0x18,
}

/// Operation of the arithmetic unit (ALU) on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AluOperation {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Move = 0xb0,
}

/// Jump condition; unsigned except the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum JumpCondition {
    Equal = 0x10,
    Greater = 0x20,
    AnyBitSet = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
    AtMost = 0xb0,
    SignedAtLeast = 0x70,
    SignedLess = 0xc0,
}

/// BPF helper function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum HelperFunction {
    /// Address of a map's value by its key, or null.
    MapLookup = 1,
    /// Sets a map's value.
    MapUpdate = 2,
    /// Removes a map's value.
    MapDelete = 3,
    /// Nanoseconds on the monotonic clock.
    KtimeGetNs = 5,
    /// Process in the high half, thread in the low half.
    GetCurrentPidTgid = 14,
    /// Copies memory of the current process.
    ProbeReadUser = 112,
    /// Copies memory of the kernel.
    ProbeReadKernel = 113,
    /// Writes bytes to the reader of the iterator.
    SeqWrite = 127,
    /// Memory of a ring buffer for a record, or null if it is full.
    RingReserve = 131,
    /// Passes a record on to the reader.
    RingSubmit = 132,
    /// Address of this CPU's copy of a per-CPU variable.
    ThisCpuPtr = 154,
    /// The kernel's object of the current thread.
    GetCurrentTaskBtf = 158,
    /// Registers of a thread in user mode, from such an object.
    TaskPtRegs = 175,
}

const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_STX: u8 = 0x03;
const CLASS_JMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const MODE_IMM: u8 = 0x00;
const MODE_MEM: u8 = 0x60;
const MODE_ATOMIC: u8 = 0xc0;
/// The operand is a register.
const SOURCE_REGISTER: u8 = 0x08;
/// A load of 64 bits, of two instructions.
pub const LOAD_WIDE: u8 = CLASS_LD | MODE_IMM | AccessWidth::Bits64 as u8;
/// A call of a helper function.
pub const CALL: u8 = CLASS_JMP | 0x80;
/// The end of the program.
pub const EXIT: u8 = CLASS_JMP | 0x90;
/// An atomic operation on 64 bits.
pub const ATOMIC: u8 = CLASS_STX | MODE_ATOMIC | AccessWidth::Bits64 as u8;
/// The immediate of an atomic addition.
pub const ATOMIC_ADD: i32 = 0x00;
/// The immediate of a compare-and-exchange.
pub const ATOMIC_COMPARE_EXCHANGE: i32 = 0xf1;
/// In a wide load: the immediate is the descriptor of a map.
const PSEUDO_MAP: u8 = 1;
/// In a wide load: the second word's immediate is an offset into the value of the map with this
/// descriptor.
pub const PSEUDO_MAP_VALUE: u8 = 2;
/// In a wide load: the immediate is the BTF id of a kernel variable.
pub const PSEUDO_BTF_ID: u8 = 3;

/// Label of a jump.
#[derive(Clone, Copy, Debug)]
pub struct JumpLabel(usize);

/// BPF assembler.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    /// Position of each label.
    label_offsets: Vec<Option<usize>>,
    /// Jumps and their targets.
    jumps: Vec<(usize, JumpLabel)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: to as u8 | from << 4, offset, immediate });
    }

    /// `to = *(to_width *)(from + offset)`
    pub fn load(&mut self, width: AccessWidth, to: Register, from: Register, offset: i16) {
        self.push(CLASS_LDX | MODE_MEM | width as u8, to, from as u8, offset, 0);
    }

    /// `*(u64 *)(to + offset) = from`
    pub fn store(&mut self, to: Register, offset: i16, from: Register) {
        self.store_width(AccessWidth::Bits64, to, offset, from);
    }

    /// `*(to_width *)(to + offset) = from`
    pub fn store_width(&mut self, width: AccessWidth, to: Register, offset: i16, from: Register) {
        self.push(CLASS_STX | MODE_MEM | width as u8, to, from as u8, offset, 0);
    }

    /// `to = to ∘ from`
    pub fn register(&mut self, what: AluOperation, to: Register, from: Register) {
        self.push(CLASS_ALU64 | SOURCE_REGISTER | what as u8, to, from as u8, 0, 0);
    }

    /// `to = to ∘ immediate`, the immediate sign-extended.
    pub fn immediate(&mut self, what: AluOperation, to: Register, immediate: i32) {
        self.push(CLASS_ALU64 | what as u8, to, 0, 0, immediate);
    }

    /// `to = value`, 64 bits.
    pub fn constant(&mut self, to: Register, value: u64) {
        self.wide(to, 0, value as u32 as i32, (value >> 32) as i32);
    }

    /// `to = &map_value[offset]` of the map's only value.
    pub fn map_value(&mut self, to: Register, map: i32, offset: i32) {
        self.wide(to, PSEUDO_MAP_VALUE, map, offset);
    }

    /// `to = map`, an argument of helper functions.
    pub fn map(&mut self, to: Register, map: i32) {
        self.wide(to, PSEUDO_MAP, map, 0);
    }

    /// `to = &variable`, a kernel variable by its BTF id.
    pub fn variable(&mut self, to: Register, btf_id: u32) {
        self.wide(to, PSEUDO_BTF_ID, btf_id as i32, 0);
    }

    fn wide(&mut self, to: Register, from: u8, low: i32, high: i32) {
        self.push(LOAD_WIDE, to, from, 0, low);
        self.push(0, Register::R0, 0, 0, high);
    }

    /// `lock *(u64 *)(to + offset) += from`
    pub fn atomic_add(&mut self, to: Register, offset: i16, from: Register) {
        self.push(ATOMIC, to, from as u8, offset, ATOMIC_ADD);
    }

    /// `if *(u64 *)(to + offset) == r0 { it = from }`; `r0` is the previous value.
    pub fn compare_exchange(&mut self, to: Register, offset: i16, from: Register) {
        self.push(ATOMIC, to, from as u8, offset, ATOMIC_COMPARE_EXCHANGE);
    }

    /// `r0 = function(r1, …)`
    pub fn call(&mut self, function: HelperFunction) {
        self.push(CALL, Register::R0, 0, 0, function as i32);
    }

    /// `return 0`
    pub fn exit(&mut self) {
        self.immediate(AluOperation::Move, Register::R0, 0);
        self.push(EXIT, Register::R0, 0, 0, 0);
    }

    /// Creates a label for a later position.
    pub fn label(&mut self) -> JumpLabel {
        self.label_offsets.push(None);
        JumpLabel(self.label_offsets.len() - 1)
    }

    /// Binds the label to the current position.
    pub fn bind(&mut self, label: JumpLabel) {
        self.label_offsets[label.0] = Some(self.code.len());
    }

    /// `if left ∘ right goto label`
    pub fn jump(&mut self, when: JumpCondition, left: Register, right: Register, label: JumpLabel) {
        self.jumps.push((self.code.len(), label));
        self.push(CLASS_JMP | SOURCE_REGISTER | when as u8, left, right as u8, 0, 0);
    }

    /// `if left ∘ immediate goto label`
    pub fn jump_if(
        &mut self,
        when: JumpCondition,
        left: Register,
        immediate: i32,
        label: JumpLabel,
    ) {
        self.jumps.push((self.code.len(), label));
        self.push(CLASS_JMP | when as u8, left, 0, 0, immediate);
    }

    /// `goto label`
    pub fn jump_always(&mut self, label: JumpLabel) {
        self.jumps.push((self.code.len(), label));
        self.push(CLASS_JMP, Register::R0, 0, 0, 0);
    }

    /// Resolves the jumps and returns the program.
    pub fn finish(mut self) -> Vec<Instruction> {
        for &(at, label) in &self.jumps {
            let offset = self.label_offsets[label.0].expect("BUG: a label that is nowhere");
            assert!(offset > at, "BUG: a jump backwards");
            let distance = i16::try_from(offset - at - 1);
            self.code[at].offset = distance.expect("BUG: a jump of more than 32,767");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::Register::*;
    use super::*;

    #[test]
    fn bytes_are_those_of_the_specification() {
        let mut code = Assembler::default();
        let end = code.label();
        code.load(AccessWidth::Bits32, R3, R6, 24);
        code.register(AluOperation::Move, R1, R2);
        code.jump_if(JumpCondition::Greater, R4, 1215, end);
        code.atomic_add(R5, 64, R1);
        code.call(HelperFunction::KtimeGetNs);
        code.bind(end);
        code.exit();
        let expected = [
            (0x61, 0x63, 24, 0),
            (0xbf, 0x21, 0, 0),
            (0x25, 0x04, 2, 1215),
            (0xdb, 0x15, 64, 0),
            (0x85, 0x00, 0, 5),
            (0xb7, 0x00, 0, 0),
            (0x95, 0x00, 0, 0),
        ];
        let found: Vec<_> = code
            .finish()
            .iter()
            .map(|insn| (insn.code, insn.registers, insn.offset, insn.immediate))
            .collect();
        assert_eq!(found, expected);
    }
}
