//! `cargo xtask ci bindings`: the packages of `bindings/` for other languages, each built and
//! tested with the language's own tools, without a download.
//!
//! All writers of shared memory must pass one suite, `bindings/conformance/suite.py`: a program in
//! each language records, and the suite compares what topdeck reads.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, root, target};
use crate::part_log::PartLog;
use crate::test_report::{SkippedTest, TestReport};

const SUITE: &str = "bindings/conformance/suite.py";

/// A package. `test` returns why it cannot be tested here, or `None` after it was.
type LanguagePackage = (&'static str, fn(&PackageTests<'_>) -> Result<Option<String>>);

const PACKAGES: [LanguagePackage; 4] =
    [("go", test_go), ("python", test_python), ("node", test_node), ("java", test_java)];

pub(crate) fn run(log: &PartLog, topdeck: &Path) -> Result<PartOutcome> {
    if !CommandLine::new("python3 --version").succeeds() {
        let reason = "Python, which runs the suite, is not installed (Debian package python3)";
        return Ok(PartOutcome::Skipped(reason.to_owned()));
    }
    let check = format!("python3 {SUITE} --check");
    // Without space it exits with 3; any other failure is one of the suite.
    let has_space = CommandLine::new("sh -c").arg(&format!("{check} || [ $? != 3 ]")).succeeds();
    if has_space {
        CommandLine::new(&check).run(log)?;
    }
    let Some(dir) = has_space.then(ShmDir::new).flatten() else {
        return Ok(PartOutcome::Skipped("/dev/shm has less than 32 MiB of free space".to_owned()));
    };
    let output = target().join("bindings");
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let tests = PackageTests { log, topdeck, output: &output, shm: &dir.0 };
    // The suite trusts these numbers.
    tests.line("python3 bindings/conformance/edges.py").run(log)?;
    let mut report = TestReport::default();
    for (name, test) in PACKAGES {
        log.note(&format!("bindings/{name}"));
        match test(&tests).with_context(|| format!("bindings/{name}"))? {
            None => report.passed += 1,
            Some(reason) => {
                log.note(&format!("skipped: {reason}"));
                report.skipped.push(SkippedTest { name: format!("bindings/{name}"), reason });
            }
        }
    }
    Ok(PartOutcome::Tests(report))
}

/// What the tests of a package need.
struct PackageTests<'a> {
    log: &'a PartLog,
    topdeck: &'a Path,
    /// Directory for build output, `target/bindings`.
    output: &'a Path,
    /// Directory for metrics files.
    shm: &'a Path,
}

impl PackageTests<'_> {
    /// A command line whose programs record in the directory of this run and find topdeck.
    fn line(&self, text: &str) -> CommandLine {
        CommandLine::new(text)
            .env("TOPDECK_SHM", text_of(self.shm))
            .env("TOPDECK_BIN", text_of(self.topdeck))
            .env("PYTHONDONTWRITEBYTECODE", "1")
    }

    /// Runs the suite with a program: `records` per thread, `command` with absolute paths.
    fn run_suite(&self, records: u32, command: &[&str], python_path: &str) -> Result<()> {
        let mut line = self.line(&format!("python3 {SUITE} --records {records}"));
        line = line.env("PYTHONPATH", python_path).arg(text_of(self.topdeck));
        for word in command {
            line = line.arg(word);
        }
        line.run(self.log)
    }

    fn output(&self, name: &str) -> String {
        text_of(&self.output.join(name)).to_owned()
    }

    /// The directory with the library that the test build made.
    fn library(&self) -> Result<&str> {
        let dir = self.topdeck.parent().context("BUG: topdeck is in a directory")?;
        if !dir.join("libtopdeck.a").exists() {
            bail!("{}/libtopdeck.a is missing: `cargo build` makes it", dir.display());
        }
        Ok(text_of(dir))
    }
}

fn test_go(tests: &PackageTests<'_>) -> Result<Option<String>> {
    // The package has no dependency: nothing is downloaded, neither a module nor a newer Go.
    let go = |text: &str| {
        let line = tests.line(&format!("go -C bindings/go {text}"));
        line.env("GOPROXY", "off").env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=readonly")
    };
    // A package that is broken must not look like a missing tool.
    if !go("version").succeeds() {
        return Ok(Some("Go 1.23 is not installed (Debian package golang-go)".to_owned()));
    }
    go("vet ./...").run(tests.log)?;
    go("test -vet=off ./...").run(tests.log)?;
    let program = tests.output("conformance-go");
    for tags in ["", "topdeck_portable"] {
        let build = go("build").arg("-tags").arg(tags).arg("-o").arg(&program);
        build.arg("./internal/conformance").run(tests.log)?;
        tests.run_suite(200_000, &[&program], "")?;
    }
    Ok(None)
}

fn test_python(tests: &PackageTests<'_>) -> Result<Option<String>> {
    const HAS_HEADERS: &str = "import sys, sysconfig, pathlib\n\
        path = pathlib.Path(sysconfig.get_path('include'), 'Python.h')\n\
        sys.exit(not path.exists() or sys.version_info < (3, 10))";
    if !CommandLine::new("python3 -c").arg(HAS_HEADERS).succeeds() {
        let reason = "Python.h of Python 3.10 is not installed (Debian package python3-dev)";
        return Ok(Some(reason.to_owned()));
    }
    if !CommandLine::new("cc --version").succeeds() {
        return Ok(Some("there is no C compiler (Debian package gcc)".to_owned()));
    }
    let package = tests.output("python");
    let build = tests.line("python3 bindings/python/build_native.py");
    build.arg(tests.library()?).arg(&package).run(tests.log)?;
    let unit = tests.line("python3 -W error bindings/python/tests/test_topdeck.py");
    unit.env("PYTHONPATH", &package).run(tests.log)?;
    let program = root().join("bindings/python/tests/conformance.py");
    tests.run_suite(10_000, &["python3", text_of(&program)], &package)?;
    Ok(None)
}

fn test_node(tests: &PackageTests<'_>) -> Result<Option<String>> {
    let check = tests.line("node bindings/node/build_native.js --check");
    if !check.succeeds() {
        let reason = "Node 18 or its headers are not installed (Debian packages nodejs, \
                      libnode-dev)";
        return Ok(Some(reason.to_owned()));
    }
    if !CommandLine::new("cc --version").succeeds() {
        return Ok(Some("there is no C compiler (Debian package gcc)".to_owned()));
    }
    let addon = tests.output("node/topdeck.node");
    let build = tests.line("node bindings/node/build_native.js");
    build.arg(tests.library()?).arg(&addon).run(tests.log)?;
    let unit = tests.line("node --test bindings/node/test/topdeck.test.js");
    unit.env("TOPDECK_NODE_ADDON", &addon).run(tests.log)?;
    let program = root().join("bindings/node/test/conformance.js");
    let node = format!("TOPDECK_NODE_ADDON={addon}");
    tests.run_suite(10_000, &["env", &node, "node", text_of(&program)], "")?;
    Ok(None)
}

fn test_java(tests: &PackageTests<'_>) -> Result<Option<String>> {
    if !CommandLine::new("javac --release 17 --version").succeeds() {
        let reason = "javac of Java 17 is not installed (Debian package default-jdk-headless)";
        return Ok(Some(reason.to_owned()));
    }
    let classes = tests.output("java");
    fs::create_dir_all(&classes).with_context(|| format!("cannot make {classes}"))?;
    compile_java(tests, &["src/main", "src/test"], "-Xlint:all,-try -Werror", &classes, &classes)?;
    let java = ["java", "-XX:+UseSerialGC", "-Xmx64m", "-cp", &classes, "Conformance"];
    tests.run_suite(200_000, &java, "")?;
    let Some(jars) = micrometer_jars() else {
        let reason = "all but its registry was tested: micrometer-core is not in ~/.m2; `mvn -f \
                      bindings/java/pom.xml dependency:resolve` fetches it";
        return Ok(Some(reason.to_owned()));
    };
    let (output, path) = (tests.output("micrometer"), format!("{classes}:{jars}"));
    compile_java(tests, &["src/micrometer"], "-nowarn", &path, &output)?;
    let line = tests.line("java -XX:+UseSerialGC -Xmx64m -cp").arg(&format!("{output}:{path}"));
    line.arg("MicrometerTest").run(tests.log)?;
    Ok(None)
}

fn compile_java(
    tests: &PackageTests<'_>,
    dirs: &[&str],
    lint: &str,
    class_path: &str,
    output: &str,
) -> Result<()> {
    let line = tests.line(&format!("javac --release 17 -encoding UTF-8 {lint} -cp"));
    let mut line = line.arg(class_path).arg("-d").arg(output);
    for dir in dirs {
        for source in files_below(&root().join("bindings/java").join(dir), "java")? {
            line = line.arg(text_of(&source));
        }
    }
    line.run(tests.log)
}

/// Class path of Micrometer and what it needs, if Maven has fetched them. Other versions may be
/// there, too: the class path has all.
fn micrometer_jars() -> Option<String> {
    let repository = PathBuf::from(std::env::var_os("HOME")?).join(".m2/repository");
    let mut jars = Vec::new();
    for group in ["io/micrometer", "org/latencyutils", "org/hdrhistogram"] {
        jars.extend(files_below(&repository.join(group), "jar").ok()?);
    }
    let is_core = |jar: &PathBuf| text_of(jar).contains("/micrometer-core-1.13");
    jars.iter()
        .any(is_core)
        .then(|| jars.iter().map(|jar| text_of(jar)).collect::<Vec<_>>().join(":"))
}

fn files_below(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    Ok(files)
}

fn text_of(path: &Path) -> &str {
    path.to_str().expect("BUG: the path of the repository is not UTF-8")
}

/// A directory on tmpfs for metrics files, removed at the end.
struct ShmDir(PathBuf);

impl ShmDir {
    fn new() -> Option<ShmDir> {
        let path = PathBuf::from(format!("/dev/shm/topdeck-it-bindings-{}", std::process::id()));
        // Independent of the umask: a directory writable by others is refused.
        DirBuilder::new().mode(0o755).create(&path).ok()?;
        Some(ShmDir(path))
    }
}

impl Drop for ShmDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
