//! The handler of crashes without the kernel: its arguments and the core come from the test.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use serde_json::Value;

use super::server_process::wait_until;

#[path = "../../../../crash/tests/it/sample_core.rs"]
mod sample_core;

/// A user without files.
const OTHER_USER: u32 = 4242;

/// A data directory, a process that stands for the one that crashed, and a former handler, in
/// folders that others cannot change.
struct HandlerFixture {
    dir: PathBuf,
    process: Child,
}

impl HandlerFixture {
    fn new(name: &str) -> HandlerFixture {
        let dir = std::env::temp_dir().join(format!("topdeck-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("data")).expect("a directory");
        let dir = fs::canonicalize(dir).expect("a path");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("a mode");
        let process = Command::new("sleep").arg("600").spawn().expect("sleep starts");
        HandlerFixture { dir, process }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o744)).expect("a mode");
        path
    }

    /// Starts the handler.
    fn start(&self, options: &[&str]) -> (Child, ChildStdin) {
        self.start_with(options, "d1")
    }

    /// With another value of `dumpable`.
    fn start_with(&self, options: &[&str], dumpable: &str) -> (Child, ChildStdin) {
        let uid = fs::metadata(format!("/proc/{}", self.process.id())).expect("it runs").uid();
        let mut handler = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .args(["crash", "handle", "--former"])
            .arg(self.dir.join("former"))
            .arg("--limits")
            .arg(self.dir.join("locks"))
            .args(options)
            .arg(self.dir.join("data"))
            .arg(format!("P{}", self.process.id()))
            .arg(format!("u{uid}"))
            .args(["I7", "g0", "s11", "t1767600000", dumpable, "h", "emy prog"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdin = handler.stdin.take().expect("a pipe");
        (handler, stdin)
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.dir.join("data/crash-notices")).into_iter().flatten();
        files.flatten().map(|entry| entry.path()).collect()
    }

    /// The only notice.
    fn notice(&self) -> (PathBuf, Value) {
        let of_notice = |path: &PathBuf| path.extension().is_some_and(|it| it == "notice");
        let notices: Vec<PathBuf> = self.files().into_iter().filter(of_notice).collect();
        let [path] = notices.as_slice() else { panic!("one notice: {:?}", self.files()) };
        let text = fs::read(path).expect("a notice");
        (path.clone(), serde_json::from_slice(&text).expect("JSON"))
    }
}

impl Drop for HandlerFixture {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
        let second = self.dir.join("data").to_string_lossy().replace('/', "-");
        let _ = fs::remove_dir_all(format!("/dev/shm/crash-notices{second}"));
    }
}

/// A core, and memory behind it.
fn core() -> Vec<u8> {
    let mut core = sample_core::core("token");
    core.resize(core.len() + (1 << 20), 7);
    core
}

fn wait(handler: &mut Child) -> ExitStatus {
    let mut ended = None;
    wait_until("the handler ends", || {
        ended = handler.try_wait().expect("a status");
        ended.is_some()
    });
    ended.expect("BUG: it was waited for")
}

#[track_caller]
fn assert_remark(notice: &Value, text: &str) {
    let remarks = notice["remarks"].as_array().expect("a list");
    assert!(remarks.iter().any(|it| it.as_str().is_some_and(|it| it.contains(text))), "{notice}");
}

/// A slow former handler has the core and its arguments as from the kernel. Meanwhile the notice is
/// sent, once.
#[test]
fn notice_does_not_wait_for_a_slow_former_handler() {
    let fixture = HandlerFixture::new("slow-former");
    let dir = fixture.dir.display();
    let script = format!(
        "#!/bin/sh\ncat > {dir}/core\nprintf '%s\\n' \"$@\" > {dir}/arguments\nenv > {dir}/env\n\
         while ! [ -e {dir}/go ]; do sleep 0.01; done\n"
    );
    fixture.write("save", &script);
    fixture.write("former", &format!("|{dir}/save %e %%%s %h x%Z"));
    let is_root =
        std::os::unix::fs::chown(fixture.dir.join("data"), Some(OTHER_USER), Some(OTHER_USER));
    let (mut handler, mut input) = fixture.start(&["--any-process"]);
    input.write_all(&core()).expect("it reads");
    drop(input);
    let is_complete =
        || fixture.files().iter().any(|it| it.extension().is_some_and(|it| it == "notice"));
    wait_until("a notice", is_complete);
    let (path, notice) = fixture.notice();
    assert_eq!((&notice["reason"], &notice["program"]), (&"SIGSEGV".into(), &"sleep".into()));
    assert_eq!(notice["thread_count"], 2, "{notice}");
    let is_partial = |path: &PathBuf| path.extension().is_some_and(|it| it == "partial");
    assert!(!fixture.files().iter().any(is_partial), "{:?}", fixture.files());
    if is_root.is_ok() {
        for path in fixture.files() {
            assert_eq!(fs::metadata(&path).unwrap().uid(), OTHER_USER, "{}", path.display());
        }
    }
    // The agent sends it.
    fs::remove_file(path).expect("it is removed");
    assert!(handler.try_wait().expect("a status").is_none(), "it waits for the former handler");
    fixture.write("go", "");
    assert!(wait(&mut handler).success());
    assert!(!is_complete() && !fixture.files().iter().any(is_partial), "{:?}", fixture.files());
    assert!(fs::read(fixture.dir.join("core")).expect("a core") == core(), "the whole core");
    let arguments = fs::read_to_string(fixture.dir.join("arguments")).expect("arguments");
    assert_eq!(arguments, "my prog\n%11\n\nx\n");
    // Variables that the shell sets.
    let variables = fs::read_to_string(fixture.dir.join("env")).expect("variables");
    assert!(
        variables
            .lines()
            .all(|line| ["PWD=", "SHLVL=", "_=", "OLDPWD="].iter().any(|it| line.starts_with(it))),
        "{variables}"
    );
}

/// The input stays open: whoever writes it is not waited for.
#[test]
fn a_core_that_does_not_come_holds_nothing() {
    let fixture = HandlerFixture::new("no-core");
    let (mut handler, mut input) = fixture.start(&["--any-process"]);
    assert!(wait(&mut handler).success());
    let (_, notice) = fixture.notice();
    assert_remark(&notice, "no stack: the process was not read in time");
    // The kernel gets this error, too, and the process ends.
    assert!(input.write_all(&core()).is_err());
}

#[test]
fn a_process_that_does_not_dump_its_core_is_not_read() {
    let fixture = HandlerFixture::new("other-process");
    let (mut handler, mut input) = fixture.start(&[]);
    // It closes the core once it has the head.
    let _ = input.write_all(&core());
    assert!(wait(&mut handler).success());
    let (_, notice) = fixture.notice();
    assert_remark(&notice, "the process was gone");
    assert_eq!(notice["program"], "my prog", "{notice}");
    assert!(notice["executable"].is_null() && notice["thread_count"] == 2, "{notice}");
}

/// The agent's user owns the data directory and may put anything there.
#[test]
fn a_planted_link_leads_nowhere() {
    let fixture = HandlerFixture::new("planted");
    let (data, victim) = (fixture.dir.join("data"), fixture.dir.join("victim"));
    let folder = data.join("crash-notices");
    for dir in [&victim, &folder] {
        fs::create_dir(dir).expect("a folder");
    }
    let secret = fixture.write("victim/secret", "before");
    // Other names are not known before, but for their PID and time.
    std::os::unix::fs::symlink(&secret, folder.join("dropped")).expect("a link");
    if std::os::unix::fs::chown(&data, Some(OTHER_USER), Some(OTHER_USER)).is_ok() {
        std::os::unix::fs::chown(&folder, Some(OTHER_USER), Some(OTHER_USER)).expect("root");
    }
    let (mut handler, mut input) = fixture.start(&["--any-process"]);
    let _ = input.write_all(&core());
    assert!(wait(&mut handler).success());
    assert_eq!(fixture.notice().1["thread_count"], 2);
    assert_eq!(fs::read_to_string(&secret).expect("a file"), "before");
    assert_eq!(fs::read_dir(&victim).expect("a folder").count(), 1);
    let found = fs::metadata(&secret).expect("a file");
    assert_ne!(found.uid(), OTHER_USER);
}

/// A setuid program has secrets of another user.
#[test]
fn a_process_that_its_user_may_not_read_is_not_looked_into() {
    let fixture = HandlerFixture::new("not-dumpable");
    let dir = fixture.dir.display();
    fixture.write("save", &format!("#!/bin/sh\ncat > {dir}/core\n"));
    fixture.write("former", &format!("|{dir}/save"));
    let (mut handler, mut input) = fixture.start_with(&["--any-process"], "d2");
    input.write_all(&core()).expect("it reads");
    drop(input);
    assert!(wait(&mut handler).success());
    let (_, notice) = fixture.notice();
    assert_remark(&notice, "may not read it");
    assert_eq!((&notice["thread_count"], &notice["program"]), (&0.into(), &"sleep".into()));
    assert!(notice["fault_address"].is_null(), "{notice}");
    assert_eq!(fixture.files().len(), 1, "no snapshot");
    assert!(fs::read(fixture.dir.join("core")).expect("a core") == core(), "the whole core");
}

/// More handlers of a user than may look at processes: the locks are held until they end.
#[test]
fn handlers_of_a_user_have_three_places() {
    let fixture = HandlerFixture::new("places");
    let dir = fixture.dir.display();
    let script =
        format!("#!/bin/sh\ncat > /dev/null\nwhile ! [ -e {dir}/go ]; do sleep 0.01; done\n");
    fixture.write("save", &script);
    fixture.write("former", &format!("|{dir}/save"));
    let complete = || {
        let files = fixture.files().into_iter();
        files.filter(|it| it.extension().is_some_and(|it| it == "notice")).collect::<Vec<_>>()
    };
    let mut handlers = Vec::new();
    for count in 1..=4 {
        let (handler, mut input) = fixture.start(&["--any-process"]);
        input.write_all(&core()).expect("it reads");
        handlers.push(handler);
        wait_until("a notice", || complete().len() == count);
    }
    fixture.write("go", "");
    for handler in &mut handlers {
        assert!(wait(handler).success());
    }
    let is_without = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a notice");
        text.contains("too many crashes at a time")
    };
    assert_eq!(complete().iter().filter(|path| is_without(path)).count(), 1);
}

/// A user has used up the rate of notices: the crash is counted, and handed over as before.
#[test]
fn a_crash_beyond_the_rate_of_its_user_is_counted() {
    let mut fixture = HandlerFixture::new("rate");
    let dir = fixture.dir.clone();
    let mut process = Command::new("sleep");
    let Ok(process) = process.arg("600").uid(OTHER_USER).spawn() else {
        println!("skipped: not root");
        return;
    };
    let mut former = std::mem::replace(&mut fixture.process, process);
    former.kill().and_then(|()| former.wait()).expect("it ends");
    fs::create_dir(dir.join("locks")).expect("a folder");
    fs::set_permissions(dir.join("locks"), fs::Permissions::from_mode(0o700)).expect("a mode");
    // The last time that can be.
    let rates = File::create(dir.join("locks/rates")).expect("a file");
    rates.write_all_at(&[0xff; 8], 8 * u64::from(OTHER_USER)).expect("it is written");
    fixture.write("save", &format!("#!/bin/sh\ncat > {}/core\n", dir.display()));
    fixture.write("former", &format!("|{}/save", dir.display()));
    let (mut handler, mut input) = fixture.start(&["--any-process"]);
    input.write_all(&core()).expect("it reads");
    drop(input);
    assert!(wait(&mut handler).success());
    assert_eq!(fixture.files(), [dir.join("data/crash-notices/dropped")]);
    assert_eq!(fs::read(&fixture.files()[0]).expect("a file"), b"\n");
    assert!(fs::read(dir.join("core")).expect("a core") == core(), "the whole core");
}

/// A former handler that others can change is not started.
#[test]
fn a_former_handler_of_others_is_not_started() {
    let fixture = HandlerFixture::new("former-of-others");
    let dir = fixture.dir.display();
    fixture.write("save", &format!("#!/bin/sh\ntouch {dir}/ran\n"));
    let former = fixture.write("former", &format!("|{dir}/save"));
    fs::set_permissions(former, fs::Permissions::from_mode(0o666)).expect("a mode");
    let (mut handler, mut input) = fixture.start(&["--any-process"]);
    let _ = input.write_all(&core());
    assert!(wait(&mut handler).success());
    fixture.notice();
    assert!(!Path::new(&format!("{dir}/ran")).exists());
}

/// No notice can be written in the data directory.
#[test]
fn a_core_is_handed_over_whatever_happens_to_the_notice() {
    let fixture = HandlerFixture::new("no-notice");
    let dir = fixture.dir.display();
    fixture.write("save", &format!("#!/bin/sh\ncat > {dir}/core\n"));
    fixture.write("former", &format!("|{dir}/save"));
    fs::remove_dir(fixture.dir.join("data")).expect("a folder");
    File::create(fixture.dir.join("data")).expect("a file");
    let (mut handler, mut input) = fixture.start(&["--any-process"]);
    let _ = input.write_all(&core());
    drop(input);
    wait(&mut handler);
    assert!(fs::read(fixture.dir.join("core")).expect("a core") == core(), "the whole core");
}
