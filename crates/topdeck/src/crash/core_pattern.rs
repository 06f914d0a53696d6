//! `topdeck crash install`, `uninstall` and `status`: the setting `kernel.core_pattern`, which
//! names the program that the kernel starts when a process crashes (core(5)).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::crash::Spool;
use anyhow::{Context as _, Result, bail, ensure};
use client::print_stdout;

use super::trusted_file::{open_trusted, read_trusted};

/// Longest pattern; the kernel cuts a longer one.
const PATTERN_BYTES_MAX: usize = 127;
/// What the kernel passes to the handler, after the data directory and the former pattern: see
/// `handle::KernelArguments`.
const SPECIFIERS: &str = "%P %s %u %g %t %c %I %d %h %e";
/// What the pattern has after the path of the program.
const HANDLER: &str = " crash handle ";
/// Data directories of an installed agent and server.
const DATA_DIRS: [&str; 2] = ["/var/lib/topdeck-agent", "/var/lib/topdeck"];

/// Files of the system that have the setting.
#[derive(clap::Args)]
struct SystemFiles {
    #[arg(long, hide = true, default_value = "/proc/sys/kernel/core_pattern")]
    core_pattern: PathBuf,

    /// The pattern before an installation. Only root may write it: the handler runs what it names.
    #[arg(long, hide = true, default_value = "/etc/topdeck/core_pattern")]
    former: PathBuf,

    /// Sets the pattern at boot, after systemd's 50-coredump.conf.
    #[arg(long, hide = true, default_value = "/etc/sysctl.d/60-topdeck-crash.conf")]
    sysctl: PathBuf,
}

/// Start topdeck when a program crashes
///
/// Sets `kernel.core_pattern`, now and at boot. A former handler, such as systemd-coredump, is
/// started by topdeck and gets the core as before. If the kernel wrote core files before, it writes
/// none while topdeck is installed. Needs root.
#[derive(clap::Args)]
pub(super) struct HandlerInstallOptions {
    /// Data directory of the agent or server that sends the notices [default:
    /// /var/lib/topdeck-agent or /var/lib/topdeck]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Do not set it at boot
    #[arg(long)]
    until_reboot: bool,

    #[command(flatten)]
    files: SystemFiles,
}

/// Restore the former handler of crashes
///
/// Notices that wait to be sent stay.
#[derive(clap::Args)]
pub(super) struct HandlerUninstallOptions {
    #[command(flatten)]
    files: SystemFiles,
}

/// Show whether topdeck handles crashes on this host
///
/// Exit status: 0 if it does, 3 if not.
#[derive(clap::Args)]
pub(super) struct HandlerStatusOptions {
    #[command(flatten)]
    files: SystemFiles,
}

/// Exit status if topdeck does not handle crashes.
const NOT_INSTALLED: u8 = 3;

impl SystemFiles {
    fn read_pattern(&self) -> Result<String> {
        let path = &self.core_pattern;
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    fn write_pattern(&self, pattern: &str) -> Result<()> {
        let path = &self.core_pattern;
        let denied = "run it as root, on the host and not in a container";
        fs::write(path, pattern)
            .with_context(|| format!("cannot write {}; {denied}", path.display()))?;
        let found = self.read_pattern()?;
        ensure!(found == pattern, "{}: found {found:?}, expected {pattern:?}", path.display());
        Ok(())
    }

    /// The pattern before the installation.
    fn read_former(&self) -> Option<String> {
        read_trusted(&self.former).ok()
    }
}

fn is_own(pattern: &str) -> bool {
    pattern.starts_with('|') && pattern.contains(HANDLER)
}

pub(super) fn install(options: &HandlerInstallOptions) -> Result<ExitCode> {
    let files = &options.files;
    let installed = DATA_DIRS.iter().map(PathBuf::from).find(|dir| dir.is_dir());
    let data_dir = options.data_dir.clone().or(installed).context(
        "no agent or server is installed, which would send the notices; name the data directory of \
         one with --data-dir",
    )?;
    let data_dir = fs::canonicalize(&data_dir)
        .with_context(|| format!("cannot read {}", data_dir.display()))?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    // The kernel runs it as root.
    open_trusted(&program).with_context(|| {
        format!("cannot install {}; install it in /usr/bin, owned by root", program.display())
    })?;
    let (program, dir, former_path) =
        (program.display(), data_dir.display(), files.former.display());
    let pattern = format!("|{program}{HANDLER}{dir} {former_path} {SPECIFIERS}");
    if pattern.len() > PATTERN_BYTES_MAX || pattern.split(' ').count() != 15 {
        bail!(
            "kernel.core_pattern: limit of {PATTERN_BYTES_MAX} bytes without spaces in paths \
             exceeded: {pattern:?}; install the program in /usr/bin"
        );
    }
    let current = files.read_pattern()?;
    if !is_own(&current) {
        write_former(&files.former, &current)?;
    }
    let spool = Spool::new(&data_dir);
    let spool_dir =
        spool.create().with_context(|| format!("cannot create the folder crashes in {dir}"))?;
    files.write_pattern(&pattern)?;
    let former = files.read_former().unwrap_or_default();
    let mut text = format!("crashes of this host are handled; notices: {}\n", spool_dir.display());
    text.push_str(&match former.strip_prefix('|') {
        Some(handler) => format!("the former handler gets each core as before: {handler}\n"),
        None => format!("no core files are written meanwhile; before: {former:?}\n"),
    });
    if !options.until_reboot {
        let line = format!("# Written by topdeck crash install.\nkernel.core_pattern={pattern}\n");
        fs::write(&files.sysctl, line)
            .with_context(|| format!("cannot write {}", files.sysctl.display()))?;
        text.push_str(&format!("set at boot by {}\n", files.sysctl.display()));
    }
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Keeps the former pattern where only root can change it.
fn write_former(path: &Path, pattern: &str) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let cannot = || format!("cannot write {}; run it as root", path.display());
    DirBuilder::new().recursive(true).mode(0o755).create(dir).with_context(cannot)?;
    // A link is not followed, and a file of another user is not kept.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(cannot);
        }
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
        .and_then(|mut file| file.write_all(pattern.as_bytes()))
        .with_context(cannot)?;
    // The handler refuses a file that others can change.
    let found = read_trusted(path).with_context(|| format!("cannot use {}", path.display()))?;
    ensure!(found == pattern, "{}: found {found:?}, expected {pattern:?}", path.display());
    Ok(())
}

pub(super) fn uninstall(options: &HandlerUninstallOptions) -> Result<ExitCode> {
    let files = &options.files;
    let current = files.read_pattern()?;
    let former = files.read_former();
    let text = match (is_own(&current), &former) {
        (true, Some(former)) => {
            files.write_pattern(former)?;
            format!("kernel.core_pattern is {former:?} again\n")
        }
        (true, None) => {
            // The default of the kernel.
            files.write_pattern("core")?;
            let lost = files.former.display();
            format!("kernel.core_pattern is \"core\": {lost}, which had the former one, is gone\n")
        }
        (false, _) => format!("kernel.core_pattern is {current:?}, which is left as it is\n"),
    };
    for path in [&files.sysctl, &files.former] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn status(options: &HandlerStatusOptions) -> Result<ExitCode> {
    let files = &options.files;
    let current = files.read_pattern()?;
    if !is_own(&current) {
        print_stdout(format!("not installed; kernel.core_pattern is {current:?}\n").as_bytes())?;
        return Ok(ExitCode::from(NOT_INSTALLED));
    }
    let words: Vec<&str> = current.trim_start_matches('|').split(' ').collect();
    let (program, dir) = (words[0], words.get(3).copied().unwrap_or(""));
    let mut text = format!("installed: {program}, notices in {dir}/crashes\n");
    if !Path::new(program).is_file() {
        text.push_str("the program is gone: crashes are not handled; install again\n");
    }
    let former = files.read_former().unwrap_or_default();
    if let Some(handler) = former.strip_prefix('|') {
        text.push_str(&format!("handed over to: {handler}\n"));
    }
    let waiting = Spool::new(Path::new(dir)).waiting(usize::MAX).len();
    text.push_str(&format!("waiting to be sent: {waiting}\n"));
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
