//! Programs at the functions of `crypto/tls` of Go.
//!
//! A goroutine changes its thread while it waits, so a call is noted for the goroutine, whose
//! address is in a register of its own. It is known while a call of the kernel runs, too. The stack
//! of a goroutine moves when it grows: a buffer on it is noted by its distance from the end of the
//! stack, which does not change.
//!
//! Goroutines may use a direction of a session at the same time. A session notes the time of the
//! last call of each direction: one that finds another time at its return overlapped with it, and
//! is a hole. What a client writes is reported at the start of the call: another goroutine may read
//! the response before the call returns. Sources: Go, src/cmd/compile/abi-internal.md,
//! runtime/runtime2.go (`g`, `stack`).

use bpf::Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use bpf::{
    AccessWidth, AluOperation, Assembler, HelperFunction, Instruction, JumpCondition, JumpLabel,
};

use super::record::emit_chunks;
use super::session_end::end_session;
use super::{
    ByteCountSource, CALL_COUNT, CALL_FUNCTION, CALL_TIME, COUNT, END, GO_CALL, GO_STACK, GO_WORD,
    GOROUTINE, KEY, REGISTERS, SESSION, SESSION_CALLS, SESSION_FLAGS, SESSION_UNWRITTEN, STACK,
    START, TlsFunction, TlsMaps, VALUE, add_hole, end_with_loss, find_session, forget, function,
    jump_if_same, look_up, new_call, new_session, note_positions, note_thread, stack_address,
    update,
};
use crate::tls_event::{FLAG_CLIENT, FLAG_FROM_START, FLAG_SHUT_DOWN, KIND_READ, KIND_WRITTEN};

/// Size of the key of a call.
pub(crate) const GO_CALL_KEY: u32 = 16;
/// Functions of Go that move bytes, with programs at start and return.
pub(crate) const GO_FUNCTIONS: [TlsFunction; 2] = [
    function("crypto/tls.(*Conn).Read", true, ByteCountSource::ReturnedSize, 0),
    function("crypto/tls.(*Conn).Write", false, ByteCountSource::ReturnedSize, 0),
];
/// All functions with programs: those, of a handshake, one of which begins each session, and of the
/// end.
pub(crate) const GO_SYMBOLS: [&str; 5] = [
    GO_FUNCTIONS[0].symbol,
    GO_FUNCTIONS[1].symbol,
    "crypto/tls.(*Conn).serverHandshake",
    "crypto/tls.(*Conn).clientHandshake",
    "crypto/tls.(*Conn).Close",
];

/// Notes the goroutine `r9` of the process that is noted.
pub(super) fn note_goroutine(code: &mut Assembler) {
    code.load(AccessWidth::Bits64, R1, R10, KEY);
    code.store(R10, GO_CALL, R1);
    code.store(R10, GOROUTINE, R9);
}

/// Notes what all starts of functions note. `r1` points to the registers.
fn begin(code: &mut Assembler) {
    let [session, buffer, size] = REGISTERS.go_words;
    code.load(AccessWidth::Bits64, R2, R1, size);
    code.store(R10, GO_WORD, R2);
    code.load(AccessWidth::Bits64, R7, R1, session);
    code.load(AccessWidth::Bits64, R8, R1, buffer);
    code.load(AccessWidth::Bits64, R9, R1, REGISTERS.goroutine);
    code.load(AccessWidth::Bits64, R2, R1, REGISTERS.stack);
    code.store(R10, STACK, R2);
    code.immediate(AluOperation::Move, R2, 0);
    code.store(R10, COUNT, R2);
    note_thread(code);
    note_goroutine(code);
    code.store(R10, SESSION, R7);
    code.call(HelperFunction::KtimeGetNs);
    code.store(R10, START, R0);
}

/// Reads where the stack of the goroutine is. `r0` is 0 if it was read.
fn read_stack(code: &mut Assembler) {
    stack_address(code, R1, GO_STACK);
    code.immediate(AluOperation::Move, R2, 16);
    code.load(AccessWidth::Bits64, R3, R10, GOROUTINE);
    code.call(HelperFunction::ProbeReadUser);
}

/// The program behind the start of the function with this number, from 1.
///
/// ```c
/// call = goroutines[goroutine];
/// if (call && it is the same call) return 0;
/// if (buffer is in goroutine->stack) buffer -= goroutine->stack.hi;
/// session = sessions[session] or a new one;
/// if (session->calls[direction]) session->bytes[direction] += LOST_CALL;
/// session->calls[direction] = bpf_ktime_get_ns();
/// is_reported = it writes && session->flags & CLIENT;
/// goroutines[goroutine] = { session, buffer, is_reported, bpf_ktime_get_ns(), function, stack };
/// if (is_reported) for each chunk: reserve, copy, submit
/// ```
pub(crate) fn go_entry_program(
    function: i32,
    of: &TlsFunction,
    maps: &TlsMaps,
) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [end, first, is_elsewhere, free, lost] = std::array::from_fn(|_| code.label());
    begin(&mut code);
    look_up(&mut code, maps.goroutines, GO_CALL);
    code.jump_if(JumpCondition::Equal, R0, 0, first);
    code.load(AccessWidth::Bits64, R1, R0, 0);
    code.jump(JumpCondition::NotEqual, R1, R7, first);
    code.load(AccessWidth::Bits64, R1, R0, CALL_FUNCTION);
    jump_if_same(&mut code, function, end, first);
    code.bind(first);
    read_stack(&mut code);
    code.jump_if(JumpCondition::NotEqual, R0, 0, is_elsewhere);
    code.load(AccessWidth::Bits64, R1, R10, GO_STACK);
    code.load(AccessWidth::Bits64, R2, R10, GO_STACK + 8);
    code.jump(JumpCondition::Less, R8, R1, is_elsewhere);
    code.jump(JumpCondition::AtMost, R2, R8, is_elsewhere);
    code.register(AluOperation::Subtract, R8, R2);
    code.bind(is_elsewhere);
    find_session(&mut code, maps, lost);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_CALLS + of.direction());
    code.jump_if(JumpCondition::Equal, R1, 0, free);
    add_hole(&mut code, of);
    code.bind(free);
    code.load(AccessWidth::Bits64, R1, R10, START);
    code.store(R7, SESSION_CALLS + of.direction(), R1);
    if !of.is_read {
        code.load(AccessWidth::Bits64, R1, R7, SESSION_FLAGS);
        code.immediate(AluOperation::And, R1, FLAG_CLIENT);
        code.store(R10, COUNT, R1);
    }
    new_call(&mut code, function);
    update(&mut code, maps.goroutines, GO_CALL);
    code.jump_if(JumpCondition::NotEqual, R0, 0, lost);
    if !of.is_read {
        report_request(&mut code, of, maps, end, lost);
    }
    code.bind(end);
    code.exit();
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.finish()
}

/// Reports what a client is about to write from `r8`.
fn report_request(
    code: &mut Assembler,
    of: &TlsFunction,
    maps: &TlsMaps,
    end: JumpLabel,
    lost: JumpLabel,
) {
    let is_of_known_size = code.label();
    code.load(AccessWidth::Bits64, R1, R10, COUNT);
    code.jump_if(JumpCondition::Equal, R1, 0, end);
    code.load(AccessWidth::Bits64, R6, R10, GO_WORD);
    code.jump_if(JumpCondition::Equal, R6, 0, end);
    code.jump_if(JumpCondition::AtMost, R6, i32::MAX, is_of_known_size);
    add_hole(code, of);
    code.jump_always(lost);
    code.bind(is_of_known_size);
    code.load(AccessWidth::Bits64, R1, R10, START);
    code.store(R10, END, R1);
    note_positions(code, of);
    find_buffer(code);
    emit_chunks(code, maps, KIND_WRITTEN, end, lost);
}

/// The program at the returns of the function with this number; `None`: that of a handshake, which
/// leaves the call of another function.
///
/// ```c
/// call = goroutines[goroutine];
/// if (!call) return 0;
/// delete goroutines[goroutine];
/// if (call->function != function) return 0;              // found by the next call
/// session = sessions[call->session];
/// if (!session && (count <= 0 || call->is_reported)) return 0;    // closed by another goroutine
/// if (session->calls[direction] != call->time) {
///     if (count > 0) session->bytes[direction] += LOST_CALL;
///     return 0;
/// }
/// session->calls[direction] = 0;
/// if (it returns an error of a write) session->unwritten = call->time;
/// if (call->is_reported) {
///     if (it returns an error) session->bytes[direction] += LOST_CALL;
///     return 0;
/// }
/// if (count <= 0) return 0;
/// if (buffer is noted by its distance) buffer += goroutine->stack.hi;
/// for each chunk: reserve, copy, submit
/// ```
pub(crate) fn go_return_program(
    function: i32,
    of: Option<&TlsFunction>,
    maps: &TlsMaps,
) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [end, lost, other, is_known, is_own, overlap, nothing] =
        std::array::from_fn(|_| code.label());
    let [count, error, _] = REGISTERS.go_words;
    code.load(AccessWidth::Bits64, R6, R1, count);
    code.load(AccessWidth::Bits64, R9, R1, REGISTERS.goroutine);
    code.load(AccessWidth::Bits64, R2, R1, error);
    code.store(R10, GO_WORD, R2);
    note_thread(&mut code);
    note_goroutine(&mut code);
    look_up(&mut code, maps.goroutines, GO_CALL);
    code.jump_if(JumpCondition::Equal, R0, 0, end);
    code.load(AccessWidth::Bits64, R1, R0, CALL_FUNCTION);
    code.jump_if(JumpCondition::NotEqual, R1, function, other);
    code.load(AccessWidth::Bits64, R8, R0, 8);
    for (from, to) in [(0, SESSION), (CALL_COUNT, COUNT), (CALL_TIME, START)] {
        code.load(AccessWidth::Bits64, R1, R0, from);
        code.store(R10, to, R1);
    }
    let Some(of) = of else {
        forget(&mut code, maps.goroutines, GO_CALL);
        code.bind(other);
        code.bind(end);
        code.exit();
        return code.finish();
    };
    forget(&mut code, maps.goroutines, GO_CALL);
    look_up(&mut code, maps.sessions, KEY);
    code.register(AluOperation::Move, R7, R0);
    code.jump_if(JumpCondition::NotEqual, R0, 0, is_known);
    code.jump_if(JumpCondition::SignedLess, R6, 1, end);
    code.load(AccessWidth::Bits64, R1, R10, COUNT);
    code.jump_if(JumpCondition::NotEqual, R1, 0, end);
    find_session(&mut code, maps, lost);
    code.jump_always(is_own);
    code.bind(is_known);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_CALLS + of.direction());
    code.load(AccessWidth::Bits64, R2, R10, START);
    code.jump(JumpCondition::NotEqual, R1, R2, overlap);
    code.immediate(AluOperation::Move, R1, 0);
    code.store(R7, SESSION_CALLS + of.direction(), R1);
    code.bind(is_own);
    if !of.is_read {
        note_failure(&mut code, of, end);
    }
    code.jump_if(JumpCondition::SignedLess, R6, 1, end);
    code.jump_if(JumpCondition::Greater, R6, i32::MAX, overlap);
    code.call(HelperFunction::KtimeGetNs);
    code.store(R10, END, R0);
    note_positions(&mut code, of);
    find_buffer(&mut code);
    let kind = if of.is_read { KIND_READ } else { KIND_WRITTEN };
    emit_chunks(&mut code, maps, kind, end, lost);
    code.bind(end);
    code.exit();
    code.bind(other);
    forget(&mut code, maps.goroutines, GO_CALL);
    code.exit();
    code.bind(overlap);
    code.jump_if(JumpCondition::SignedLess, R6, 1, nothing);
    add_hole(&mut code, of);
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.bind(nothing);
    code.exit();
    code.finish()
}

/// Notes that a write has failed, after which none succeeds. Jumps to `end` if the bytes were
/// reported.
fn note_failure(code: &mut Assembler, of: &TlsFunction, end: JumpLabel) {
    let [has_none, unreported] = std::array::from_fn(|_| code.label());
    code.load(AccessWidth::Bits64, R1, R10, GO_WORD);
    code.jump_if(JumpCondition::Equal, R1, 0, has_none);
    code.load(AccessWidth::Bits64, R1, R10, START);
    code.store(R7, SESSION_UNWRITTEN, R1);
    code.load(AccessWidth::Bits64, R1, R10, COUNT);
    code.jump_if(JumpCondition::Equal, R1, 0, unreported);
    add_hole(code, of);
    code.bind(has_none);
    code.load(AccessWidth::Bits64, R1, R10, COUNT);
    code.jump_if(JumpCondition::NotEqual, R1, 0, end);
    code.bind(unreported);
}

/// `r8 = address of the buffer`, from its distance from the end of the stack. A stack that cannot
/// be read leaves it as it is: an address that cannot be read either.
fn find_buffer(code: &mut Assembler) {
    let is_address = code.label();
    code.jump_if(JumpCondition::SignedAtLeast, R8, 0, is_address);
    read_stack(code);
    code.jump_if(JumpCondition::NotEqual, R0, 0, is_address);
    code.load(AccessWidth::Bits64, R1, R10, GO_STACK + 8);
    code.register(AluOperation::Add, R8, R1);
    code.bind(is_address);
}

/// The program behind the start of a handshake: a session that has no bytes yet. It may run inside
/// of a read or write of the session, whose call is kept.
///
/// ```c
/// session = a new one;
/// call = goroutines[goroutine];
/// if (call && call->session == session && it reads or writes) {
///     session->calls[direction] = call->time;
/// } else {
///     goroutines[goroutine] = { session, …, function, … };
/// }
/// ```
pub(crate) fn go_handshake_program(function: i32, maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [note, reads, end] = std::array::from_fn(|_| code.label());
    begin(&mut code);
    let is_client = GO_SYMBOLS[function as usize - 1].ends_with(".clientHandshake");
    new_session(&mut code, FLAG_FROM_START | if is_client { FLAG_CLIENT } else { 0 });
    look_up(&mut code, maps.goroutines, GO_CALL);
    code.jump_if(JumpCondition::Equal, R0, 0, note);
    code.load(AccessWidth::Bits64, R1, R0, 0);
    code.jump(JumpCondition::NotEqual, R1, R7, note);
    code.load(AccessWidth::Bits64, R1, R0, CALL_FUNCTION);
    code.load(AccessWidth::Bits64, R2, R0, CALL_TIME);
    code.jump_if(JumpCondition::Equal, R1, 1, reads);
    code.jump_if(JumpCondition::NotEqual, R1, 2, note);
    code.store(R10, VALUE + SESSION_CALLS + GO_FUNCTIONS[1].direction(), R2);
    update(&mut code, maps.sessions, KEY);
    code.exit();
    code.bind(reads);
    code.store(R10, VALUE + SESSION_CALLS + GO_FUNCTIONS[0].direction(), R2);
    update(&mut code, maps.sessions, KEY);
    code.jump_always(end);
    code.bind(note);
    update(&mut code, maps.sessions, KEY);
    new_call(&mut code, function);
    update(&mut code, maps.goroutines, GO_CALL);
    code.bind(end);
    code.exit();
    code.finish()
}

/// The program behind the start of `Close`, which shuts the session down if no write is under way.
pub(crate) fn go_end_program(maps: &TlsMaps) -> Vec<Instruction> {
    let set_flags = |code: &mut Assembler| {
        let writes = code.label();
        code.load(AccessWidth::Bits64, R1, R7, SESSION_CALLS + GO_FUNCTIONS[1].direction());
        code.jump_if(JumpCondition::NotEqual, R1, 0, writes);
        code.load(AccessWidth::Bits64, R1, R7, SESSION_FLAGS);
        code.immediate(AluOperation::Or, R1, FLAG_SHUT_DOWN);
        code.store(R7, SESSION_FLAGS, R1);
        code.bind(writes);
    };
    end_session(REGISTERS.go_words[0], false, &set_flags, maps)
}
