//! A core file and its executable as bytes, as Linux writes them.

/// Address of the executable's code.
pub(crate) const CODE: u64 = 0x40_1000;
/// Address of the stack, and of the stack pointer of the first thread.
pub(crate) const STACK: u64 = 0x7ffc_0000_0000;
pub(crate) const SP: u64 = STACK + 0x1000;
/// Address of the strings of the process: arguments and environment.
pub(crate) const STRINGS: u64 = STACK + 0x3000;
/// Address of the heap.
pub(crate) const HEAP: u64 = 0x90_0000;
/// Path of the executable.
pub(crate) const PATH: &str = "/opt/shop/bin/shop";

fn put(bytes: &mut [u8], at: usize, value: u64, count: usize) {
    bytes[at..at + count].copy_from_slice(&value.to_le_bytes()[..count]);
}

fn note(kind: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![5, 0, 0, 0];
    bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(b"CORE\0\0\0\0");
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `NT_PRSTATUS` of a thread.
fn thread(tid: u64, pc: u64, sp: u64, fp: u64) -> Vec<u8> {
    let mut status = vec![0; 336];
    put(&mut status, 12, 11, 2);
    put(&mut status, 32, tid, 4);
    for (index, value) in [(4, fp), (16, pc), (19, sp)] {
        put(&mut status, 112 + 8 * index, value, 8);
    }
    note(1, &status)
}

fn header(kind: u64, flags: u64, address: u64, offset: u64, size: u64) -> Vec<u8> {
    let mut header = vec![0; 56];
    put(&mut header, 0, kind, 4);
    put(&mut header, 4, flags, 4);
    for (at, value) in [(8, offset), (16, address), (32, size), (40, size)] {
        put(&mut header, at, value, 8);
    }
    header
}

fn elf(kind: u64, headers: u64) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    for (at, value, count) in [
        (16, kind, 2),
        (18, 62, 2),
        (32, 64, 8),
        (52, 64, 2),
        (54, 56, 2),
        (56, headers, 2),
        (58, 64, 2),
    ] {
        put(&mut bytes, at, value, count);
    }
    bytes
}

/// A core: `crashed` called by `handle` called by `main`, by frame pointers. Arguments, environment
/// and heap have `token`.
pub(crate) fn core(token: &str) -> Vec<u8> {
    let mut info = vec![0; 128];
    for (at, value) in [(0, 11), (8, 1), (16, 0xdead_0000)] {
        put(&mut info, at, value, 8);
    }
    let mut files = vec![0; 40];
    for (at, value) in [(0, 1), (8, 4096), (16, CODE), (24, CODE + 0x1000), (32, 1)] {
        put(&mut files, at, value, 8);
    }
    files.extend_from_slice(format!("{PATH}\0").as_bytes());
    let mut auxv = vec![0; 32];
    put(&mut auxv, 0, 25, 8);
    put(&mut auxv, 8, STRINGS, 8);
    let mut process = vec![0; 136];
    process[56..56 + token.len()].copy_from_slice(token.as_bytes());
    let notes = [
        thread(7, CODE + 0x10, SP, SP + 0x20),
        note(3, &process),
        note(0x5349_4749, &info),
        note(6, &auxv),
        note(0x4649_4c45, &files),
        thread(8, CODE + 0x110, STACK + 0x800, 0),
    ]
    .concat();
    let mut stack = vec![0; 0x4000];
    for (address, value) in [
        (SP + 0x20, SP + 0x40),
        (SP + 0x28, CODE + 0x115),
        (SP + 0x40, 0),
        (SP + 0x48, CODE + 0x215),
    ] {
        put(&mut stack, (address - STACK) as usize, value, 8);
    }
    let mut heap = vec![0; 0x1000];
    for (memory, at) in [(&mut stack, 0x3010), (&mut heap, 16)] {
        memory[at..at + token.len()].copy_from_slice(token.as_bytes());
    }
    let notes_at = 64 + 4 * 56;
    let heap_at = (notes_at + notes.len() as u64).next_multiple_of(4096);
    let mut bytes = elf(4, 4);
    bytes.extend(header(4, 0, 0, notes_at, notes.len() as u64));
    bytes.extend(header(1, 5, CODE, heap_at, 0));
    bytes.extend(header(1, 6, HEAP, heap_at, heap.len() as u64));
    bytes.extend(header(1, 6, STACK, heap_at + 0x1000, stack.len() as u64));
    bytes.extend(notes);
    bytes.resize(heap_at as usize, 0);
    bytes.extend(heap);
    bytes.extend(stack);
    bytes
}

/// Offset of the code in the executable, and address of its table of call frame information.
const CODE_AT: u64 = 4096;
const FRAME_TABLE: u64 = CODE + 0x800;

/// The executable, with call frame information of `crashed`: after its first instruction the frame
/// pointer of the caller is at the stack pointer, and the return address is above.
#[allow(dead_code, reason = "not all tests that include this file use it")]
pub(crate) fn executable_with_frames() -> Vec<u8> {
    let (common, entry) = (FRAME_TABLE + 0x40, FRAME_TABLE + 0x60);
    let mut bytes = executable();
    let mut at = |address: u64, content: &[u8]| {
        let start = (CODE_AT + address - CODE) as usize;
        bytes[start..start + content.len()].copy_from_slice(content);
    };
    let word = |to: u64, from: u64| (to.wrapping_sub(from) as u32).to_le_bytes();
    // Encodings, address of .eh_frame, number of entries, and the entry.
    at(FRAME_TABLE, &[1, 0x1b, 0x03, 0x3b]);
    at(FRAME_TABLE + 4, &word(common, FRAME_TABLE + 4));
    at(FRAME_TABLE + 8, &1_u32.to_le_bytes());
    at(FRAME_TABLE + 12, &word(CODE, FRAME_TABLE));
    at(FRAME_TABLE + 16, &word(entry, FRAME_TABLE));
    // Version 1, "zR", factors 1 and -8, return address 16; rsp + 8, return address below that.
    at(common, &[20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b]);
    at(common + 17, &[0x0c, 7, 8, 0x90, 1]);
    at(entry, &[20, 0, 0, 0]);
    at(entry + 4, &word(entry + 4, common));
    at(entry + 8, &word(CODE, entry + 8));
    at(entry + 12, &0x100_u32.to_le_bytes());
    // No augmentation. After one byte: rsp + 16, rbp at 16 below that.
    at(entry + 16, &[0, 0x41, 0x0e, 16, 0x86, 2]);
    bytes
}

/// The executable: a build ID, and three functions of 0x100 bytes without call frame information.
pub(crate) fn executable() -> Vec<u8> {
    let names = b"\0crashed\0handle\0main\0";
    let mut symbols = vec![0; 24 * 4];
    for (index, (name, address)) in
        [(1, CODE), (9, CODE + 0x100), (16, CODE + 0x200)].iter().enumerate()
    {
        let at = 24 * (index + 1);
        put(&mut symbols, at, *name, 4);
        symbols[at + 4] = 0x12;
        put(&mut symbols, at + 6, 1, 2);
        put(&mut symbols, at + 8, *address, 8);
        put(&mut symbols, at + 16, 0x100, 8);
    }
    let mut id = vec![4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0];
    id.extend_from_slice(b"GNU\0\xab\xcd\xef\x01");
    let (id_at, symbols_at, code_at, sections_at) = (64 + 3 * 56, 256, CODE_AT, 8192);
    let mut bytes = elf(2, 3);
    put(&mut bytes, 40, sections_at, 8);
    put(&mut bytes, 60, 3, 2);
    bytes.extend(header(1, 5, CODE, code_at, 0x1000));
    bytes.extend(header(4, 4, 0, id_at, id.len() as u64));
    bytes.extend(header(0x6474_e550, 4, FRAME_TABLE, code_at + FRAME_TABLE - CODE, 0));
    bytes.extend(id);
    bytes.resize(symbols_at, 0);
    bytes.extend(&symbols);
    let names_at = bytes.len() as u64;
    bytes.extend(names);
    bytes.resize(sections_at as usize, 0);
    for (kind, offset, size, link) in [
        (0, 0, 0, 0),
        (2, symbols_at as u64, symbols.len() as u64, 2),
        (3, names_at, names.len() as u64, 0),
    ] {
        let mut section = vec![0; 64];
        put(&mut section, 4, kind, 4);
        put(&mut section, 24, offset, 8);
        put(&mut section, 32, size, 8);
        put(&mut section, 40, link, 4);
        bytes.extend(section);
    }
    bytes
}
