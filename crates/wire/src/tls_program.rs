//! BPF programs at the functions of a TLS library.
//!
//! A program at the start of a function notes its arguments for the thread; one at its return
//! copies the plaintext that the call moved, in chunks, to the ring buffer. Positions of streams
//! are counted here, per session, so a chunk that is lost shows as a hole before the next one. A
//! program at a tracepoint of TCP notes the socket that a thread reads while it is inside of the
//! library: no layout of the library's objects is needed.
//!
//! Maps, with offsets of their values:
//!
//! ```text
//! calls     by process and thread    0 session, 8 buffer, 16 address of a count, 24 time,
//!                                    32 function; 0: the thread is not inside of the library
//! sessions  by process and session   0 bytes read, 8 bytes written, 16 flags, 24 family of the
//!                                    socket, 32 local, 48 remote address, 64 ports
//! counts    one value                0 chunks that were lost
//! ```
//!
//! A call inside of another one replaces it: LibreSSL implements `SSL_read_ex` by `SSL_read`, and
//! each byte is reported once. If the sessions differ (TLS in TLS), the outer call is not reported,
//! and a hole of [`LOST_CALL`] bytes says so. A record of a session is never written by two
//! threads: the libraries do not allow that.

mod record;

use bpf::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use bpf::{Arithmetic, Assembler, HelperFunction, Instruction, JumpCondition, JumpLabel, Width};

use self::record::{RecordSize, emit_chunks, emit_record};
use crate::tls_event::{FLAG_FROM_START, FLAG_SOCKET, KIND_END, KIND_READ, KIND_WRITTEN};

/// Sizes of keys and values.
pub(crate) const CALL_KEY: u32 = 8;
pub(crate) const CALL_VALUE: u32 = 40;
pub(crate) const SESSION_KEY: u32 = 16;
pub(crate) const SESSION_VALUE: u32 = 72;

/// Position of the function in a call.
const CALL_FUNCTION: i16 = 32;
/// Position of the flags in a session; what follows is copied to records.
const SESSION_FLAGS: i16 = 16;
/// Bytes of a hole for a call that was not reported: more than any session has.
pub(crate) const LOST_CALL: u64 = 1 << 40;
/// Positions on the stack of a program.
const THREAD: i16 = -8;
const SESSION_PLACE: i16 = -16;
/// The key of the session: process, session.
const KEY: i16 = -24;
const START: i16 = -32;
const END: i16 = -40;
const POSITION: i16 = -48;
const COUNT: i16 = -56;
/// A value of either map.
const VALUE: i16 = -136;

/// Descriptors of the maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsMaps {
    pub(crate) calls: i32,
    pub(crate) sessions: i32,
    pub(crate) counts: i32,
    pub(crate) ring: i32,
}

/// Where a function puts the number of bytes that it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountPlace {
    /// It returns it as `int`; not positive if it failed.
    Returned,
    /// It returns it as `ssize_t`, and the bytes are in no buffer.
    ReturnedWithoutBuffer,
    /// The fourth argument points to it; the function returns 0 if it failed.
    FourthArgument,
    /// It moves none.
    Nowhere,
}

/// A function that moves bytes of a session, which is its first argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsFunction {
    pub(crate) symbol: &'static str,
    /// Whether the bytes are received.
    pub(crate) is_read: bool,
    pub(crate) count: CountPlace,
}

const fn function(symbol: &'static str, is_read: bool, count: CountPlace) -> TlsFunction {
    TlsFunction { symbol, is_read, count }
}

/// Functions with programs at start and return. `SSL_read_early_data` and `SSL_write_early_data`
/// call two of them. The handshake moves no plaintext; its socket is that of the session.
pub(crate) const FUNCTIONS: [TlsFunction; 6] = [
    function("SSL_read", true, CountPlace::Returned),
    function("SSL_write", false, CountPlace::Returned),
    function("SSL_read_ex", true, CountPlace::FourthArgument),
    function("SSL_write_ex", false, CountPlace::FourthArgument),
    function("SSL_sendfile", false, CountPlace::ReturnedWithoutBuffer),
    function("SSL_do_handshake", true, CountPlace::Nowhere),
];

/// Offsets of registers in `struct pt_regs` (x86-64) or `struct user_pt_regs` (aarch64).
struct RegisterOffsets {
    arguments: [i16; 4],
    result: i16,
}

#[cfg(target_arch = "aarch64")]
const REGISTERS: RegisterOffsets = RegisterOffsets { arguments: [0, 8, 16, 24], result: 0 };
#[cfg(not(target_arch = "aarch64"))]
const REGISTERS: RegisterOffsets = RegisterOffsets { arguments: [112, 104, 96, 88], result: 80 };

/// Whether the offsets of this architecture are known.
pub(crate) const IS_SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Offsets in kernel structs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOffsets {
    family: i16,
    ports: i16,
    remote4: i16,
    local4: i16,
    remote6: i16,
    local6: i16,
}

impl SocketOffsets {
    pub(crate) fn find(btf: &bpf::Btf) -> Result<SocketOffsets, String> {
        let find = |member: &str| btf.offset("sock", &format!("__sk_common.{member}"));
        Ok(SocketOffsets {
            family: find("skc_family")?,
            ports: find("skc_portpair")?,
            remote4: find("skc_daddr")?,
            local4: find("skc_rcv_saddr")?,
            remote6: find("skc_v6_daddr")?,
            local6: find("skc_v6_rcv_saddr")?,
        })
    }
}

/// `to = address of a place on the stack`
fn stack_address(code: &mut Assembler, to: bpf::Register, place: i16) {
    code.register(Arithmetic::Set, to, R10);
    code.immediate(Arithmetic::Add, to, place.into());
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
    code.immediate(Arithmetic::Set, R4, 0);
    code.call(HelperFunction::MapUpdate);
}

/// Notes process and thread, and the process as part of the session's key.
fn note_thread(code: &mut Assembler) {
    code.call(HelperFunction::GetCurrentPidTgid);
    code.store(R10, THREAD, R0);
    code.immediate(Arithmetic::ShiftRight, R0, 32);
    code.store(R10, KEY, R0);
}

/// Sets [`VALUE`] to a session without bytes.
fn new_session(code: &mut Assembler, flags: i32) {
    code.immediate(Arithmetic::Set, R1, 0);
    for place in (0..SESSION_VALUE as i16).step_by(8) {
        code.store(R10, VALUE + place, R1);
    }
    code.immediate(Arithmetic::Set, R1, flags);
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
    code.register(Arithmetic::Set, R7, R0);
}

/// Counts a loss and ends the program.
fn end_with_loss(code: &mut Assembler, maps: &TlsMaps) {
    code.map_value(R1, maps.counts, 0);
    code.immediate(Arithmetic::Set, R2, 1);
    code.atomic_add(R1, 0, R2);
    code.exit();
}

/// The program at the start of the function with this number, from 1.
///
/// ```c
/// call = calls[thread] or a new one;
/// if (call->function && call->session != session)        // TLS in TLS
///     sessions[call->session].{read, written} += LOST_CALL;
/// *call = { session, buffer, count, bpf_ktime_get_ns(), function };
/// ```
///
/// A handshake inside of another call, as BoringSSL has them, leaves the call as it is.
pub(crate) fn entry_program(function: i32, of: &TlsFunction, maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [new, store, end] = [code.label(), code.label(), code.label()];
    let [session, buffer, _, count] = REGISTERS.arguments;
    code.load(Width::Eight, R7, R1, session);
    code.load(Width::Eight, R8, R1, buffer);
    code.load(Width::Eight, R9, R1, count);
    code.store(R10, COUNT, R9);
    note_thread(&mut code);
    code.call(HelperFunction::KtimeGetNs);
    code.register(Arithmetic::Set, R9, R0);
    look_up(&mut code, maps.calls, THREAD);
    code.jump_if(JumpCondition::Equal, R0, 0, new);
    code.register(Arithmetic::Set, R6, R0);
    code.load(Width::Eight, R1, R6, CALL_FUNCTION);
    code.jump_if(JumpCondition::Equal, R1, 0, store);
    if of.count == CountPlace::Nowhere {
        code.jump_always(end);
    } else {
        code.load(Width::Eight, R1, R6, 0);
        code.jump(JumpCondition::Equal, R1, R7, store);
        code.store(R10, SESSION_PLACE, R1);
        look_up(&mut code, maps.sessions, KEY);
        code.jump_if(JumpCondition::Equal, R0, 0, store);
        code.constant(R1, LOST_CALL);
        code.atomic_add(R0, 0, R1);
        code.atomic_add(R0, 8, R1);
    }
    code.bind(store);
    for (place, register) in [(0, R7), (8, R8), (24, R9)] {
        code.store(R6, place, register);
    }
    code.load(Width::Eight, R1, R10, COUNT);
    code.store(R6, 16, R1);
    code.immediate(Arithmetic::Set, R1, function);
    code.store(R6, CALL_FUNCTION, R1);
    code.jump_always(end);
    code.bind(new);
    for (place, register) in [(0, R7), (8, R8), (24, R9)] {
        code.store(R10, VALUE + place, register);
    }
    code.load(Width::Eight, R1, R10, COUNT);
    code.store(R10, VALUE + 16, R1);
    code.immediate(Arithmetic::Set, R1, function);
    code.store(R10, VALUE + CALL_FUNCTION, R1);
    update(&mut code, maps.calls, THREAD);
    code.bind(end);
    code.exit();
    code.finish()
}

/// The program at the return of the function with this number.
///
/// ```c
/// call = calls[thread];
/// if (!call || call->function != function) return 0;     // inside of it, or another one was
/// call->function = 0;
/// count = …;                                             // as its [`CountPlace`] says
/// session = sessions[call->session];
/// position = session->read;                              // or written
/// session->read += count;
/// for each chunk: reserve, copy, submit
/// ```
pub(crate) fn return_program(function: i32, of: &TlsFunction, maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [end, lost] = [code.label(), code.label()];
    code.register(Arithmetic::Set, R6, R1);
    note_thread(&mut code);
    look_up(&mut code, maps.calls, THREAD);
    code.jump_if(JumpCondition::Equal, R0, 0, end);
    code.load(Width::Eight, R1, R0, CALL_FUNCTION);
    code.jump_if(JumpCondition::NotEqual, R1, function, end);
    code.immediate(Arithmetic::Set, R1, 0);
    code.store(R0, CALL_FUNCTION, R1);
    code.load(Width::Eight, R8, R0, 8);
    for (from, to) in [(0, SESSION_PLACE), (16, COUNT), (24, START)] {
        code.load(Width::Eight, R1, R0, from);
        code.store(R10, to, R1);
    }
    if of.count == CountPlace::Nowhere {
        code.bind(end);
        code.exit();
        return code.finish();
    }
    moved_bytes(&mut code, of.count, end, lost);
    code.call(HelperFunction::KtimeGetNs);
    code.store(R10, END, R0);
    find_session(&mut code, maps, lost);
    let total = if of.is_read { 0 } else { 8 };
    code.load(Width::Eight, R1, R7, total);
    code.store(R10, POSITION, R1);
    code.register(Arithmetic::Add, R1, R6);
    code.store(R7, total, R1);
    let kind = if of.is_read { KIND_READ } else { KIND_WRITTEN };
    match of.count {
        CountPlace::ReturnedWithoutBuffer => {
            emit_record(&mut code, maps, kind, RecordSize::NoBytes, lost);
        }
        _ => emit_chunks(&mut code, maps, kind, end, lost),
    }
    code.bind(end);
    code.exit();
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.finish()
}

/// `r6 = bytes that the call moved`; its value before is the address of the registers. Jumps to
/// `end` if there are none.
fn moved_bytes(code: &mut Assembler, count: CountPlace, end: JumpLabel, lost: JumpLabel) {
    code.load(Width::Eight, R1, R6, REGISTERS.result);
    match count {
        CountPlace::Nowhere | CountPlace::ReturnedWithoutBuffer => {
            code.register(Arithmetic::Set, R6, R1);
        }
        CountPlace::Returned => {
            code.register(Arithmetic::Set, R6, R1);
            code.immediate(Arithmetic::ShiftLeft, R6, 32);
            code.immediate(Arithmetic::ShiftRight, R6, 32);
        }
        CountPlace::FourthArgument => {
            code.immediate(Arithmetic::ShiftLeft, R1, 32);
            code.jump_if(JumpCondition::Equal, R1, 0, end);
            code.load(Width::Eight, R3, R10, COUNT);
            stack_address(code, R1, COUNT);
            code.immediate(Arithmetic::Set, R2, 8);
            code.call(HelperFunction::ProbeReadUser);
            code.jump_if(JumpCondition::NotEqual, R0, 0, lost);
            code.load(Width::Eight, R6, R10, COUNT);
        }
    }
    code.jump_if(JumpCondition::Equal, R6, 0, end);
    // Negative numbers are failures.
    code.jump_if(JumpCondition::Greater, R6, i32::MAX, end);
}

/// The program at the return of `SSL_new`: notes a session that has no bytes yet.
pub(crate) fn new_program(maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let end = code.label();
    code.load(Width::Eight, R6, R1, REGISTERS.result);
    code.jump_if(JumpCondition::Equal, R6, 0, end);
    note_thread(&mut code);
    code.store(R10, SESSION_PLACE, R6);
    new_session(&mut code, FLAG_FROM_START);
    update(&mut code, maps.sessions, KEY);
    code.bind(end);
    code.exit();
    code.finish()
}

/// The program at the start of `SSL_free` or `SSL_clear`: reports the end of the session. After
/// `SSL_clear` the object is used for another one.
pub(crate) fn end_program(is_used_again: bool, maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [unknown, lost, forget] = [code.label(), code.label(), code.label()];
    code.load(Width::Eight, R6, R1, REGISTERS.arguments[0]);
    note_thread(&mut code);
    code.store(R10, SESSION_PLACE, R6);
    look_up(&mut code, maps.sessions, KEY);
    code.jump_if(JumpCondition::Equal, R0, 0, unknown);
    code.register(Arithmetic::Set, R7, R0);
    code.load(Width::Eight, R1, R7, 0);
    code.load(Width::Eight, R2, R7, 8);
    code.register(Arithmetic::Or, R1, R2);
    code.jump_if(JumpCondition::Equal, R1, 0, forget);
    code.call(HelperFunction::KtimeGetNs);
    code.store(R10, START, R0);
    code.store(R10, END, R0);
    code.immediate(Arithmetic::Set, R6, 0);
    code.store(R10, POSITION, R6);
    emit_record(&mut code, maps, KIND_END, RecordSize::NoBytes, lost);
    code.bind(forget);
    forget_session(&mut code, is_used_again, maps);
    code.bind(unknown);
    match is_used_again {
        true => forget_session(&mut code, is_used_again, maps),
        false => code.exit(),
    }
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.finish()
}

/// Removes the session, or makes it a new one, and ends the program.
fn forget_session(code: &mut Assembler, is_used_again: bool, maps: &TlsMaps) {
    if is_used_again {
        new_session(code, FLAG_FROM_START);
        update(code, maps.sessions, KEY);
    } else {
        code.map(R1, maps.sessions);
        stack_address(code, R2, KEY);
        code.call(HelperFunction::MapDelete);
    }
    code.exit();
}

/// The program at `tcp_rcv_space_adjust`, which is reached when a thread has read from a socket.
///
/// ```c
/// call = calls[thread];
/// if (!call || !call->function) return 0;
/// session = sessions[call->session];
/// if (session->flags & SOCKET) return 0;
/// session->{family, local, remote, ports} = sk->__sk_common.…;
/// session->flags |= SOCKET;
/// ```
pub(crate) fn socket_program(offsets: &SocketOffsets, maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [end, lost, six, done] = [code.label(), code.label(), code.label(), code.label()];
    code.load(Width::Eight, R6, R1, 0);
    note_thread(&mut code);
    look_up(&mut code, maps.calls, THREAD);
    code.jump_if(JumpCondition::Equal, R0, 0, end);
    code.load(Width::Eight, R1, R0, CALL_FUNCTION);
    code.jump_if(JumpCondition::Equal, R1, 0, end);
    code.load(Width::Eight, R1, R0, 0);
    code.store(R10, SESSION_PLACE, R1);
    find_session(&mut code, maps, lost);
    code.load(Width::Eight, R1, R7, SESSION_FLAGS);
    code.jump_if(JumpCondition::AnyBit, R1, FLAG_SOCKET, end);
    copy_field(&mut code, 24, offsets.family, 2);
    copy_field(&mut code, 64, offsets.ports, 4);
    code.load(Width::Eight, R1, R7, 24);
    code.immediate(Arithmetic::And, R1, 0xffff);
    code.jump_if(JumpCondition::Equal, R1, libc::AF_INET6, six);
    copy_field(&mut code, 32, offsets.local4, 4);
    copy_field(&mut code, 48, offsets.remote4, 4);
    code.jump_always(done);
    code.bind(six);
    copy_field(&mut code, 32, offsets.local6, 16);
    copy_field(&mut code, 48, offsets.remote6, 16);
    code.bind(done);
    code.load(Width::Eight, R1, R7, SESSION_FLAGS);
    code.immediate(Arithmetic::Or, R1, FLAG_SOCKET);
    code.store(R7, SESSION_FLAGS, R1);
    code.bind(end);
    code.exit();
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.finish()
}

/// Copies a field of the socket `r6` to the session `r7`.
fn copy_field(code: &mut Assembler, to: i32, from: i16, bytes: i32) {
    code.register(Arithmetic::Set, R1, R7);
    code.immediate(Arithmetic::Add, R1, to);
    code.immediate(Arithmetic::Set, R2, bytes);
    code.register(Arithmetic::Set, R3, R6);
    code.immediate(Arithmetic::Add, R3, from.into());
    code.call(HelperFunction::ProbeReadKernel);
}

#[cfg(test)]
mod tests;
