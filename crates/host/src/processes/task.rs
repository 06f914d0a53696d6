//! Process table by a BPF task iterator.
//!
//! The program writes 120 bytes for a thread group leader and the first 72 of them for another
//! thread. Counts of exited threads are in the group's `signal_struct`; the program adds them to
//! the leader's own. Counts of living threads are summed here. The program therefore needs no map,
//! and 5,000 processes take about 20 reads of 32 KiB.
//!
//! CPU time is the run time measured by the scheduler, split into user and system in the ratio of
//! their ticks, as in `/proc/PID/stat` (kernel, kernel/sched/cputime.c, `cputime_adjust`). Resident
//! memory is the sum of the global counters: it lacks the per-CPU parts (32 pages each or more,
//! Linux 6.2 and later).

use std::io::{self, Read};

use bpf::Register::{R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use bpf::{
    AccessWidth, AluOperation, Assembler, BpfIterator, Btf, HelperFunction, Instruction,
    JumpCondition,
};
use shm::process_table::ProcessRow;

use super::stat::tick_ns;

/// Kernel function that identifies the iterator.
const FUNCTION: &str = "bpf_iter_task";
/// Counts of a task, and of the exited threads of its group: name in `task_struct`, name in
/// `signal_struct`.
const COUNTS: [(&str, &str); 7] = [
    ("utime", "utime"),
    ("stime", "stime"),
    ("se.sum_exec_runtime", "sum_sched_runtime"),
    ("nvcsw", "nvcsw"),
    ("nivcsw", "nivcsw"),
    ("min_flt", "min_flt"),
    ("maj_flt", "maj_flt"),
];
/// Counters of resident pages and their indexes since Linux 4.5.
const PAGES: [(&str, u32); 3] = [("MM_FILEPAGES", 0), ("MM_ANONPAGES", 1), ("MM_SHMEMPAGES", 3)];

/// Offsets in a record, which starts with `tgid` and `pid`.
const TGID: i16 = 0;
const PID: i16 = 4;
const FIRST_COUNT: i16 = 8;
const RUN_DELAY: i16 = 64;
const START: i16 = 72;
const COMM: i16 = 80;
const RSS: i16 = 96;
const PPID: i16 = 104;
const UID: i16 = 108;
const THREADS: i16 = 112;
const STATE: i16 = 116;
/// Bytes of a thread record.
const THREAD_BYTES: usize = 72;
/// Bytes of a leader record.
const LEADER_BYTES: usize = 120;
/// Bytes per read: the kernel's buffer has eight pages.
const READ_BYTES: usize = 32 << 10;

/// Kernel struct offsets used by the task iterator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TaskOffsets {
    seq: i16,
    signal: i16,
    tgid: i16,
    pid: i16,
    /// Offsets in the task and in its group.
    counts: [(i16, i16); 7],
    run_delay: i16,
    start: i16,
    comm: i16,
    mm: i16,
    /// Offsets of the page counters in `mm_struct`.
    pages: [i16; 3],
    parent: i16,
    cred: i16,
    euid: i16,
    threads: i16,
    state: i16,
    exit_state: i16,
}

impl TaskOffsets {
    fn find(btf: &Btf) -> Result<TaskOffsets, String> {
        let task = |member| btf.offset("task_struct", member);
        let signal = |member| btf.offset("signal_struct", member);
        let mut counts = [(0, 0); 7];
        for (to, (of_task, of_group)) in counts.iter_mut().zip(COUNTS) {
            *to = (task(of_task)?, signal(of_group)?);
        }
        Ok(TaskOffsets {
            seq: btf.offset("bpf_iter_meta", "seq")?,
            signal: task("signal")?,
            tgid: task("tgid")?,
            pid: task("pid")?,
            counts,
            run_delay: task("sched_info.run_delay")?,
            start: task("start_boottime")?,
            comm: task("comm")?,
            mm: task("mm")?,
            pages: pages(btf)?,
            parent: task("real_parent")?,
            cred: task("real_cred")?,
            euid: btf.offset("cred", "euid")?,
            threads: signal("nr_threads")?,
            // Renamed by Linux 5.14.
            state: task("__state").or_else(|_| task("state"))?,
            exit_state: task("exit_state")?,
        })
    }
}

/// Offsets of the page counters in `mm_struct`.
fn pages(btf: &Btf) -> Result<[i16; 3], String> {
    // One number each until Linux 6.2, then a percpu_counter with one global count.
    let (first, step) = match btf.offset("mm_struct", "rss_stat.count") {
        Ok(first) => (first, 8),
        Err(_) => {
            let common = btf.offset("percpu_counter", "count")?;
            (btf.offset("mm_struct", "rss_stat")? + common, btf.size("percpu_counter")?)
        }
    };
    let mut places = [0; 3];
    for (slot, (name, number)) in places.iter_mut().zip(PAGES) {
        let number = btf.enumerator(name).unwrap_or(number);
        let offset = i64::from(number) * i64::from(step) + i64::from(first);
        *slot = i16::try_from(offset).map_err(|_| format!("offset of {name} exceeds 16 bits"))?;
    }
    Ok(places)
}

/// The program.
///
/// ```c
/// int iter_task(struct bpf_iter__task *ctx) {
///     struct task_struct *task = ctx->task;
///     if (!task) return 0;                               // the end
///     struct record r = { .tgid = task->tgid, .pid = task->pid, .utime = task->utime, …, .run_delay = … };
///     if (r.tgid != r.pid) return bpf_seq_write(ctx->meta->seq, &r, 72), 0;
///     r.utime += task->signal->utime; …                  // of threads that ended
///     r.start = task->start_boottime; r.comm = task->comm;
///     r.rss = max(task->mm->rss_stat[MM_FILEPAGES].count, 0) + …;   // no mm: all are 0
///     r.ppid = task->real_parent->tgid; r.uid = task->real_cred->euid.val;
///     r.threads = task->signal->nr_threads; r.state = task->__state | task->exit_state;
///     return bpf_seq_write(ctx->meta->seq, &r, 120), 0;
/// }
/// ```
fn program(fields: &TaskOffsets) -> Vec<Instruction> {
    const BASE: i16 = -(LEADER_BYTES as i16);
    let mut code = Assembler::default();
    let [end, leader, write] = [code.label(), code.label(), code.label()];
    let copy = |code: &mut Assembler, width, to: i16, from, offset| {
        code.load(width, R3, from, offset);
        code.store_width(width, R10, BASE + to, R3);
    };
    code.load(AccessWidth::Bits64, R6, R1, 0);
    code.load(AccessWidth::Bits64, R7, R1, 8);
    code.jump_if(JumpCondition::Equal, R7, 0, end);
    code.load(AccessWidth::Bits64, R8, R6, fields.seq);
    code.load(AccessWidth::Bits32, R1, R7, fields.tgid);
    code.store_width(AccessWidth::Bits32, R10, BASE + TGID, R1);
    code.load(AccessWidth::Bits32, R2, R7, fields.pid);
    code.store_width(AccessWidth::Bits32, R10, BASE + PID, R2);
    for (at, (of_task, _)) in (FIRST_COUNT..).step_by(8).zip(fields.counts) {
        copy(&mut code, AccessWidth::Bits64, at, R7, of_task);
    }
    copy(&mut code, AccessWidth::Bits64, RUN_DELAY, R7, fields.run_delay);
    code.immediate(AluOperation::Move, R5, THREAD_BYTES as i32);
    code.jump(JumpCondition::Equal, R1, R2, leader);
    code.jump_always(write);
    code.bind(leader);
    code.load(AccessWidth::Bits64, R9, R7, fields.signal);
    for (at, (_, of_group)) in (FIRST_COUNT..).step_by(8).zip(fields.counts) {
        code.load(AccessWidth::Bits64, R3, R10, BASE + at);
        code.load(AccessWidth::Bits64, R4, R9, of_group);
        code.register(AluOperation::Add, R3, R4);
        code.store(R10, BASE + at, R3);
    }
    copy(&mut code, AccessWidth::Bits64, START, R7, fields.start);
    copy(&mut code, AccessWidth::Bits64, COMM, R7, fields.comm);
    copy(&mut code, AccessWidth::Bits64, COMM + 8, R7, fields.comm + 8);
    code.load(AccessWidth::Bits64, R4, R7, fields.mm);
    code.immediate(AluOperation::Move, R2, 0);
    for page in fields.pages {
        let is_less = code.label();
        code.load(AccessWidth::Bits64, R3, R4, page);
        code.jump_if(JumpCondition::SignedLess, R3, 0, is_less);
        code.register(AluOperation::Add, R2, R3);
        code.bind(is_less);
    }
    code.store(R10, BASE + RSS, R2);
    code.load(AccessWidth::Bits64, R4, R7, fields.parent);
    copy(&mut code, AccessWidth::Bits32, PPID, R4, fields.tgid);
    code.load(AccessWidth::Bits64, R4, R7, fields.cred);
    copy(&mut code, AccessWidth::Bits32, UID, R4, fields.euid);
    copy(&mut code, AccessWidth::Bits32, THREADS, R9, fields.threads);
    code.load(AccessWidth::Bits32, R3, R7, fields.state);
    code.load(AccessWidth::Bits32, R4, R7, fields.exit_state);
    code.register(AluOperation::Or, R3, R4);
    code.store_width(AccessWidth::Bits32, R10, BASE + STATE, R3);
    code.immediate(AluOperation::Move, R5, LEADER_BYTES as i32);
    code.bind(write);
    code.register(AluOperation::Move, R1, R8);
    code.register(AluOperation::Move, R2, R10);
    code.immediate(AluOperation::Add, R2, BASE.into());
    code.register(AluOperation::Move, R3, R5);
    code.call(HelperFunction::SeqWrite);
    code.bind(end);
    code.exit();
    code.finish()
}

/// Attached BPF task iterator.
#[derive(Debug)]
pub(super) struct TaskIterator {
    iterator: BpfIterator,
    buffer: Vec<u8>,
    totals: ThreadTotals,
}

impl TaskIterator {
    /// Loads and attaches the program.
    pub(super) fn start(btf: &Btf) -> Result<TaskIterator, String> {
        let code = program(&TaskOffsets::find(btf)?);
        let iterator = BpfIterator::start("topdeck_tasks", btf.function(FUNCTION)?, &code)?;
        Ok(TaskIterator { iterator, buffer: vec![0; READ_BYTES], totals: ThreadTotals::default() })
    }

    /// Iterator whose reads fail.
    #[cfg(test)]
    pub(super) fn failing() -> TaskIterator {
        use std::fs::File;
        TaskIterator {
            iterator: BpfIterator::failing(File::open("/dev/null").unwrap()),
            buffer: vec![0; READ_BYTES],
            totals: ThreadTotals::default(),
        }
    }

    /// Reads all processes into `rows`.
    pub(super) fn read(&mut self, rows: &mut Vec<ProcessRow>) -> io::Result<()> {
        rows.clear();
        self.totals.clear();
        let mut tasks = self.iterator.read()?;
        let mut filled = 0;
        loop {
            let length = match tasks.read(&mut self.buffer[filled..]) {
                Ok(0) if filled == 0 => break,
                Ok(0) => {
                    return Err(io::Error::other(format!(
                        "BPF iterator returned a truncated record ({filled} bytes)"
                    )));
                }
                Ok(length) => filled + length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let length_used = self.totals.consume(&self.buffer[..length], rows);
            self.buffer.copy_within(length_used..length, 0);
            filled = length - length_used;
        }
        self.totals.finish(rows);
        Ok(())
    }
}

/// Sums thread records into process rows.
#[derive(Debug, Default)]
struct ThreadTotals {
    /// Run time measured by the scheduler, by row.
    runtimes: Vec<u64>,
    /// Threads read before their leader, whose PID is greater if PIDs wrapped around.
    orphans: Vec<ThreadRecord>,
}

/// Record of a thread.
#[derive(Clone, Copy, Debug)]
struct ThreadRecord {
    tgid: u32,
    counts: [u64; COUNTS.len()],
    run_delay: u64,
}

impl ThreadTotals {
    fn clear(&mut self) {
        self.runtimes.clear();
        self.orphans.clear();
    }

    /// Decodes all complete records and returns their size in bytes.
    fn consume(&mut self, bytes: &[u8], rows: &mut Vec<ProcessRow>) -> usize {
        let mut rest = bytes;
        while let Some(record) = rest.first_chunk::<THREAD_BYTES>() {
            let thread = ThreadRecord {
                tgid: u32_at(record, TGID),
                counts: std::array::from_fn(|i| u64_at(record, FIRST_COUNT + 8 * i as i16)),
                run_delay: u64_at(record, RUN_DELAY),
            };
            if u32_at(record, PID) != thread.tgid {
                self.add(&thread, rows);
                rest = &rest[THREAD_BYTES..];
                continue;
            }
            let Some((record, further)) = rest.split_first_chunk::<LEADER_BYTES>() else { break };
            rows.push(decode_leader(record));
            self.runtimes.push(0);
            add(&thread, rows.last_mut(), self.runtimes.last_mut());
            rest = further;
        }
        bytes.len() - rest.len()
    }

    fn add(&mut self, thread: &ThreadRecord, rows: &mut [ProcessRow]) {
        // A thread usually follows its leader. Rows are sorted by PID, as tasks are.
        let at = match rows.last() {
            Some(last) if last.pid == thread.tgid => Ok(rows.len() - 1),
            _ => rows.binary_search_by_key(&thread.tgid, |row| row.pid),
        };
        match at {
            Ok(at) => add(thread, rows.get_mut(at), self.runtimes.get_mut(at)),
            Err(_) => self.orphans.push(*thread),
        }
    }

    fn finish(&mut self, rows: &mut [ProcessRow]) {
        for thread in std::mem::take(&mut self.orphans) {
            // A thread without a leader exited with it during the scrape.
            if let Ok(at) = rows.binary_search_by_key(&thread.tgid, |row| row.pid) {
                add(&thread, rows.get_mut(at), self.runtimes.get_mut(at));
            }
        }
        for (row, &runtime) in rows.iter_mut().zip(&self.runtimes) {
            (row.user_ns, row.system_ns) = split_cpu_time(row.user_ns, row.system_ns, runtime);
        }
    }
}

fn add(thread: &ThreadRecord, row: Option<&mut ProcessRow>, runtime: Option<&mut u64>) {
    let (Some(row), Some(runtime)) = (row, runtime) else { return };
    let [user, system, ran, voluntary, involuntary, minor, major] = thread.counts;
    let grow = |sum: &mut u64, by: u64| *sum = sum.wrapping_add(by);
    let add_reported = |sum: &mut Option<u64>, by: u64| grow(sum.get_or_insert(0), by);
    grow(runtime, ran);
    grow(&mut row.user_ns, user);
    grow(&mut row.system_ns, system);
    grow(&mut row.minor_faults, minor);
    grow(&mut row.major_faults, major);
    add_reported(&mut row.voluntary_switches, voluntary);
    add_reported(&mut row.involuntary_switches, involuntary);
    add_reported(&mut row.run_delay_ns, thread.run_delay);
}

/// Decodes a leader's row without its counts.
fn decode_leader(record: &[u8; LEADER_BYTES]) -> ProcessRow {
    let page = rustix::param::page_size() as u64;
    let mut comm = [0; 16];
    comm.copy_from_slice(&record[COMM as usize..][..16]);
    ProcessRow {
        pid: u32_at(record, TGID),
        ppid: u32_at(record, PPID),
        uid: u32_at(record, UID),
        threads: u32_at(record, THREADS),
        start: u64_at(record, START) / tick_ns(),
        comm,
        state: state_letter(u32_at(record, STATE)),
        rss_bytes: u64_at(record, RSS).saturating_mul(page),
        ..ProcessRow::default()
    }
}

fn u32_at(record: &[u8], at: i16) -> u32 {
    let bytes = record.get(at as usize..).and_then(|bytes| bytes.first_chunk());
    u32::from_le_bytes(*bytes.expect("BUG: a field outside its record"))
}

fn u64_at(record: &[u8], at: i16) -> u64 {
    let bytes = record.get(at as usize..).and_then(|bytes| bytes.first_chunk());
    u64::from_le_bytes(*bytes.expect("BUG: a field outside its record"))
}

/// State letter. Source: kernel, include/linux/sched.h (`task_state_index`), fs/proc/array.c.
fn state_letter(state: u32) -> u8 {
    const REPORTED: u32 = 0x7f;
    const UNINTERRUPTIBLE: u32 = 0x02;
    /// Uninterruptible sleep that does not count as load (`TASK_IDLE`).
    const IDLE: u32 = 0x402;
    /// Waits for a lock of an RT kernel, or is frozen.
    const LIKE_UNINTERRUPTIBLE: u32 = 0x1000 | 0x8000;
    if state & IDLE == IDLE {
        return b'I';
    }
    let like = if state & LIKE_UNINTERRUPTIBLE != 0 { UNINTERRUPTIBLE } else { 0 };
    let index = 32 - (state & REPORTED | like).leading_zeros();
    b"RSDTtXZP"[index as usize]
}

/// Splits the scheduler's run time in the ratio of the ticks.
fn split_cpu_time(user: u64, system: u64, runtime: u64) -> (u64, u64) {
    if system == 0 {
        return (runtime, 0);
    }
    let ticks = u128::from(user) + u128::from(system);
    let system = u128::from(runtime) * u128::from(system) / ticks;
    // A part of `runtime`, so it fits in 64 bits.
    let system = system as u64;
    (runtime - system, system)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_interpreter::BpfInterpreter;

    const META: u64 = 5 << 32;
    const TASK: u64 = 6 << 32;
    const SIGNAL: u64 = 7 << 32;
    const MM: u64 = 8 << 32;
    const PARENT: u64 = 9 << 32;
    const CRED: u64 = 10 << 32;
    const FIELDS: TaskOffsets = TaskOffsets {
        seq: 0,
        signal: 1848,
        tgid: 1268,
        pid: 1264,
        counts: [
            (1488, 432),
            (1496, 440),
            (200, 672),
            (1536, 504),
            (1544, 512),
            (1568, 536),
            (1576, 544),
        ],
        run_delay: 1016,
        start: 1560,
        comm: 1752,
        mm: 1136,
        pages: [968, 1008, 1088],
        parent: 1280,
        cred: 1728,
        euid: 24,
        threads: 8,
        state: 24,
        exit_state: 1160,
    };

    /// Fields of a task; counts are `number`, twice that, and so on.
    fn task(pid: u64, tgid: u64, mm: u64, number: u64) -> Vec<(i16, u64)> {
        let mut fields = vec![
            (FIELDS.signal, SIGNAL),
            (FIELDS.tgid, tgid),
            (FIELDS.pid, pid),
            (FIELDS.run_delay, 8 * number),
            (FIELDS.start, 1_234 * tick_ns() + 1),
            (FIELDS.comm, u64::from_le_bytes(*b"a name o")),
            (FIELDS.comm + 8, u64::from_le_bytes(*b"f fifte\0")),
            (FIELDS.mm, mm),
            (FIELDS.parent, PARENT),
            (FIELDS.cred, CRED),
            (FIELDS.state, 1),
        ];
        fields.extend(FIELDS.counts.iter().zip(1..).map(|(count, i)| (count.0, i * number)));
        fields
    }

    /// Record that the program writes for a task.
    fn record(fields: &[(i16, u64)]) -> Vec<u8> {
        let mut machine = BpfInterpreter::new(1);
        machine.put(META, &[(FIELDS.seq, 77)]);
        machine.put(TASK, fields);
        let mut signal: Vec<_> =
            FIELDS.counts.iter().zip(1..).map(|(count, i)| (count.1, 100_000 * i)).collect();
        signal.push((FIELDS.threads, 2));
        machine.put(SIGNAL, &signal);
        let below_zero = -3i64 as u64;
        let [file, anonymous, shared] = FIELDS.pages;
        machine.put(MM, &[(file, 10), (anonymous, 20), (shared, below_zero)]);
        machine.put(PARENT, &[(FIELDS.tgid, 7)]);
        machine.put(CRED, &[(FIELDS.euid, 1_000)]);
        machine.run(&program(&FIELDS), &[META, TASK]);
        machine.output.concat()
    }

    #[track_caller]
    fn rows_of(bytes: &[u8]) -> Vec<ProcessRow> {
        let (mut rows, mut sums) = (Vec::new(), ThreadTotals::default());
        assert_eq!(sums.consume(bytes, &mut rows), bytes.len());
        sums.finish(&mut rows);
        rows
    }

    #[test]
    fn a_process_is_the_sum_of_its_threads() {
        let leader = record(&task(42, 42, MM, 1));
        let thread = record(&task(43, 42, MM, 1_000));
        assert_eq!((leader.len(), thread.len()), (LEADER_BYTES, THREAD_BYTES));
        // The ratio of ticks is 1 to 2; run time is 3 times 100,000, 1,000 and 1.
        let runtime = 3 * 101_001;
        let expected = ProcessRow {
            pid: 42,
            ppid: 7,
            uid: 1_000,
            threads: 2,
            start: 1_234,
            comm: *b"a name of fifte\0",
            state: b'S',
            user_ns: runtime / 3,
            system_ns: runtime / 3 * 2,
            minor_faults: 6 * 101_001,
            major_faults: 7 * 101_001,
            rss_bytes: 30 * rustix::param::page_size() as u64,
            voluntary_switches: Some(4 * 101_001),
            involuntary_switches: Some(5 * 101_001),
            run_delay_ns: Some(8 * 1_001),
        };
        assert_eq!(rows_of(&[&leader[..], &thread].concat()), [expected]);
        // PIDs wrapped around: the thread's PID is less than its leader's.
        assert_eq!(rows_of(&[&thread[..], &leader].concat()), [expected]);
        assert_eq!(rows_of(&thread), [], "its leader has ended");
    }

    #[test]
    fn a_thread_of_the_kernel_has_no_memory() {
        let rows = rows_of(&record(&task(2, 2, 0, 1)));
        assert_eq!(rows[0].rss_bytes, 0);
    }

    #[test]
    fn truncated_records_end_the_read() {
        let mut machine = BpfInterpreter::new(1);
        machine.run(&program(&FIELDS), &[META, 0]);
        assert!(machine.output.is_empty());
    }

    #[test]
    fn arbitrary_records_do_not_panic() {
        let whole = [record(&task(42, 42, MM, 1)), record(&task(43, 42, MM, 9))].concat();
        for cut in 0..whole.len() {
            let (mut rows, mut sums) = (Vec::new(), ThreadTotals::default());
            let taken = sums.consume(&whole[..cut], &mut rows);
            assert!(taken <= cut && cut - taken < LEADER_BYTES, "{cut}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let (mut rows, mut sums) = (Vec::new(), ThreadTotals::default());
                sums.consume(&changed, &mut rows);
                sums.finish(&mut rows);
            }
        }
        rows_of(&[0xff; LEADER_BYTES]);
    }

    #[test]
    fn states_have_their_letters() {
        let states = [0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x402, 0x1000, 0x8002, 0x21, u32::MAX];
        let letters = states.map(state_letter);
        assert_eq!(letters.escape_ascii().to_string(), "RSDTtXZPIDDZI");
    }

    #[test]
    fn cpu_time_is_split_by_ticks() {
        assert_eq!(split_cpu_time(0, 0, 5), (5, 0));
        assert_eq!(split_cpu_time(10, 0, 5), (5, 0));
        assert_eq!(split_cpu_time(0, 10, 5), (0, 5));
        assert_eq!(split_cpu_time(30, 10, 1_000), (750, 250));
        assert_eq!(split_cpu_time(u64::MAX, u64::MAX, u64::MAX), (u64::MAX / 2 + 1, u64::MAX / 2));
    }
}
