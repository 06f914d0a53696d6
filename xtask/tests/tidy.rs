//! Facts about this repository that no compiler checks, one test each. Facts only, not style.
//!
//! A rule is a function from the files of the repository to findings. The tests here apply the
//! rules to the real files and require that each rule checked at least one item; the modules test
//! the rules with small fixtures.
#![forbid(unsafe_code)]

#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "../src/extension_list.rs"]
mod extension_list;
#[path = "tidy/extensions.rs"]
mod extensions;
#[path = "tidy/facts.rs"]
mod facts;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/repo.rs"]
mod repo;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/width.rs"]
mod width;

use std::sync::LazyLock;

use repo::{RepoFiles, RuleFindings};

/// The only files that may contain the keyword `unsafe`, as paths from the root. For each entry two
/// people have reviewed the safety argument of the file, and its tests run under Miri.
const UNSAFE_FILES: &[&str] = &[
    "crates/bpf/src/ring_buffer.rs",
    "crates/bpf/src/syscall.rs",
    "crates/clock/src/counter.rs",
    "crates/clock/tests/it/fork.rs",
    "crates/disk/src/region.rs",
    "crates/ffi/src/abi.rs",
    "crates/ffi/src/pointer.rs",
    "crates/heap/src/mapping_allocator.rs",
    "crates/heap/src/memory_functions.rs",
    "crates/heap/src/trim.rs",
    "crates/shm/src/thread_lane.rs",
    "crates/shm/src/map.rs",
    "crates/shm/src/ffi_handles.rs",
    "crates/shm/tests/it/processes.rs",
    "crates/wire/src/packet_ring.rs",
];

/// Crates with an import cycle of more than 8 files, and the size of the largest cycle. Entries may
/// only shrink; new ones are not allowed.
const IMPORT_CYCLES: &[(&str, usize)] = &[];

/// The only places in product code that start threads or tasks: file, number of places, and how a
/// panic is reported. *Supervised*: the thread is restarted, and `/health`, the status, the log and
/// a counter report the panic. *Counted*: the work of one request or attempt fails and is counted
/// as a failure. *Joined*: the thread that waits for it panics too, or returns an error. *Fatal*:
/// the command ends.
const THREADS: &[(&str, usize, &str)] = &[
    ("crates/alerts/src/role.rs", 6, "supervised: callers of `spawn` of role_thread.rs"),
    ("crates/alerts/src/role_thread.rs", 1, "supervised, and joined by the role"),
    ("crates/api/src/acceptor.rs", 2, "connections and requests of HTTP/2: counted"),
    (
        "crates/api/src/role_events.rs",
        1,
        "events of a client: its connection ends with it, and the client reconnects",
    ),
    ("crates/api/src/server.rs", 2, "supervised"),
    ("crates/api/src/stream/hub.rs", 1, "counted; clients are notified and reconnect"),
    ("crates/clock/src/global.rs", 1, "supervised through `clock::observe_calibrator`"),
    ("crates/demo/src/alert_history.rs", 1, "joined"),
    ("crates/forward/src/forward.rs", 1, "supervised"),
    ("crates/heap/src/lib.rs", 1, "supervised through an argument of `HeapTrimmer::start`"),
    ("crates/host/src/hiccup.rs", 1, "supervised"),
    ("crates/host/src/overhead/experiment_report.rs", 1, "joined"),
    ("crates/host/src/thread.rs", 1, "supervised"),
    ("crates/import/src/batch_sender.rs", 1, "joined"),
    ("crates/intake/src/group_commit.rs", 1, "supervised"),
    ("crates/intake/src/intake.rs", 1, "supervised"),
    ("crates/journal/src/journal.rs", 1, "supervised"),
    ("crates/journal/src/readiness.rs", 1, "supervised"),
    ("crates/listen/src/listener.rs", 4, "supervised: three callers of its method `spawn`"),
    ("crates/load/src/report/push_sink.rs", 1, "joined: the report shows it"),
    ("crates/load/src/run.rs", 1, "joined"),
    ("crates/load/src/stub_server.rs", 1, "joined"),
    ("crates/net/src/dial.rs", 2, "connection driver: the request in flight fails"),
    ("crates/net/src/lookup.rs", 1, "joined: the lookup fails"),
    ("crates/observe/src/capture_rights.rs", 1, "panics of its work are those of the callers"),
    ("crates/observe/src/capture_thread.rs", 4, "supervised, by `supervised_spawn.rs`"),
    ("crates/observe/src/end_receiver.rs", 1, "supervised, by `supervised_spawn.rs`"),
    ("crates/observe/src/end_reporter.rs", 1, "supervised, by `supervised_spawn.rs`"),
    ("crates/observe/src/supervised_spawn.rs", 1, "supervised: the callers join it"),
    ("crates/postgres/src/server_task.rs", 1, "supervised"),
    ("crates/pull/src/probe/command.rs", 1, "counted; it waits for the end of a killed program"),
    ("crates/pull/src/pull.rs", 3, "two supervised, one counted per attempt"),
    ("crates/notify/src/notifier.rs", 3, "supervised and joined"),
    ("crates/query/src/eval/series.rs", 1, "joined"),
    ("crates/role/src/role.rs", 1, "joined by the caller, which gets the panic"),
    ("crates/store/src/store.rs", 1, "supervised"),
    ("crates/topdeck/src/background.rs", 1, "fatal"),
    ("crates/topdeck/src/crash/core_pattern.rs", 1, "joined"),
    (
        "crates/topdeck/src/crash/handle.rs",
        4,
        "without that of the notice, an error; that which waits for it is joined; without others, \
         what they read is left out",
    ),
    ("crates/topdeck/src/doctor/checks.rs", 1, "joined"),
    ("crates/topdeck/src/doctor/overhead.rs", 1, "fatal, by `background::spawn`"),
    ("crates/topdeck/src/hiccup.rs", 2, "fatal, by `background::spawn`"),
    ("crates/topdeck/src/journal/bench.rs", 1, "joined"),
    ("crates/topdeck/src/load.rs", 1, "fatal, by `background::spawn`"),
    ("crates/topdeck/src/process_waiter.rs", 1, "fatal, by `background::spawn`"),
    ("crates/topdeck/src/top/screen.rs", 1, "fatal, by `background::spawn`"),
];

/// Public items that only their own crate uses, with the reason.
const PUBLIC_ITEMS: &[&str] = &[
    // Used by ingest formats of other crates.
    "path_parameter",
    "with_response",
    // In signatures of `answers::StoreArguments`.
    "StoreArgumentValue",
    // In signatures of `role::Roles`.
    "ErasedRole",
    "RunningRole",
    // Exported as `MANIFEST_PART_FIELDS`.
    "PART_FIELDS",
    // Named by macros of `shm`.
    "LabelValues",
    "LinkTarget",
    // The C ABI and the MMV layout of docs/formats/mmv.md, in public signatures and modules.
    "GENERATION_BYTES",
    "SECTIONS_MAX",
    "c_void",
    // `Default` of a scheme, in the documentation of `hist`.
    "DEFAULT",
    // The layout of docs/formats/shm.md, for readers in other languages.
    "COMPATIBLE",
    "CREATED_UNIX",
    "EXTENSION",
    "FILLING",
    "HEARTBEAT_BYTES",
    "INCOMPATIBLE",
    "LOST_VALUES",
    "PAGE_MAX",
    "PID_NAMESPACE",
    "REJECTED_SERIES",
    "SHARED_LANE_THREADS",
    "START_TICKS",
    "TEXT_BUFFERS",
    "TEXT_BYTES",
];

/// Type names that two crates define.
const SHARED_TYPE_NAMES: &[&str] = &[
    // One of each crate, written with the crate's name: `journal::Error`.
    "Error",
    "Limits",
    "Options",
    "Result",
    "Settings",
    // A field of a layout: name, offset, size. Its crates have no lower crate in common.
    "Field",
    // Handles of `shm`, and the same handles in the C ABI.
    "Counter",
    "FloatGauge",
    "Gauge",
    "Heartbeat",
    "InFlight",
    "Lane",
    "Operation",
    "Stopwatch",
    "Tag",
    "UpDownCounter",
    // The values, the handle of `shm` that records them, and the same handle in the C ABI.
    "Histogram",
];

#[test]
fn no_thread_can_end_unnoticed() {
    check(|repo| rust::threads_only_in(repo, THREADS));
}

#[test]
fn architecture_lists_the_crates() {
    check(crates::crate_table_is_correct);
}

#[test]
fn dependencies_point_down() {
    check(crates::dependencies_point_down);
}

#[test]
fn import_cycles_are_small() {
    check(|repo| cycles::import_cycles_are_small(repo, IMPORT_CYCLES));
}

#[test]
fn no_example_is_left_out() {
    check(crates::examples_are_tested);
}

#[test]
fn files_have_a_header_comment() {
    check(rust::files_begin_with_a_header_comment);
}

#[test]
fn slow_tests_give_a_reason() {
    check(rust::slow_tests_give_a_reason);
}

#[test]
fn type_names_are_nouns() {
    check(names::type_names_are_nouns);
}

#[test]
fn type_names_are_unique() {
    check(|repo| names::type_names_are_unique(repo, SHARED_TYPE_NAMES));
}

#[test]
fn public_items_have_a_user() {
    check(|repo| names::public_items_have_a_user(repo, PUBLIC_ITEMS));
}

#[test]
fn lines_are_at_most_100_columns_wide() {
    check(width::lines_fit);
}

#[test]
fn unsafe_is_only_in_allowed_files() {
    check(|repo| rust::unsafe_only_in(repo, UNSAFE_FILES));
}

#[test]
fn crates_forbid_unsafe() {
    check(|repo| rust::crates_forbid_unsafe(repo, UNSAFE_FILES));
}

#[test]
fn links_resolve() {
    check(markdown::links_resolve);
}

#[test]
fn no_file_names_a_build_machine_path() {
    check(facts::no_machine_paths);
}

#[test]
fn the_fuzzer_has_all_checks() {
    check(facts::fuzzer_has_all_checks);
}

#[test]
fn an_extension_is_one_file_and_one_line() {
    check(extensions::extensions_are_one_file_and_one_line);
}

#[test]
fn changelog_has_this_version() {
    check(facts::changelog_has_version);
}

#[test]
fn readme_has_the_rust_version() {
    check(facts::readme_has_rust_version);
}

/// Applies a rule to the real repository.
#[track_caller]
fn check(rule: impl FnOnce(&RepoFiles) -> RuleFindings) {
    static REPO: LazyLock<RepoFiles> = LazyLock::new(RepoFiles::load);
    let findings = rule(&REPO);
    let problems = findings.problems.join("\n");
    assert!(problems.is_empty(), "\n{problems}\n");
    assert!(findings.checked > 0, "the rule checked nothing");
}
