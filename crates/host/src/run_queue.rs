//! Run queue latency, measured by a BPF program at `sched_switch`.
//!
//! The kernel notes in each task since when it waits (`sched_info.last_queued`), for
//! `/proc/PID/schedstat`. When the kernel picks a task, the program subtracts that time from the
//! run queue's clock: the nanoseconds that the kernel itself adds to the task's `run_delay`. One
//! probe is enough, no map of tasks is needed, and wake-ups cost nothing. Waits after a wake-up and
//! after a preemption count. Each CPU has its own cells: no locked instruction, no shared cache
//! line.
//!
//! The map's value, in words of 8 bytes: 0 switches on CPUs without cells; from 8 on, for each CPU
//! 0 sum, 8 buckets. Source: kernel, kernel/sched/stats.h (`sched_info_arrive`),
//! include/trace/events/sched.h.

use std::sync::atomic::Ordering;

use bpf::Register::{R0, R1, R2, R3, R6, R7, R8};
use bpf::{
    AccessWidth, AluOperation, Assembler, BpfProgram, Btf, HelperFunction, Instruction,
    JumpCondition, MapCells,
};
use serde::Deserialize;

use crate::bpf_grid::{self as grid, AtomicMode, BUCKETS, GridCounts};
use crate::error::Result;
use crate::metric::RowReporter;
use crate::metrics;
use crate::source::{HostSource, Opening, SourceSettings, report_cost};

/// Value of the label `program`.
const PROGRAM: &str = "run_queue";
const TRACEPOINT: &str = "sched_switch";
const HEAD: usize = 8;
/// Words per CPU.
const LANE: usize = 8 + BUCKETS;
const SUM: usize = 0;
const TIMES: usize = 8;
/// CPUs with cells, 10 KiB each; switches on further CPUs are counted as unmeasured.
const CPUS_MAX: usize = 4_096;

/// Kernel struct offsets used by the run queue program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunQueueOffsets {
    /// Time since when a task waits, on the run queue's clock; 0 if it does not, as for the idle
    /// task.
    last_queued: i16,
    clock: i16,
    cpu: i16,
    queue: RunQueuePath,
}

/// Pointer path to the run queue of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunQueuePath {
    /// By the task, with group scheduling (CONFIG_FAIR_GROUP_SCHED). Tasks of all scheduling
    /// classes have the pointer.
    Task { group: i16, queue: i16 },
    /// BTF id of the variable `runqueues` (CONFIG_KALLSYMS_ALL).
    Variable(u32),
}

impl RunQueueOffsets {
    fn find(btf: &Btf) -> Result<RunQueueOffsets, String> {
        let queue = match (btf.offset("task_struct", "se.cfs_rq"), btf.offset("cfs_rq", "rq")) {
            (Ok(group), Ok(queue)) => RunQueuePath::Task { group, queue },
            _ => RunQueuePath::Variable(btf.variable("runqueues")?),
        };
        Ok(RunQueueOffsets {
            last_queued: btf.offset("task_struct", "sched_info.last_queued")?,
            clock: btf.offset("rq", "clock")?,
            cpu: btf.offset("rq", "cpu")?,
            queue,
        })
    }
}

/// The program, with the map's descriptor.
///
/// ```c
/// int sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, …) {
///     since = next->sched_info.last_queued;
///     if (!since) return 0;
///     rq = next->se.cfs_rq->rq;              // or bpf_this_cpu_ptr(&runqueues)
///     delay = max(rq->clock - since, 0);
///     if (rq->cpu >= PROCESSORS) { without_cells++; return 0; }
///     record(&value[rq->cpu], delay);        // interrupts are off: plain additions
///     return 0;
/// }
/// ```
fn program(fields: &RunQueueOffsets, processors: usize, map: i32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let [end, forwards, has_cells] = [code.label(), code.label(), code.label()];
    code.load(AccessWidth::Bits64, R6, R1, 16);
    code.load(AccessWidth::Bits64, R8, R6, fields.last_queued);
    code.jump_if(JumpCondition::Equal, R8, 0, end);
    match fields.queue {
        RunQueuePath::Task { group, queue } => {
            code.load(AccessWidth::Bits64, R0, R6, group);
            code.load(AccessWidth::Bits64, R0, R0, queue);
        }
        RunQueuePath::Variable(id) => {
            code.variable(R1, id);
            code.call(HelperFunction::ThisCpuPtr);
        }
    }
    code.load(AccessWidth::Bits64, R2, R0, fields.clock);
    code.load(AccessWidth::Bits32, R3, R0, fields.cpu);
    code.register(AluOperation::Subtract, R2, R8);
    code.jump_if(JumpCondition::SignedAtLeast, R2, 0, forwards);
    code.immediate(AluOperation::Move, R2, 0);
    code.bind(forwards);
    code.map_value(R7, map, 0);
    code.jump_if(JumpCondition::Less, R3, processors as i32, has_cells);
    code.immediate(AluOperation::Move, R1, 1);
    code.atomic_add(R7, 0, R1);
    code.jump_always(end);
    code.bind(has_cells);
    code.immediate(AluOperation::Multiply, R3, 8 * LANE as i32);
    code.immediate(AluOperation::Add, R7, 8 * HEAD as i32);
    code.register(AluOperation::Add, R7, R3);
    grid::record(&mut code, AtomicMode::Plain, 8 * TIMES as i16, 8 * SUM as i16);
    code.bind(end);
    code.exit();
    code.finish()
}

/// Attached run queue program.
#[derive(Debug)]
pub(crate) struct RunQueue {
    program: BpfProgram,
    cells: MapCells,
    cpus: usize,
    committed: GridCounts,
    pending: GridCounts,
}

impl RunQueue {
    /// Loads and attaches the program.
    pub(crate) fn start(btf: &Btf) -> Result<RunQueue, String> {
        let fields = RunQueueOffsets::find(btf)?;
        let processors = possible_cpus().min(CPUS_MAX);
        let words = HEAD + processors * LANE;
        let make = |map| program(&fields, processors, map);
        let program = BpfProgram::start("topdeck_queue", words, btf.tracepoint(TRACEPOINT)?, make)?;
        let cells = program.cells(0..words)?;
        let (counts, read) = (GridCounts::default(), GridCounts::default());
        Ok(RunQueue { program, cells, cpus: processors, committed: counts, pending: read })
    }

    /// Counts of all CPUs since the last commit.
    fn counted(&mut self) -> Option<hist::Histogram> {
        let mut now = GridCounts::default();
        for processor in 0..self.cpus {
            let lane = &self.cells[HEAD + processor * LANE..][..LANE];
            if lane[SUM].load(Ordering::Relaxed) != 0 {
                now.add(&lane[TIMES..], &lane[SUM]);
            }
        }
        self.pending = now;
        self.pending.since(&self.committed)
    }

    /// Switches on CPUs without cells.
    fn untracked_cpus(&self) -> u64 {
        self.cells[0].load(Ordering::Relaxed)
    }
}

/// Settings of run queue latency.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunQueueSettings {
    /// Run queue latency, by BPF; needs root. If BPF is unavailable, the reason is reported: true.
    run_queue: bool,
}

impl Default for RunQueueSettings {
    fn default() -> RunQueueSettings {
        RunQueueSettings { run_queue: true }
    }
}

impl SourceSettings for RunQueueSettings {
    const KEYS: &'static [&'static str] = &["run_queue"];

    fn is_enabled(&self) -> bool {
        self.run_queue
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        if !self.run_queue {
            return Ok(None);
        }
        let otherwise = "run queue latency unavailable";
        let started = opening.start(PROGRAM, otherwise, RunQueue::start);
        Ok(started.map(|source| -> Box<dyn HostSource> { Box::new(source) }))
    }
}

impl HostSource for RunQueue {
    fn read(&mut self, report: &mut RowReporter<'_>, began: i64) -> u64 {
        if let Some(times) = self.counted() {
            report.distribution(&metrics::RUN_QUEUE_LATENCY, &[], times);
        }
        report.count(&metrics::RUN_QUEUE_UNMEASURED, &[], began, self.untracked_cpus());
        report_cost(report, PROGRAM, began, self.program.stats());
        0
    }

    /// Commits the last scrape: the next one counts from there.
    fn commit(&mut self) {
        self.committed.clone_from(&self.pending);
    }
}

/// Number of possible CPUs: one more than the last number in `/sys/devices/system/cpu/possible`.
fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(CPUS_MAX, |last| last.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::bpf_interpreter::{BpfInterpreter, VARIABLE};

    const NEXT: u64 = 5 << 32;
    const GROUP: u64 = 6 << 32;
    const FIELDS: RunQueueOffsets = RunQueueOffsets {
        last_queued: 1048,
        clock: 2776,
        cpu: 2984,
        queue: RunQueuePath::Task { group: 200, queue: 312 },
    };
    const NOW: u64 = 1_000_000_000_000;

    /// Counts of two CPUs after a task that waits since that time was picked on one of them.
    #[track_caller]
    fn check(since: u64, processor: u64, expected: [u64; 2], sum: u64, without: u64) {
        let by_variable = RunQueueOffsets { queue: RunQueuePath::Variable(10_671), ..FIELDS };
        for fields in [FIELDS, by_variable] {
            run(fields, since, processor, expected, sum, without);
        }
    }

    #[track_caller]
    fn run(
        fields: RunQueueOffsets,
        since: u64,
        processor: u64,
        expected: [u64; 2],
        sum: u64,
        without: u64,
    ) {
        let mut machine = BpfInterpreter::new(HEAD + 2 * LANE);
        machine.put(NEXT, &[(FIELDS.last_queued, since), (200, GROUP)]);
        machine.put(GROUP, &[(312, VARIABLE)]);
        machine.put(VARIABLE, &[(FIELDS.clock, NOW), (FIELDS.cpu, processor)]);
        machine.run(&program(&fields, 2, 3), &[0, 0, NEXT, 0]);
        let cells: Vec<AtomicU64> = machine.map().into_iter().map(AtomicU64::new).collect();
        let counts = [0, 1].map(|at| {
            let lane = &cells[HEAD + at * LANE..][..LANE];
            lane[TIMES..].iter().map(|cell| cell.load(Ordering::Relaxed)).sum::<u64>()
        });
        assert_eq!(counts, expected);
        let sums = [0, 1].map(|at| cells[HEAD + at * LANE].load(Ordering::Relaxed));
        assert_eq!(sums.iter().sum::<u64>(), sum);
        assert_eq!(cells[0].load(Ordering::Relaxed), without);
    }

    #[test]
    fn cpus_have_separate_counts() {
        check(NOW - 5_000, 0, [1, 0], 5_000, 0);
        check(NOW - 5_000, 1, [0, 1], 5_000, 0);
        check(NOW + 9, 1, [0, 1], 0, 0);
    }

    #[test]
    fn running_task_is_not_counted() {
        check(0, 0, [0, 0], 0, 0);
    }

    #[test]
    fn cpu_without_cells_is_counted() {
        check(NOW - 5_000, 2, [0, 0], 0, 1);
    }

    #[test]
    fn there_is_a_processor() {
        assert!(possible_cpus() >= 1);
    }
}
