//! The part `aarch64` of `make system`: the static binary for that processor and the core's tests,
//! under qemu's emulator of programs (qemu-user) or on the processor itself.
//!
//! qemu-user passes system calls on to the kernel that is there. Not tested by this part, and why:
//!
//! * BPF, and with it block I/O and waits for a processor: qemu-user does not pass `bpf` and
//!   `perf_event_open` on.
//! * `shm` and `host`: they read other processes in /proc, which shows the emulator's memory in
//!   place of theirs.
//! * Journals of several processes: the mutex whose owner may die is given up by the kernel
//!   (`set_robust_list`), which qemu-user does not pass on. Nor can a test start itself as another
//!   process, where the kernel does not know what to start a program of that processor with.
//! * The processor's counter as a clock: the emulator makes `CNTVCT_EL0` out of the host's clock,
//!   which says nothing of a processor's. The clock's arithmetic is tested.

use anyhow::Result;

use crate::dist::{Program, Starter, Target, check};
use crate::libtest::run_cargo_test;
use crate::line::{Line, target as builds};
use crate::log::Log;
use crate::part::Outcome;
use crate::report::TestReport;

const TRIPLE: &str = "aarch64-unknown-linux-musl";

/// Crates whose tests run there.
const CORE: &str = "-p topdeck-hist -p topdeck-model -p topdeck-clock \
    -p topdeck-disk -p topdeck-journal -p topdeck-store";

/// Tests that start themselves as other processes, which fail under the emulator and say nothing of
/// the code: see above.
const NOT_UNDER_QEMU: [&str; 23] = [
    "backlog::a_backlog_needs_no_memory",
    "jlog::a_kill_at_any_operation_loses_nothing_of_another_process",
    "jlog::jlog_4_a_kill_between_write_and_publication_doubles_nothing",
    "kill::nothing_acknowledged_is_lost_or_doubled_when_it_is_killed",
    "kill::nothing_acknowledged_is_lost_or_doubled_when_the_writer_is_killed",
    "kill::the_others_go_on_when_one_of_many_is_killed",
    "kill::who_is_killed_while_opening_or_closing_harms_nobody",
    "power_loop::a_journal_on_a_full_disk_can_be_opened_and_read",
    "power_loop::what_is_acknowledged_as_on_disk_survives_a_power_cut",
    "races::a_checkpoint_that_is_being_moved_is_sound_to_all_who_look",
    "races::a_process_stopped_anywhere_hangs_nobody",
    "races::a_reader_without_a_thread_that_opened_it_first_stalls_no_writer",
    "races::a_subscriber_is_one_readers_at_a_time",
    "races::a_writer_without_a_thread_that_is_idle_stalls_no_other",
    "races::after_a_full_journal_has_room_again_every_process_can_append",
    "races::many_who_open_a_new_journal_at_once_all_have_it",
    "races::of_many_who_create_the_same_journal_one_does",
    "races::one_too_many_is_told_so_and_has_it_when_another_closes",
    "races::opening_while_others_close_loses_nothing",
    "races::what_another_process_appended_is_read_at_once",
    "races::while_the_writing_process_is_stopped_appends_end_in_a_clear_error",
    "races::who_waits_is_woken_by_another_process",
    "races::who_wants_it_alone_has_it_alone_or_not_at_all",
];

pub(crate) fn run(log: &Log) -> Result<Outcome> {
    let target = Target::named(TRIPLE).expect("BUG: it is built by dist");
    let starter = match target.starter() {
        Ok(starter) => starter,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    // No network is no fault of ours.
    let tools = match target.provide(log) {
        Ok(tools) => tools,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let tests =
        format!("cargo test --locked --no-fail-fast --target {TRIPLE} --lib --tests {CORE} --");
    let mut tests = tools.on(Line::new(&tests), target)?;
    if let Starter::By(emulator) = starter {
        tests = tests.env(target.runner, emulator);
        for name in NOT_UNDER_QEMU {
            tests = tests.word("--skip").word(name);
        }
    }
    let repeat = "make system PART=aarch64";
    let mut report = run_cargo_test(log, &tests, repeat)
        .unwrap_or_else(|error| TestReport::of_failure("tests", repeat, format!("{error:#}")));
    let program = || {
        let build = format!("cargo build --locked --target {TRIPLE} -p topdeck");
        tools.on(Line::new(&build), target)?.run(log)?;
        let path = builds().join(TRIPLE).join("debug/topdeck");
        check(&Program { path: &path, starter }, &builds().join("aarch64-check"), false)
    };
    match program() {
        Ok(()) => report.passed += 1,
        Err(error) => {
            report.add(TestReport::of_failure("the program", repeat, format!("{error:#}")));
        }
    }
    Ok(Outcome::Tests(report))
}
