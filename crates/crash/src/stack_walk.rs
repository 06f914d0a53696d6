//! Return addresses of a thread, from registers and stack memory.

use crate::cfi::{Caller, caller};
use crate::core_dump::Registers;
use crate::module_map::ModuleMap;
use crate::stack_memory::{SignalContext, StackMemory};

/// Addresses of the functions of a thread, the innermost first; at most `frames_max`. All but the
/// first, and those that a signal interrupted, are of the call and not of the return.
pub(crate) fn walk_stack(
    registers: &Registers,
    memory: &StackMemory,
    modules: &mut ModuleMap<'_>,
    frames_max: usize,
) -> Vec<u64> {
    let (mut registers, mut is_interrupted) = (*registers, true);
    let mut addresses = Vec::new();
    while addresses.len() < frames_max {
        // A return address is after the call, which may be the last instruction of its function.
        let address = registers.pc().wrapping_sub(u64::from(!is_interrupted));
        let is_code = modules.code_at(address).is_some();
        if !is_code && !addresses.is_empty() {
            break;
        }
        addresses.push(address);
        if is_signal_return(modules, registers.pc()) {
            let Some(context) = SignalContext::read(memory, registers.sp()) else { break };
            (registers.0[16], registers.0[7]) = (context.pc, context.sp);
            registers.0[6] = context.fp;
            is_interrupted = true;
            continue;
        }
        let next = match modules.image_at(address) {
            Some((image, own)) => caller(image, own, &registers, memory),
            // A call of an address without code: the return address was pushed last.
            None if !is_code => return_address(&registers, memory).map(Caller::Frame),
            None => None,
        };
        let next = match next {
            Some(Caller::None) => break,
            Some(Caller::Frame(next)) => Some(next),
            None => by_frame_pointer(&registers, memory),
        };
        // The stack shrinks with each return: no loop is endless.
        let Some(next) = next.filter(|next| next.sp() > registers.sp()) else { break };
        (registers, is_interrupted) = (next, false);
    }
    addresses
}

/// Whether the code restores the registers that a signal handler interrupted, which are at the
/// stack pointer: `mov $15, %rax; syscall`, as in glibc, musl and Go.
fn is_signal_return(modules: &mut ModuleMap<'_>, pc: u64) -> bool {
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    let image = modules.image_at(pc);
    image.and_then(|(image, own)| image.read(own, CODE.len())).is_some_and(|code| code == CODE)
}

fn return_address(registers: &Registers, memory: &StackMemory) -> Option<Registers> {
    let mut next = *registers;
    next.0[16] = memory.word(registers.sp())?;
    next.0[7] = registers.sp().checked_add(8)?;
    Some(next)
}

fn by_frame_pointer(registers: &Registers, memory: &StackMemory) -> Option<Registers> {
    let frame = registers.fp();
    let mut next = *registers;
    next.0[6] = memory.word(frame)?;
    next.0[16] = memory.word(frame.checked_add(8)?)?;
    next.0[7] = frame.checked_add(16)?;
    Some(next)
}
