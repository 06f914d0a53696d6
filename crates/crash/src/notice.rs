//! A notice: what is known of one crash, as JSON.

use serde_json::{Map, Value, json};

use crate::core_dump::CoreDump;
use crate::module_map::ModuleMap;
use crate::signature::{Frame, signature, title};
use crate::stack_memory::StackMemory;
use crate::stack_walk::walk_stack;
use crate::symbol_name::readable;

/// Version of the JSON of a notice.
const SCHEMA: u32 = 1;
/// Frames of the thread that crashed, and of each other thread.
const FRAMES_MAX: usize = 64;
const OTHER_FRAMES_MAX: usize = 12;
/// Threads whose stacks are walked.
const THREADS_MAX: usize = 64;

/// Largest notice in bytes. Its fields have limits of their own, so that one beyond it is rare.
pub(crate) const NOTICE_BYTES_MAX: usize = 64 << 10;
/// Frames of a notice that would be larger.
const FEW_FRAMES: usize = 8;
/// Bytes of a path that are kept: its end.
const PATH_BYTES_MAX: usize = 256;
/// Mapped files of a snapshot.
const MAPS_MAX: usize = 1_000;

/// Signals by number on Linux, from 1.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Name of a signal.
pub fn signal_name(signal: i32) -> String {
    let name = usize::try_from(signal.wrapping_sub(1)).ok().and_then(|index| SIGNALS.get(index));
    name.map_or_else(|| format!("signal {signal}"), |name| (*name).to_owned())
}

/// The process that crashed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashOrigin {
    /// Name of the program: file name of its executable.
    pub program: String,
    /// Path of its executable as the process saw it; empty if unknown.
    pub executable: String,
    /// Build ID of the executable; empty if unknown.
    pub build_id: String,
    /// Unit of systemd; empty if there is none.
    pub unit: String,
    /// ID of the container; empty if there is none.
    pub container: String,
    /// Process ID on the host; 0 if unknown.
    pub pid: u32,
    /// User ID.
    pub uid: u32,
    /// Name of the thread that crashed; empty if unknown.
    pub thread: String,
    /// Time since its start; `None` if unknown.
    pub uptime_ns: Option<u64>,
}

impl CrashOrigin {
    /// Sets unit and container from the path of a control group.
    pub fn set_control_group(&mut self, path: &str) {
        const ID_DIGITS: usize = 64;
        // The outermost one, below slices of systemd: a user, a service, a scope or a container
        // makes groups with any name in its own.
        let is_above = |part: &&str| part.is_empty() || part.ends_with(".slice");
        let outermost = path.split('/').find(|part| !is_above(part));
        let unit = outermost.filter(|part| part.ends_with(".service")).unwrap_or("");
        let is_id =
            |word: &&str| word.len() == ID_DIGITS && word.bytes().all(|b| b.is_ascii_hexdigit());
        let container = path.split(['/', '-', '.', ':']).find(is_id).unwrap_or("");
        (self.unit, self.container) = (unit.to_owned(), container.to_owned());
    }
}

/// What is known of a crash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrashNotice {
    /// Time of the crash: nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// The process.
    pub origin: CrashOrigin,
    /// Name of the signal, or another reason.
    pub reason: String,
    /// `si_code` of the signal; 0 if unknown.
    pub code: i32,
    /// Address of the fault.
    pub fault_address: Option<u64>,
    /// Stack of the thread that crashed, the innermost function first.
    pub frames: Vec<Frame>,
    /// Number of threads; 0 if unknown.
    pub thread_count: usize,
    /// Operations in flight and metrics from shared memory; null if there are none.
    pub last_state: Value,
    /// What is missing, and why.
    pub remarks: Vec<String>,
}

/// Labels of the series of a notice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeLabels {
    /// Time of the crash.
    pub time_ns: i64,
    /// Program.
    pub program: String,
    /// Unit of systemd, or the program.
    pub service: String,
    /// Build ID of the executable.
    pub build: String,
    /// Signal, or another reason.
    pub reason: String,
    /// Signature.
    pub signature: String,
    /// Time since the start of the process.
    pub uptime_ns: Option<u64>,
}

impl CrashNotice {
    /// Adds what a core has: threads are walked and named. Returns a snapshot for the host:
    /// stacks of all threads with the registers of their places, and mapped files.
    pub fn add_core(
        &mut self,
        core: &CoreDump,
        memory: &StackMemory,
        modules: &mut ModuleMap<'_>,
    ) -> Value {
        (self.code, self.fault_address) = (core.code, core.fault_address);
        self.thread_count = core.threads.len();
        let walk = |(index, thread): (usize, &crate::CoreThread)| {
            let frames_max = if index == 0 { FRAMES_MAX } else { OTHER_FRAMES_MAX };
            walk_stack(&thread.registers, memory, modules, frames_max)
        };
        let stacks: Vec<Vec<u64>> =
            core.threads.iter().take(THREADS_MAX).enumerate().map(walk).collect();
        let mut frames = name_frames(&stacks.concat(), modules).into_iter();
        let hex = |address: u64| format!("{address:#x}");
        let mut threads = Vec::new();
        for (index, (thread, stack)) in core.threads.iter().zip(&stacks).enumerate() {
            let named: Vec<Frame> = frames.by_ref().take(stack.len()).collect();
            let registers = &thread.registers;
            // Others may have data of the program.
            let [rip, rsp, rbp] = [registers.pc(), registers.sp(), registers.fp()].map(hex);
            threads.push(json!({
                "tid": thread.tid,
                "registers": { "rip": rip, "rsp": rsp, "rbp": rbp },
                "frames": named.iter().map(Frame::to_json).collect::<Vec<_>>(),
            }));
            if index == 0 {
                self.frames = named;
            }
        }
        let maps = modules.executable_ranges().take(MAPS_MAX).map(|(path, range)| {
            json!({ "path": path_end(path), "start": hex(range.start), "end": hex(range.end) })
        });
        let maps: Vec<Value> = maps.collect();
        json!({ "schema": SCHEMA, "threads": threads, "maps": maps })
    }

    /// Signature of the crash.
    pub fn signature(&self) -> String {
        let CrashOrigin { program, unit, .. } = &self.origin;
        let program = if program.is_empty() { unit } else { program };
        signature(program, &self.reason, &self.frames)
    }

    /// The notice as JSON text of at most [`NOTICE_BYTES_MAX`] bytes: of a larger one, operations
    /// and metrics are left out, then most frames.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut json = self.to_json();
        let mut bytes = json.to_string().into_bytes();
        for (name, text) in [("last_state", "operations and metrics"), ("frames", "most frames")] {
            if bytes.len() <= NOTICE_BYTES_MAX {
                break;
            }
            match &mut json[name] {
                Value::Array(frames) => frames.truncate(FEW_FRAMES),
                field => *field = Value::Null,
            }
            if let Value::Array(remarks) = &mut json["remarks"] {
                remarks.push(format!("{text} are left out: the notice is too large").into());
            }
            bytes = json.to_string().into_bytes();
        }
        bytes
    }

    /// The notice as JSON.
    pub fn to_json(&self) -> Value {
        let origin = &self.origin;
        let mut fields = Map::new();
        let mut add = |name: &str, value: Value| _ = fields.insert(name.to_owned(), value);
        add("schema", SCHEMA.into());
        add("time_ns", self.time_ns.into());
        add("signature", self.signature().into());
        add("title", title(&self.reason, &self.frames).into());
        add("reason", self.reason.as_str().into());
        for (name, text) in [
            ("program", &origin.program),
            ("executable", &origin.executable),
            ("build_id", &origin.build_id),
            ("unit", &origin.unit),
            ("container", &origin.container),
            ("thread", &origin.thread),
        ] {
            if !text.is_empty() {
                add(name, path_end(text).into());
            }
        }
        add("pid", origin.pid.into());
        add("uid", origin.uid.into());
        add("code", self.code.into());
        add("uptime_ns", origin.uptime_ns.into());
        add("fault_address", self.fault_address.map(|address| format!("{address:#x}")).into());
        add("thread_count", self.thread_count.into());
        add("frames", self.frames.iter().map(Frame::to_json).collect());
        add("last_state", self.last_state.clone());
        add("remarks", self.remarks.clone().into());
        Value::Object(fields)
    }
}

impl NoticeLabels {
    /// Labels of a notice in JSON; `None` if it is none, or too large.
    pub fn parse(notice: &[u8]) -> Option<NoticeLabels> {
        let notice = Some(notice).filter(|notice| notice.len() <= NOTICE_BYTES_MAX)?;
        let notice: Value = serde_json::from_slice(notice).ok()?;
        let text = |name: &str| notice[name].as_str().unwrap_or("").to_owned();
        let (program, unit) = (text("program"), text("unit"));
        let service = unit.strip_suffix(".service").unwrap_or(&unit).to_owned();
        Some(NoticeLabels {
            time_ns: notice["time_ns"].as_i64()?,
            service: if service.is_empty() { program.clone() } else { service },
            program,
            build: text("build_id"),
            reason: text("reason"),
            signature: text("signature"),
            uptime_ns: notice["uptime_ns"].as_u64(),
        })
    }
}

/// The last bytes of a path.
fn path_end(path: &str) -> &str {
    &path[path.ceil_char_boundary(path.len().saturating_sub(PATH_BYTES_MAX))..]
}

fn name_frames(addresses: &[u64], modules: &mut ModuleMap<'_>) -> Vec<Frame> {
    let names = modules.function_names(addresses);
    let frame = |(&address, name): (&u64, Option<String>)| {
        let module = modules.code_at(address).map(|mapping| mapping.path.clone());
        let image = modules.image_at(address);
        let (build_id, own) =
            image.map_or((String::new(), address), |(image, own)| (image.build_id.clone(), own));
        Frame {
            module: path_end(&module.unwrap_or_default()).to_owned(),
            build_id,
            address: own,
            function: name.map_or_else(String::new, |name| readable(&name)),
        }
    };
    addresses.iter().zip(names).map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, unit: &str, container: &str) {
        let mut origin = CrashOrigin::default();
        origin.set_control_group(path);
        assert_eq!((origin.unit.as_str(), origin.container.as_str()), (unit, container));
    }

    #[test]
    fn unit_and_container_of_a_control_group() {
        let id = "0123456789abcdef".repeat(4);
        check("/system.slice/shop.service", "shop.service", "");
        check("/user.slice/user-1.slice/session-2.scope", "", "");
        check(&format!("/system.slice/docker-{id}.scope"), "", &id);
        check(&format!("/kubepods.slice/pod1.slice/cri-containerd-{id}.scope"), "", &id);
        check("/system.slice/db.service/worker", "db.service", "");
        let forged = "/user.slice/user-7.slice/user@7.service/app.slice/db.service";
        check(forged, "user@7.service", "");
        let inner = "f".repeat(64);
        check(&format!("/docker/{id}/system.slice/db.service/{inner}"), "", &id);
        check("/user.slice/user-7.slice/session-2.scope/db.service", "", "");
        check("", "", "");
    }

    #[test]
    fn a_notice_has_a_limit() {
        let mut notice = CrashNotice { reason: "SIGSEGV".to_owned(), ..CrashNotice::default() };
        let long = "\u{1}".repeat(4_096);
        let frame = Frame { module: path_end(&long).to_owned(), ..Frame::named(&long) };
        notice.frames = vec![frame.clone(); 64];
        notice.origin = CrashOrigin {
            program: long.clone(),
            executable: long.clone(),
            unit: long.clone(),
            ..CrashOrigin::default()
        };
        notice.last_state = json!({ "metrics": vec!["x"; 64 << 10] });
        let labels = NoticeLabels::parse(&notice.to_bytes()).expect("a notice");
        assert_eq!(labels.signature, notice.signature());
        let json: Value = serde_json::from_slice(&notice.to_bytes()).unwrap();
        assert_eq!(json["remarks"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["frames"].as_array().map(Vec::len), Some(FEW_FRAMES));
        notice.frames = vec![frame; 5];
        let json: Value = serde_json::from_slice(&notice.to_bytes()).unwrap();
        assert_eq!(json["remarks"].as_array().map(Vec::len), Some(1));
        assert!(
            NoticeLabels::parse(&[b" ".repeat(64 << 10), b"{\"time_ns\":1}".to_vec()].concat())
                .is_none()
        );
    }

    #[test]
    fn names_of_signals() {
        let names = [1, 6, 11, 31, 32, 0, -5].map(signal_name);
        let expected =
            ["SIGHUP", "SIGABRT", "SIGSEGV", "SIGSYS", "signal 32", "signal 0", "signal -5"];
        assert_eq!(names, expected);
    }
}
