//! BPF programs of uprobes at the functions of a TLS library.
//!
//! The uprobe at the start of a function notes its arguments for the thread; the uretprobe copies
//! the plaintext that the call moved, in chunks, to the ring buffer. Positions of streams are
//! counted here, per session, so a chunk that is lost shows as a gap before the next one. A program
//! at a tracepoint of TCP notes the socket that a thread reads while it is inside of the library:
//! no layout of the library's objects is needed.
//!
//! Maps, with offsets of their values:
//!
//! ```text
//! calls     by process and thread    0 session, 8 buffer, 16 address of a count, 24 time,
//!                                    32 function, 40 stack; there while the thread is inside
//! sessions  by process and session   0 bytes read, 8 bytes written, 16 a call reads, 24 a call
//!                                    writes, 32 time of the first call that failed to write since
//!                                    the last one that wrote, 40 flags, 48 family of the socket,
//!                                    56 local, 72 remote address, 88 ports, 92 namespace
//! goroutines  by process and goroutine: as `calls`, of programs of Go; a buffer on the stack of
//!             the goroutine is noted by its distance from the end of the stack, and in the place
//!             of the address of a count whether the bytes were reported
//! counts    one value                0 chunks that were lost
//! ```
//!
//! A session notes which of its directions have a call. One that finds its direction in use follows
//! a call whose return was not seen: the kernel did not run its program, the call was forgotten, or
//! another session was used inside of it (TLS in TLS). Its bytes are unknown, and a gap of
//! [`LOST_CALL`] bytes says so. LibreSSL implements `SSL_read_ex` by `SSL_read`: the inner call
//! replaces the outer one, and each byte is reported once. A direction of a session is never used
//! by two threads: the libraries do not allow that.

mod go_call;
mod record;
mod session_end;
mod socket;

use bpf::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R10};
use bpf::{
    AccessWidth, AluOperation, Assembler, HelperFunction, Instruction, JumpCondition, JumpLabel,
};

pub(crate) use self::go_call::{
    GO_CALL_KEY, GO_FUNCTIONS, GO_SYMBOLS, go_end_program, go_entry_program, go_handshake_program,
    go_return_program,
};
use self::record::{RecordSize, emit_chunks, emit_record};
pub(crate) use self::session_end::{end_program, new_program, shutdown_program};
pub(crate) use self::socket::{SocketOffsets, socket_program};
use crate::tls_event::{KIND_READ, KIND_WRITTEN};

/// Sizes of keys and values.
pub(crate) const CALL_KEY: u32 = 8;
pub(crate) const CALL_VALUE: u32 = 48;
pub(crate) const SESSION_KEY: u32 = 16;
pub(crate) const SESSION_VALUE: u32 = 96;

/// Offsets in a call.
const CALL_COUNT: i16 = 16;
const CALL_TIME: i16 = 24;
const CALL_FUNCTION: i16 = 32;
const CALL_STACK: i16 = 40;
/// Offsets in a session: what is kept of each direction is 8 bytes apart.
const SESSION_BYTES: i16 = 0;
const SESSION_CALLS: i16 = 16;
const SESSION_UNWRITTEN: i16 = 32;
/// Offset of the flags in a session; what follows is copied to records.
const SESSION_FLAGS: i16 = 40;
/// A file may have two probes at one function, if an overlay and its lower file are both read. The
/// second one runs at once after the first, with the same stack.
const SAME_CALL_NS: i32 = 50_000;
/// Bytes of a gap for a call that was not reported: more than any session has.
pub(crate) const LOST_CALL: u64 = 1 << 40;
/// Offsets on the stack of a program.
const THREAD: i16 = -8;
const SESSION: i16 = -16;
/// The key of the session: process, session.
const KEY: i16 = -24;
const START: i16 = -32;
const END: i16 = -40;
const POSITION: i16 = -48;
const COUNT: i16 = -56;
/// Position in the stream of the other direction.
const OTHER: i16 = -64;
/// The stack of the process.
const STACK: i16 = -72;
/// A value of any map.
const VALUE: i16 = -168;
/// The key of a call in Go: process, goroutine.
const GO_CALL: i16 = -184;
const GOROUTINE: i16 = GO_CALL + 8;
/// Start and end of the stack of a goroutine.
const GO_STACK: i16 = -200;
/// The size of the buffer of a call in Go, or the error that it returns.
const GO_WORD: i16 = -208;

/// Descriptors of the maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsMaps {
    pub(crate) calls: i32,
    pub(crate) goroutines: i32,
    pub(crate) sessions: i32,
    pub(crate) counts: i32,
    pub(crate) ring: i32,
}

/// How a function says how many bytes it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteCountSource {
    /// It returns it as `int`; not positive if it failed.
    ReturnedInt,
    /// It returns it as `ssize_t`, and the bytes are in no buffer.
    ReturnedSize,
    /// The fourth argument points to it; the function returns 0 if it failed.
    OutParameter,
    /// It moves none.
    None,
}

/// A function that moves bytes of a session, which is its first argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsFunction {
    pub(crate) symbol: &'static str,
    /// Whether the bytes are received.
    pub(crate) is_read: bool,
    pub(crate) count: ByteCountSource,
    /// Number, from 1, of the function that may have called it for the same bytes; 0 for none.
    pub(crate) outer: i32,
}

impl TlsFunction {
    /// Distance of what a session keeps of the direction.
    const fn direction(&self) -> i16 {
        if self.is_read { 0 } else { 8 }
    }
}

const fn function(
    symbol: &'static str,
    is_read: bool,
    count: ByteCountSource,
    outer: i32,
) -> TlsFunction {
    TlsFunction { symbol, is_read, count, outer }
}

/// Functions with programs at start and return. `SSL_read_early_data` and `SSL_write_early_data`
/// call two of them. The handshake moves no plaintext; its socket is that of the session.
pub(crate) const FUNCTIONS: [TlsFunction; 6] = [
    function("SSL_read", true, ByteCountSource::ReturnedInt, 3),
    function("SSL_write", false, ByteCountSource::ReturnedInt, 4),
    function("SSL_read_ex", true, ByteCountSource::OutParameter, 0),
    function("SSL_write_ex", false, ByteCountSource::OutParameter, 0),
    function("SSL_sendfile", false, ByteCountSource::ReturnedSize, 0),
    function("SSL_do_handshake", true, ByteCountSource::None, 0),
];

/// Offsets of registers in `struct pt_regs` (x86-64) or `struct user_pt_regs` (aarch64).
struct RegisterOffsets {
    arguments: [i16; 4],
    result: i16,
    stack: i16,
    /// Of Go: the first arguments, which are also the first results, and the goroutine.
    go_words: [i16; 3],
    goroutine: i16,
}

#[cfg(target_arch = "aarch64")]
const REGISTERS: RegisterOffsets = RegisterOffsets {
    arguments: [0, 8, 16, 24],
    result: 0,
    stack: 248,
    go_words: [0, 8, 16],
    goroutine: 224,
};
#[cfg(not(target_arch = "aarch64"))]
const REGISTERS: RegisterOffsets = RegisterOffsets {
    arguments: [112, 104, 96, 88],
    result: 80,
    stack: 152,
    go_words: [80, 40, 88],
    goroutine: 8,
};

/// Whether the offsets of this architecture are known.
pub(crate) const IS_SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// `to = address of a place on the stack`
fn stack_address(code: &mut Assembler, to: bpf::Register, place: i16) {
    code.register(AluOperation::Move, to, R10);
    code.immediate(AluOperation::Add, to, place.into());
}

/// `r0 = value of the map by the key on the stack`, or null.
fn look_up(code: &mut Assembler, map: i32, key: i16) {
    code.map(R1, map);
    stack_address(code, R2, key);
    code.call(HelperFunction::MapLookup);
}

/// Sets the value of the map by the key on the stack to [`VALUE`].
fn update(code: &mut Assembler, map: i32, key: i16) {
    code.map(R1, map);
    stack_address(code, R2, key);
    stack_address(code, R3, VALUE);
    code.immediate(AluOperation::Move, R4, 0);
    code.call(HelperFunction::MapUpdate);
}

/// Notes process and thread, and the process as part of the session's key.
fn note_thread(code: &mut Assembler) {
    code.call(HelperFunction::GetCurrentPidTgid);
    code.store(R10, THREAD, R0);
    code.immediate(AluOperation::ShiftRight, R0, 32);
    code.store(R10, KEY, R0);
}

/// Sets [`VALUE`] to a session without bytes.
fn new_session(code: &mut Assembler, flags: i32) {
    code.immediate(AluOperation::Move, R1, 0);
    for place in (0..SESSION_VALUE as i16).step_by(8) {
        code.store(R10, VALUE + place, R1);
    }
    code.immediate(AluOperation::Move, R1, flags);
    code.store(R10, VALUE + SESSION_FLAGS, R1);
}

/// `r7 = the session whose key is on the stack`, which is created if it is unknown.
fn find_session(code: &mut Assembler, maps: &TlsMaps, lost: JumpLabel) {
    let found = code.label();
    look_up(code, maps.sessions, KEY);
    code.jump_if(JumpCondition::NotEqual, R0, 0, found);
    new_session(code, 0);
    update(code, maps.sessions, KEY);
    look_up(code, maps.sessions, KEY);
    code.jump_if(JumpCondition::Equal, R0, 0, lost);
    code.bind(found);
    code.register(AluOperation::Move, R7, R0);
}

/// Counts a loss and ends the program.
fn end_with_loss(code: &mut Assembler, maps: &TlsMaps) {
    code.map_value(R1, maps.counts, 0);
    code.immediate(AluOperation::Move, R2, 1);
    code.atomic_add(R1, 0, R2);
    code.exit();
}

/// Adds a hole for a call whose bytes are unknown to the session `r7`. `r1` and `r2` are clobbered.
fn add_hole(code: &mut Assembler, of: &TlsFunction) {
    code.load(AccessWidth::Bits64, R1, R7, SESSION_BYTES + of.direction());
    code.constant(R2, LOST_CALL);
    code.register(AluOperation::Add, R1, R2);
    code.store(R7, SESSION_BYTES + of.direction(), R1);
}

/// Sets [`VALUE`] to a call of the function with this number, with what is on the stack and the
/// buffer `r8`.
fn new_call(code: &mut Assembler, function: i32) {
    for (from, to) in [(SESSION, 0), (COUNT, 16), (START, CALL_TIME), (STACK, CALL_STACK)] {
        code.load(AccessWidth::Bits64, R1, R10, from);
        code.store(R10, VALUE + to, R1);
    }
    code.store(R10, VALUE + 8, R8);
    code.immediate(AluOperation::Move, R1, function);
    code.store(R10, VALUE + CALL_FUNCTION, R1);
}

/// The program at the start of the function with this number, from 1.
///
/// ```c
/// call = calls[thread];
/// if (!call || call->session != session || !(inside of the outer function || the same call)) {
///     session = sessions[session] or a new one;
///     if (session->calls[direction]) session->bytes[direction] += LOST_CALL;
///     session->calls[direction] = 1;
/// }
/// calls[thread] = { session, buffer, count, bpf_ktime_get_ns(), function, stack };
/// ```
///
/// If the call cannot be noted, the next one of its direction finds it. A handshake inside of
/// another call of the session, as BoringSSL has them, leaves the call as it is.
pub(crate) fn entry_program(function: i32, of: &TlsFunction, maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [note, first, in_use, free, end, lost] = std::array::from_fn(|_| code.label());
    let [session, buffer, _, count] = REGISTERS.arguments;
    code.load(AccessWidth::Bits64, R7, R1, session);
    code.load(AccessWidth::Bits64, R8, R1, buffer);
    for (place, register) in [(COUNT, count), (STACK, REGISTERS.stack)] {
        code.load(AccessWidth::Bits64, R2, R1, register);
        code.store(R10, place, R2);
    }
    note_thread(&mut code);
    code.store(R10, SESSION, R7);
    code.call(HelperFunction::KtimeGetNs);
    code.store(R10, START, R0);
    look_up(&mut code, maps.calls, THREAD);
    code.jump_if(JumpCondition::Equal, R0, 0, first);
    code.load(AccessWidth::Bits64, R1, R0, 0);
    code.jump(JumpCondition::NotEqual, R1, R7, first);
    if of.count == ByteCountSource::None {
        code.jump_always(end);
    } else {
        code.load(AccessWidth::Bits64, R1, R0, CALL_FUNCTION);
        if of.outer != 0 {
            code.jump_if(JumpCondition::Equal, R1, of.outer, note);
        }
        jump_if_same(&mut code, function, note, first);
    }
    code.bind(first);
    if of.count != ByteCountSource::None {
        find_session(&mut code, maps, lost);
        code.load(AccessWidth::Bits64, R1, R7, SESSION_CALLS + of.direction());
        code.jump_if(JumpCondition::NotEqual, R1, 0, in_use);
        code.jump_always(free);
        code.bind(in_use);
        add_hole(&mut code, of);
        code.bind(free);
        code.immediate(AluOperation::Move, R1, 1);
        code.store(R7, SESSION_CALLS + of.direction(), R1);
    }
    code.bind(note);
    new_call(&mut code, function);
    update(&mut code, maps.calls, THREAD);
    if of.count == ByteCountSource::None {
        code.bind(end);
        code.exit();
        return code.finish();
    }
    code.jump_if(JumpCondition::NotEqual, R0, 0, lost);
    code.exit();
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.finish()
}

/// Jumps to `same` if the call `r0`, whose function is `r1`, is that of this function which was
/// just noted, or to `other`.
fn jump_if_same(code: &mut Assembler, function: i32, same: JumpLabel, other: JumpLabel) {
    code.jump_if(JumpCondition::NotEqual, R1, function, other);
    code.load(AccessWidth::Bits64, R1, R0, CALL_STACK);
    code.load(AccessWidth::Bits64, R2, R10, STACK);
    code.jump(JumpCondition::NotEqual, R1, R2, other);
    code.load(AccessWidth::Bits64, R1, R0, CALL_TIME);
    code.immediate(AluOperation::Add, R1, SAME_CALL_NS);
    code.load(AccessWidth::Bits64, R2, R10, START);
    code.jump(JumpCondition::Less, R2, R1, same);
}

/// The program at the return of the function with this number.
///
/// ```c
/// call = calls[thread];
/// if (!call) return 0;                                   // reported by a call inside of it
/// delete calls[thread];                                  // a handshake: only if it is its call
/// if (call->function != function) return 0;              // found by the next call
/// session = sessions[call->session];
/// session->calls[direction] = 0;
/// count = …;                                             // as its [`ByteCountSource`] says
/// if (it failed to write && !session->unwritten) session->unwritten = call->time;
/// if (it failed) return 0;
/// start = session->unwritten ?: call->time;              // of a write
/// position = session->bytes[direction];
/// session->bytes[direction] += count;                    // LOST_CALL if it is unknown
/// for each chunk: reserve, copy, submit
/// ```
pub(crate) fn return_program(function: i32, of: &TlsFunction, maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [end, lost, other] = std::array::from_fn(|_| code.label());
    code.register(AluOperation::Move, R6, R1);
    note_thread(&mut code);
    look_up(&mut code, maps.calls, THREAD);
    code.jump_if(JumpCondition::Equal, R0, 0, end);
    code.load(AccessWidth::Bits64, R1, R0, CALL_FUNCTION);
    code.jump_if(JumpCondition::NotEqual, R1, function, other);
    code.load(AccessWidth::Bits64, R8, R0, 8);
    for (from, to) in [(0, SESSION), (16, COUNT), (CALL_TIME, START)] {
        code.load(AccessWidth::Bits64, R1, R0, from);
        code.store(R10, to, R1);
    }
    forget(&mut code, maps.calls, THREAD);
    if of.count == ByteCountSource::None {
        code.bind(end);
        code.bind(other);
        code.exit();
        return code.finish();
    }
    find_session(&mut code, maps, lost);
    code.immediate(AluOperation::Move, R1, 0);
    code.store(R7, SESSION_CALLS + of.direction(), R1);
    let [failed, unknown] = std::array::from_fn(|_| code.label());
    moved_bytes(&mut code, of.count, MoveLabels { nothing: end, failed, unknown });
    code.call(HelperFunction::KtimeGetNs);
    code.store(R10, END, R0);
    if !of.is_read {
        start_at_first_attempt(&mut code);
    }
    note_positions(&mut code, of);
    let kind = if of.is_read { KIND_READ } else { KIND_WRITTEN };
    match of.count {
        ByteCountSource::ReturnedSize => {
            emit_record(&mut code, maps, kind, RecordSize::NoBytes, lost);
        }
        _ => emit_chunks(&mut code, maps, kind, end, lost),
    }
    code.bind(end);
    code.exit();
    code.bind(failed);
    if !of.is_read {
        let is_noted = code.label();
        code.load(AccessWidth::Bits64, R1, R7, SESSION_UNWRITTEN);
        code.jump_if(JumpCondition::NotEqual, R1, 0, is_noted);
        code.load(AccessWidth::Bits64, R1, R10, START);
        code.store(R7, SESSION_UNWRITTEN, R1);
        code.bind(is_noted);
    }
    code.exit();
    code.bind(other);
    forget(&mut code, maps.calls, THREAD);
    code.exit();
    if of.count != ByteCountSource::ReturnedInt {
        code.bind(unknown);
        add_hole(&mut code, of);
    }
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.finish()
}

/// A call that wrote started when the first one did that failed to write the same bytes.
fn start_at_first_attempt(code: &mut Assembler) {
    let is_first = code.label();
    code.load(AccessWidth::Bits64, R1, R7, SESSION_UNWRITTEN);
    code.jump_if(JumpCondition::Equal, R1, 0, is_first);
    code.store(R10, START, R1);
    code.immediate(AluOperation::Move, R1, 0);
    code.store(R7, SESSION_UNWRITTEN, R1);
    code.bind(is_first);
}

/// Notes the positions in both streams of the session `r7`, and moves behind `r6` bytes.
fn note_positions(code: &mut Assembler, of: &TlsFunction) {
    code.load(AccessWidth::Bits64, R1, R7, SESSION_BYTES + 8 - of.direction());
    code.store(R10, OTHER, R1);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_BYTES + of.direction());
    code.store(R10, POSITION, R1);
    code.register(AluOperation::Add, R1, R6);
    code.store(R7, SESSION_BYTES + of.direction(), R1);
}

/// Where a program continues if a call did not move a known number of bytes.
struct MoveLabels {
    nothing: JumpLabel,
    failed: JumpLabel,
    /// It moved some: never the place of [`ByteCountSource::ReturnedInt`].
    unknown: JumpLabel,
}

/// `r6 = bytes that the call moved`; its value before is the address of the registers.
fn moved_bytes(code: &mut Assembler, count: ByteCountSource, labels: MoveLabels) {
    let MoveLabels { nothing, failed, unknown } = labels;
    code.load(AccessWidth::Bits64, R1, R6, REGISTERS.result);
    match count {
        ByteCountSource::ReturnedInt => {
            code.register(AluOperation::Move, R6, R1);
            code.immediate(AluOperation::ShiftLeft, R6, 32);
            code.immediate(AluOperation::ShiftRight, R6, 32);
            code.jump_if(JumpCondition::Equal, R6, 0, failed);
            // Negative numbers are failures.
            code.jump_if(JumpCondition::Greater, R6, i32::MAX, failed);
        }
        ByteCountSource::None | ByteCountSource::ReturnedSize => {
            code.register(AluOperation::Move, R6, R1);
            code.jump_if(JumpCondition::SignedLess, R6, 0, failed);
            code.jump_if(JumpCondition::Equal, R6, 0, nothing);
            code.jump_if(JumpCondition::Greater, R6, i32::MAX, unknown);
        }
        ByteCountSource::OutParameter => {
            code.immediate(AluOperation::ShiftLeft, R1, 32);
            code.jump_if(JumpCondition::Equal, R1, 0, failed);
            code.load(AccessWidth::Bits64, R3, R10, COUNT);
            stack_address(code, R1, COUNT);
            code.immediate(AluOperation::Move, R2, 8);
            code.call(HelperFunction::ProbeReadUser);
            code.jump_if(JumpCondition::NotEqual, R0, 0, unknown);
            code.load(AccessWidth::Bits64, R6, R10, COUNT);
            code.jump_if(JumpCondition::Equal, R6, 0, nothing);
            code.jump_if(JumpCondition::Greater, R6, i32::MAX, unknown);
        }
    }
}

/// Removes the value of the map by the key on the stack.
fn forget(code: &mut Assembler, map: i32, key: i16) {
    code.map(R1, map);
    stack_address(code, R2, key);
    code.call(HelperFunction::MapDelete);
}

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod go_call_tests;
#[cfg(test)]
mod test_machine;
#[cfg(test)]
mod tests;
