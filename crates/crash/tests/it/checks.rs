//! Fuzz target checks: properties that hold for any bytes, one check per target. `fuzz/` includes
//! this file by path, and `fuzz_regressions` repeats the checks on past findings.

use std::io::Cursor;

use crash::{
    CoreDump, CrashNotice, ElfImage, ModuleMap, NoticeLabels, RandomRead, StackMemory,
    parse_crash_text,
};

/// Panics on a violation.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 4] = [
    ("core_dump", core_dump),
    ("crash_image", crash_image),
    ("crash_notice", crash_notice),
    ("crash_text", crash_text),
];

/// Any bytes are a core or an error. Memory from a stream is the same as that read by address.
fn core_dump(bytes: &[u8]) {
    let mut reader = Cursor::new(bytes);
    let Ok(core) = CoreDump::read(&mut reader) else { return };
    StackMemory::read_stream(&core, &mut reader);
    let whole = bytes.to_vec();
    let memory = StackMemory::read(&core, &mut |address, buffer| {
        let Some((offset, size)) = core.offset_of(address) else { return 0 };
        let count = buffer.len().min(size as usize);
        whole.read_exact_at(&mut buffer[..count], offset).map_or(0, |()| count)
    });
    // The core is the file of each of its mappings, too.
    let mut modules =
        ModuleMap::new(core.mappings.clone(), |_| ElfImage::open(Box::new(whole.clone())).ok());
    let mut notice = CrashNotice::default();
    notice.add_core(&core, &memory, &mut modules);
    assert!(notice.frames.len() <= 64);
    assert!(notice.signature().starts_with("1-"));
    let labels = NoticeLabels::parse(&notice.to_bytes()).expect("a notice has labels");
    assert_eq!(labels.signature, notice.signature());
}

/// Any bytes are an executable that a core has mapped, or an error.
fn crash_image(bytes: &[u8]) {
    let Some((position, image)) = bytes.split_first_chunk::<8>() else { return };
    let (image, position) = (image.to_vec(), u64::from_le_bytes(*position));
    let mapping = crash::FileMapping {
        range: 0x1000..u64::MAX,
        offset: 0,
        path: "f".to_owned(),
        is_executable: true,
    };
    let mut modules =
        ModuleMap::new(vec![mapping], |_| ElfImage::open(Box::new(image.clone())).ok());
    let mut registers = crash::Registers::default();
    (registers.0[16], registers.0[7]) = (position, 64);
    let mut core = CoreDump::default();
    core.threads.push(crash::CoreThread { tid: 1, registers });
    CrashNotice::default().add_core(&core, &StackMemory::default(), &mut modules);
}

/// Any bytes in the folder of notices are a notice or not.
fn crash_notice(bytes: &[u8]) {
    if let Some(labels) = NoticeLabels::parse(bytes) {
        assert!(labels.program.len() + labels.reason.len() <= bytes.len());
    }
}

/// Any bytes are a crash text or not.
fn crash_text(bytes: &[u8]) {
    if let Some(notice) = parse_crash_text(bytes) {
        assert!(notice.frames.len() <= 64 && !notice.reason.is_empty());
        assert!(NoticeLabels::parse(&notice.to_bytes()).is_some());
    }
}
