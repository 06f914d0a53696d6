//! Records of plaintext in the ring buffer: a call of a library is one record per chunk.
//!
//! Programs have in `r6` the number of bytes, in `r7` the session, in `r8` the address of the bytes
//! in the process, and what all records of a call have on the stack.

use bpf::Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use bpf::{AccessWidth, AluOperation, Assembler, HelperFunction, JumpCondition, JumpLabel};

use super::{END, OTHER, POSITION, SESSION, SESSION_FLAGS, START, THREAD, TlsMaps};
use crate::tls_event::{
    CAPTURED_OFFSET, END_OFFSET, FLAGS_OFFSET, HEADER_BYTES, KIND_OFFSET, LENGTH_OFFSET,
    OTHER_OFFSET, POSITION_OFFSET, SESSION_OFFSET, START_OFFSET,
};

/// Bytes of a chunk, by size; each record has the space of one of them.
const CHUNKS: [i32; 4] = [256, 1_024, 4_096, 16_384];
/// Largest chunk.
const CHUNK_MAX: i32 = CHUNKS[3];
/// Chunks of a call; what is beyond them is a hole.
const CHUNKS_OF_CALL: usize = 8;
/// `BPF_RB_NO_WAKEUP`: the reader looks by itself, so that programs do not wake it up.
const NO_WAKEUP: i32 = 1;

/// Emits the records of `r6` bytes at `r8`.
pub(super) fn emit_chunks(
    code: &mut Assembler,
    maps: &TlsMaps,
    kind: i32,
    end: JumpLabel,
    lost: JumpLabel,
) {
    let tail = code.label();
    for _ in 1..CHUNKS_OF_CALL {
        code.jump_if(JumpCondition::AtMost, R6, CHUNK_MAX, tail);
        emit_record(code, maps, kind, RecordSize::Chunk, lost);
        code.immediate(AluOperation::Subtract, R6, CHUNK_MAX);
        code.immediate(AluOperation::Add, R8, CHUNK_MAX);
        code.load(AccessWidth::Bits64, R1, R10, POSITION);
        code.immediate(AluOperation::Add, R1, CHUNK_MAX);
        code.store(R10, POSITION, R1);
    }
    let cut = code.label();
    code.jump_if(JumpCondition::Greater, R6, CHUNK_MAX, cut);
    code.bind(tail);
    for size in CHUNKS {
        let larger = code.label();
        code.jump_if(JumpCondition::Greater, R6, size, larger);
        emit_record(code, maps, kind, RecordSize::AtMost(size), lost);
        code.jump_always(end);
        code.bind(larger);
    }
    code.bind(cut);
    emit_record(code, maps, kind, RecordSize::Cut, lost);
    code.jump_always(end);
}

/// Size of a record, and which of the remaining `r6` bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordSize {
    /// None of them.
    NoBytes,
    /// One full chunk of them.
    Chunk,
    /// All of them, at most this number.
    AtMost(i32),
    /// All of them, of which only a full chunk is copied.
    Cut,
}

/// Reserves, fills and submits a record. `r9` is clobbered.
pub(super) fn emit_record(
    code: &mut Assembler,
    maps: &TlsMaps,
    kind: i32,
    size: RecordSize,
    lost: JumpLabel,
) {
    let space = match size {
        RecordSize::NoBytes => 0,
        RecordSize::AtMost(space) => space,
        RecordSize::Chunk | RecordSize::Cut => CHUNK_MAX,
    };
    reserve(code, maps, kind, space, lost);
    match size {
        RecordSize::Chunk => code.immediate(AluOperation::Move, R1, CHUNK_MAX),
        _ => code.register(AluOperation::Move, R1, R6),
    }
    code.store(R9, LENGTH_OFFSET, R1);
    match size {
        RecordSize::NoBytes => code.immediate(AluOperation::Move, R2, 0),
        RecordSize::AtMost(_) => code.register(AluOperation::Move, R2, R6),
        RecordSize::Chunk | RecordSize::Cut => code.immediate(AluOperation::Move, R2, CHUNK_MAX),
    }
    code.store_width(AccessWidth::Bits32, R9, CAPTURED_OFFSET, R2);
    if size != RecordSize::NoBytes {
        let is_read = code.label();
        code.register(AluOperation::Move, R1, R9);
        code.immediate(AluOperation::Add, R1, HEADER_BYTES.into());
        code.register(AluOperation::Move, R3, R8);
        code.call(HelperFunction::ProbeReadUser);
        code.jump_if(JumpCondition::Equal, R0, 0, is_read);
        code.immediate(AluOperation::Move, R1, 0);
        code.store_width(AccessWidth::Bits32, R9, CAPTURED_OFFSET, R1);
        code.bind(is_read);
    }
    submit(code);
}

/// `r9 = a record`, with all fields but its sizes. Jumps to `lost` if there is no space.
fn reserve(code: &mut Assembler, maps: &TlsMaps, kind: i32, space: i32, lost: JumpLabel) {
    code.map(R1, maps.ring);
    code.immediate(AluOperation::Move, R2, i32::from(HEADER_BYTES) + space);
    code.immediate(AluOperation::Move, R3, 0);
    code.call(HelperFunction::RingReserve);
    code.jump_if(JumpCondition::Equal, R0, 0, lost);
    code.register(AluOperation::Move, R9, R0);
    let places = [
        (THREAD, 0),
        (SESSION, SESSION_OFFSET),
        (START, START_OFFSET),
        (END, END_OFFSET),
        (POSITION, POSITION_OFFSET),
        (OTHER, OTHER_OFFSET),
    ];
    for (from, to) in places {
        code.load(AccessWidth::Bits64, R1, R10, from);
        code.store(R9, to, R1);
    }
    code.immediate(AluOperation::Move, R1, kind);
    code.store_width(AccessWidth::Bits32, R9, KIND_OFFSET, R1);
    for place in (0..HEADER_BYTES - FLAGS_OFFSET).step_by(8) {
        code.load(AccessWidth::Bits64, R1, R7, SESSION_FLAGS + place);
        code.store(R9, FLAGS_OFFSET + place, R1);
    }
}

fn submit(code: &mut Assembler) {
    code.register(AluOperation::Move, R1, R9);
    code.immediate(AluOperation::Move, R2, NO_WAKEUP);
    code.call(HelperFunction::RingSubmit);
}
