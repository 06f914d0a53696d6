//! Programs at the functions that make, shut down and give up a session.

use bpf::Register::{R0, R1, R2, R6, R7, R10};
use bpf::{AccessWidth, AluOperation, Assembler, HelperFunction, Instruction, JumpCondition};

use super::record::{RecordSize, emit_record};
use super::{
    END, KEY, OTHER, POSITION, REGISTERS, SESSION, SESSION_BYTES, SESSION_FLAGS, SESSION_UNWRITTEN,
    START, TlsMaps, end_with_loss, forget, look_up, new_session, note_thread, update,
};
use crate::tls_event::{FLAG_FROM_START, FLAG_SHUT_DOWN, KIND_END};

/// The program at the return of `SSL_new`: notes a session that has no bytes yet.
pub(crate) fn new_program(maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let end = code.label();
    code.load(AccessWidth::Bits64, R6, R1, REGISTERS.result);
    code.jump_if(JumpCondition::Equal, R6, 0, end);
    note_thread(&mut code);
    code.store(R10, SESSION, R6);
    new_session(&mut code, FLAG_FROM_START);
    update(&mut code, maps.sessions, KEY);
    code.bind(end);
    code.exit();
    code.finish()
}

/// The program at the start of `SSL_shutdown`: the process says that its stream ends here.
pub(crate) fn shutdown_program(maps: &TlsMaps) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let end = code.label();
    code.load(AccessWidth::Bits64, R6, R1, REGISTERS.arguments[0]);
    note_thread(&mut code);
    code.store(R10, SESSION, R6);
    look_up(&mut code, maps.sessions, KEY);
    code.jump_if(JumpCondition::Equal, R0, 0, end);
    code.load(AccessWidth::Bits64, R1, R0, SESSION_FLAGS);
    code.immediate(AluOperation::Or, R1, FLAG_SHUT_DOWN);
    code.store(R0, SESSION_FLAGS, R1);
    code.bind(end);
    code.exit();
    code.finish()
}

/// The program at the start of `SSL_free` or `SSL_clear`: reports the end of the session, with the
/// positions of both streams. It was not shut down if a write has failed since. After `SSL_clear`
/// the object is used for another one.
pub(crate) fn end_program(is_used_again: bool, maps: &TlsMaps) -> Vec<Instruction> {
    end_session(REGISTERS.arguments[0], is_used_again, &|_| {}, maps)
}

/// The program at the end of the session whose address is in a register. `set_flags` changes those
/// of the session `r7`.
pub(super) fn end_session(
    register: i16,
    is_used_again: bool,
    set_flags: &dyn Fn(&mut Assembler),
    maps: &TlsMaps,
) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [unknown, lost, unused, written] = std::array::from_fn(|_| code.label());
    code.load(AccessWidth::Bits64, R6, R1, register);
    note_thread(&mut code);
    code.store(R10, SESSION, R6);
    look_up(&mut code, maps.sessions, KEY);
    code.jump_if(JumpCondition::Equal, R0, 0, unknown);
    code.register(AluOperation::Move, R7, R0);
    set_flags(&mut code);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_BYTES);
    code.load(AccessWidth::Bits64, R2, R7, SESSION_BYTES + 8);
    code.store(R10, POSITION, R1);
    code.store(R10, OTHER, R2);
    code.register(AluOperation::Or, R1, R2);
    code.jump_if(JumpCondition::Equal, R1, 0, unused);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_UNWRITTEN);
    code.jump_if(JumpCondition::Equal, R1, 0, written);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_FLAGS);
    code.immediate(AluOperation::And, R1, !FLAG_SHUT_DOWN);
    code.store(R7, SESSION_FLAGS, R1);
    code.bind(written);
    code.call(HelperFunction::KtimeGetNs);
    code.store(R10, START, R0);
    code.store(R10, END, R0);
    code.immediate(AluOperation::Move, R6, 0);
    emit_record(&mut code, maps, KIND_END, RecordSize::NoBytes, lost);
    code.bind(unused);
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
        forget(code, maps.sessions, KEY);
    }
    code.exit();
}
