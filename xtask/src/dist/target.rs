//! Release targets and their tools: the standard library for the target, a C compiler, a linker.
//!
//! Some dependencies are in C (zstd, ring, the allocator), and no distribution packages one
//! compiler for both targets. The `ziglang` package of PyPI compiles for all targets: a pinned
//! version is installed in an environment in the build directory, without root. The linker and the
//! C library come with Rust (`rust-lld`, `libc.a` and start files of the target).

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::elf;
use crate::command_line::{CommandLine, target as builds};
use crate::part_log::PartLog;

const ZIGLANG: &str = "ziglang==0.17.1";
/// Path of a zig to use instead of that of PyPI.
const ZIG: &str = "TOPDECK_ZIG";

/// Flags that a profile cannot set: the linker of Rust; a build ID, which debuggers and profilers
/// use to find debug information; and packed relocations, which the musl start files of Rust 1.93
/// and later support (4 MB of the unoptimized x86-64 binary were relocations). Frame pointers: a
/// place in the stack takes a byte less, and unwind tables need no entry per push; profilers read
/// them, too.
const RUSTFLAGS: &str = "-C linker-flavor=ld.lld -C link-self-contained=yes -C link-arg=--build-id \
    -C link-arg=--pack-dyn-relocs=relr -C link-arg=--icf=all -C force-frame-pointers=yes";

/// Options of the C compiler. The undefined behaviour and stack checks of zig call functions that
/// only programs linked by zig contain. Of zstd, only the levels 1 to 3 compress.
const CFLAGS: &str = "-fno-sanitize=undefined -fno-stack-check \
    -DZSTD_EXCLUDE_GREEDY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_LAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTLAZY2_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_BTOPT_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTULTRA_BLOCK_COMPRESSOR";

/// An architecture with Linux and musl. Variable names are those that cargo and the crate `cc`
/// read.
#[derive(Debug)]
pub(crate) struct DistTarget {
    pub(crate) triple: &'static str,
    pub(super) machine: u16,
    /// As in `std::env::consts::ARCH`.
    arch: &'static str,
    zig: &'static str,
    cc: &'static str,
    ar: &'static str,
    linker: &'static str,
    rustflags: &'static str,
    pub(crate) runner: &'static str,
    /// Names of the user-mode emulator of qemu: of Debian's package qemu-user-static, then of
    /// qemu-user.
    emulators: [&'static str; 2],
}

pub(super) const TARGETS: [DistTarget; 2] = [
    DistTarget {
        triple: "x86_64-unknown-linux-musl",
        machine: elf::X86_64,
        arch: "x86_64",
        zig: "x86_64-linux-musl",
        cc: "CC_x86_64_unknown_linux_musl",
        ar: "AR_x86_64_unknown_linux_musl",
        linker: "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER",
        rustflags: "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS",
        runner: "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUNNER",
        emulators: ["qemu-x86_64-static", "qemu-x86_64"],
    },
    DistTarget {
        triple: "aarch64-unknown-linux-musl",
        machine: elf::AARCH64,
        arch: "aarch64",
        zig: "aarch64-linux-musl",
        cc: "CC_aarch64_unknown_linux_musl",
        ar: "AR_aarch64_unknown_linux_musl",
        linker: "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER",
        rustflags: "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUSTFLAGS",
        runner: "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER",
        emulators: ["qemu-aarch64-static", "qemu-aarch64"],
    },
];

/// How this machine starts programs of a target.
pub(crate) enum ProgramStarter {
    Directly,
    Emulator(&'static str),
}

impl DistTarget {
    pub(crate) fn find(triple: &str) -> Option<&'static DistTarget> {
        TARGETS.iter().find(|target| target.triple == triple)
    }

    /// Returns how programs of this target start; an error is the reason why they cannot.
    pub(crate) fn starter(&self) -> Result<ProgramStarter, String> {
        if self.arch == env::consts::ARCH {
            return Ok(ProgramStarter::Directly);
        }
        let starts = |name: &&str| CommandLine::new(&format!("{name} --version")).succeeds();
        match self.emulators.into_iter().find(|name| starts(name)) {
            Some(name) => Ok(ProgramStarter::Emulator(name)),
            None => Err(format!(
                "{} is not installed (Debian package qemu-user-static)",
                self.emulators[0]
            )),
        }
    }

    /// Provides all tools of a build, downloading missing ones. Commands write to `log`.
    pub(crate) fn provide_tools(&self, log: &PartLog) -> Result<DistTools> {
        self.provide_standard_library(log)?;
        Ok(DistTools { compiler: self.provide_compiler(log)? })
    }

    fn provide_standard_library(&self, log: &PartLog) -> Result<()> {
        if self.has_standard_library() {
            return Ok(());
        }
        let add = CommandLine::new(&format!("rustup target add {}", self.triple));
        if !CommandLine::new("rustup --version").succeeds() {
            bail!(
                "the standard library for {} is missing, and rustup is not installed; install \
                 rustup (https://rustup.rs), then run: {add}",
                self.triple
            );
        }
        add.run(log).with_context(|| {
            format!(
                "cannot download the standard library for {}; with a network, run: {add}",
                self.triple
            )
        })
    }

    fn has_standard_library(&self) -> bool {
        let asked =
            CommandLine::new(&format!("rustc --print target-libdir --target {}", self.triple));
        let Ok(dir) = asked.stdout() else { return false };
        let dir = String::from_utf8_lossy(&dir);
        fs::read_dir(dir.trim()).is_ok_and(|mut files| {
            files.any(|file| {
                file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
            })
        })
    }

    /// Writes scripts that run the C compiler and the archiver of zig for this target; `None` if
    /// the user has set others.
    fn provide_compiler(&self, log: &PartLog) -> Result<Option<Compiler>> {
        if env::var_os(self.cc).is_some() {
            return Ok(None);
        }
        let zig = match env::var_os(ZIG).filter(|zig| !zig.is_empty()) {
            Some(zig) => PathBuf::from(zig),
            None => fetch_zig(log).with_context(|| self.missing_zig_message())?,
        };
        let dir = tools_dir().join(self.triple);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let compiler = Compiler { cc: dir.join("cc"), ar: dir.join("ar") };
        let cache = tools_dir().join("zig-cache");
        let (zig, cache) = (text(&zig)?, text(&cache)?);
        write_program(&compiler.cc, &compiler_script(zig, cache, self.zig))?;
        write_program(&compiler.ar, &archiver_script(zig, cache))?;
        Ok(Some(compiler))
    }

    fn missing_zig_message(&self) -> String {
        format!(
            "dependencies in C need a compiler for {}, and PyPI's `{ZIGLANG}` cannot be \
             installed; either provide Python with venv (Debian package python3-venv) and a \
             network, or set {ZIG} to a zig, or set {} and {} to a compiler and an archiver for \
             this target (for x86_64: musl-gcc of Debian's musl-tools, and ar)",
            self.triple, self.cc, self.ar
        )
    }
}

/// Tools and settings of a build.
pub(crate) struct DistTools {
    compiler: Option<Compiler>,
}

struct Compiler {
    cc: PathBuf,
    ar: PathBuf,
}

impl DistTools {
    /// Adds these tools to `line`, a cargo command that builds for `target`.
    pub(crate) fn apply(&self, line: CommandLine, target: &DistTarget) -> Result<CommandLine> {
        let line = line.env(target.linker, "rust-lld").env(target.rustflags, RUSTFLAGS);
        Ok(match &self.compiler {
            Some(compiler) => {
                line.env(target.cc, text(&compiler.cc)?).env(target.ar, text(&compiler.ar)?)
            }
            None => line,
        })
    }
}

fn tools_dir() -> PathBuf {
    builds().join("dist-tools")
}

/// A version change recreates the environment.
fn fetch_zig(log: &PartLog) -> Result<PathBuf> {
    let home = tools_dir().join(ZIGLANG);
    let (done, python) = (home.join("zig-path"), home.join("bin/python"));
    if let Ok(path) = fs::read_to_string(&done) {
        return Ok(PathBuf::from(path));
    }
    CommandLine::new("python3 -m venv --clear").arg(text(&home)?).run(log)?;
    let install = CommandLine::from_path(&python);
    install.arg("-m").arg("pip").arg("install").arg("--quiet").arg(ZIGLANG).run(log)?;
    let says_where = "import ziglang, os; print(os.path.dirname(ziglang.__file__), end='')";
    let dir = CommandLine::from_path(&python).arg("-c").arg(says_where).stdout()?;
    let zig = Path::new(&String::from_utf8(dir)?).join("zig");
    fs::write(&done, text(&zig)?).context("cannot write to the build directory")?;
    Ok(zig)
}

/// zig does not know the target names of Rust, which the crate `cc` passes.
fn compiler_script(zig: &str, cache: &str, target: &str) -> String {
    format!(
        "#!/bin/sh\n# Written by `cargo xtask dist`.\n{}\
         for word; do\n    shift\n    case $word in\n    --target=*) ;;\n\
         \x20   *) set -- \"$@\" \"$word\" ;;\n    esac\ndone\n\
         exec '{zig}' cc -target {target} {CFLAGS} \"$@\"\n",
        cache_lines(cache)
    )
}

fn archiver_script(zig: &str, cache: &str) -> String {
    format!(
        "#!/bin/sh\n# Written by `cargo xtask dist`.\n{}exec '{zig}' ar \"$@\"\n",
        cache_lines(cache)
    )
}

fn cache_lines(cache: &str) -> String {
    format!("export ZIG_GLOBAL_CACHE_DIR='{cache}' ZIG_LOCAL_CACHE_DIR='{cache}'\n")
}

/// An unchanged file is not written: cargo would rebuild what a changed compiler has built.
fn write_program(path: &Path, script: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|written| written == script) {
        return Ok(());
    }
    let write = || {
        fs::write(path, script)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn compiler_gets_the_zig_target_name() {
        let dir = env::temp_dir().join(format!("topdeck-xtask-cc-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (echo, cc) = (dir.join("echo"), dir.join("cc"));
        write_program(&echo, "#!/bin/sh\nprintf '<%s>' \"$@\"\n").unwrap();
        let cache = dir.to_str().unwrap();
        write_program(&cc, &compiler_script(echo.to_str().unwrap(), cache, "t")).unwrap();
        let words = ["-c", "--target=x86_64-unknown-linux-musl", "a b.c", "-DX=\"y\"", ""];
        let output = Command::new(&cc).args(words).output().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let flags: String = CFLAGS.split_whitespace().map(|flag| format!("<{flag}>")).collect();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            format!("<cc><-target><t>{flags}<-c><a b.c><-DX=\"y\"><>")
        );
    }

    #[test]
    fn variables_match_the_triple() {
        for target in &TARGETS {
            let name = target.triple.replace('-', "_");
            assert_eq!(target.cc, format!("CC_{name}"));
            assert_eq!(target.ar, format!("AR_{name}"));
            let name = name.to_uppercase();
            assert_eq!(target.linker, format!("CARGO_TARGET_{name}_LINKER"));
            assert_eq!(target.rustflags, format!("CARGO_TARGET_{name}_RUSTFLAGS"));
            assert_eq!(target.runner, format!("CARGO_TARGET_{name}_RUNNER"));
            assert!(target.triple.starts_with(target.arch) && target.zig.starts_with(target.arch));
        }
    }
}
