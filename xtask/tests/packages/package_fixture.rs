//! A directory as `cargo xtask dist` leaves it, with small files, and its packages.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time of all files: 2026-01-02 03:04:05 UTC.
pub(crate) const TIME_S: &str = "1767323045";
/// In place of the binary: a static program would not make a better test.
pub(crate) const BINARY: &str = "#!/bin/sh\necho topdeck\n";

/// A directory with inputs, and with packages after `make`.
pub(crate) struct PackageFixture {
    pub(crate) dir: PathBuf,
    /// Directory of the signing key, which must be outside of the repository.
    pub(crate) key_dir: PathBuf,
}

impl PackageFixture {
    /// Packages made once for all tests that only read them. No test can be the one that removes
    /// them, so the next run does.
    pub(crate) fn shared() -> &'static PackageFixture {
        static SHARED: LazyLock<PackageFixture> = LazyLock::new(|| {
            let fixture = PackageFixture::in_dir("packages-shared");
            fixture.make("umask 022", &[]);
            fixture
        });
        &SHARED
    }

    /// Inputs without packages.
    pub(crate) fn new() -> PackageFixture {
        let number = RandomState::new().hash_one(std::process::id());
        PackageFixture::in_dir(&format!("packages-{number:x}"))
    }

    fn in_dir(name: &str) -> PackageFixture {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let key_dir = std::env::temp_dir().join(format!("topdeck-xtask-{name}"));
        let _ = fs::remove_dir_all(&dir);
        for target in ["x86_64", "aarch64"] {
            let program = dir.join(format!("{target}-unknown-linux-musl/topdeck"));
            write(&program, &format!("{BINARY}# {target}\n"));
            fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        }
        write(&dir.join("man/topdeck.1"), ".TH topdeck 1\n.SH NAME\ntopdeck \\- latencies\n");
        write(&dir.join("man/topdeck-serve.1"), ".TH topdeck-serve 1\n.SH NAME\nserve \\- x\n");
        for shell in ["topdeck.bash", "_topdeck", "topdeck.fish"] {
            write(&dir.join("completions").join(shell), &format!("# {shell}\n"));
        }
        PackageFixture { dir, key_dir }
    }

    /// Runs `cargo xtask packages` after the shell commands `before`.
    #[track_caller]
    pub(crate) fn make(&self, before: &str, arguments: &[&str]) {
        let output = self.try_make(before, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo xtask packages: {stderr}");
    }

    pub(crate) fn try_make(&self, before: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{before}\nexec \"$@\"")).arg("sh");
        command.arg(env!("CARGO_BIN_EXE_xtask")).arg("packages").arg("--from").arg(&self.dir);
        command.arg("--key").arg(self.key_dir.join("signing.pem"));
        command.args(arguments).env("SOURCE_DATE_EPOCH", TIME_S);
        command.output().expect("sh starts")
    }

    pub(crate) fn package(&self, name: &str) -> PathBuf {
        self.dir.join("packages").join(name)
    }
}

impl Drop for PackageFixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_dir_all(&self.key_dir);
    }
}

/// Standard output of a program that must succeed. `None` if it is not installed, which is printed.
#[track_caller]
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).env("TZ", "UTC").output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: cannot start {program}: {error}");
            return None;
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("the path has a directory")).unwrap();
    fs::write(path, text).unwrap();
}
