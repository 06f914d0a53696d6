//! Cores: registers, stacks and names; what is left out; cut and false ones.

use std::io::{self, Cursor, Read};

use crash::{
    CoreDump, CrashNotice, ElfImage, ModuleMap, NoticeLabels, RandomRead as _, StackMemory,
};

use crate::sample_core::{self, CODE, SP};

const TOKEN: &str = "planted-token-7a1";

/// A notice of a core, with its snapshot, from a stream or by address.
fn read(bytes: &[u8], is_stream: bool) -> io::Result<(CrashNotice, String)> {
    read_with(bytes, is_stream, &sample_core::executable())
}

/// With another executable.
fn read_with(
    bytes: &[u8],
    is_stream: bool,
    executable: &[u8],
) -> io::Result<(CrashNotice, String)> {
    let mut reader = Cursor::new(bytes);
    let core = CoreDump::read(&mut reader)?;
    let whole = bytes.to_vec();
    let memory = match is_stream {
        true => StackMemory::read_stream(&core, &mut reader),
        false => StackMemory::read(&core, &mut |address, buffer| {
            let Some((offset, size)) = core.offset_of(address) else { return 0 };
            let count = buffer.len().min(size as usize);
            whole.read_exact_at(&mut buffer[..count], offset).map_or(0, |()| count)
        }),
    };
    assert!(!format!("{memory:?}").contains(&format!("{:?}", TOKEN.as_bytes())[1..40]));
    let mut modules = ModuleMap::new(core.mappings.clone(), |_| {
        ElfImage::open(Box::new(executable.to_vec())).ok()
    });
    let mut notice = CrashNotice { reason: "SIGSEGV".to_owned(), ..CrashNotice::default() };
    let snapshot = notice.add_core(&core, &memory, &mut modules);
    notice.origin.build_id = modules.build_id(sample_core::PATH);
    Ok((notice, snapshot.to_string()))
}

#[test]
fn stack_is_walked_and_named() {
    for is_stream in [false, true] {
        let (notice, _) = read(&sample_core::core(TOKEN), is_stream).unwrap();
        let frames: Vec<(&str, u64)> =
            notice.frames.iter().map(|frame| (frame.function.as_str(), frame.address)).collect();
        let expected = [("crashed", CODE + 0x10), ("handle", CODE + 0x114), ("main", CODE + 0x214)];
        assert_eq!(frames, expected);
        assert_eq!((notice.code, notice.fault_address), (1, Some(0xdead_0000)));
        assert_eq!((notice.thread_count, notice.origin.build_id.as_str()), (2, "abcdef01"));
    }
}

#[test]
fn arguments_environment_and_heap_are_left_out() {
    for is_stream in [false, true] {
        let (notice, snapshot) = read(&sample_core::core(TOKEN), is_stream).unwrap();
        for text in [notice.to_json().to_string(), snapshot] {
            assert!(!text.contains(TOKEN));
            // Also not as numbers of bytes.
            let digits: Vec<String> = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!text.contains(&digits.concat()[..16]));
        }
    }
}

/// Neither a register nor the stack of a snapshot has data of the program.
#[test]
fn a_snapshot_has_three_registers_of_a_thread() {
    let mut core = sample_core::core(TOKEN);
    let status = core.windows(8).position(|word| word == (CODE + 0x10).to_le_bytes()).unwrap();
    // rax.
    core[status - 48..status - 40].copy_from_slice(&0xfeed_face_cafe_u64.to_le_bytes());
    let (_, snapshot) = read(&core, true).unwrap();
    let json: serde_json::Value = serde_json::from_str(&snapshot).unwrap();
    let registers = json["threads"][0]["registers"].as_object().unwrap();
    let names: Vec<&String> = registers.keys().collect();
    assert_eq!(names, ["rbp", "rip", "rsp"]);
    assert!(!snapshot.contains("feedface"), "{snapshot}");
}

/// The file system of a mapped file may be the user's: it may not answer for ever.
#[test]
fn memory_of_mapped_files_is_not_read() {
    let count = |core: &[u8]| {
        let core = CoreDump::read(&mut Cursor::new(core)).unwrap();
        let mut reads = 0;
        StackMemory::read(&core, &mut |_, _| {
            reads += 1;
            0
        });
        reads
    };
    let core = sample_core::core(TOKEN);
    assert_eq!(count(&core), 2);
    let note = core.windows(4).position(|word| word == b"ELIF").unwrap();
    // A mapping from the code up to the last page of the stack, or to none of it.
    for (end, reads) in [(sample_core::STACK + 0x4000, 0), (sample_core::STACK, 2)] {
        let mut core = core.clone();
        core[note + 36..note + 44].copy_from_slice(&end.to_le_bytes());
        assert_eq!(count(&core), reads, "{end:x}");
    }
    // Without the table of files.
    let mut core = core;
    core[note] = 0;
    assert_eq!(count(&core), 0);
}

#[test]
fn a_call_of_no_code_has_its_caller() {
    let mut core = sample_core::core(TOKEN);
    let status = core.windows(8).position(|word| word == (CODE + 0x10).to_le_bytes()).unwrap();
    core[status..status + 8].fill(0);
    // The return address was pushed last.
    let stack = core.len() - 0x4000 + (SP - sample_core::STACK) as usize;
    core[stack..stack + 8].copy_from_slice(&(CODE + 0x50).to_le_bytes());
    let (notice, _) = read(&core, false).unwrap();
    let functions: Vec<&str> = notice.frames.iter().map(|it| it.function.as_str()).collect();
    assert_eq!(functions, ["", "crashed", "handle", "main"]);
}

#[test]
fn call_frame_information_is_followed() {
    let mut core = sample_core::core(TOKEN);
    let stack = core.len() - 0x4000 + (SP - sample_core::STACK) as usize;
    // Return address into `main`; the chain of frame pointers leads through `handle`.
    core[stack + 8..stack + 16].copy_from_slice(&(CODE + 0x255).to_le_bytes());
    let image = sample_core::executable_with_frames();
    let (notice, _) = read_with(&core, false, &image).unwrap();
    let functions: Vec<&str> = notice.frames.iter().map(|it| it.function.as_str()).collect();
    assert_eq!(functions, ["crashed", "main"]);
}

#[test]
fn a_core_that_is_cut_has_what_comes_before() {
    let core = sample_core::core(TOKEN);
    let (notice, _) = read(&core[..core.len() - 0x3000], true).unwrap();
    assert_eq!(notice.frames[0].function, "crashed");
    for end in [0, 3, 64, 200, 400] {
        assert!(read(&core[..end], true).is_err(), "{end}");
    }
    let message = |bytes: &[u8]| read(bytes, true).err().map(|error| error.to_string());
    let expected = "not a 64-bit little-endian ELF core".to_owned();
    assert_eq!(message(&sample_core::executable()), Some(expected));
}

/// A core that claims sizes near 2^64 is read with little memory.
#[test]
fn hostile_sizes_take_no_memory() {
    /// A stream of a core that never ends.
    struct Endless(Cursor<Vec<u8>>);
    impl Read for Endless {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            match self.0.read(bytes)? {
                0 => {
                    bytes.fill(0xff);
                    Ok(bytes.len())
                }
                count => Ok(count),
            }
        }
    }
    let core = sample_core::core(TOKEN);
    // Sizes of the notes and of the stack, in file and memory.
    for header in [64, 64 + 3 * 56] {
        let mut core = core.clone();
        core[header + 32..header + 48].fill(0xff);
        core.truncate(64 + 4 * 56);
        assert!(CoreDump::read(&mut Endless(Cursor::new(core)).take(1 << 24)).is_err());
    }
    let mut core = core;
    core[56..58].copy_from_slice(&0xfffe_u16.to_le_bytes());
    assert!(CoreDump::read(&mut Endless(Cursor::new(core))).is_err());
}

#[test]
fn labels_of_a_notice() {
    let (mut notice, _) = read(&sample_core::core(TOKEN), true).unwrap();
    notice.time_ns = 5;
    notice.origin.program = "shop".to_owned();
    let labels = NoticeLabels::parse(notice.to_json().to_string().as_bytes()).unwrap();
    assert_eq!((labels.service.as_str(), labels.build.as_str()), ("shop", "abcdef01"));
    assert_eq!((labels.time_ns, labels.signature), (5, notice.signature()));
    notice.origin.unit = "shop-api.service".to_owned();
    let labels = NoticeLabels::parse(notice.to_json().to_string().as_bytes()).unwrap();
    assert_eq!(labels.service, "shop-api");
    assert_eq!(NoticeLabels::parse(b"{}"), None);
}
