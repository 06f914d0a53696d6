//! `topdeck crash read`: a core file, or a crash text of the JVM or of Go.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use ::crash::{
    CoreDump, CrashNotice, ElfImage, FileMapping, ModuleMap, Spool, StackMemory, parse_crash_text,
    signal_name,
};
use anyhow::{Context as _, Result};
use client::print_stdout;

use super::file_rights::take_file_rights;
use super::list::notice_text;

/// Bytes of a crash text that are read.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Show the crash in a core file, or in a text that the JVM (hs_err_pid*.log) or Go printed
///
/// Functions are named from the files of this host. With --send, the crash becomes one of this
/// host, as if the kernel had reported it: for programs that exit when they fail, as those in Go.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Core file, or crash text; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Name of the program [default: that of the executable in a core]
    #[arg(long, value_name = "NAME")]
    program: Option<String>,

    /// Send it by the agent or server with this data directory
    #[arg(long, value_name = "DATA_DIR")]
    send: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.file;
    let mut notice = match path.as_os_str() == "-" {
        true => {
            let mut text = Vec::new();
            std::io::stdin().take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
            parse_crash_text(&text).context("standard input: found no crash text of the JVM or Go")
        }
        false => read_file(path),
    }?;
    if notice.time_ns == 0 {
        notice.time_ns = journal::wall_clock()();
    }
    if let Some(program) = &options.program {
        notice.origin.program.clone_from(program);
    }
    let json = notice.to_json();
    if let Some(data_dir) = &options.send {
        let name = format!("{:020}-{}", notice.time_ns, std::process::id());
        std::fs::canonicalize(data_dir)
            .and_then(|dir| {
                let spool = Spool::new(&dir);
                take_file_rights(spool.owner()?)?;
                spool.finish(&name, &notice.to_bytes())
            })
            .with_context(|| format!("cannot write a notice in {}", data_dir.display()))?;
    }
    let text = if options.json { format!("{json}\n") } else { notice_text(&json) };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn read_file(path: &Path) -> Result<CrashNotice> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(cannot)?;
    let mut notice = match CoreDump::read(&mut file) {
        Ok(core) => read_core(&core, &file),
        Err(error) => {
            let mut text = vec![0; TEXT_BYTES_MAX.min(file.metadata()?.len()) as usize];
            file.read_exact_at(&mut text, 0).with_context(cannot)?;
            parse_crash_text(&text).with_context(|| {
                format!("{}: found no crash text of the JVM or Go, and {error}", path.display())
            })?
        }
    };
    let written = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    notice.time_ns = i64::try_from(written.as_nanos()).unwrap_or(0);
    Ok(notice)
}

fn read_core(core: &CoreDump, file: &File) -> CrashNotice {
    let mut read = |address: u64, bytes: &mut [u8]| {
        let Some((offset, size)) = core.offset_of(address) else { return 0 };
        let count = bytes.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        match file.read_exact_at(&mut bytes[..count], offset) {
            Ok(()) => count,
            Err(_) => 0,
        }
    };
    let memory = StackMemory::read(core, &mut read);
    let open = |mapping: &FileMapping| {
        let file = Path::new(&mapping.path);
        // A core may name a pipe or a device.
        file.is_file().then(|| ElfImage::open(Box::new(File::open(file).ok()?)).ok()).flatten()
    };
    let mut modules = ModuleMap::new(core.mappings.clone(), open);
    let mut notice = CrashNotice { reason: signal_name(core.signal), ..CrashNotice::default() };
    notice.add_core(core, &memory, &mut modules);
    // The mappings are sorted, and executables are below libraries.
    if let Some(first) = core.mappings.first() {
        notice.origin.executable.clone_from(&first.path);
        notice.origin.program = first.path.rsplit('/').next().unwrap_or("").to_owned();
        notice.origin.build_id = modules.build_id(&first.path);
    }
    notice
}
