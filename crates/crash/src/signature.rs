//! Signatures: crashes with the same cause have the same one.
//!
//! Version 1 is a hash of the program, the signal and the top frames of the program's own code:
//! names of functions, without addresses, lines and template arguments. Repeated frames of a
//! recursion count once, whatever its depth. A frame without a name counts as file and offset,
//! which differ between builds. A changed rule is a new version: signatures of old crashes stay.

use serde_json::{Value, json};

use crate::symbol_name::readable;

/// Version of the rules, the first part of each signature.
const VERSION: u32 = 1;
/// Frames that count. Each further frame separates crashes of one cause that were reached by other
/// ways, or whose callers were inlined elsewhere; with fewer, crashes in a shared function are one.
const FRAMES: usize = 3;
/// Longest cycle of a recursion that is folded.
const CYCLE_MAX: usize = 4;

/// Functions that report or handle a fault of their caller: by how their names begin, and whole.
const SKIPPED_PREFIXES: &[&str] = &[
    "__", "_dl_", "_Unwind_", "rust_", "std::", "core::", "alloc::", "<core::", "<alloc::",
    "<std::", "runtime.",
];
const SKIPPED: &[&str] =
    &["_start", "abort", "raise", "gsignal", "kill", "pthread_kill", "clone", "start_thread"];
/// Libraries of the system.
const LIBRARIES: &[&str] = &[
    "libc.",
    "libc-",
    "libpthread",
    "ld-linux",
    "ld-musl",
    "libm.",
    "libm-",
    "libgcc_s",
    "libstdc++",
    "libjvm",
    "libjli",
    "[",
    "linux-vdso",
];

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Path of the file with the code; empty if unknown.
    pub module: String,
    /// Build ID of the file; empty if unknown.
    pub build_id: String,
    /// Address in the file's own numbering, or the address in memory if there is no file.
    pub address: u64,
    /// Name of the function in words; empty if unknown.
    pub function: String,
}

impl Frame {
    /// A frame of a function with a name as in a table of symbols.
    pub(crate) fn named(function: &str) -> Frame {
        Frame { function: readable(function), ..Frame::default() }
    }

    fn file_name(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or("")
    }

    /// Whether it is of the program's own code.
    fn is_own(&self) -> bool {
        let is_library = LIBRARIES.iter().any(|library| self.file_name().starts_with(library));
        let is_skipped = SKIPPED_PREFIXES.iter().any(|prefix| self.function.starts_with(prefix))
            || SKIPPED.contains(&self.function.as_str());
        !is_library && !is_skipped
    }

    /// What counts for the signature.
    pub(crate) fn key(&self) -> String {
        match self.function.is_empty() {
            true if self.module.is_empty() => "?".to_owned(),
            true => format!("{}+{:#x}", self.file_name(), self.address),
            false => self.function.clone(),
        }
    }

    /// Fields of a notice.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "function": self.function,
            "module": self.module,
            "build_id": self.build_id,
            "address": format!("{:#x}", self.address),
            "is_own": self.is_own(),
        })
    }
}

/// Frames that count, the innermost first.
fn counted(frames: &[Frame]) -> Vec<String> {
    let keys = |is_counted: &dyn Fn(&Frame) -> bool| -> Vec<String> {
        fold(frames.iter().filter(|frame| is_counted(frame)).map(Frame::key).collect())
    };
    let mut keys = match keys(&Frame::is_own) {
        // A crash without own code: in a library's own thread, or of an unknown function.
        own if own.is_empty() || own == ["?"] => keys(&|_| true),
        own => own,
    };
    keys.truncate(FRAMES);
    keys
}

/// Folds repetitions of up to [`CYCLE_MAX`] frames.
fn fold(keys: Vec<String>) -> Vec<String> {
    let mut folded: Vec<String> = Vec::new();
    for key in keys {
        folded.push(key);
        for cycle in 1..=CYCLE_MAX.min(folded.len() / 2) {
            let (earlier, last) = folded.split_at(folded.len() - cycle);
            if earlier.ends_with(last) {
                folded.truncate(folded.len() - cycle);
                break;
            }
        }
    }
    folded
}

/// Signature of a crash of a program with a signal, or another reason.
pub(crate) fn signature(program: &str, reason: &str, frames: &[Frame]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let counted = counted(frames);
    // FNV-1a of the parts, each with an end that no name contains.
    for part in [program, reason].into_iter().chain(counted.iter().map(String::as_str)) {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{VERSION}-{hash:016x}")
}

/// Short description of a crash.
pub(crate) fn title(reason: &str, frames: &[Frame]) -> String {
    // A jump to nowhere is named after the function that jumped.
    let counted = counted(frames);
    match counted.iter().find(|frame| *frame != "?").or(counted.first()) {
        Some(frame) => format!("{reason} in {frame}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Frame> {
        names.iter().map(|name| Frame::named(name)).collect()
    }

    #[track_caller]
    fn check(names: &[&str], expected: &[&str]) {
        assert_eq!(counted(&frames(names)), expected);
    }

    #[test]
    fn only_own_frames_count() {
        let abort = ["__pthread_kill_implementation", "raise", "abort"];
        check(
            &[&abort[..], &["check", "pay", "main", "__libc_start_main"]].concat(),
            &["check", "pay", "main"],
        );
        check(
            &["core::panicking::panic_fmt", "shop::pay", "shop::main", "std::rt::lang_start"],
            &["shop::pay", "shop::main"],
        );
        check(
            &["runtime.throw", "main.pay", "main.main", "runtime.main"],
            &["main.pay", "main.main"],
        );
        check(&["abort"], &["abort"]);
        check(&[], &[]);
    }

    #[test]
    fn recursion_counts_once_whatever_its_depth() {
        check(&["f", "f", "f", "g"], &["f", "g"]);
        check(&["a", "b", "a", "b", "a", "b", "main"], &["a", "b", "main"]);
        check(&["a", "b", "b", "a", "b", "b", "main"], &["a", "b", "main"]);
    }

    #[test]
    fn signatures_differ_by_program_signal_and_frames() {
        let base = signature("shop", "SIGSEGV", &frames(&["pay", "main"]));
        assert_eq!(base, signature("shop", "SIGSEGV", &frames(&["pay.constprop.0", "main"])));
        for other in [
            signature("shop2", "SIGSEGV", &frames(&["pay", "main"])),
            signature("shop", "SIGABRT", &frames(&["pay", "main"])),
            signature("shop", "SIGSEGV", &frames(&["pay", "retry"])),
            signature("shop", "SIGSEGV", &frames(&["paym", "ain"])),
        ] {
            assert_ne!(base, other);
        }
    }

    /// A signature is compared with those of earlier years: this value must not change.
    #[test]
    fn version_1_is_stable() {
        assert_eq!(signature("shop", "SIGSEGV", &frames(&["pay", "main"])), "1-f875632070d148d4");
    }

    #[test]
    fn frames_without_a_name_count_as_file_and_offset() {
        let frame = Frame { module: "/opt/shop/bin".into(), address: 0x1234, ..Frame::default() };
        assert_eq!(title("SIGSEGV", &[frame]), "SIGSEGV in bin+0x1234");
    }
}
