//! Which TLS libraries are read, as users name them: `auto`, the identifier of a process, or the
//! path of a library or executable.

use std::io;
use std::path::PathBuf;

/// Where TLS is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsTarget {
    /// The libraries and executables of all processes that run now.
    Auto,
    /// The library or executable of this process, and of all others that use the same file.
    Process(u32),
    /// This library or executable.
    File(PathBuf),
}

/// Failures of reading TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsProbeError {
    /// The file cannot be read, or is not of ELF.
    #[error("cannot read TLS at {}: {cause}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Failure.
        cause: io::Error,
    },
    /// The file does not have the functions.
    #[error(
        "cannot read TLS at {}: it has no functions SSL_read and SSL_write; name the file of \
         OpenSSL or BoringSSL, an executable with its symbols, or a program of Go with crypto/tls \
         (rustls is not supported)",
        path.display()
    )]
    Symbols {
        /// Its path.
        path: PathBuf,
    },
    /// The process does not exist, or its files may not be seen.
    #[error(
        "cannot read the mapped files of process {process}: {cause}; run as root or grant \
         CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE"
    )]
    Process {
        /// Its identifier.
        process: u32,
        /// Failure.
        cause: io::Error,
    },
    /// No process uses a library that can be read.
    #[error(
        "cannot read TLS: no process that runs now has OpenSSL or BoringSSL with its symbols, or \
         crypto/tls of Go; start it first, or name the file of its library"
    )]
    NoLibrary,
    /// More files were named than are probed.
    #[error("TLS library limit ({0}) exceeded; name fewer, or raise the limit of open files")]
    Files(usize),
    /// The kernel refused a program or a probe.
    #[error("cannot read TLS: {0}")]
    Bpf(String),
}

impl TlsTarget {
    /// Parses `auto`, a process identifier or a path with a slash.
    pub fn parse(text: &str) -> Result<TlsTarget, String> {
        if text == "auto" {
            return Ok(TlsTarget::Auto);
        }
        if let Ok(process) = text.parse() {
            return Ok(TlsTarget::Process(process));
        }
        match text.contains('/') {
            true => Ok(TlsTarget::File(PathBuf::from(text))),
            false => Err("expected auto, a process identifier, or a path such as \
                          /usr/lib/x86_64-linux-gnu/libssl.so.3"
                .to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_processes_files_or_all() {
        assert_eq!(TlsTarget::parse("auto"), Ok(TlsTarget::Auto));
        assert_eq!(TlsTarget::parse("123"), Ok(TlsTarget::Process(123)));
        let file = TlsTarget::File(PathBuf::from("/lib/libssl.so.3"));
        assert_eq!(TlsTarget::parse("/lib/libssl.so.3"), Ok(file));
        for wrong in ["", "nginx", "-1", "libssl.so.3"] {
            assert!(TlsTarget::parse(wrong).is_err(), "{wrong}");
        }
    }
}
