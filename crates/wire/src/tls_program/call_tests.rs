//! What the programs report of calls, also of those whose return is not seen.

use super::test_machine::{MAPS, TestMachine};
use super::*;
use crate::tls_event::{TlsClock, TlsEvent, TlsEventKind};

const READ: usize = 0;
const WRITE: usize = 1;
const READ_EX: usize = 2;
const WRITE_EX: usize = 3;
const HANDSHAKE: usize = 5;
const SESSION: u64 = 0x5000;
const OTHER_SESSION: u64 = 0x6000;

/// What a record says: kind, time of the call, position, of the other direction, length, shut down.
type Report = (TlsEventKind, u64, u64, u64, u64, bool);

impl TestMachine {
    fn enter(&mut self, function: usize, session: u64) {
        self.now += 1_000_000;
        let code = entry_program(function as i32 + 1, &FUNCTIONS[function], &MAPS);
        self.run(&code, &[session, 0x8000, 100, 0x9000], 0);
    }

    fn leave(&mut self, function: usize, result: i64) {
        self.now += 10;
        let code = return_program(function as i32 + 1, &FUNCTIONS[function], &MAPS);
        self.run(&code, &[], result);
    }

    fn call(&mut self, function: usize, result: i64) {
        self.enter(function, SESSION);
        self.leave(function, result);
    }

    fn shut_down(&mut self) {
        self.run(&shutdown_program(&MAPS), &[SESSION], 0);
    }

    fn free(&mut self) {
        self.run(&end_program(false, &MAPS), &[SESSION], 0);
    }

    fn reports(&mut self) -> Vec<Report> {
        let records = std::mem::take(&mut self.records);
        let report = |record: &Vec<u8>| {
            let event = TlsEvent::decode(record, TlsClock::default()).expect("a record");
            assert_eq!((event.process, event.session), (7, SESSION));
            let TlsEvent { kind, start, position, other_position, length, .. } = event;
            (kind, start, position, other_position, length, event.is_shut_down)
        };
        records.iter().map(report).collect()
    }

    /// Kinds, positions and lengths.
    fn positions(&mut self) -> Vec<(TlsEventKind, u64, u64)> {
        self.reports().into_iter().map(|(kind, _, at, _, length, _)| (kind, at, length)).collect()
    }
}

use TlsEventKind::{End, Read, Written};

#[test]
fn calls_have_the_positions_of_both_directions_and_leave_nothing_behind() {
    let mut machine = TestMachine::new();
    machine.call(READ, 100);
    machine.call(WRITE, 50);
    machine.call(READ, -1);
    machine.call(READ, 0);
    machine.call(READ, 30);
    let found: Vec<_> = machine.reports().into_iter().map(|of| (of.0, of.2, of.3, of.4)).collect();
    assert_eq!(found, [(Read, 0, 0, 100), (Written, 0, 100, 50), (Read, 100, 50, 30)]);
    assert_eq!((machine.values(MAPS.calls), machine.lost()), (0, 0));
}

#[test]
fn a_return_that_was_not_seen_is_a_hole_before_the_next_call() {
    let mut machine = TestMachine::new();
    machine.call(READ, 10);
    // The kernel did not run the program at the return.
    machine.enter(READ, SESSION);
    machine.call(WRITE, 5);
    machine.call(READ, 20);
    let expected = [(Read, 0, 10), (Written, 0, 5), (Read, 10 + LOST_CALL, 20)];
    assert_eq!(machine.positions(), expected);
}

#[test]
fn a_call_that_the_full_map_forgot_is_a_hole_before_the_next_one() {
    let mut machine = TestMachine::new();
    machine.enter(READ, SESSION);
    machine.clear(MAPS.calls);
    machine.leave(READ, 10);
    machine.call(READ, 20);
    assert_eq!(machine.positions(), [(Read, LOST_CALL, 20)]);
}

#[test]
fn a_call_that_cannot_be_noted_is_counted_and_a_hole() {
    let mut machine = TestMachine::new();
    machine.call(READ, 10);
    machine.is_map_full = true;
    machine.call(READ, 10);
    assert_eq!(machine.lost(), 1);
    machine.is_map_full = false;
    machine.call(READ, 20);
    assert_eq!(machine.positions(), [(Read, 0, 10), (Read, 10 + LOST_CALL, 20)]);
}

#[test]
fn bytes_whose_number_is_unknown_are_a_hole() {
    for moved in [None, Some(1 << 32)] {
        for (function, kind) in [(READ_EX, Read), (WRITE_EX, Written)] {
            let mut machine = TestMachine::new();
            machine.moved = Some(10);
            machine.call(function, 1);
            machine.moved = moved;
            machine.call(function, 1);
            assert_eq!(machine.lost(), 1);
            machine.moved = Some(20);
            machine.call(function, 1);
            let expected = [(kind, 0, 10), (kind, 10 + LOST_CALL, 20)];
            assert_eq!(machine.positions(), expected);
        }
    }
}

#[test]
fn a_function_inside_of_its_other_form_reports_the_bytes_once() {
    let mut machine = TestMachine::new();
    for _ in 0..2 {
        machine.enter(READ_EX, SESSION);
        machine.call(READ, 10);
        machine.moved = Some(10);
        machine.leave(READ_EX, 1);
    }
    // A handshake inside of a call leaves it as it is.
    machine.enter(WRITE, SESSION);
    machine.call(HANDSHAKE, 1);
    machine.leave(WRITE, 5);
    assert_eq!(machine.positions(), [(Read, 0, 10), (Read, 10, 10), (Written, 0, 5)]);
    assert_eq!((machine.values(MAPS.calls), machine.lost()), (0, 0));
}

#[test]
fn two_probes_at_one_function_report_the_bytes_once() {
    let mut machine = TestMachine::new();
    for _ in 0..2 {
        machine.enter(READ, SESSION);
        // The clock of the second probe is that of the first.
        machine.now -= 1_000_000 - 500;
        machine.enter(READ, SESSION);
        machine.leave(READ, 10);
        machine.leave(READ, 10);
        machine.now += 1_000_000;
    }
    assert_eq!(machine.positions(), [(Read, 0, 10), (Read, 10, 10)]);
}

#[test]
fn a_session_inside_of_another_one_is_a_hole_of_the_outer_one() {
    let mut machine = TestMachine::new();
    machine.call(READ, 10);
    machine.enter(READ, SESSION);
    machine.enter(READ, OTHER_SESSION);
    machine.leave(READ, -1);
    machine.leave(READ, 100);
    machine.call(READ, 20);
    assert_eq!(machine.positions(), [(Read, 0, 10), (Read, 10 + LOST_CALL, 20)]);
}

#[test]
fn a_request_that_needs_several_writes_starts_at_the_first_one() {
    let mut machine = TestMachine::new();
    machine.enter(WRITE, SESSION);
    let first = machine.now;
    machine.leave(WRITE, -1);
    machine.call(WRITE, -1);
    machine.call(WRITE, 100);
    machine.enter(WRITE, SESSION);
    let second = machine.now;
    machine.leave(WRITE, 50);
    let found: Vec<_> = machine.reports().into_iter().map(|of| (of.1, of.4)).collect();
    assert_eq!(found, [(first, 100), (second, 50)]);
}

#[test]
fn a_session_is_shut_down_if_no_write_has_failed_since() {
    for (last, is_shut_down) in [(50, true), (-1, false)] {
        let mut machine = TestMachine::new();
        machine.call(READ, 10);
        machine.call(WRITE, 50);
        machine.call(WRITE, last);
        machine.shut_down();
        machine.free();
        let end = machine.reports().pop().unwrap();
        let written = if is_shut_down { 100 } else { 50 };
        assert_eq!((end.0, end.2, end.3, end.5), (End, 10, written, is_shut_down));
        assert_eq!(machine.values(MAPS.sessions), 0);
    }
    let mut machine = TestMachine::new();
    machine.call(WRITE, 50);
    machine.free();
    assert!(!machine.reports().pop().unwrap().5, "SSL_shutdown was not called");
}
