//! BPF programs assembled at run time with offsets from BTF.
//!
//! Requires Linux 5.12 or later with BTF (`/sys/kernel/btf/vmlinux`) and the right to load
//! programs: root, or CAP_BPF and CAP_PERFMON. A tracepoint program counts in the single value of
//! an array map; this process maps parts of the value and reads them without a system call. An
//! iterator program writes a record of each task to the reader of the iterator. A uprobe program
//! runs when any process calls a function of a file, and writes records to a [`RingBuffer`].
#![deny(unsafe_code)]

mod btf;
mod instruction;
mod load_error;
mod map;
mod program;
mod ring_buffer;
mod ring_record;
mod syscall;
mod uprobe;

pub use btf::Btf;
pub use instruction::{
    ATOMIC, ATOMIC_ADD, ATOMIC_COMPARE_EXCHANGE, AccessWidth, AluOperation, Assembler, CALL, EXIT,
    HelperFunction, Instruction, JumpCondition, JumpLabel, LOAD_WIDE, PSEUDO_BTF_ID,
    PSEUDO_MAP_VALUE, Register,
};
pub use map::BpfMap;
pub use program::{BpfIterator, BpfProgram, BpfStats, TracepointProgram, kernel_types};
pub use ring_buffer::RingBuffer;
pub use syscall::MapCells;
pub use uprobe::{UprobeLink, UprobeProgram};
