//! `cargo xtask dist`: builds release files in target/dist: per target a static binary with
//! separate debug information; shell completions and man pages, which the binary generates.
//!
//! A binary is released only if it is static, not larger than `SIZE_MAX_BYTES`, contains the web
//! page, and passes `check.rs` if this machine can run it.

mod check;
mod elf;
mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};

use self::elf::ElfHeaders;
use self::target::TARGETS;
use crate::command_line::{CommandLine, root, target as builds};
use crate::page;
use crate::part_log::PartLog;

pub(crate) use self::check::{DistProgram, check};
pub(crate) use self::target::{DistTarget, ProgramStarter};

/// Build a static binary per target, with debug information, completions and man pages, into
/// target/dist
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build this target only; repeatable
    #[arg(long = "target", value_name = "TRIPLE", value_parser = triples())]
    targets: Vec<String>,

    /// Check existing binaries without building
    #[arg(long)]
    check: bool,
}

/// Size limit of a stripped binary, which is what users download and copy to hosts.
const SIZE_MAX_BYTES: u64 = 25_000_000;

/// Shells and the file names that they look for.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "topdeck.bash"), ("zsh", "_topdeck"), ("fish", "topdeck.fish")];

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let targets: Vec<&DistTarget> = match options.targets.is_empty() {
        true => TARGETS.iter().collect(),
        false => options.targets.iter().filter_map(|triple| DistTarget::find(triple)).collect(),
    };
    if !options.check {
        build_page()?;
        for target in &targets {
            build(target)?;
        }
    }
    let mut writer = None;
    for target in &targets {
        let path = dir(target).join("topdeck");
        check_binary(target, &path)?;
        match target.starter() {
            Ok(starter) => {
                let program = DistProgram { path: &path, starter };
                let began = Instant::now();
                check(&program, &builds().join("dist-check"), true).with_context(|| {
                    format!("the binary for {} fails its checks", target.triple)
                })?;
                print_progress(&format!("{}: checked, {}", target.triple, seconds(began)));
                writer.get_or_insert((path, *target));
            }
            Err(reason) => print_progress(&format!("{}: NOT STARTED: {reason}", target.triple)),
        }
    }
    if options.check {
        return Ok(ExitCode::SUCCESS);
    }
    let Some((path, target)) = writer else {
        return Err(anyhow!(
            "cannot generate completions and man pages: this machine can run none of the \
             binaries; add --target {}",
            TARGETS[0].triple
        ));
    };
    let starter = target.starter().map_err(|reason| anyhow!(reason))?;
    let writer = DistProgram { path: &path, starter };
    write_completions(&writer, &dist().join("completions"))?;
    write_man_pages(&writer, &dist().join("man"))?;
    Ok(ExitCode::SUCCESS)
}

/// A released binary contains the page.
fn build_page() -> Result<()> {
    let node = CommandLine::new("node --version").succeeds()
        && CommandLine::new("npm --version").succeeds();
    ensure!(
        node,
        "cannot build the web UI, which a released binary contains: Node.js and npm are \
         missing; run: apt-get install nodejs npm"
    );
    page::build(&page::Options {})?;
    ensure!(
        root().join("web/dist/index.html").exists(),
        "the web UI, which a released binary contains, was not built (see above); run: cargo \
         xtask page"
    );
    Ok(())
}

fn build(target: &DistTarget) -> Result<()> {
    let tools = target.provide_tools(&log())?;
    let began = Instant::now();
    let line = format!("cargo build --release --locked -p topdeck --target {}", target.triple);
    tools.apply(CommandLine::new(&line), target)?.run(&log())?;
    print_progress(&format!("{}: built, {}", target.triple, seconds(began)));
    split_debug_info(target)
}

/// Strips the binary and stores its debug information beside it, under the name that gdb looks for.
fn split_debug_info(target: &DistTarget) -> Result<()> {
    let built = builds().join(target.triple).join("release").join("topdeck");
    let dir = dir(target);
    // Removes files of older builds.
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let objcopy = objcopy()?;
    let (program, debug) = (dir.join("topdeck"), dir.join("topdeck.debug"));
    let line = || CommandLine::from_path(&objcopy);
    line().arg("--only-keep-debug").arg(path_text(&built)?).arg(path_text(&debug)?).run(&log())?;
    let link = format!("--add-gnu-debuglink={}", path_text(&debug)?);
    line()
        .arg("--strip-all")
        .arg(&link)
        .arg(path_text(&built)?)
        .arg(path_text(&program)?)
        .run(&log())
}

/// `llvm-objcopy` handles all targets and comes with Rust.
fn objcopy() -> Result<PathBuf> {
    let dir = CommandLine::new("rustc --print target-libdir").stdout()?;
    let dir = PathBuf::from(String::from_utf8(dir)?.trim());
    let beside = dir.parent().context("the library directory has no parent")?;
    let objcopy = beside.join("bin/rust-objcopy");
    ensure!(
        objcopy.exists(),
        "cannot split off debug information: {} is missing; toolchains of rustup contain it, \
         those of distributions may not; run: rustup toolchain install stable",
        objcopy.display()
    );
    Ok(objcopy)
}

fn check_binary(target: &DistTarget, program: &Path) -> Result<()> {
    let (size_bytes, elf) = read(program)?;
    let name = program.display();
    elf.check_static(target.machine).with_context(|| format!("{name} is not static"))?;
    for section in [".gnu_debuglink", ".note.gnu.build-id"] {
        ensure!(
            elf.has_section(section),
            "{name} has no section {section}, so gdb cannot find debug information"
        );
    }
    ensure!(!elf.has_section(".debug_info"), "{name} is not stripped");
    ensure!(
        size_bytes <= SIZE_MAX_BYTES,
        "{name} has {size_bytes} bytes: size limit ({SIZE_MAX_BYTES}) exceeded"
    );
    let (debug_bytes, debug) = read(&program.with_extension("debug"))?;
    ensure!(debug.has_section(".debug_info"), "{name}.debug has no debug information");
    print_progress(&format!(
        "{}: static, {:.1} MB, debug information {:.1} MB",
        target.triple,
        size_bytes as f64 / 1e6,
        debug_bytes as f64 / 1e6
    ));
    Ok(())
}

fn read(path: &Path) -> Result<(u64, ElfHeaders)> {
    let bytes = fs::read(path)
        .with_context(|| format!("cannot read {}; run `cargo xtask dist`", path.display()))?;
    let elf =
        ElfHeaders::read(&bytes).with_context(|| format!("the headers of {}", path.display()))?;
    Ok((bytes.len() as u64, elf))
}

fn write_completions(program: &DistProgram, dir: &Path) -> Result<()> {
    recreate_dir(dir)?;
    for (shell, file) in COMPLETIONS {
        let text = program.stdout(&["completions", shell])?;
        ensure!(!text.is_empty(), "`topdeck completions {shell}` wrote nothing");
        fs::write(dir.join(file), text)?;
    }
    print_progress(&format!("{} completions in {}", COMPLETIONS.len(), dir.display()));
    Ok(())
}

fn write_man_pages(program: &DistProgram, dir: &Path) -> Result<()> {
    recreate_dir(dir)?;
    program.stdout(&["man", path_text(dir)?])?;
    let page_count = fs::read_dir(dir)?.count();
    ensure!(page_count > 0, "`topdeck man` wrote nothing");
    print_progress(&format!("{page_count} man pages in {}", dir.display()));
    Ok(())
}

/// Removes files of older binaries.
fn recreate_dir(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

fn triples() -> [&'static str; 2] {
    TARGETS.each_ref().map(|target| target.triple)
}

/// Always inside the repository, whatever the build directory of cargo is.
fn dist() -> PathBuf {
    root().join("target/dist")
}

fn dir(target: &DistTarget) -> PathBuf {
    dist().join(target.triple)
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn log() -> PartLog {
    PartLog::console("dist")
}

fn print_progress(what: &str) {
    log().note(what);
}

fn seconds(began: Instant) -> String {
    format!("{:.0} s", began.elapsed().as_secs_f64())
}
