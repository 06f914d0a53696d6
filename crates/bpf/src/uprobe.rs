//! Programs at functions of executables and shared libraries.
//!
//! A probe belongs to the file, not to a process: it is in every process that has mapped the file
//! or will map it, those of pre-forking servers included. Source: kernel,
//! kernel/events/core.c (`perf_uprobe`), Documentation/trace/uprobetracer.rst.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use crate::instruction::Instruction;
use crate::load_error::program_error;
use crate::syscall::{self, ProgramKind};

/// Files of the kernel that describe its uprobe events.
const KIND: &str = "/sys/bus/event_source/devices/uprobe/type";
const RETURN_BIT: &str = "/sys/bus/event_source/devices/uprobe/format/retprobe";

/// A loaded program, which can be attached to functions.
#[derive(Debug)]
pub struct UprobeProgram {
    program: OwnedFd,
}

/// A program at a function. Drop detaches it.
#[derive(Debug)]
pub struct UprobeLink {
    _event: OwnedFd,
}

impl UprobeProgram {
    /// Loads a program. Its first argument points to the registers of the process.
    pub fn load(name: &str, code: &[Instruction]) -> Result<UprobeProgram, String> {
        let program = syscall::load(name, code, ProgramKind::Uprobe, 0)
            .map_err(|(error, log)| program_error(&error, &log))?;
        Ok(UprobeProgram { program })
    }

    /// Runs the program at the start, or at each return, of the function at this offset of the
    /// file, in all processes. The file may be open for its path only (`O_PATH`); a name would be
    /// resolved anew, and could be that of another file by then.
    pub fn attach(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        is_return: bool,
    ) -> Result<UprobeLink, String> {
        let failure = |error: io::Error| attach_error(&error);
        let kind = fs::read_to_string(KIND).map_err(|error| {
            format!("cannot read {KIND}: {error}; a kernel with CONFIG_UPROBES is needed")
        })?;
        let kind = kind.trim().parse().map_err(|_| format!("{KIND} has {:?}", kind.trim()))?;
        let config = if is_return { return_bit()? } else { 0 };
        let name = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))
            .map_err(|error| failure(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let event =
            syscall::attach_uprobe(kind, config, &name, offset, &self.program).map_err(failure)?;
        Ok(UprobeLink { _event: event })
    }
}

/// The configuration of a return probe: `config:0` names bit 0.
fn return_bit() -> Result<u64, String> {
    let text = fs::read_to_string(RETURN_BIT)
        .map_err(|error| format!("cannot read {RETURN_BIT}: {error}"))?;
    parse_bit(&text).ok_or_else(|| format!("{RETURN_BIT} has {:?}", text.trim()))
}

fn parse_bit(text: &str) -> Option<u64> {
    let bit: u32 = text.trim().strip_prefix("config:")?.parse().ok()?;
    1_u64.checked_shl(bit)
}

fn attach_error(error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; run as root or grant CAP_BPF and CAP_PERFMON (Linux 6.18 requires CAP_SYS_ADMIN \
             too; for units of systemd: drop-in wire-tls-admin.conf), and check kernel lockdown"
        }
        Some(libc::EINVAL) => "; its file system does not allow probes, or it is damaged",
        Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
        _ => "",
    };
    format!("cannot attach a probe: {error}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_of_return_probes() {
        assert_eq!(parse_bit("config:0\n"), Some(1));
        assert_eq!(parse_bit("config:5"), Some(32));
        for wrong in ["", "config:", "config:64", "config1:0", "config:0-3"] {
            assert_eq!(parse_bit(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_error_names_the_remedy() {
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        let text = attach_error(&denied);
        assert!(text.starts_with("cannot attach a probe: "), "{text}");
        assert!(text.contains("CAP_PERFMON (Linux 6.18 requires CAP_SYS_ADMIN too; "), "{text}");
    }
}
