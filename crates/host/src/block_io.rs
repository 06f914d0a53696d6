//! Block I/O latency by device and operation, measured by a BPF program at `block_rq_complete`.
//!
//! Total is from the allocation of the request to its completion (`start_time_ns`: queue and
//! device), device from when it was given to the driver (`io_start_time_ns`: set where the kernel
//! keeps queue statistics). Both in nanoseconds of the monotonic clock. A request counts once, as
//! in `/proc/diskstats`: not when a part of it completes, and not for the steps of a flush within
//! it. Devices whose driver takes no requests (device mapper, RAID, zram) have none here; what lies
//! below them has.
//!
//! The map's value, in words of 8 bytes:
//!
//! ```text
//! 0        requests of devices for which there was no slot
//! 8        keys, one a slot: 0, or major << 20 | minor, plus 1
//! 8 + s    cells: for each slot the five operations, for each operation
//!          0 errors   1 without start   2 sum total   3 sum device   8 buckets total   1,224 buckets device
//! ```
//!
//! Measured with the kernel's own statistics (`kernel.bpf_stats_enabled`): see docs/host.md.
//! Source: kernel, block/blk-mq.c (`blk_update_request`), block/blk-flush.c,
//! include/trace/events/block.h.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use bpf::{
    AccessWidth, AluOperation, Assembler, BpfProgram, Btf, HelperFunction, Instruction,
    JumpCondition, JumpLabel, MapCells,
};
use serde::Deserialize;

use crate::bpf_grid::{self as grid, AtomicMode, BUCKETS, GridCounts};
use crate::error::Result;
use crate::metric::RowReporter;
use crate::metrics;
use crate::source::{HostSource, Opening, SourceSettings, report_cost};

/// Operations, in the order of their cells.
pub(crate) const OPERATIONS: [&str; 5] = ["read", "write", "flush", "discard", "other"];
/// Value of the label `program`.
pub(crate) const PROGRAM: &str = "block_io";
const TRACEPOINT: &str = "block_rq_complete";
/// Words before the keys.
const HEAD: usize = 8;
/// Words per operation.
const OPERATION: usize = 8 + 2 * BUCKETS;
/// Words per slot.
const SLOT: usize = OPERATIONS.len() * OPERATION;
const ERRORS: usize = 0;
const WITHOUT_START: usize = 1;
const SUM_TOTAL: usize = 2;
const SUM_DEVICE: usize = 3;
const TOTAL: usize = 8;
const DEVICE: usize = TOTAL + BUCKETS;
/// Slots probed for a device before the request is counted as `no_slot`.
const PROBES: usize = 8;
/// Bounds of the number of device slots, which is twice the number of block devices. A slot takes
/// 97 KiB of kernel memory.
const SLOTS_MIN: usize = 16;
const SLOTS_MAX: usize = 256;
/// `RQF_FLUSH_SEQ` before Linux 6.11, where it was a macro and not an enumerator.
const FLUSH_SEQUENCE_OLD: u32 = 4;

/// Kernel struct offsets used by the block I/O program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockIoOffsets {
    data_len: i16,
    cmd_flags: i16,
    rq_flags: i16,
    start: i16,
    io_start: i16,
    disk: DiskPath,
    major: i16,
    first_minor: i16,
    /// Flag of a request that is part of a flush sequence (`RQF_FLUSH_SEQ`).
    flush_sequence: u32,
}

/// Pointer path from a request to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskPath {
    /// By the request queue.
    Queue { queue: i16, disk: i16 },
    /// Directly, before Linux 5.17.
    Disk(i16),
}

impl BlockIoOffsets {
    fn find(btf: &Btf) -> Result<BlockIoOffsets, String> {
        let of = |member| btf.offset("request", member);
        let disk = match (of("rq_disk"), of("q"), btf.offset("request_queue", "disk")) {
            (Ok(disk), ..) => DiskPath::Disk(disk),
            (_, queue, disk) => DiskPath::Queue { queue: queue?, disk: disk? },
        };
        Ok(BlockIoOffsets {
            data_len: of("__data_len")?,
            cmd_flags: of("cmd_flags")?,
            rq_flags: of("rq_flags")?,
            start: of("start_time_ns")?,
            io_start: of("io_start_time_ns")?,
            disk,
            major: btf.offset("gendisk", "major")?,
            first_minor: btf.offset("gendisk", "first_minor")?,
            flush_sequence: btf.enumerator("__RQF_FLUSH_SEQ").unwrap_or(FLUSH_SEQUENCE_OLD).min(30),
        })
    }
}

/// The program, with the map's descriptor.
///
/// ```c
/// int block_rq_complete(struct request *rq, blk_status_t error, unsigned int nr_bytes) {
///     if ((u32)nr_bytes < rq->__data_len) return 0;             // more of it is to come
///     op = rq->cmd_flags & 0xff;
///     if (op != REQ_OP_FLUSH && (rq->rq_flags & RQF_FLUSH_SEQ)) return 0;   // its end is to come
///     op = op <= 3 ? op : op == REQ_OP_ZONE_APPEND || op == REQ_OP_WRITE_ZEROES ? WRITE : OTHER;
///     key = ((u64)rq->q->disk->major << 20 | rq->q->disk->first_minor) + 1;
///     for (i = 0, slot = key * 0x61c88647 >> 16; i < PROBES; i++, slot++)   // unrolled
///         if (keys[slot %= SLOTS] == key || (old = cmpxchg(&keys[slot], 0, key)) == 0 || old == key)
///             goto found;
///     no_slot++; return 0;
/// found:
///     cells = &value[slot][op];
///     if ((u8)error) cells->errors++;
///     now = bpf_ktime_get_ns();
///     if (!rq->start_time_ns) cells->without_start++;
///     else record(&cells->total, max(now - rq->start_time_ns, 0));
///     if (rq->io_start_time_ns) record(&cells->device, max(now - rq->io_start_time_ns, 0));
///     return 0;
/// }
/// ```
fn program(fields: &BlockIoOffsets, slots: usize, map: i32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let end = code.label();
    code.load(AccessWidth::Bits64, R6, R1, 0);
    code.load(AccessWidth::Bits64, R8, R1, 8);
    code.load(AccessWidth::Bits64, R2, R1, 16);
    operation(&mut code, fields, end);
    device_key(&mut code, fields);
    slot(&mut code, slots, map, end);
    // `r7` = cells of the operation.
    code.immediate(AluOperation::Multiply, R5, OPERATIONS.len() as i32);
    code.register(AluOperation::Add, R5, R9);
    code.immediate(AluOperation::Multiply, R5, 8 * OPERATION as i32);
    code.immediate(AluOperation::Add, R7, 8 * (HEAD + slots) as i32);
    code.register(AluOperation::Add, R7, R5);
    let no_error = code.label();
    code.immediate(AluOperation::And, R8, 0xff);
    code.jump_if(JumpCondition::Equal, R8, 0, no_error);
    code.immediate(AluOperation::Move, R2, 1);
    code.atomic_add(R7, 8 * ERRORS as i16, R2);
    code.bind(no_error);
    code.call(HelperFunction::KtimeGetNs);
    code.register(AluOperation::Move, R8, R0);
    let without_start = code.label();
    let device = code.label();
    code.load(AccessWidth::Bits64, R1, R6, fields.start);
    code.jump_if(JumpCondition::Equal, R1, 0, without_start);
    emit_elapsed(&mut code, R1);
    grid::record(&mut code, AtomicMode::Atomic, 8 * TOTAL as i16, 8 * SUM_TOTAL as i16);
    code.jump_always(device);
    code.bind(without_start);
    code.immediate(AluOperation::Move, R2, 1);
    code.atomic_add(R7, 8 * WITHOUT_START as i16, R2);
    code.bind(device);
    code.load(AccessWidth::Bits64, R1, R6, fields.io_start);
    code.jump_if(JumpCondition::Equal, R1, 0, end);
    emit_elapsed(&mut code, R1);
    grid::record(&mut code, AtomicMode::Atomic, 8 * DEVICE as i16, 8 * SUM_DEVICE as i16);
    code.bind(end);
    code.exit();
    code.finish()
}

/// Emits: `r9` = index of the operation; jumps to `end` if the request must not be counted now.
fn operation(code: &mut Assembler, fields: &BlockIoOffsets, end: JumpLabel) {
    let [counts, known, write] = [code.label(), code.label(), code.label()];
    code.load(AccessWidth::Bits32, R3, R6, fields.data_len);
    // The argument has 32 bits; the upper half of the register is undefined.
    code.immediate(AluOperation::ShiftLeft, R2, 32);
    code.immediate(AluOperation::ShiftRight, R2, 32);
    code.jump(JumpCondition::Less, R2, R3, end);
    code.load(AccessWidth::Bits32, R9, R6, fields.cmd_flags);
    code.immediate(AluOperation::And, R9, 0xff);
    code.jump_if(JumpCondition::Equal, R9, 2, counts);
    code.load(AccessWidth::Bits32, R3, R6, fields.rq_flags);
    code.jump_if(JumpCondition::AnyBitSet, R3, 1 << fields.flush_sequence, end);
    code.bind(counts);
    code.jump_if(JumpCondition::AtMost, R9, 3, known);
    code.jump_if(JumpCondition::Equal, R9, 7, write);
    code.jump_if(JumpCondition::Equal, R9, 9, write);
    code.immediate(AluOperation::Move, R9, 4);
    code.jump_always(known);
    code.bind(write);
    code.immediate(AluOperation::Move, R9, 1);
    code.bind(known);
}

/// Emits: `r3` = key of the device.
fn device_key(code: &mut Assembler, fields: &BlockIoOffsets) {
    match fields.disk {
        DiskPath::Queue { queue, disk } => {
            code.load(AccessWidth::Bits64, R2, R6, queue);
            code.load(AccessWidth::Bits64, R2, R2, disk);
        }
        DiskPath::Disk(disk) => code.load(AccessWidth::Bits64, R2, R6, disk),
    }
    code.load(AccessWidth::Bits32, R3, R2, fields.major);
    code.load(AccessWidth::Bits32, R4, R2, fields.first_minor);
    code.immediate(AluOperation::ShiftLeft, R3, 20);
    code.register(AluOperation::Or, R3, R4);
    code.immediate(AluOperation::Add, R3, 1);
}

/// Emits: `r5` = index of the slot with the key in `r3`, `r7` = the map's value; jumps to `end` if
/// there is no slot.
fn slot(code: &mut Assembler, slots: usize, map: i32, end: JumpLabel) {
    let mask = slots as i32 - 1;
    let found = code.label();
    code.map_value(R7, map, 0);
    code.register(AluOperation::Move, R5, R3);
    code.immediate(AluOperation::Multiply, R5, 0x61c8_8647);
    code.immediate(AluOperation::ShiftRight, R5, 16);
    for _ in 0..PROBES {
        let next = code.label();
        code.immediate(AluOperation::And, R5, mask);
        code.register(AluOperation::Move, R4, R5);
        code.immediate(AluOperation::ShiftLeft, R4, 3);
        code.register(AluOperation::Add, R4, R7);
        code.load(AccessWidth::Bits64, R0, R4, 8 * HEAD as i16);
        code.jump(JumpCondition::Equal, R0, R3, found);
        code.jump_if(JumpCondition::NotEqual, R0, 0, next);
        code.compare_exchange(R4, 8 * HEAD as i16, R3);
        code.jump_if(JumpCondition::Equal, R0, 0, found);
        code.jump(JumpCondition::Equal, R0, R3, found);
        code.bind(next);
        code.immediate(AluOperation::Add, R5, 1);
    }
    code.immediate(AluOperation::Move, R2, 1);
    code.atomic_add(R7, 0, R2);
    code.jump_always(end);
    code.bind(found);
}

/// Emits: `r2` = `r8` minus the earlier time, at least 0.
fn emit_elapsed(code: &mut Assembler, earlier: bpf::Register) {
    let forwards = code.label();
    code.register(AluOperation::Move, R2, R8);
    code.register(AluOperation::Subtract, R2, earlier);
    code.jump_if(JumpCondition::SignedAtLeast, R2, 0, forwards);
    code.immediate(AluOperation::Move, R2, 0);
    code.bind(forwards);
}

/// Latency kind: total or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BlockIoLatency {
    /// From request allocation to completion.
    Total,
    /// From dispatch to the driver to completion.
    Device,
}

/// Counts of one device and operation since the last commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeviceDelta {
    pub(crate) device: String,
    pub(crate) operation: &'static str,
    /// Since the last commit.
    pub(crate) times: Vec<(BlockIoLatency, hist::Histogram)>,
    /// Since the program was attached.
    pub(crate) errors: u64,
    pub(crate) without_start: u64,
}

/// Committed counts of one device and operation.
#[derive(Clone, Debug, Default)]
struct OperationCounts {
    total: GridCounts,
    device: GridCounts,
}

/// Block device by name.
#[derive(Clone, Debug, Default)]
struct BlockDevice {
    name: String,
    /// Errors of an earlier device with the same device number, by operation.
    errors_of_previous: [u64; OPERATIONS.len()],
}

/// Reads and commits the program's counts.
#[derive(Debug, Default)]
pub(crate) struct BlockIoReader {
    devices: HashMap<u64, BlockDevice>,
    committed: HashMap<(usize, usize), OperationCounts>,
    pending: HashMap<(usize, usize), OperationCounts>,
}

impl BlockIoReader {
    /// Counts of one slot since the last commit. The slot belongs to the device with that key;
    /// `name` returns the current name of the device, if the device exists.
    fn read(
        &mut self,
        slot: usize,
        key: u64,
        name: Option<String>,
        cells: &[AtomicU64],
    ) -> Vec<DeviceDelta> {
        let mut all = Vec::new();
        let cells: Vec<&[AtomicU64]> = cells.chunks_exact(OPERATION).collect();
        let errors = |number: usize| cells[number][ERRORS].load(Ordering::Relaxed);
        let name = name.or_else(|| Some(self.devices.get(&key)?.name.clone()));
        let name = name.unwrap_or_else(|| format!("{}:{}", major(key), minor(key)));
        let device = self
            .devices
            .entry(key)
            .or_insert_with(|| BlockDevice { name: name.clone(), ..BlockDevice::default() });
        if device.name != name {
            // The kernel reuses device numbers: later counts belong to another device.
            *device = BlockDevice { name, errors_of_previous: std::array::from_fn(errors) };
        }
        for (number, operation) in OPERATIONS.into_iter().enumerate() {
            let cells = cells[number];
            let [without_start, sum] =
                [WITHOUT_START, SUM_TOTAL].map(|at| cells[at].load(Ordering::Relaxed));
            if errors(number) | without_start | sum == 0 {
                continue;
            }
            let mut now = OperationCounts::default();
            now.total.add(&cells[TOTAL..DEVICE], &cells[SUM_TOTAL]);
            now.device.add(&cells[DEVICE..], &cells[SUM_DEVICE]);
            let before = self.committed.entry((slot, number)).or_default();
            let times = [
                (BlockIoLatency::Total, now.total.since(&before.total)),
                (BlockIoLatency::Device, now.device.since(&before.device)),
            ];
            let times =
                times.into_iter().filter_map(|(part, times)| Some((part, times?))).collect();
            self.pending.insert((slot, number), now);
            let errors = errors(number).saturating_sub(device.errors_of_previous[number]);
            all.push(DeviceDelta {
                device: device.name.clone(),
                operation,
                times,
                errors,
                without_start,
            });
        }
        all
    }

    /// Commits the last scrape: the next one counts from there.
    fn commit(&mut self) {
        self.committed.extend(self.pending.drain());
    }
}

/// Attached block I/O program.
#[derive(Debug)]
pub(crate) struct BlockIo {
    program: BpfProgram,
    /// Words before the slots.
    head: MapCells,
    /// Mapped cells of slots that have a device.
    slots: HashMap<usize, MapCells>,
    reader: BlockIoReader,
}

impl BlockIo {
    /// Loads and attaches the program.
    pub(crate) fn start(btf: &Btf) -> Result<BlockIo, String> {
        let fields = BlockIoOffsets::find(btf)?;
        let devices = std::fs::read_dir("/sys/block").map_or(0, Iterator::count);
        let slots = (2 * devices).next_power_of_two().clamp(SLOTS_MIN, SLOTS_MAX);
        let words = HEAD + slots + slots * SLOT;
        let make = |map| program(&fields, slots, map);
        let program = BpfProgram::start("topdeck_block", words, btf.tracepoint(TRACEPOINT)?, make)?;
        let head = program.cells(0..HEAD + slots)?;
        Ok(BlockIo { program, head, slots: HashMap::new(), reader: BlockIoReader::default() })
    }

    /// Counts since the last commit.
    fn counted(&mut self) -> Result<Vec<DeviceDelta>, String> {
        let mut found = Vec::new();
        let keys = &self.head[HEAD..];
        for (slot, key) in keys.iter().enumerate() {
            let key = key.load(Ordering::Relaxed);
            if key == 0 {
                continue;
            }
            let cells = match self.slots.entry(slot) {
                Entry::Occupied(held) => held.into_mut(),
                Entry::Vacant(free) => {
                    let at = HEAD + keys.len() + slot * SLOT;
                    free.insert(self.program.cells(at..at + SLOT)?)
                }
            };
            found.extend(self.reader.read(slot, key, device_name(key), cells));
        }
        Ok(found)
    }

    /// Requests of devices without a slot.
    fn untracked_devices(&self) -> u64 {
        self.head[0].load(Ordering::Relaxed)
    }
}

/// Settings of block I/O latency.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BlockIoSettings {
    /// Block I/O latency per device and operation, by BPF; needs root. If BPF is unavailable, the
    /// sums of `/proc/diskstats` are reported with the reason: true.
    block_io: bool,
}

impl Default for BlockIoSettings {
    fn default() -> BlockIoSettings {
        BlockIoSettings { block_io: true }
    }
}

impl SourceSettings for BlockIoSettings {
    const KEYS: &'static [&'static str] = &["block_io"];

    fn is_enabled(&self) -> bool {
        self.block_io
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        if !self.block_io {
            return Ok(None);
        }
        let otherwise = "block I/O latency distributions unavailable; sums and means only";
        let started = opening.start(PROGRAM, otherwise, BlockIo::start);
        Ok(started.map(|source| -> Box<dyn HostSource> { Box::new(source) }))
    }
}

impl HostSource for BlockIo {
    fn read(&mut self, report: &mut RowReporter<'_>, began: i64) -> u64 {
        let Ok(all) = self.counted() else {
            // Mapping the cells failed (no memory): the next scrape includes these counts.
            return 1;
        };
        let mut untimed = 0;
        for found in all {
            let labels = [("device", found.device.as_str()), ("operation", found.operation)];
            for (part, times) in found.times {
                let metric = match part {
                    BlockIoLatency::Total => &metrics::BLOCK_IO_LATENCY,
                    BlockIoLatency::Device => &metrics::BLOCK_IO_DEVICE_LATENCY,
                };
                report.distribution(metric, &labels, times);
            }
            report.count(&metrics::BLOCK_IO_ERRORS, &labels, began, found.errors);
            untimed += found.without_start;
        }
        for (reason, count) in [("no_start", untimed), ("no_slot", self.untracked_devices())] {
            report.count(&metrics::BLOCK_IO_UNMEASURED, &[("reason", reason)], began, count);
        }
        report_cost(report, PROGRAM, began, self.program.stats());
        0
    }

    fn commit(&mut self) {
        self.reader.commit();
    }
}

fn major(key: u64) -> u64 {
    (key - 1) >> 20
}

fn minor(key: u64) -> u64 {
    (key - 1) & 0xf_ffff
}

/// Name of the device with that key, if the device exists.
fn device_name(key: u64) -> Option<String> {
    let link = std::fs::read_link(format!("/sys/dev/block/{}:{}", major(key), minor(key))).ok()?;
    Some(link.file_name()?.to_str()?.replace('!', "/"))
}

#[cfg(test)]
#[path = "block_io/tests.rs"]
mod tests;
