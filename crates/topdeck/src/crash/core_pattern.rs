//! `topdeck crash install`, `uninstall` and `status`: the setting `kernel.core_pattern`, which
//! names the program that the kernel starts when a process crashes (core(5)).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::crash::Spool;
use anyhow::{Context as _, Result, bail, ensure};
use client::print_stdout;

use super::file_rights::take_file_rights;
use super::former_handler;
use super::trusted_file::{check_trusted_dir, open_trusted, read_trusted};

/// Longest pattern; the kernel cuts a longer one.
const PATTERN_BYTES_MAX: usize = 127;
/// What the pattern has after the path of the program.
const HANDLER: &str = " crash handle ";
/// File with the pattern before an installation.
pub(super) const FORMER: &str = "/etc/topdeck/core_pattern";
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
const SYSCTL: &str = "/etc/sysctl.d/60-topdeck-crash.conf";
/// What the pattern has before another file with the former pattern.
const FORMER_OPTION: &str = "--former";
/// Data directories of an installed agent and server.
const DATA_DIRS: [&str; 2] = ["/var/lib/topdeck-agent", "/var/lib/topdeck"];

/// Files of the system that have the setting.
#[derive(clap::Args)]
struct SystemFiles {
    #[arg(long, hide = true, default_value = CORE_PATTERN)]
    core_pattern: PathBuf,

    /// The pattern before an installation. Only root may write it: the handler runs what it names.
    #[arg(long, hide = true, default_value = FORMER)]
    former: PathBuf,

    /// Sets the pattern at boot, after systemd's 50-coredump.conf.
    #[arg(long, hide = true, default_value = SYSCTL)]
    sysctl: PathBuf,
}

/// Start topdeck when a program crashes
///
/// Sets `kernel.core_pattern`, now and at boot. A former handler, such as systemd-coredump, is
/// started by topdeck and gets the core as before. If the kernel wrote core files before, it writes
/// none while topdeck is installed. Needs root.
#[derive(clap::Args)]
pub(super) struct HandlerInstallOptions {
    /// Data directory (`data_dir`) of the agent or server that sends the notices, which are left
    /// in its folder crash-notices; of a server not that of its store [default: that of an earlier
    /// installation, /var/lib/topdeck-agent or /var/lib/topdeck]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Only renew an installation, as packages do after an upgrade
    #[arg(long, hide = true)]
    only_renew: bool,

    /// Also in a container: for tests
    #[arg(long, hide = true)]
    any_namespace: bool,

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

/// Data directory in a pattern of topdeck.
fn data_dir_of(pattern: &str) -> Option<PathBuf> {
    let mut words = pattern.split_once(HANDLER)?.1.split(' ');
    words.find(|word| !word.starts_with(FORMER_OPTION)).map(PathBuf::from)
}

/// Whether the namespaces of a process, by their inodes, are the first ones of the machine: that of
/// PIDs has a fixed number (`PROC_PID_INIT_INO` of Linux), and that of mounts is that of PID 1.
fn is_host(of_pids: u64, of_mounts: u64, of_first_mounts: u64) -> bool {
    const FIRST_PIDS: u64 = 0xefff_fffc;
    of_pids == FIRST_PIDS && of_mounts == of_first_mounts
}

/// The setting is one of the machine: its kernel starts the program that the host has at the path.
fn check_host() -> Result<()> {
    let inode = |path: &str| {
        fs::metadata(path).map(|found| found.ino()).with_context(|| {
            format!("cannot read {path}; run it as root, on the host and not in a container")
        })
    };
    let of_mounts = [inode("/proc/self/ns/mnt")?, inode("/proc/1/ns/mnt")?];
    let is_host = is_host(inode("/proc/self/ns/pid")?, of_mounts[0], of_mounts[1]);
    ensure!(is_host, "cannot set kernel.core_pattern in a container; run it on the host");
    Ok(())
}

pub(super) fn install(options: &HandlerInstallOptions) -> Result<ExitCode> {
    let files = &options.files;
    let current = files.read_pattern()?;
    if options.only_renew && !is_own(&current) {
        return Ok(ExitCode::SUCCESS);
    }
    if files.core_pattern == Path::new(CORE_PATTERN) && !options.any_namespace {
        check_host()?;
    }
    let earlier = data_dir_of(&current).filter(|_| is_own(&current));
    let installed = || DATA_DIRS.iter().map(PathBuf::from).find(|dir| dir.is_dir());
    let data_dir = options.data_dir.clone().or(earlier).or_else(installed).context(
        "no agent or server is installed, which would send the notices; name the data directory of \
         one with --data-dir",
    )?;
    let data_dir = fs::canonicalize(&data_dir)
        .with_context(|| format!("cannot read {}", data_dir.display()))?;
    // Who can replace the directory gets the notices, and decides whose rights write them.
    check_trusted_dir(data_dir.parent().unwrap_or(&data_dir)).with_context(|| {
        format!("cannot use {}: others than root can replace it", data_dir.display())
    })?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    // The kernel runs it as root.
    open_trusted(&program).with_context(|| {
        format!("cannot install {}; install it in /usr/bin, owned by root", program.display())
    })?;
    if !is_own(&current) {
        write_former(&files.former, &current)?;
    }
    let former = files.read_former().unwrap_or_default();
    let pattern = own_pattern(&program, &data_dir, &files.former, &former)?;
    let (spool, folder) = (Spool::new(&data_dir), Spool::folder(&data_dir));
    let spool_dir = with_rights_of_owner(&spool, Spool::create)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    files.write_pattern(&pattern)?;
    let mut text = format!("crashes of this host are handled; notices: {}\n", spool_dir.display());
    text.push_str(&match former.strip_prefix('|') {
        Some(handler) if former_handler::is_program(&former) => {
            format!("the former handler gets each core as before: {handler}\n")
        }
        Some(handler) => format!("not an absolute path, not started: {handler}\n"),
        None => format!("no core files are written meanwhile; before: {former:?}\n"),
    });
    if !options.until_reboot && (!options.only_renew || files.sysctl.exists()) {
        let line = format!("# Written by topdeck crash install.\nkernel.core_pattern={pattern}\n");
        fs::write(&files.sysctl, line)
            .with_context(|| format!("cannot write {}", files.sysctl.display()))?;
        text.push_str(&format!("set at boot by {}\n", files.sysctl.display()));
    }
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Acts on the folder of notices with the rights of its owner, as the handler writes in it.
fn with_rights_of_owner<T: Send>(spool: &Spool, act: fn(&Spool) -> io::Result<T>) -> io::Result<T> {
    let with_rights = || spool.owner().and_then(take_file_rights).and_then(|()| act(spool));
    let done = std::thread::scope(|threads| threads.spawn(with_rights).join());
    done.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

/// The pattern that makes the kernel start topdeck.
fn own_pattern(program: &Path, data_dir: &Path, file: &Path, former: &str) -> Result<String> {
    let (program, dir) = (program.display().to_string(), data_dir.display().to_string());
    let option = match file == Path::new(FORMER) {
        true => String::new(),
        false => format!("{FORMER_OPTION}={} ", file.display()),
    };
    // The kernel would split or expand them.
    let is_split = |text: &str| text.contains(|c: char| c == '%' || c.is_whitespace());
    if [program.as_str(), &dir, option.trim_end()].into_iter().any(is_split) {
        bail!("cannot name {program:?} and {dir:?} in kernel.core_pattern: one has a % or a space");
    }
    let arguments = former_handler::arguments(former);
    let pattern = format!("|{program}{HANDLER}{option}{dir}{arguments}");
    if pattern.len() > PATTERN_BYTES_MAX {
        bail!(
            "kernel.core_pattern: limit of {PATTERN_BYTES_MAX} bytes exceeded: {pattern:?}; \
             install the program in /usr/bin"
        );
    }
    Ok(pattern)
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
    uninstall_files(&options.files)
}

/// Uninstalls the handler of this host, if it was installed: its program is removed.
pub(crate) fn uninstall_with_program(is_dry_run: bool) -> Result<()> {
    let path = |path: &str| PathBuf::from(path);
    let files = SystemFiles {
        core_pattern: path(CORE_PATTERN),
        former: path(FORMER),
        sysctl: path(SYSCTL),
    };
    if !files.former.exists() {
        return Ok(());
    }
    match is_dry_run {
        true => Ok(print_stdout(b"restore kernel.core_pattern\n")?),
        false => uninstall_files(&files).map(|_| ()),
    }
}

fn uninstall_files(files: &SystemFiles) -> Result<ExitCode> {
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
    let program = current.trim_start_matches('|').split(' ').next().unwrap_or("");
    let dir = data_dir_of(&current).unwrap_or_default();
    let folder = Spool::folder(&dir);
    let mut text = format!("installed: {program}, notices in {}\n", folder.display());
    if !Path::new(program).is_file() {
        text.push_str("the program is gone: crashes are not handled; install again\n");
    }
    let former = files.read_former().unwrap_or_default();
    if let Some(handler) = former.strip_prefix('|') {
        text.push_str(&format!("handed over to: {handler}\n"));
    }
    let waiting = with_rights_of_owner(&Spool::new(&dir), |spool| Ok(spool.waiting_count()));
    text.push_str(&match waiting {
        Ok(count) => format!("waiting to be sent: {count}\n"),
        Err(error) => format!("cannot read {}: {error}; no notices are written\n", dir.display()),
    });
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_no_host() {
        assert!(is_host(0xefff_fffc, 5, 5));
        assert!(!is_host(0xf000_0123, 5, 5) && !is_host(0xefff_fffc, 6, 5));
    }
}
