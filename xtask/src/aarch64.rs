//! The part `aarch64` of `make system`: the static aarch64 binary and the tests of the core crates,
//! under the user-mode emulator of qemu (qemu-user) or on an aarch64 machine.
//!
//! qemu-user passes system calls to the host kernel. This part does not test the following:
//!
//! * BPF, and with it block I/O and run queue waits: qemu-user does not implement `bpf` and
//!   `perf_event_open`.
//! * `shm` and `host`: they read other processes in /proc, which shows the memory of the emulator
//!   instead.
//! * Journals shared by several processes: the kernel releases the robust mutex of a dead owner
//!   (`set_robust_list`), which qemu-user does not implement. A test also cannot start itself as
//!   another process if the kernel has no binfmt_misc handler for aarch64 programs.
//! * The CPU counter as a clock: the emulator derives `CNTVCT_EL0` from the host clock. The
//!   arithmetic of the clock is tested.

use anyhow::Result;

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, target as builds};
use crate::dist::{DistProgram, DistTarget, ProgramStarter, check};
use crate::libtest::run_cargo_test;
use crate::part_log::PartLog;
use crate::test_report::TestReport;

const TRIPLE: &str = "aarch64-unknown-linux-musl";

/// Crates whose tests run on aarch64.
const CORE: &str = "-p topdeck-hist -p topdeck-codecs -p topdeck-model -p topdeck-clock \
    -p topdeck-disk -p topdeck-sim -p topdeck-journal -p topdeck-store";

/// Tests that start themselves as other processes. They fail under the emulator, which says nothing
/// about the code.
const NOT_UNDER_QEMU: [&str; 23] = [
    "backlog::a_backlog_needs_no_memory",
    "jlog_regressions::kill_at_any_operation_keeps_other_processes_data",
    "jlog_regressions::jlog_4_kill_before_publication_duplicates_nothing",
    "sigkill::kill_loses_and_duplicates_nothing",
    "sigkill::killed_writer_loses_and_duplicates_nothing",
    "sigkill::other_processes_continue_after_a_kill",
    "sigkill::kill_during_open_or_close_affects_no_other",
    "power_loss_soak::a_journal_on_a_full_disk_can_be_opened_and_read",
    "power_loss_soak::disk_level_records_survive_a_power_cut",
    "races::checkpoint_is_consistent_while_committed",
    "races::process_stopped_anywhere_blocks_no_other",
    "races::first_opener_without_thread_blocks_no_writer",
    "races::a_subscriber_is_one_readers_at_a_time",
    "races::a_writer_without_a_thread_that_is_idle_stalls_no_other",
    "races::after_a_full_journal_has_room_again_every_process_can_append",
    "races::concurrent_open_of_a_new_journal_succeeds",
    "races::concurrent_create_succeeds_once",
    "races::handle_limit_is_reported_and_released",
    "races::opening_while_others_close_loses_nothing",
    "races::records_of_another_process_are_read_at_once",
    "races::append_times_out_while_the_writer_is_stopped",
    "races::waiter_is_woken_by_another_process",
    "races::exclusive_open_is_exclusive",
];

pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    let target = DistTarget::find(TRIPLE).expect("BUG: dist builds every target");
    let starter = match target.starter() {
        Ok(starter) => starter,
        Err(reason) => return Ok(PartOutcome::Skipped(reason)),
    };
    // A missing network skips the part.
    let tools = match target.provide_tools(log) {
        Ok(tools) => tools,
        Err(error) => return Ok(PartOutcome::Skipped(format!("{error:#}"))),
    };
    let tests =
        format!("cargo test --locked --no-fail-fast --target {TRIPLE} --lib --tests {CORE} --");
    let mut tests = tools.apply(CommandLine::new(&tests), target)?;
    if let ProgramStarter::Emulator(emulator) = starter {
        tests = tests.env(target.runner, emulator);
        for name in NOT_UNDER_QEMU {
            tests = tests.arg("--skip").arg(name);
        }
    }
    let repeat = "make system PART=aarch64";
    let mut report = run_cargo_test(log, &tests, repeat)
        .unwrap_or_else(|error| TestReport::from_failure("tests", repeat, format!("{error:#}")));
    let program = || {
        let build = format!("cargo build --locked --target {TRIPLE} -p topdeck");
        tools.apply(CommandLine::new(&build), target)?.run(log)?;
        let path = builds().join(TRIPLE).join("debug/topdeck");
        check(&DistProgram { path: &path, starter }, &builds().join("aarch64-check"), false)
    };
    match program() {
        Ok(()) => report.passed += 1,
        Err(error) => {
            report.add(TestReport::from_failure("the program", repeat, format!("{error:#}")));
        }
    }
    Ok(PartOutcome::Tests(report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::root;

    #[test]
    fn tests_that_are_left_out_exist() {
        let missing: Vec<_> = NOT_UNDER_QEMU
            .iter()
            .filter(|name| {
                let (module, test) = name.split_once("::").expect("a module");
                !["journal", "store"].iter().any(|package| {
                    let path = root().join(format!("crates/{package}/tests/it/{module}.rs"));
                    let text = std::fs::read_to_string(path).unwrap_or_default();
                    text.contains(&format!("fn {test}("))
                })
            })
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
