//! Processes that fork, die, or run out of space: each in a child process with its own directory.

#![allow(unsafe_code, reason = "nothing safe forks")]

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use shm::snapshot::{MetricValue, NumericValue};
use shm::{MetricBuilder, MetricsFileReader, layout};

use crate::test_dir::TestDir;

/// Role of a child: tests with the suffix `_child` do nothing without it.
const ROLE: &str = "TOPDECK_SHM_TEST_ROLE";

fn child(role: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let name = format!("processes::{role}_child");
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(shm::ENV_VARIABLE, dir).stdout(Stdio::null());
    command
}

/// Runs a child to its end. It must print that a test passed: an unknown test name would run
/// nothing and succeed.
#[track_caller]
fn run(role: &str, dir: &Path) {
    let child = child(role, dir).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = child.expect("a child");
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success() && told.contains("1 passed"), "{role}: {told}");
    told.lines().filter(|line| line.starts_with("skipped:")).for_each(|line| println!("{line}"));
}

fn has_role(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|asked| asked == role)
}

fn count(path: &Path, name: &str) -> u64 {
    match value(path, name) {
        MetricValue::Counter(NumericValue::Unsigned(count)) => count,
        other => panic!("{name} is {other:?}"),
    }
}

#[track_caller]
fn value(path: &Path, name: &str) -> MetricValue {
    let metrics =
        MetricsFileReader::attach(path).expect("it can be read").metrics().expect("metrics");
    metrics.into_iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name}")).value
}

/// Waits for a file whose counter has reached a value.
fn wait_for(dir: &TestDir, name: &str, least: u64) -> PathBuf {
    for _ in 0..12_000 {
        let found = dir.files().into_iter().find(|path| {
            let metrics = MetricsFileReader::attach(path).and_then(|mut reader| reader.metrics());
            metrics.unwrap_or_default().iter().any(|one| {
                one.name == name
                    && matches!(one.value, MetricValue::Counter(NumericValue::Unsigned(n)) if n >= least)
            })
        });
        if let Some(path) = found {
            return path;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{name} did not come to {least} in a minute");
}

fn kill_and_wait(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
}

#[test]
fn killed_child() {
    if !has_role("killed") {
        return;
    }
    let done = MetricBuilder::new("done_total").counter().expect("room");
    let took = MetricBuilder::new("took").unit("ns").histogram().expect("room");
    let work = MetricBuilder::new("work").in_flight(&["device"]).expect("room");
    let [sda, sdb] = ["sda", "sdb"].map(|text| shm::Tag::new(text).expect("room"));
    let stuck: Vec<_> =
        (0..4_798).map(|n| work.begin(n, &[if n < 4_000 { sda } else { sdb }])).collect();
    for n in 0u64.. {
        took.record(n % 1_000 + 1);
        done.add(1);
        if n % 1_000 == 0 {
            thread::yield_now();
        }
    }
    drop(stuck);
}

#[test]
fn killed_process_leaves_its_counts() {
    let Some(dir) = TestDir::new() else { return };
    let child = child("killed", &dir.0).spawn().expect("a child");
    let path = wait_for(&dir, "done_total", 100_000);
    kill_and_wait(child);
    // Each record is in the histogram before it is counted as done.
    let done = count(&path, "done_total");
    let MetricValue::Histogram(took) = value(&path, "took") else { panic!("no histogram") };
    assert!(took.count() == done || took.count() == done + 1, "{} of {done}", took.count());
    let MetricValue::InFlight(work) = value(&path, "work") else { panic!("no table") };
    assert_eq!((work.started, work.ended, work.operations.len()), (4_798, 0, 4_798));
    let of_sdb = work.operations.iter().filter(|one| one.tags[0].1 == "sdb").count();
    assert_eq!(of_sdb, 798);
    assert!(!MetricsFileReader::attach(&path).expect("a file").process().has_exited);
}

#[test]
fn ended_child() {
    if has_role("ended") {
        // All threads exist at once.
        let all = Arc::new(Barrier::new(400));
        let mut threads = Vec::new();
        for _ in 0..400 {
            let all = all.clone();
            threads.push(thread::spawn(move || {
                let done = MetricBuilder::new("done_total").counter().expect("room");
                let took = MetricBuilder::new("took").histogram().expect("room");
                for n in 0..250 {
                    took.record(n);
                    done.add(1);
                }
                all.wait();
            }));
        }
        threads.into_iter().for_each(|one| one.join().expect("a thread"));
    }
}

#[test]
fn threads_beyond_lanes_lose_nothing() {
    let Some(dir) = TestDir::new() else { return };
    run("ended", &dir.0);
    let [path] = &dir.files()[..] else { panic!("one file, not {:?}", dir.files()) };
    assert_eq!(count(path, "done_total"), 100_000);
    let MetricValue::Histogram(took) = value(path, "took") else { panic!("no histogram") };
    assert_eq!(took.count(), 100_000);
    assert_eq!(took.tracked_sum().exact().map(|sum| sum.value()), Some(400.0 * 249.0 * 125.0));
    let process = MetricsFileReader::attach(path).expect("a file").process();
    assert!(process.has_exited && process.ended_ns > process.created_ns);
    assert!(
        process.shared_lane_threads > 0,
        "400 threads at once have more than 255 lanes: {process:?}"
    );
    assert_eq!(process.lost_values, 0);
}

#[test]
fn forking_child() {
    if !has_role("forking") {
        return;
    }
    let done = MetricBuilder::new("done_total").counter().expect("room");
    let work = MetricBuilder::new("work").in_flight(&["device"]).expect("room");
    done.add(7);
    let held = work.begin(1, &[shm::Tag::new("sda").expect("room")]);
    // SAFETY: the child allocates and maps, which glibc allows after a fork, and exits without
    // running destructors.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        done.add(100);
        // The operation belongs to the parent, where it continues.
        drop(held);
        let more = MetricBuilder::new("more_total").counter().expect("room");
        more.add(3);
        let tag = shm::Tag::new("sda").expect("room");
        let own = work.begin(2, &[tag]);
        std::mem::forget(own);
        // SAFETY: only ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the process just created, and writes its status.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    done.add(1);
    std::mem::forget(held);
    // SAFETY: as above; `exit` runs the handlers that record the exit.
    unsafe { libc::exit(0) };
}

#[test]
fn a_forked_process_has_a_file_of_its_own() {
    let Some(dir) = TestDir::new() else { return };
    assert!(child("forking", &dir.0).status().expect("a child").success());
    let files = dir.files();
    assert_eq!(files.len(), 2, "{files:?}");
    let parent = files
        .iter()
        .find(|path| MetricsFileReader::attach(path).expect("a file").process().has_exited);
    let parent = parent.expect("the parent said goodbye");
    let child = files.iter().find(|path| *path != parent).expect("the child's");
    assert_eq!(count(parent, "done_total"), 8);
    assert_eq!(count(child, "done_total"), 100);
    assert_eq!(count(child, "more_total"), 3);
    for (path, number) in [(parent, 1), (child, 2)] {
        let MetricValue::InFlight(work) = value(path, "work") else { panic!("no table") };
        assert_eq!((work.started, work.ended), (1, 0));
        assert_eq!((work.operations.len(), work.operations[0].number), (1, number));
        assert_eq!(work.operations[0].tags, [("device".to_owned(), "sda".to_owned())]);
    }
}

static EARLY: std::sync::OnceLock<shm::Counter> = std::sync::OnceLock::new();

extern "C" fn early_counter() {
    if let Some(done) = EARLY.get() {
        done.add(100);
    }
}

#[test]
fn early_child() {
    if !has_role("early") {
        return;
    }
    // Registered before the crate's own handler, which therefore runs after it. SAFETY: its actions
    // are allowed after a fork, as below.
    unsafe { libc::pthread_atfork(None, None, Some(early_counter)) };
    let done = MetricBuilder::new("done_total").counter().expect("room");
    done.add(7);
    EARLY.set(done.clone()).expect("it is set once");
    // SAFETY: as above.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        done.add(1);
        // SAFETY: only ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: as above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    done.add(1);
}

#[test]
fn bare_clone_child() {
    if !has_role("bare_clone") {
        return;
    }
    let done = MetricBuilder::new("done_total").counter().expect("room");
    // SAFETY: a copy of this process without fork handlers; this thread has not recorded yet, and
    // so has no lane.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        done.add(101);
        // SAFETY: only ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: as above.
    unsafe { libc::waitpid(pid as i32, &mut status, 0) };
    assert_eq!(status, 0);
    done.add(8);
}

#[test]
fn early_records_after_fork_belong_to_the_child() {
    for role in ["early", "bare_clone"] {
        let Some(dir) = TestDir::new() else { return };
        assert!(child(role, &dir.0).status().expect("a child").success());
        let mut counts: Vec<u64> =
            dir.files().iter().map(|path| count(path, "done_total")).collect();
        counts.sort_unstable();
        assert_eq!(counts, [8, 101], "{role}");
    }
}

#[test]
fn off_child() {
    if has_role("off") {
        let error = shm::status().expect_err("recording is disabled");
        assert!(error.to_string().contains("off"), "{error}");
        shm::metrics! { static NOTHING: shm::Counter = "nothing"; }
        NOTHING.add(1);
    }
}

#[test]
fn no_file_when_disabled_or_on_disk() {
    run("off", Path::new("off"));
    let places =
        [Path::new(env!("CARGO_TARGET_TMPDIR")), &std::env::temp_dir(), Path::new("/var/tmp")];
    let Some(place) = places.into_iter().find(|place| is_on_disk(place)) else {
        return println!(
            "skipped: no directory for temporary files is on a disk and open to this user"
        );
    };
    let on_disk = place.join(format!("topdeck-shm-{}", std::process::id()));
    run("disk", &on_disk);
    let _ = std::fs::remove_dir_all(&on_disk);
}

/// Whether it is not on tmpfs, and this user may write there.
fn is_on_disk(place: &Path) -> bool {
    // The type of the field depends on the C library.
    const TMPFS: u32 = 0x0102_1994;
    let is_tmpfs = rustix::fs::statfs(place).is_ok_and(|found| found.f_type == TMPFS.into());
    !is_tmpfs && rustix::fs::access(place, rustix::fs::Access::WRITE_OK).is_ok()
}

#[test]
fn disk_child() {
    if has_role("disk") {
        match shm::status() {
            Ok(path) => panic!("{} is in memory", path.display()),
            Err(error) => assert!(error.to_string().contains("not on tmpfs"), "{error}"),
        }
    }
}

#[test]
fn full_child() {
    if !has_role("full") {
        return;
    }
    let done = MetricBuilder::new("done_total").counter().expect("room");
    let took = MetricBuilder::new("took").histogram().expect("room");
    let dir = PathBuf::from(std::env::var_os(shm::ENV_VARIABLE).expect("a directory"));
    done.add(1);
    took.record(10);
    // Another file takes the rest of the space.
    let other = std::fs::File::create(dir.join("other")).expect("a file");
    let mut taken = 0;
    while rustix::fs::fallocate(&other, rustix::fs::FallocateFlags::empty(), taken, 4096).is_ok() {
        taken += 4096;
    }
    // Records go to the shared lane, or count as lost; the process is not killed.
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..1_000 {
                done.add(1);
                took.record(1 << (n % 60));
            }
        });
    });
    for n in 0..20_000 {
        if MetricBuilder::new(format!("metric_{n}")).histogram().is_err() {
            break;
        }
    }
    assert!(
        MetricBuilder::new("one_more").label("a", "b".repeat(4_000)).counter().is_err()
            || taken == 0
    );
    std::fs::remove_file(dir.join("other")).expect("it is ours");
}

/// Unmounts on drop.
struct MountGuard<'a>(&'a Path);

impl Drop for MountGuard<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn full_file_system_is_an_error() {
    let Some(dir) = TestDir::new() else { return };
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=300k,mode=0755", "tmpfs"])
        .arg(&dir.0)
        .stderr(Stdio::null())
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("skipped: no file system in memory can be mounted here (needs root)");
        return;
    }
    let mounted = MountGuard(&dir.0);
    let output = child("full", &dir.0).stderr(Stdio::piped()).output().expect("a child");
    let files = dir.files();
    let seen = files.first().map(|path| {
        let MetricValue::Histogram(took) = value(path, "took") else { panic!("no histogram") };
        let process = MetricsFileReader::attach(path).expect("a file").process();
        (count(path, "done_total"), took.count(), process.lost_values)
    });
    drop(mounted);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (done, took, lost) = seen.expect("a file");
    assert_eq!(done, 1_001, "counters have room in the shared lane");
    assert_eq!(took + lost, 1_001, "records without space are counted as lost");
    assert!(lost > 0);
}

#[test]
fn files_of_exited_processes_are_bounded() {
    let Some(dir) = TestDir::new() else { return };
    run("short", &dir.0);
    let child = child("killed", &dir.0).spawn().expect("a child");
    wait_for(&dir, "done_total", 1);
    kill_and_wait(child);
    assert_eq!(dir.files().len(), 2);
    assert_eq!(shm::remove_expired(&dir.0, shm::FileRetention::default()), 0, "both are young");
    let limits = shm::FileRetention { exited: Duration::ZERO, ..shm::FileRetention::default() };
    assert_eq!(shm::remove_expired(&dir.0, limits), 1, "the one that ended");
    let [path] = &dir.files()[..] else { panic!("one is left") };
    assert!(
        MetricsFileReader::attach(path).expect("a file").process().ended_ns > 0,
        "that it is dead is noted"
    );
    assert_eq!(shm::remove_expired(&dir.0, shm::FileRetention { files: 0, ..limits }), 1);
}

#[test]
fn a_replaced_file_is_retained_as_after_a_regular_exit_in_every_pass() {
    let Some(dir) = TestDir::new() else { return };
    let child = child("killed", &dir.0).spawn().expect("a child");
    let path = wait_for(&dir, "done_total", 1);
    kill_and_wait(child);
    let file = std::fs::File::options().write(true).open(&path).expect("a file");
    let replaced = layout::state::REPLACED.to_ne_bytes();
    file.write_all_at(&replaced, layout::header::STATE as u64 * 8).expect("room for a word");
    let limits = |exited, terminated| shm::FileRetention {
        exited,
        terminated,
        ..shm::FileRetention::default()
    };
    let hour = Duration::from_secs(3600);
    for pass in 1..=2 {
        assert_eq!(shm::remove_expired(&dir.0, limits(hour, Duration::ZERO)), 0, "pass {pass}");
    }
    assert_eq!(shm::remove_expired(&dir.0, limits(Duration::ZERO, hour)), 1);
}

#[test]
fn short_child() {
    if has_role("short") {
        MetricBuilder::new("short_total").counter().expect("room").add(1);
    }
}

fn limit_files(bytes: u64) {
    let limit = rustix::process::Rlimit { current: Some(bytes), maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).expect("a limit");
}

#[test]
fn narrow_child() {
    if has_role("narrow") {
        limit_files(20 << 20);
        let error = shm::status().expect_err("the shared lane has no space");
        assert!(error.to_string().contains("cannot reserve"), "{error}");
    }
}

#[test]
fn limited_child() {
    if has_role("limited") {
        limit_files(100 << 20);
        let done = MetricBuilder::new("done_total").counter().expect("room in the shared lane");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| done.add(1)));
            }
        });
    }
}

#[test]
fn a_limit_of_file_sizes_ends_no_process() {
    let Some(dir) = TestDir::new() else { return };
    for role in ["narrow", "limited"] {
        run(role, &dir.0);
    }
    let [path] = &dir.files()[..] else { panic!("one file, not {:?}", dir.files()) };
    assert_eq!(count(path, "done_total"), 4_000);
}

#[test]
fn bare_child() {
    if !has_role("bare") {
        return;
    }
    shm::status().expect("a file");
    // SAFETY: as above.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        MetricBuilder::new("done_total").counter().expect("room").add(1);
        // SAFETY: only ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: as above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
}

#[test]
fn fork_before_first_metric_keeps_its_name() {
    let Some(dir) = TestDir::new() else { return };
    run("bare", &dir.0);
    let files = dir.files();
    assert_eq!(files.len(), 2);
    let processes =
        files.iter().map(|path| MetricsFileReader::attach(path).expect("a file").process());
    let [one, other] = &processes.collect::<Vec<_>>()[..] else { panic!("two files") };
    assert_eq!((&one.program, &one.command), (&other.program, &other.command));
    assert!(one.program.starts_with("it"), "{one:?}");
}

#[test]
fn time_namespace_processes_are_not_terminated() {
    let Some(dir) = TestDir::new() else { return };
    let inside = child("killed", &dir.0);
    let mut command = Command::new("unshare");
    // The child of `unshare` is in the namespace and must not outlive the test.
    command.args(["--time", "--boottime", "100000", "--fork", "--kill-child"]);
    command.arg(inside.get_program()).args(inside.get_args());
    command.env(ROLE, "killed").env(shm::ENV_VARIABLE, &dir.0);
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = started else { return println!("skipped: there is no unshare here") };
    for _ in 0..12_000 {
        if !dir.files().is_empty() {
            break;
        }
        if child.try_wait().expect("it is ours").is_some() {
            return println!(
                "skipped: unshare may not make a namespace of times here (needs root)"
            );
        }
        thread::sleep(Duration::from_millis(5));
    }
    let path = wait_for(&dir, "done_total", 1);
    let (found, _) = shm::list_metrics_files();
    let found = found.iter().find(|one| one.path == path).expect("it is found");
    assert_eq!(
        shm::remove_expired(
            &dir.0,
            shm::FileRetention { terminated: Duration::ZERO, ..shm::FileRetention::default() }
        ),
        0
    );
    // `unshare` exits with it.
    let pid = rustix::process::Pid::from_raw(found.identity.pid.cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    child.wait().expect("it is ours");
    assert_eq!(found.state, shm::ProcessState::Unknown);
}

#[test]
fn file_is_trusted_only_from_its_owner() {
    let Some(dir) = TestDir::new() else { return };
    let child = child("killed", &dir.0).spawn().expect("a child");
    let path = wait_for(&dir, "done_total", 1);
    let is_found = || {
        let (found, problems) = shm::list_metrics_files();
        let told =
            problems.iter().any(|problem| problem.to_string().contains("differs from the owner"));
        (found.iter().any(|one| one.path == path), told)
    };
    let (before, _) = is_found();
    assert!(before, "below /dev/shm all that begins with the name is looked at");
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        println!("skipped: files cannot be given to another user here (needs root)");
        return kill_and_wait(child);
    }
    let (after, is_told) = is_found();
    assert!(!after && is_told, "of another user's process it is not believed");
    kill_and_wait(child);
}
