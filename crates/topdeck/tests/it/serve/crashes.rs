//! Crashes of real programs, handled by the kernel's `core_pattern`, on a running server.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::alerts;
use super::server_process::{ServerProcess, wait_until};
use crate::topdeck;

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
/// Allows the test to set `kernel.core_pattern`, which all containers of a machine share.
const IS_ALLOWED: &str = "TOPDECK_CRASH_TESTS";
/// Restores the pattern when the test has ended, also if it was killed: its standard input is then
/// closed. It has the folder of the handler and the former pattern.
const WATCHDOG: &str = "cat > /dev/null
    case \"$(cat /proc/sys/kernel/core_pattern)\" in
        \"|$1/\"*) printf %s \"$2\" > /proc/sys/kernel/core_pattern ;;
    esac
    rm -rf \"$1\"";
/// Two builds of each are made: with `SHIFTED` the lines, the sizes of frames and the depth of the
/// recursion differ. `null` and `use` have the same innermost function.
const SOURCE: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef SHIFTED
static volatile char more[4096];
#define FRAME volatile char frame[300]; frame[0] = more[1]
#define DEPTH 9
#else
#define FRAME volatile char frame[30]; frame[0] = 1
#define DEPTH 5
#endif
#define KEEP __attribute__((noinline, noipa)) static
KEEP int read_field(volatile int *from) { FRAME; return *from + frame[0]; }
KEEP int null(int depth) { FRAME; return read_field((int *)(long)frame[2] + depth - depth) + 1; }
KEEP int use(int depth) { FRAME; return read_field((int *)16) + depth; }
KEEP int recursion(int depth) {
    FRAME;
    if (depth == 0) abort();
    return recursion(depth - 1) + frame[0];
}
KEEP int overflow(int depth) { FRAME; return overflow(depth + 1) + frame[0]; }
KEEP int division(int depth) { FRAME; volatile int zero = frame[2]; return depth / (zero * 0); }
KEEP int jump(int depth) { FRAME; return ((int (*)(int))(long)(frame[2] * 0))(depth) + 1; }
KEEP int trap(int depth) { FRAME; __builtin_trap(); return depth; }
KEEP void *of_thread(void *none) { FRAME; return none + null(frame[0]); }
KEEP int thread(int depth) {
    pthread_t one;
    pthread_create(&one, 0, of_thread, 0);
    pthread_join(one, 0);
    return depth;
}
static void on_signal(int signal) { (void)signal; abort(); }
KEEP void second(int depth) { FRAME; *(volatile int *)(long)(depth * 0) = frame[0]; }
static void on_double(int signal) { second(signal); }
KEEP int handler(int depth) {
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGSEGV, &action, 0);
    return null(depth);
}
KEEP int twice(int depth) {
    struct sigaction action = {.sa_handler = on_double};
    sigaction(SIGSEGV, &action, 0);
    return null(depth);
}
int main(int argc, char **argv) {
    static const struct { const char *name; int (*run)(int); } kinds[] = {
        {"null", null}, {"use", use}, {"recursion", recursion}, {"overflow", overflow},
        {"division", division}, {"jump", jump}, {"trap", trap}, {"thread", thread},
        {"handler", handler}, {"twice", twice},
    };
    char *heap = strdup(getenv("TOKEN"));
    for (unsigned i = 0; argc > 2 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].name) == 0) return kinds[i].run(DEPTH) + *heap;
    return 1;
}
"#;
const KINDS: [&str; 10] = [
    "null",
    "use",
    "recursion",
    "overflow",
    "division",
    "jump",
    "trap",
    "thread",
    "handler",
    "twice",
];
/// Programs in C++ and Rust: source file, flags of the two builds, and the title of the crash.
const OTHERS: [(&str, &str, [&str; 2], &str); 2] = [
    ("shop.cpp", SOURCE_CPP, ["-DPLAIN", "-DSHIFTED"], "SIGABRT in shop::Order::pay"),
    ("shop.rs", SOURCE_RUST, ["plain", "shifted"], "SIGABRT in shop::order::pay"),
];
const SOURCE_CPP: &str = r#"
#include <stdexcept>
#ifdef SHIFTED
static volatile char more[4096];
#endif
namespace shop {
struct Order {
    __attribute__((noinline)) int pay(int amount) {
#ifdef SHIFTED
        more[7] = amount;
#endif
        if (amount > 0) throw std::runtime_error("planted-token-7a1");
        return amount;
    }
};
}
int main(int argc, char **) { return shop::Order().pay(argc); }
"#;
const SOURCE_RUST: &str = r#"
mod order {
    #[inline(never)]
    pub fn pay(amount: usize) -> usize {
        #[cfg(shifted)]
        let amount = std::hint::black_box([amount; 40])[7];
        if amount > 0 { panic!("planted-token-7a1") }
        amount
    }
}
fn main() { std::process::exit(order::pay(std::env::args().count()) as i32) }
"#;
/// Other programs of this host may crash meanwhile.
const OWN: &str = "{program=\"shop\"}";
const TOKEN: &str = "planted-token-7a1";

/// The handler of this build, installed until the drop. Tests that use it wait for each other.
struct InstalledHandler {
    /// Its path is short: the kernel limits the pattern.
    dir: PathBuf,
    before: String,
    watchdog: Child,
    _lock: File,
}

impl InstalledHandler {
    fn install(data_dir: &Path) -> Option<InstalledHandler> {
        let lock = File::create("/tmp/topdeck-core-pattern.lock").ok()?;
        lock.lock().ok()?;
        let before = fs::read_to_string(CORE_PATTERN).ok()?;
        // Writing it changes nothing: whether it may be set here.
        if before.contains("crash handle") || fs::write(CORE_PATTERN, &before).is_err() {
            println!("skipped: kernel.core_pattern cannot be set here, or a handler is installed");
            return None;
        }
        let dir = PathBuf::from(format!("/tmp/td{}", std::process::id()));
        fs::create_dir(&dir).expect("a directory");
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "sh"]).arg(&dir).arg(before.trim_end());
        let watchdog = watchdog.process_group(0).stdin(Stdio::piped()).spawn().expect("a shell");
        // The kernel starts it in the first mount namespace, which may see no build directory.
        fs::copy(env!("CARGO_BIN_EXE_topdeck"), dir.join("t")).expect("a copy of the binary");
        // A former handler, which keeps each core.
        let script = format!("#!/bin/sh\ncat > {}/core-$1\n", dir.display());
        fs::write(dir.join("save"), script).expect("a script");
        fs::set_permissions(dir.join("save"), fs::Permissions::from_mode(0o700)).expect("a mode");
        fs::write(CORE_PATTERN, format!("|{}/save %P", dir.display())).expect("a pattern");
        let handler = InstalledHandler { dir, before, watchdog, _lock: lock };
        let data_dir = data_dir.to_str().expect("UTF-8");
        let options = ["install", "--any-namespace", "--until-reboot", "--data-dir", data_dir];
        let (status, text) = handler.run(&options);
        assert_eq!(status, 0, "{text}");
        Some(handler)
    }

    /// The core of a process, from the former handler.
    fn core(&self, pid: u32) -> PathBuf {
        self.dir.join(format!("core-{pid}"))
    }

    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let former = self.dir.join("f");
        let run = Command::new(self.dir.join("t"))
            .arg("crash")
            .args(arguments)
            .args([Path::new("--former"), &former])
            .output()
            .expect("the binary starts");
        let text = [run.stdout, run.stderr].concat();
        (run.status.code().unwrap_or(-1), String::from_utf8(text).expect("UTF-8"))
    }
}

impl Drop for InstalledHandler {
    fn drop(&mut self) {
        // A test that fails only restores: a second panic would leave its servers running.
        let is_failing = std::thread::panicking();
        let uninstalled =
            (!is_failing).then(|| self.run(&["uninstall", "--sysctl", "/nonexistent/none"]));
        let restored = fs::read_to_string(CORE_PATTERN).unwrap_or_default();
        let saved = format!("|{}/save %P\n", self.dir.display());
        let _ = fs::write(CORE_PATTERN, &self.before);
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        if let Some((status, text)) = uninstalled {
            assert_eq!((status, restored), (0, saved), "{text}");
        }
    }
}

/// Compiles both builds; `None` without a compiler.
fn compile(dir: &Path) -> Option<[PathBuf; 2]> {
    fs::write(dir.join("shop.c"), SOURCE).expect("a source file");
    let builds = [("a", "-DPLAIN"), ("b", "-DSHIFTED")];
    for (name, define) in builds {
        fs::create_dir_all(dir.join(name)).expect("a directory");
        let out = dir.join(name).join("shop");
        let mut compiler = Command::new("cc");
        let flags = ["-O1", "-w", "-pthread", "-Wl,--build-id", define, "-o"];
        let compiled = compiler.args(flags).arg(out).arg(dir.join("shop.c")).status();
        if !compiled.is_ok_and(|status| status.success()) {
            println!("skipped: no C compiler (cc)");
            return None;
        }
    }
    Some(builds.map(|(name, _)| dir.join(name).join("shop")))
}

/// Compiles a program of [`OTHERS`] twice; `None` without its compiler.
fn compile_other(dir: &Path, name: &str, source: &str, flags: [&str; 2]) -> Option<[PathBuf; 2]> {
    fs::write(dir.join(name), source).expect("a source file");
    let outs = ["a", "b"].map(|build| dir.join(build).join(name.replace('.', "-")).join("shop"));
    for (out, flag) in outs.iter().zip(flags) {
        fs::create_dir_all(out.parent().expect("a folder")).expect("a directory");
        let mut compiler = match name.ends_with(".rs") {
            true => Command::new("rustc"),
            false => Command::new("c++"),
        };
        match name.ends_with(".rs") {
            true => compiler.args(["-O", "-C", "panic=abort", "-A", "warnings", "--cfg", flag]),
            false => compiler.args(["-O1", "-w", "-Wl,--build-id", flag]),
        };
        let compiled = compiler.arg("-o").arg(out).arg(dir.join(name)).status();
        if !compiled.is_ok_and(|status| status.success()) {
            println!("skipped: {name}: no compiler");
            return None;
        }
    }
    Some(outs)
}

/// Runs a program until it crashes; returns its PID.
fn crash(program: &Path, kind: &str) -> u32 {
    let mut command = Command::new(program);
    // Arguments and environment have a token, and so has the heap.
    command.args([kind, TOKEN]).env("TOKEN", TOKEN).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let (pid, status) = (child.id(), child.wait().expect("it ends"));
    assert!(status.signal().is_some(), "{kind}: {status}");
    pid
}

fn groups(url: &str) -> Vec<Value> {
    let run = topdeck(&["crash", "group", "--json", "--selector", OWN, "--server", url], b"");
    assert_eq!(run.status, 0, "{}", run.stderr);
    let groups: Value = serde_json::from_str(&run.stdout).expect("JSON");
    groups["crashes"].as_array().expect("a list").clone()
}

/// A server that sends notices, with the alert of the page.
fn start_server() -> ServerProcess {
    let page = include_str!("../../../../../docs/crash.md");
    let rules = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut server = ServerProcess::new("serve", "[alerts]\nrule_files = [\"rules.yaml\"]\n");
    fs::write(server.dir.path("rules.yaml"), rules.unwrap()).expect("rules are written");
    let settings = fs::read_to_string(server.settings()).expect("there are settings");
    let settings = settings.replace("crashes = false", "crashes = true");
    fs::write(server.settings(), settings).expect("settings are written");
    server.start();
    server
}

/// Whether all handlers have written their notices: those of a user have three places.
fn is_complete(server: &ServerProcess) -> bool {
    let files = fs::read_dir(server.dir.path("data/crash-notices")).expect("a folder").flatten();
    files.map(|it| it.path()).all(|path| path.extension().is_none_or(|it| it != "partial"))
}

fn firing(server: &ServerProcess) -> usize {
    alerts::alerts(server)["alerts"].as_array().map_or(0, Vec::len)
}

/// Without the kernel, which needs rights: from the folder of notices on.
#[test]
fn sent_crash_is_grouped_and_fires_an_alert() {
    let server = start_server();
    let panic = "panic: boom\n\ngoroutine 1 [running]:\nmain.charge(...)\n\t/x/main.go:5\n\
                 main.main()\n\t/x/main.go:9 +0x1d\nexit status 2\n";
    let (data, url) = (server.dir.path("data"), format!("http://127.0.0.1:{}", server.port));
    let send = ["crash", "read", "-", "--program", "shop", "--send", data.to_str().unwrap()];
    for _ in 0..2 {
        let run = topdeck(&send, panic.as_bytes());
        assert_eq!(run.status, 0, "{}", run.stderr);
    }
    wait_until("both crashes", || groups(&url).iter().any(|group| group["count"] == 2));
    wait_until("an alert", || firing(&server) == 1);
    let groups = groups(&url);
    assert_eq!((groups.len(), &groups[0]["title"]), (1, &"panic in main.charge".into()));
    let left = fs::read_dir(data.join("crash-notices")).expect("a folder").count();
    assert_eq!(left, 0, "notices that were sent are removed");
}

/// The kernel waits for nothing: what its handler writes is awaited.
#[test]
fn crashes_of_two_builds_are_grouped_by_their_cause() {
    if std::env::var_os(IS_ALLOWED).is_none() {
        println!("skipped: {IS_ALLOWED} is not set, so kernel.core_pattern is left alone");
        return;
    }
    let server = start_server();
    let Some(programs) = compile(server.dir.path("").as_path()) else { return };
    let dir = server.dir.path("");
    let compiled = OTHERS.map(|(name, source, flags, title)| {
        compile_other(&dir, name, source, flags).map(|programs| (programs, title))
    });
    let others: Vec<([PathBuf; 2], &str)> = compiled.into_iter().flatten().collect();
    let Some(handler) = InstalledHandler::install(&server.dir.path("data")) else { return };
    let mut cores = Vec::new();
    for program in &programs {
        for kind in KINDS {
            cores.push(handler.core(crash(program, kind)));
            wait_until("a complete notice", || is_complete(&server));
        }
    }
    for program in others.iter().flat_map(|(programs, _)| programs) {
        crash(program, "pay");
        wait_until("a complete notice", || is_complete(&server));
    }
    let kinds = KINDS.len() + others.len();
    let url = format!("http://127.0.0.1:{}", server.port);
    let total = || -> u64 { groups(&url).iter().filter_map(|it| it["count"].as_u64()).sum() };
    wait_until("all notices", || total() == 2 * kinds as u64);
    wait_until("an alert of each signature", || firing(&server) >= kinds);
    // Former handlers may still write.
    let read = |core: &Path| topdeck(&["crash", "read", core.to_str().unwrap()], b"");
    wait_until("cores", || cores.iter().all(|core| read(core).status == 0));
    let of_core = read(&cores[8]).stdout;
    drop(handler);

    let groups = groups(&url);
    let titles: Vec<&str> = groups.iter().filter_map(|group| group["title"].as_str()).collect();
    let mut sorted = titles.clone();
    sorted.sort_unstable();
    let mut expected = vec![
        "SIGABRT in on_signal",
        "SIGABRT in recursion",
        "SIGFPE in division",
        "SIGILL in trap",
        "SIGSEGV in jump",
        "SIGSEGV in overflow",
        "SIGSEGV in read_field",
        "SIGSEGV in read_field",
        "SIGSEGV in read_field",
        "SIGSEGV in second",
    ];
    expected.extend(others.iter().map(|(_, title)| title));
    expected.sort_unstable();
    assert_eq!(sorted, expected, "{groups:#?}");
    for group in &groups {
        assert_eq!(group["count"], 2, "{group}");
        assert_eq!(group["builds"].as_array().map(Vec::len), Some(2), "{group}");
    }
    let run = topdeck(&["crash", "ls", "--selector", OWN, "--server", &url], b"");
    assert_eq!(run.stdout.lines().count(), 1 + 2 * kinds, "{}", run.stdout);
    // The stack of the handler goes on where the signal interrupted it.
    let of_handler = groups.iter().find(|it| it["title"] == "SIGABRT in on_signal").unwrap();
    let signature = of_handler["signature"].as_str().unwrap();
    let run = topdeck(&["crash", "show", signature, "--server", &url], b"");
    for text in [&run.stdout, &of_core] {
        let place = |name: &str| text.find(&format!(" {name}  shop")).expect(text);
        assert!(place("on_signal") < place("read_field"), "{text}");
        assert!(place("read_field") < place("handler"), "{text}");
        assert!(place("handler") < place("main"), "{text}");
    }
    assert_no_token(&server);
    let query = "sum(sum_over_time(crashes_total%7Bprogram=%22shop%22%7D[1h]))";
    let count = server.get(&format!("/api/v1/query?query={query}")).json();
    assert_eq!(count["data"]["result"][0]["value"][1], (2 * kinds).to_string(), "{count}");
}

/// Neither notices nor snapshots have arguments, environment or heap.
#[track_caller]
fn assert_no_token(server: &ServerProcess) {
    let notices = server.get("/v1/crashes").text();
    assert!(notices.contains("read_field") && !notices.contains(TOKEN));
    let files = fs::read_dir(server.dir.path("data/crash-notices")).expect("a folder").flatten();
    let mut kinds = BTreeSet::new();
    for path in files.map(|entry| entry.path()) {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
        assert!(!text.contains(TOKEN), "{}", path.display());
        kinds.insert(path.extension().and_then(|it| it.to_str()).unwrap_or("").to_owned());
    }
    assert!(kinds.contains("snapshot") && !kinds.contains("notice"), "{kinds:?}");
}

#[test]
fn former_handler_is_kept_and_restored() {
    let dir = super::server_process::TestDir::new();
    // A short path, as that of an installed program.
    let short = PathBuf::from(format!("/tmp/tp{}", std::process::id()));
    fs::create_dir_all(short.join("data")).unwrap();
    let files = [dir.path("core_pattern"), short.join("f"), dir.path("sysctl")];
    let [pattern, former, sysctl] = files.each_ref().map(|path| path.to_str().expect("UTF-8"));
    let before = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h %d";
    fs::write(&files[0], format!("{before}\n")).unwrap();
    let run = |arguments: &[&str]| {
        let places = ["--core-pattern", pattern, "--former", former, "--sysctl", sysctl];
        let run = topdeck(&[&["crash"], arguments, &places].concat(), b"");
        (run.status, run.stdout + &run.stderr)
    };
    assert_eq!(
        run(&["status"]),
        (3, format!("not installed; kernel.core_pattern is {before:?}\n"))
    );
    let data = short.join("data");
    let (status, text) = run(&["install", "--data-dir", data.to_str().unwrap()]);
    if status == 1 && (text.contains("limit of 127 bytes") || text.contains("in /usr/bin, owned")) {
        println!("skipped: the path of this build is too long for the kernel, or not root's");
        fs::remove_dir_all(short).unwrap();
        return;
    }
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("gets each core as before: /usr/lib/systemd/systemd-coredump"), "{text}");
    let installed = fs::read_to_string(pattern).unwrap();
    assert!(fs::read_to_string(sysctl).unwrap().contains(&format!("pattern={installed}\n")));
    // A second installation does not take the first one for the former handler.
    assert_eq!(run(&["install", "--data-dir", data.to_str().unwrap()]).0, 0);
    // A package renews it after an upgrade: with the same data directory.
    fs::write(pattern, installed.replace(" e%e", "")).unwrap();
    assert_eq!(run(&["install", "--only-renew"]).0, 0);
    assert_eq!(fs::read_to_string(pattern).unwrap(), installed);
    assert_eq!(run(&["status"]).0, 0);
    assert_eq!(run(&["uninstall"]).0, 0);
    // Again, as by a package that is removed.
    assert_eq!(run(&["uninstall"]).0, 0);
    assert_eq!(run(&["install", "--only-renew"]), (0, String::new()));
    assert_eq!(fs::read_to_string(pattern).unwrap().trim_end(), before);
    assert!(!files[1].exists() && !files[2].exists());
    fs::remove_dir_all(short).unwrap();
}
