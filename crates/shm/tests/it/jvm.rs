//! A running JVM: the values read equal those of the JVM's own tool.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shm::files;
use shm::hsperf::{self, HsperfSnapshot};
use shm::snapshot::{MetricValue, NumericValue};

const PROGRAM: &str = r#"
public class Sleeps {
    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        System.in.read();
    }
}
"#;

/// A JVM that is stopped on drop, and its directory.
struct TestJvm {
    child: Child,
    dir: PathBuf,
}

impl Drop for TestJvm {
    fn drop(&mut self) {
        // The JVM exits when its input is closed, and removes its file; it is killed otherwise.
        drop(self.child.stdin.take());
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begin.elapsed().as_secs() < 10 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// `None`, with the reason printed, if there is no Java or it cannot be started this way.
fn start(name: &str, command: impl FnOnce(&Path) -> Command) -> Option<TestJvm> {
    let dir = std::env::temp_dir().join(format!("topdeck-jvm-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join("Sleeps.java");
    std::fs::write(&program, PROGRAM).unwrap();
    let child = command(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut jvm = match child {
        Ok(child) => TestJvm { child, dir },
        Err(error) => {
            println!("skipped: it cannot be started: {error}");
            return None;
        }
    };
    let mut line = String::new();
    BufReader::new(jvm.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line != "ready\n" {
        println!("skipped: a JVM does not start like this here ({name}): it says {line:?}");
        return None;
    }
    Some(jvm)
}

const OPTIONS: [&str; 3] = ["-Xmx32m", "-XX:+UseSerialGC", "-XX:+UsePerfData"];

fn namespace_pid(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    files::namespace_pid(&status).expect("NSpid is there since Linux 4.1")
}

/// Reads and retries while the file is not ready.
fn read(root: &Path, pid: u32) -> HsperfSnapshot {
    let jvms = files::find_jvm_files(root).unwrap();
    let jvm = jvms.iter().find(|jvm| jvm.pid == pid).expect("a running JVM is found");
    let opened = jvm.file.open().unwrap();
    let mut bytes = Vec::new();
    let begin = Instant::now();
    loop {
        opened.read(&mut bytes).unwrap();
        match hsperf::parse(&bytes) {
            Ok(shown) => return shown,
            Err(error) => {
                assert!(error.is_transient() && begin.elapsed().as_secs() < 60, "{error}")
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Names and values as `jcmd PID PerfCounter.print` writes them: `name=value`, texts in quotes.
fn jcmd_counters(pid: u32) -> Option<HashMap<String, String>> {
    let output = Command::new("jcmd").args([&pid.to_string(), "PerfCounter.print"]).output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        other => {
            println!("skipped: jcmd says {other:?}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    Some(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[test]
fn jvm_counters_match_jcmd() {
    let Some(jvm) = start("plain", |program| {
        let mut command = Command::new("java");
        command.args(OPTIONS).arg(program);
        command
    }) else {
        return;
    };
    let pid = jvm.child.id();
    let inside = namespace_pid(pid);

    // Through its own root, as for a JVM in a container.
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let through_root = read(&root, inside);
    let first = read(Path::new("/"), pid);
    assert_eq!((first.rejected, &first.first_error), (0, &None));
    assert_eq!(through_root.metrics.len(), first.metrics.len());

    let value = |name: &str| {
        let metric = first.metrics.iter().find(|metric| metric.name == name);
        metric.unwrap_or_else(|| panic!("no {name}"))
    };
    assert_eq!(
        value("sun.os.hrt.frequency").value,
        MetricValue::Gauge(NumericValue::Signed(1_000_000_000))
    );
    assert_eq!(value("sun.os.hrt.frequency").unit, "Hz");
    assert_eq!(value("sun.gc.generation.0.maxCapacity").unit, "By");
    assert_eq!(value("sun.gc.collector.0.time").unit, "ns");
    assert!(matches!(
        value("java.cls.loadedClasses").value,
        MetricValue::Counter(NumericValue::Signed(100..))
    ));
    let MetricValue::Text(command) = &value("sun.rt.javaCommand").value else { panic!("no text") };
    assert!(command.contains("Sleeps.java"), "{command}");

    // A value may change during the tool's read and change back: retry.
    let mut differ = Vec::new();
    for _ in 0..5 {
        let Some(same) = compare(pid, &mut differ) else { return };
        if differ.is_empty() {
            assert!(same >= 100, "{same} of {} entries compared", first.metrics.len());
            println!("{same} of {} entries are as jcmd says", first.metrics.len());
            return;
        }
    }
    panic!("{differ:#?}");
}

/// Number of values equal to the tool's, and those that differ. `None` if there is no tool.
fn compare(pid: u32, differ: &mut Vec<String>) -> Option<usize> {
    let first = read(Path::new("/"), pid);
    let told = jcmd_counters(pid)?;
    let second = read(Path::new("/"), pid);
    differ.clear();
    let mut same = 0;
    for (before, after) in first.metrics.iter().zip(&second.metrics) {
        assert_eq!(before.name, after.name);
        // A value that changed during the tool's read cannot be compared.
        if before.value != after.value {
            continue;
        }
        let shown = match &after.value {
            MetricValue::Counter(number) | MetricValue::Gauge(number) => number.to_string(),
            MetricValue::Text(text) => format!("\"{text}\""),
            other => panic!("{}: {other:?}", after.name),
        };
        let Some(told) = told.get(&after.name) else { continue };
        // The tool escapes characters in its own way.
        if shown.contains(['\\', '\n']) || told.contains('\\') {
            continue;
        }
        if shown == *told {
            same += 1;
        } else {
            differ.push(format!("{}: {shown}, {told} by jcmd", after.name));
        }
    }
    Some(same)
}

/// As in a container: own `/tmp` and own PID namespace.
#[test]
fn a_jvm_is_a_process_like_others() {
    let Some(jvm) = start("like-others", |program| {
        let mut command = Command::new("java");
        command.args(OPTIONS).arg(program);
        command
    }) else {
        return;
    };
    let (found, _) = shm::list_metrics_files();
    let pid = jvm.child.id();
    let found = found.into_iter().find(|one| one.state == shm::ProcessState::Running { pid });
    let mut attached =
        shm::AttachedProcess::new(found.expect("it is found")).expect("it can be read");
    assert_eq!((attached.pid(), attached.metrics_file().format.name()), (pid, "jvm"));
    assert!(attached.command().contains("Sleeps.java"), "{}", attached.command());
    let metrics = attached.metrics().expect("metrics");
    assert!(metrics.iter().any(|one| one.name == "sun.gc.generation.0.space.0.used"));
}

#[test]
fn a_jvm_in_other_namespaces_is_read_through_its_root() {
    const INSIDE: &str = r#"program=$(cat "$1") && shift && mount -t tmpfs tmpfs /tmp || exit 1
        printf %s "$program" >/tmp/Sleeps.java && exec java "$@" /tmp/Sleeps.java"#;
    let Some(jvm) = start("inside", |program| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh"]);
        command.arg(program).args(OPTIONS);
        command
    }) else {
        return;
    };
    // `unshare` waits for the JVM, its only child.
    let parent = jvm.child.id();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let Some(pid) = children.ok().and_then(|pids| pids.trim().parse().ok()) else {
        println!("skipped: this kernel does not list children");
        return;
    };
    let inside = namespace_pid(pid);
    assert_eq!(inside, 1);
    let shown = read(&PathBuf::from(format!("/proc/{pid}/root")), inside);
    assert_eq!((shown.rejected, &shown.first_error), (0, &None));
    let command = shown.metrics.iter().find(|metric| metric.name == "sun.rt.javaCommand");
    let Some(MetricValue::Text(command)) = command.map(|metric| &metric.value) else {
        panic!("no text")
    };
    assert!(command.contains("/tmp/Sleeps.java"), "{command}");
}
