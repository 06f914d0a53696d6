//! The part `extensions`: an extension of each kind works as a user sees it.
//!
//! All extensions of `testdata/extensions/` are added to a clone of the last commit, which is
//! formatted, type-checked and built once. Each extension is then used in the built program. The
//! clone is kept, so that the next run compiles only what has changed.

mod checks;
mod extended_server;
mod peers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow, ensure};

use self::checks::CHECKS;
use self::extended_server::ExtendedServer;
use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, root, target};
use crate::extension_list::{self, DIR, Extension, LIST};
use crate::page;
use crate::part_log::PartLog;
use crate::test_report::{SkippedTest, TestEnd, TestReport};

const VIEW: &str = "page view";

pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    if !CommandLine::new("curl --version").succeeds() {
        let reason = "curl is not installed (Debian package curl)";
        return Ok(PartOutcome::Skipped(reason.to_owned()));
    }
    let clone = ExtendedClone::make(log)?;
    let extended = clone.extended_files()?;
    clone.update(log)?;
    let extensions = clone.add_extensions(log)?;
    extended.iter().try_for_each(FileVersion::restore_time)?;
    clone.count_changes(log, &extensions)?;
    clone.check_format(log)?;
    let no_page = match page::missing_browser() {
        Some(reason) => Some(reason),
        None => clone.build_page(log)?,
    };
    let program = clone.build_program(log)?;
    let server = ExtendedServer::start(&program)?;
    let mut report = TestReport::default();
    for Extension { kind, .. } in &extensions {
        if kind == VIEW
            && let Some(reason) = &no_page
        {
            let (name, reason) = (kind.clone(), reason.clone());
            report.skipped.push(SkippedTest { name, reason });
            continue;
        }
        let start = Instant::now();
        let check = CHECKS.iter().find(|check| check.0 == kind);
        let result = match check {
            Some((_, check)) => check(&server),
            None => Err(anyhow!("no check of this kind in xtask/src/extensions/checks.rs")),
        };
        let (end, output) = match result {
            Ok(()) => (TestEnd::Passed, String::new()),
            Err(error) => {
                let repeat = "cargo xtask system extensions".to_owned();
                (TestEnd::Failed { repeat }, format!("{error:#}\n{}", server.log()))
            }
        };
        let outcome = if matches!(end, TestEnd::Passed) { "works" } else { "fails" };
        let seconds = start.elapsed().as_secs_f64();
        log.note(&format!("{kind}: {outcome}, {seconds:.1} s"));
        report.add_test(kind, end, seconds, &output);
    }
    server.stop()?;
    Ok(PartOutcome::Tests(report))
}

/// A clone of the last commit in the build directory.
struct ExtendedClone {
    dir: PathBuf,
    build: PathBuf,
}

impl ExtendedClone {
    /// Makes the clone, or finds that of an earlier run.
    fn make(log: &PartLog) -> Result<ExtendedClone> {
        let dir = target().join("extensions/clone");
        let clone = ExtendedClone { dir, build: target().join("extensions/target") };
        if !clone.dir.join(".git").exists() {
            let line = CommandLine::new("git clone --quiet --shared");
            line.arg(&path_text(root())).arg(&path_text(&clone.dir)).run(log)?;
        }
        Ok(clone)
    }

    /// Files that an earlier run added or changed.
    fn extended_files(&self) -> Result<Vec<FileVersion>> {
        let names = self.git("diff --cached --name-only --diff-filter=AM").stdout()?;
        let names = String::from_utf8(names)?;
        names.lines().map(|name| FileVersion::read(self.dir.join(name))).collect()
    }

    /// Checks out the last commit.
    fn update(&self, log: &PartLog) -> Result<()> {
        self.git("fetch --quiet").arg(&path_text(root())).arg("HEAD").run(log)?;
        self.git("reset --quiet --hard FETCH_HEAD").run(log)?;
        self.git("clean --quiet -d --force").run(log)
    }

    /// Adds the files and lines of all extensions.
    fn add_extensions(&self, log: &PartLog) -> Result<Vec<Extension>> {
        let read = |path: &str| {
            let path = self.dir.join(path);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let write = |path: &str, text: String| {
            let path = self.dir.join(path);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let extensions = extension_list::parse(&read(LIST)?)?;
        for extension in &extensions {
            write(&extension.file, read(&[DIR, &extension.example].concat())?)?;
            for line in [&extension.row, &extension.declaration] {
                let text = line.insert(&read(&line.file)?);
                let text = text.map_err(|why| anyhow!("cannot change {}: {why}", line.file))?;
                write(&line.file, text)?;
            }
        }
        self.git("add --all").run(log)?;
        Ok(extensions)
    }

    /// Counts the files and lines that git sees: one new file, one row and one declaration for each
    /// extension, and no removed line.
    fn count_changes(&self, log: &PartLog, extensions: &[Extension]) -> Result<()> {
        let numbers = self.git("diff --cached --numstat --diff-filter=M").stdout()?;
        let names = self.git("diff --cached --name-only --diff-filter=A").stdout()?;
        let (mut added, mut removed) = (0, 0);
        for line in String::from_utf8(numbers)?.lines() {
            let mut words = line.split_whitespace();
            let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
            added += number().context("git prints no number of lines")?;
            removed += number().context("git prints no number of lines")?;
        }
        let files = String::from_utf8(names)?.lines().count();
        let kinds = extensions.len();
        log.note(&format!(
            "{kinds} extensions: {files} new files, {added} new lines in existing files ({} rows, \
             {kinds} declarations), {removed} removed lines",
            added.saturating_sub(kinds)
        ));
        ensure!(
            (files, added, removed) == (kinds, 2 * kinds, 0),
            "an extension is not one new file, one row and one declaration"
        );
        Ok(())
    }

    fn check_format(&self, log: &PartLog) -> Result<()> {
        let line = CommandLine::new("cargo fmt --all --check");
        line.arg("--manifest-path").arg(&self.manifest()).run(log)
    }

    /// Checks and builds the page; returns the reason if the packages are not available.
    fn build_page(&self, log: &PartLog) -> Result<Option<String>> {
        if let Some(reason) = page::install_packages(log)? {
            return Ok(Some(reason));
        }
        let link = self.dir.join("web/node_modules");
        if !link.exists() {
            let packages = root().join("web/node_modules");
            std::os::unix::fs::symlink(packages, &link).context("cannot link web/node_modules")?;
        }
        let web = path_text(&self.dir.join("web"));
        let npm = |script: &str| {
            let line = CommandLine::new("npm --no-update-notifier --prefix");
            line.arg(&web).arg("run").arg(script).run(log)
        };
        npm("check")?;
        npm("build")?;
        Ok(None)
    }

    /// Builds the program with the profile of the tests, which compiles fastest.
    fn build_program(&self, log: &PartLog) -> Result<PathBuf> {
        let line = CommandLine::new("cargo build --locked -p topdeck --manifest-path");
        let build = path_text(&self.build);
        line.arg(&self.manifest()).env("CARGO_TARGET_DIR", &build).run(log)?;
        Ok(self.build.join("debug/topdeck"))
    }

    fn manifest(&self) -> String {
        path_text(&self.dir.join("Cargo.toml"))
    }

    fn git(&self, arguments: &str) -> CommandLine {
        let line = CommandLine::new("git -C").arg(&path_text(&self.dir));
        arguments.split(' ').fold(line, CommandLine::arg)
    }
}

/// A file with its contents and the time of its last change.
struct FileVersion {
    path: PathBuf,
    bytes: Vec<u8>,
    modified: SystemTime,
}

impl FileVersion {
    fn read(path: PathBuf) -> Result<FileVersion> {
        let read = || Ok((fs::read(&path)?, fs::metadata(&path)?.modified()?));
        let found: std::io::Result<_> = read();
        let (bytes, modified) = found.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(FileVersion { path, bytes, modified })
    }

    /// Restores the time of a file that was written again with the same contents: cargo compiles
    /// files with a later time.
    fn restore_time(&self) -> Result<()> {
        if !fs::read(&self.path).is_ok_and(|bytes| bytes == self.bytes) {
            return Ok(());
        }
        let file = fs::File::options().append(true).open(&self.path);
        file.and_then(|file| file.set_modified(self.modified))
            .with_context(|| format!("cannot set the time of {}", self.path.display()))
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_file_with_the_same_contents_keeps_its_time() {
        let path = std::env::temp_dir().join(format!("topdeck-version-{}", std::process::id()));
        fs::write(&path, "a").unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let modified = || fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
        let version = FileVersion::read(path.clone()).unwrap();
        fs::write(&path, "b").unwrap();
        version.restore_time().unwrap();
        assert_ne!(modified(), old);
        fs::write(&path, "a").unwrap();
        version.restore_time().unwrap();
        assert_eq!(modified(), old);
        fs::remove_file(&path).unwrap();
    }
}
