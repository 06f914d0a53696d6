//! Crashes of programs: what is known of one, read from untrusted bytes.
//!
//! [`CoreDump`] reads registers and mappings from the head of an ELF core, as a stream;
//! [`StackMemory`] keeps the memory near the stack pointers. `stack_walk` finds the return
//! addresses by call frame information (`.eh_frame`) or frame pointers, and [`CrashNotice`] names
//! them, computes the signature and is written as JSON to a [`Spool`]. Texts of the
//! JVM and of Go are parsed by [`parse_crash_text`]. Stacks are walked on x86-64.
//!
//! No heap, environment or arguments are kept: of the memory of a process only the windows at its
//! stack pointers are read, which end below the strings of the main stack. A notice has addresses
//! and names, and no memory.
#![forbid(unsafe_code)]

mod cfi;
mod core_dump;
mod crash_text;
mod elf_image;
mod fields;
mod module_map;
mod notice;
mod signature;
mod spool;
mod stack_memory;
mod stack_walk;
mod symbol_name;

pub use core_dump::{CoreDump, CoreThread, FileMapping, Registers};
pub use crash_text::parse_crash_text;
pub use elf_image::{ElfImage, RandomRead};
pub use module_map::ModuleMap;
pub use notice::{CrashNotice, CrashOrigin, NoticeLabels, signal_name};
pub use signature::Frame;
pub use spool::{COMPLETION_MAX, Spool, SpooledNotice, open_without_links};
pub use stack_memory::StackMemory;
