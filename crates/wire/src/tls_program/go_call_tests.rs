//! What the programs report of calls of Go, on one machine without a kernel.

use super::test_machine::{MAPS, TestMachine};
use super::*;
use crate::tls_event::{TlsClock, TlsEvent, TlsEventKind};

const READ: usize = 0;
const WRITE: usize = 1;
const SERVER_HANDSHAKE: i32 = 3;
const CLIENT_HANDSHAKE: i32 = 4;
/// Size of all buffers.
const SIZE: u64 = 64;
const CONN: u64 = 0xc000_1000;
const G: u64 = 0xc000_0100;
const OTHER_G: u64 = 0xc000_0200;
/// A buffer on the heap.
const BUFFER: u64 = 0xc000_8000;
/// Stacks of the goroutine, before and after it has grown.
const STACK: (u64, u64) = (0xc001_0000, 0xc001_0800);
const LARGER_STACK: (u64, u64) = (0xc002_0000, 0xc002_1000);

use TlsEventKind::{End, Read, Written};

impl TestMachine {
    fn go_machine() -> TestMachine {
        let mut machine = TestMachine::new();
        machine.set_stack(STACK);
        machine.memory.insert(BUFFER, vec![b'h'; 64]);
        machine
    }

    fn set_stack(&mut self, (low, high): (u64, u64)) {
        for g in [G, OTHER_G] {
            self.memory.insert(g, [low, high].map(u64::to_ne_bytes).concat());
        }
    }

    fn go_enter(&mut self, function: usize, g: u64, buffer: u64) {
        self.now += 1_000_000;
        let code = go_entry_program(function as i32 + 1, &GO_FUNCTIONS[function], &MAPS);
        self.go_run(&code, g, [CONN, buffer]);
    }

    /// `results`: number of bytes, and the error.
    fn go_leave(&mut self, function: usize, g: u64, results: [u64; 2]) {
        self.now += 10;
        let of = Some(&GO_FUNCTIONS[function]);
        let code = go_return_program(function as i32 + 1, of, &MAPS);
        self.go_run(&code, g, results);
    }

    fn go_run(&mut self, code: &[Instruction], g: u64, words: [u64; 2]) {
        let [first, second, third] = REGISTERS.go_words;
        let registers = [
            (third, SIZE),
            (first, words[0]),
            (second, words[1]),
            (REGISTERS.goroutine, g),
            (REGISTERS.stack, 0x7000),
        ];
        self.run_with(code, &registers);
    }

    fn go_call(&mut self, function: usize, bytes: u64) {
        self.go_enter(function, G, BUFFER);
        self.go_leave(function, G, [bytes, 0]);
    }

    fn go_handshake(&mut self, function: i32) {
        self.go_run(&go_handshake_program(function, &MAPS), G, [CONN, 0]);
    }

    fn go_handshake_end(&mut self, function: i32) {
        self.go_run(&go_return_program(function, None, &MAPS), G, [0, 0]);
    }

    fn close(&mut self) {
        self.go_run(&go_end_program(&MAPS), OTHER_G, [CONN, 0]);
    }

    /// Kind, position, length, the bytes, whether it is from the start and shut down.
    fn go_reports(&mut self) -> Vec<(TlsEventKind, u64, u64, String, bool, bool)> {
        let records = std::mem::take(&mut self.records);
        let report = |record: &Vec<u8>| {
            let event = TlsEvent::decode(record, TlsClock::default()).expect("a record");
            assert_eq!((event.process, event.session), (7, CONN));
            let text = String::from_utf8_lossy(event.bytes).into_owned();
            let TlsEvent { kind, position, length, is_from_start, is_shut_down, .. } = event;
            (kind, position, length, text, is_from_start, is_shut_down)
        };
        records.iter().map(report).collect()
    }

    /// Kinds, positions and lengths.
    fn go_positions(&mut self) -> Vec<(TlsEventKind, u64, u64)> {
        self.go_reports().into_iter().map(|of| (of.0, of.1, of.2)).collect()
    }
}

#[test]
fn a_session_of_go_has_its_bytes_and_its_end() {
    let mut machine = TestMachine::go_machine();
    machine.go_handshake(SERVER_HANDSHAKE);
    machine.go_handshake_end(SERVER_HANDSHAKE);
    assert_eq!((machine.values(MAPS.goroutines), machine.values(MAPS.sessions)), (0, 1));
    machine.go_call(READ, 4);
    machine.go_call(WRITE, 2);
    // A time-out, a write of no bytes, and bytes with the end of the stream.
    machine.go_enter(READ, G, BUFFER);
    machine.go_leave(READ, G, [0, 0xe]);
    machine.go_call(WRITE, 0);
    machine.go_enter(READ, G, BUFFER);
    machine.go_leave(READ, G, [3, 0xe]);
    machine.close();
    machine.close();
    let text = |of: &str| of.to_owned();
    let expected = [
        (Read, 0, 4, text("hhhh"), true, false),
        (Written, 0, 2, text("hh"), true, false),
        (Read, 4, 3, text("hhh"), true, false),
        (End, 7, 0, text(""), true, true),
    ];
    assert_eq!(machine.go_reports(), expected);
    let left = [MAPS.goroutines, MAPS.sessions].map(|map| machine.values(map));
    assert_eq!((left, machine.lost()), ([0, 0], 0));
}

#[test]
fn a_handshake_inside_of_a_write_begins_the_session() {
    let mut machine = TestMachine::go_machine();
    // The object of another session, which was not closed, is used again.
    machine.go_call(READ, 9);
    machine.go_enter(WRITE, G, BUFFER);
    machine.go_handshake(CLIENT_HANDSHAKE);
    machine.go_handshake_end(CLIENT_HANDSHAKE);
    machine.go_leave(WRITE, G, [5, 0]);
    let found: Vec<_> = machine.go_reports().into_iter().map(|of| (of.0, of.1, of.4)).collect();
    assert_eq!(found, [(Read, 0, false), (Written, 0, true)]);
    assert_eq!((machine.values(MAPS.goroutines), machine.lost()), (0, 0));
}

#[test]
fn a_buffer_on_the_stack_moves_with_it() {
    let mut machine = TestMachine::go_machine();
    let place = |stack: (u64, u64)| stack.1 - 0x100;
    machine.memory.insert(place(STACK), b"old!".to_vec());
    machine.memory.insert(place(LARGER_STACK), b"tea!".to_vec());
    machine.go_enter(READ, G, place(STACK));
    machine.set_stack(LARGER_STACK);
    machine.go_leave(READ, G, [4, 0]);
    // The first address behind the stack is not on it.
    machine.memory.insert(LARGER_STACK.1, b"heap".to_vec());
    machine.go_enter(READ, G, LARGER_STACK.1);
    machine.set_stack(STACK);
    machine.go_leave(READ, G, [4, 0]);
    let found: Vec<_> = machine.go_reports().into_iter().map(|of| of.3).collect();
    assert_eq!(found, ["tea!", "heap"]);
}

#[test]
fn calls_that_overlap_in_a_direction_are_holes_but_the_last() {
    let mut machine = TestMachine::go_machine();
    machine.go_call(WRITE, 1);
    machine.go_enter(WRITE, G, BUFFER);
    machine.go_enter(WRITE, OTHER_G, BUFFER);
    machine.go_leave(WRITE, G, [5, 0]);
    machine.go_leave(WRITE, OTHER_G, [7, 0]);
    machine.go_call(WRITE, 2);
    let after = 1 + 2 * LOST_CALL;
    assert_eq!(
        machine.go_positions(),
        [(Written, 0, 1), (Written, after, 7), (Written, after + 7, 2)]
    );
    // Both directions at the same time do not overlap, and a call without bytes leaves no hole.
    machine.go_enter(READ, G, BUFFER);
    machine.go_enter(READ, OTHER_G, BUFFER);
    machine.go_leave(READ, G, [0, 0xe]);
    machine.go_leave(READ, OTHER_G, [3, 0]);
    machine.go_enter(READ, OTHER_G, BUFFER);
    machine.go_call(WRITE, 4);
    machine.go_leave(READ, OTHER_G, [6, 0]);
    let expected = [(Read, LOST_CALL, 3), (Written, after + 9, 4), (Read, LOST_CALL + 3, 6)];
    assert_eq!(machine.go_positions(), expected);
}

#[test]
fn a_call_of_go_whose_return_was_not_seen_is_a_hole() {
    let mut machine = TestMachine::go_machine();
    machine.go_call(READ, 10);
    machine.go_enter(READ, G, BUFFER);
    machine.go_call(READ, 20);
    assert_eq!(machine.go_positions(), [(Read, 0, 10), (Read, 10 + LOST_CALL, 20)]);
    machine.is_map_full = true;
    machine.go_call(READ, 10);
    assert_eq!(machine.lost(), 1);
}

#[test]
fn two_probes_at_one_function_of_go_report_the_bytes_once() {
    let mut machine = TestMachine::go_machine();
    machine.go_enter(READ, G, BUFFER);
    machine.now -= 1_000_000 - 500;
    machine.go_enter(READ, G, BUFFER);
    machine.go_leave(READ, G, [10, 0]);
    machine.go_leave(READ, G, [10, 0]);
    machine.go_call(READ, 10);
    assert_eq!(machine.go_positions(), [(Read, 0, 10), (Read, 10, 10)]);
}

#[test]
fn a_session_is_not_shut_down_if_a_write_has_failed_or_is_under_way() {
    for is_failed in [true, false] {
        let mut machine = TestMachine::go_machine();
        machine.go_call(WRITE, 5);
        machine.go_enter(WRITE, G, BUFFER);
        if is_failed {
            machine.go_leave(WRITE, G, [2, 0xe]);
        }
        machine.close();
        let (kind, .., is_shut_down) = machine.go_reports().pop().unwrap();
        assert_eq!((kind, is_shut_down), (End, false), "{is_failed}");
        // A read that the other goroutine waits in ends after it, and makes no session.
        machine.go_enter(READ, OTHER_G, BUFFER);
        machine.close();
        machine.go_leave(READ, OTHER_G, [0, 0xe]);
        assert_eq!(machine.values(MAPS.sessions), 0);
    }
}

#[test]
fn a_client_writes_when_the_call_begins() {
    let mut machine = TestMachine::go_machine();
    machine.go_handshake(CLIENT_HANDSHAKE);
    machine.go_handshake_end(CLIENT_HANDSHAKE);
    machine.go_enter(READ, OTHER_G, BUFFER);
    machine.go_enter(WRITE, G, BUFFER);
    machine.go_leave(READ, OTHER_G, [7, 0]);
    machine.go_leave(WRITE, G, [SIZE, 0]);
    assert_eq!(machine.go_positions(), [(Written, 0, SIZE), (Read, 0, 7)]);
    // How much a write that fails has sent is not known.
    machine.go_enter(WRITE, G, BUFFER);
    machine.go_leave(WRITE, G, [3, 0xe]);
    machine.go_call(WRITE, SIZE);
    let behind = 2 * SIZE + LOST_CALL;
    assert_eq!(machine.go_positions(), [(Written, SIZE, SIZE), (Written, behind, SIZE)]);
    // The response is read, and the session closed, before the write returns.
    machine.go_enter(WRITE, G, BUFFER);
    machine.close();
    machine.go_leave(WRITE, G, [SIZE, 0]);
    let kinds: Vec<_> = machine.go_positions().into_iter().map(|of| of.0).collect();
    assert_eq!(kinds, [Written, End]);
    let left = [MAPS.goroutines, MAPS.sessions].map(|map| machine.values(map));
    assert_eq!((left, machine.lost()), ([0, 0], 0));
}
