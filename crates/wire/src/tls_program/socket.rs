//! The program that notes the socket of a session.

use bpf::Register::{R0, R1, R2, R3, R6, R7, R9, R10};
use bpf::{AccessWidth, AluOperation, Assembler, HelperFunction, Instruction, JumpCondition};

use super::go_call::note_goroutine;
use super::{
    COUNT, GO_CALL, REGISTERS, SESSION, SESSION_FLAGS, THREAD, TlsMaps, end_with_loss,
    find_session, look_up, note_thread, stack_address,
};
use crate::tls_event::FLAG_SOCKET;

/// Offsets in a session.
const SESSION_FAMILY: i32 = 48;
const SESSION_LOCAL: i32 = 56;
const SESSION_REMOTE: i32 = 72;
const SESSION_PORTS: i32 = 88;
const SESSION_NAMESPACE: i32 = 92;

/// Offsets in kernel structs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOffsets {
    pub(super) family: i16,
    pub(super) ports: i16,
    pub(super) remote4: i16,
    pub(super) local4: i16,
    pub(super) remote6: i16,
    pub(super) local6: i16,
    /// Of the network namespace in a socket, and of its number; `None` in kernels without them.
    pub(super) namespace: Option<(i16, i16)>,
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
            namespace: find("skc_net.net").ok().zip(btf.offset("net", "ns.inum").ok()),
        })
    }
}

/// The program at `tcp_rcv_space_adjust`, which is reached when a thread has read from a socket.
///
/// ```c
/// call = calls[thread];
/// if (!call && has_go) call = goroutines[bpf_task_pt_regs(bpf_get_current_task_btf())->r14];
/// if (!call) return 0;
/// session = sessions[call->session];
/// if (session->flags & SOCKET) return 0;
/// session->{family, local, remote, ports, namespace} = sk->__sk_common.…;
/// session->flags |= SOCKET;
/// ```
///
/// `has_go`: programs of Go are read too. A system call leaves the goroutine in its register.
pub(crate) fn socket_program(
    offsets: &SocketOffsets,
    has_go: bool,
    maps: &TlsMaps,
) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [end, lost, six, done] = [code.label(), code.label(), code.label(), code.label()];
    code.load(AccessWidth::Bits64, R6, R1, 0);
    note_thread(&mut code);
    look_up(&mut code, maps.calls, THREAD);
    if has_go {
        let is_known = code.label();
        code.jump_if(JumpCondition::NotEqual, R0, 0, is_known);
        code.call(HelperFunction::GetCurrentTaskBtf);
        code.register(AluOperation::Move, R1, R0);
        code.call(HelperFunction::TaskPtRegs);
        code.load(AccessWidth::Bits64, R9, R0, REGISTERS.goroutine);
        note_goroutine(&mut code);
        look_up(&mut code, maps.goroutines, GO_CALL);
        code.bind(is_known);
    }
    code.jump_if(JumpCondition::Equal, R0, 0, end);
    code.load(AccessWidth::Bits64, R1, R0, 0);
    code.store(R10, SESSION, R1);
    find_session(&mut code, maps, lost);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_FLAGS);
    code.jump_if(JumpCondition::AnyBitSet, R1, FLAG_SOCKET, end);
    copy_field(&mut code, SESSION_FAMILY, offsets.family, 2);
    copy_field(&mut code, SESSION_PORTS, offsets.ports, 4);
    if let Some((pointer, number)) = offsets.namespace {
        copy_namespace(&mut code, pointer, number);
    }
    code.load(AccessWidth::Bits64, R1, R7, SESSION_FAMILY as i16);
    code.immediate(AluOperation::And, R1, 0xffff);
    code.jump_if(JumpCondition::Equal, R1, libc::AF_INET6, six);
    copy_field(&mut code, SESSION_LOCAL, offsets.local4, 4);
    copy_field(&mut code, SESSION_REMOTE, offsets.remote4, 4);
    code.jump_always(done);
    code.bind(six);
    copy_field(&mut code, SESSION_LOCAL, offsets.local6, 16);
    copy_field(&mut code, SESSION_REMOTE, offsets.remote6, 16);
    code.bind(done);
    code.load(AccessWidth::Bits64, R1, R7, SESSION_FLAGS);
    code.immediate(AluOperation::Or, R1, FLAG_SOCKET);
    code.store(R7, SESSION_FLAGS, R1);
    code.bind(end);
    code.exit();
    code.bind(lost);
    end_with_loss(&mut code, maps);
    code.finish()
}

/// Copies the number of the network namespace of the socket `r6` to the session `r7`.
fn copy_namespace(code: &mut Assembler, pointer: i16, number: i16) {
    stack_address(code, R1, COUNT);
    code.immediate(AluOperation::Move, R2, 8);
    code.register(AluOperation::Move, R3, R6);
    code.immediate(AluOperation::Add, R3, pointer.into());
    code.call(HelperFunction::ProbeReadKernel);
    code.register(AluOperation::Move, R1, R7);
    code.immediate(AluOperation::Add, R1, SESSION_NAMESPACE);
    code.immediate(AluOperation::Move, R2, 4);
    code.load(AccessWidth::Bits64, R3, R10, COUNT);
    code.immediate(AluOperation::Add, R3, number.into());
    code.call(HelperFunction::ProbeReadKernel);
}

/// Copies a field of the socket `r6` to the session `r7`.
fn copy_field(code: &mut Assembler, to: i32, from: i16, bytes: i32) {
    code.register(AluOperation::Move, R1, R7);
    code.immediate(AluOperation::Add, R1, to);
    code.immediate(AluOperation::Move, R2, bytes);
    code.register(AluOperation::Move, R3, R6);
    code.immediate(AluOperation::Add, R3, from.into());
    code.call(HelperFunction::ProbeReadKernel);
}
