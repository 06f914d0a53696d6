//! Tests of the program on synthetic requests: which requests count, how often and where.

use super::*;
use crate::bpf_interpreter::BpfInterpreter;

const REQUEST: u64 = 5 << 32;
const QUEUE: u64 = 6 << 32;
const DISK: u64 = 7 << 32;
const SLOTS: usize = 16;
const FIELDS: BlockIoOffsets = BlockIoOffsets {
    data_len: 44,
    cmd_flags: 24,
    rq_flags: 28,
    start: 104,
    io_start: 112,
    disk: DiskPath::Queue { queue: 0, disk: 104 },
    major: 0,
    first_minor: 4,
    flush_sequence: 1,
};

/// A request that completes at 10^12 ns.
#[derive(Clone, Copy)]
struct BlockRequest {
    operation: u64,
    flags: u64,
    left: u64,
    bytes: u64,
    error: u64,
    minor: u64,
    start: u64,
    io_start: u64,
}

const NOW: u64 = 1_000_000_000_000;
const READ: BlockRequest = BlockRequest {
    operation: 0,
    flags: 0,
    left: 4096,
    bytes: 4096,
    error: 0,
    minor: 0,
    start: NOW - 70_000,
    io_start: NOW - 60_000,
};

fn machine() -> BpfInterpreter {
    let mut machine = BpfInterpreter::new(HEAD + SLOTS + SLOTS * SLOT);
    machine.now = NOW;
    machine
}

fn complete(machine: &mut BpfInterpreter, request: BlockRequest) {
    machine.put(DISK, &[(0, 254), (4, request.minor)]);
    machine.put(QUEUE, &[(104, DISK)]);
    machine.put(
        REQUEST,
        &[
            (0, QUEUE),
            // Flags above the operation are ignored.
            (24, request.operation | 0x800),
            (28, request.flags),
            (44, request.left),
            (104, request.start),
            (112, request.io_start),
        ],
    );
    // Bits above an argument's own width are undefined.
    let arguments = [REQUEST, request.error | 0xabcd << 32, request.bytes | 0x1234 << 32];
    machine.run(&program(&FIELDS, SLOTS, 3), &arguments);
}

/// Reads all slots; `name` maps minor numbers to device names.
fn read_as(
    machine: &BpfInterpreter,
    ledger: &mut BlockIoReader,
    name: fn(u64) -> Option<String>,
) -> Vec<DeviceDelta> {
    let cells: Vec<AtomicU64> = machine.map().into_iter().map(AtomicU64::new).collect();
    let (head, slots) = cells.split_at(HEAD + SLOTS);
    let mut found = Vec::new();
    for (slot, cells) in slots.chunks_exact(SLOT).enumerate() {
        let key = head[HEAD + slot].load(Ordering::Relaxed);
        if key != 0 {
            found.extend(ledger.read(slot, key, name(minor(key)), cells));
        }
    }
    found
}

fn read(machine: &BpfInterpreter, ledger: &mut BlockIoReader) -> Vec<DeviceDelta> {
    read_as(machine, ledger, |_| None)
}

/// Device, operation, number of total and device latencies, errors.
type OperationLine = (String, &'static str, u64, u64, u64);

fn lines(machine: &BpfInterpreter, ledger: &mut BlockIoReader) -> Vec<OperationLine> {
    let count = |found: &DeviceDelta, part| {
        let times = found.times.iter().filter(|times| times.0 == part);
        times.map(|times| times.1.count()).sum()
    };
    let line = |found: DeviceDelta| {
        let (total, device) =
            (count(&found, BlockIoLatency::Total), count(&found, BlockIoLatency::Device));
        (found.device.clone(), found.operation, total, device, found.errors)
    };
    read(machine, ledger).into_iter().map(line).collect()
}

#[track_caller]
fn check(requests: &[BlockRequest], expected: &[(&str, &'static str, u64, u64, u64)]) {
    let mut machine = machine();
    requests.iter().for_each(|&request| complete(&mut machine, request));
    let mut ledger = BlockIoReader::default();
    let mut found = lines(&machine, &mut ledger);
    found.sort();
    let expected: Vec<OperationLine> =
        expected.iter().map(|&(d, o, t, i, e)| (d.to_owned(), o, t, i, e)).collect();
    assert_eq!(found, expected);
}

#[test]
fn each_operation_has_its_own_counts() {
    let of = |operation| BlockRequest { operation, ..READ };
    check(&[READ, READ], &[("254:0", "read", 2, 2, 0)]);
    check(&[of(1)], &[("254:0", "write", 1, 1, 0)]);
    check(&[of(7), of(9)], &[("254:0", "write", 2, 2, 0)]);
    check(&[of(2)], &[("254:0", "flush", 1, 1, 0)]);
    check(&[of(3)], &[("254:0", "discard", 1, 1, 0)]);
    check(&[of(34), of(5)], &[("254:0", "other", 2, 2, 0)]);
}

#[test]
fn a_request_counts_once() {
    let first_part = BlockRequest { left: 8192, ..READ };
    check(&[first_part, READ], &[("254:0", "read", 1, 1, 0)]);
    // A write with a flush: its data, the flush request, and the final completion, which counts the
    // whole request.
    let write = BlockRequest { operation: 1, ..READ };
    let data = BlockRequest { flags: 1 << 1, ..write };
    let flush = BlockRequest { operation: 2, flags: 1 << 1, left: 0, bytes: 0, ..READ };
    let end = BlockRequest { left: 0, bytes: 0, ..write };
    let expected = [("254:0", "flush", 1, 1, 0), ("254:0", "write", 1, 1, 0)];
    check(&[data, flush, end], &expected);
}

#[test]
fn untimed_and_failed_requests_are_counted() {
    let failed = BlockRequest { error: 10, ..READ };
    check(&[failed, READ], &[("254:0", "read", 2, 2, 1)]);
    check(&[BlockRequest { io_start: 0, ..READ }], &[("254:0", "read", 1, 0, 0)]);
    check(&[BlockRequest { start: 0, ..READ }], &[("254:0", "read", 0, 1, 0)]);
}

#[test]
fn times_are_in_their_buckets() {
    let mut machine = machine();
    complete(&mut machine, READ);
    // A clock that runs backwards does not record a huge value.
    complete(
        &mut machine,
        BlockRequest { operation: 1, start: NOW + 5, io_start: NOW + 5, ..READ },
    );
    complete(&mut machine, BlockRequest { operation: 1, ..READ });
    let found = read(&machine, &mut BlockIoReader::default());
    let [(_, total), (_, device)] = found[0].times.as_slice() else { panic!("{found:?}") };
    assert_eq!((total.sum().estimate, device.sum().estimate), (70_000.0, 60_000.0));
    let held =
        |histogram: &hist::Histogram| histogram.cells().next().map(|cell| (cell.lower, cell.upper));
    let (low, high) = held(total).unwrap();
    assert!(low <= 70_000.0 && 70_000.0 <= high && high - low <= 70_000.0 / 32.0, "{low} {high}");
    assert_eq!(found[1].times[0].1.count(), 2);
    assert_eq!(held(&found[1].times[0].1).unwrap().0, 0.0);
}

#[test]
fn devices_have_separate_slots() {
    let mut machine = machine();
    for minor in 0..8 {
        for _ in 0..=minor {
            complete(&mut machine, BlockRequest { minor: 16 * minor, ..READ });
        }
    }
    let mut found = lines(&machine, &mut BlockIoReader::default());
    found.sort_by_key(|line| line.2);
    let expected: Vec<OperationLine> = (0..8)
        .map(|minor| (format!("254:{}", 16 * minor), "read", minor + 1, minor + 1, 0))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(machine.map()[0], 0);
}

#[test]
fn devices_without_slot_are_counted() {
    let mut machine = machine();
    (0..40).for_each(|minor| complete(&mut machine, BlockRequest { minor, ..READ }));
    let found = lines(&machine, &mut BlockIoReader::default());
    assert!(found.len() <= SLOTS && found.len() >= SLOTS / 2);
    assert_eq!(machine.map()[0] + found.len() as u64, 40);
}

#[test]
fn uncommitted_counts_are_read_again() {
    let mut machine = machine();
    let mut ledger = BlockIoReader::default();
    complete(&mut machine, READ);
    assert_eq!(lines(&machine, &mut ledger)[0].2, 1);
    complete(&mut machine, READ);
    assert_eq!(lines(&machine, &mut ledger)[0].2, 2);
    ledger.commit();
    complete(&mut machine, READ);
    assert_eq!(lines(&machine, &mut ledger)[0].2, 1);
    ledger.commit();
    assert_eq!(read(&machine, &mut ledger)[0].times, []);
}

#[test]
fn reused_device_number_starts_from_zero() {
    let mut machine = machine();
    let mut ledger = BlockIoReader::default();
    let failed = BlockRequest { error: 10, ..READ };
    let told = |found: Vec<DeviceDelta>| {
        let told = |one: &DeviceDelta| (one.device.clone(), one.times.len(), one.errors);
        found.iter().map(told).collect::<Vec<_>>()
    };
    let of = |name: &str, times, errors| vec![(name.to_owned(), times, errors)];
    complete(&mut machine, failed);
    // The device is gone at the first scrape and exists again at the second.
    assert_eq!(told(read_as(&machine, &mut ledger, |_| None)), of("254:0", 2, 1));
    assert_eq!(told(read_as(&machine, &mut ledger, |_| Some("a".into()))), of("a", 2, 0));
    ledger.commit();
    complete(&mut machine, failed);
    assert_eq!(told(read_as(&machine, &mut ledger, |_| None)), of("a", 2, 1));
    ledger.commit();
    assert_eq!(told(read_as(&machine, &mut ledger, |_| Some("b".into()))), of("b", 0, 0));
    complete(&mut machine, failed);
    assert_eq!(told(read_as(&machine, &mut ledger, |_| Some("b".into()))), of("b", 2, 1));
}
