//! Tests of the programs without a kernel: control flow, and places that must agree.

use bpf::{CALL, EXIT, LOAD_WIDE};

use super::test_machine::MAPS;
use super::*;
use crate::tls_event::{FLAGS_OFFSET, HEADER_BYTES};

const OFFSETS: SocketOffsets = SocketOffsets {
    family: 16,
    ports: 12,
    remote4: 0,
    local4: 4,
    remote6: 56,
    local6: 72,
    namespace: Some((48, 128)),
};
/// Class of jumps.
const JUMP: u8 = 5;

/// All programs, with a name.
fn programs() -> Vec<(String, Vec<Instruction>)> {
    let mut programs = vec![
        ("new".to_owned(), new_program(&MAPS)),
        ("free".to_owned(), end_program(false, &MAPS)),
        ("clear".to_owned(), end_program(true, &MAPS)),
        ("shutdown".to_owned(), shutdown_program(&MAPS)),
        ("socket".to_owned(), socket_program(&OFFSETS, false, &MAPS)),
        ("socket of Go".to_owned(), socket_program(&OFFSETS, true, &MAPS)),
        ("handshake of Go".to_owned(), go_handshake_program(3, &MAPS)),
        ("end of handshake of Go".to_owned(), go_return_program(3, None, &MAPS)),
        ("close of Go".to_owned(), go_end_program(&MAPS)),
    ];
    for of in &GO_FUNCTIONS {
        programs.push((format!("enter {}", of.symbol), go_entry_program(1, of, &MAPS)));
        programs.push((format!("return {}", of.symbol), go_return_program(1, Some(of), &MAPS)));
    }
    for of in &FUNCTIONS {
        programs.push((format!("enter {}", of.symbol), entry_program(1, of, &MAPS)));
        programs.push((format!("return {}", of.symbol), return_program(1, of, &MAPS)));
    }
    programs
}

/// Positions that follow the instruction at `at`.
fn successors(code: &[Instruction], at: usize) -> Vec<usize> {
    let target = (at + 1).wrapping_add_signed(code[at].offset.into());
    match code[at].code {
        LOAD_WIDE => vec![at + 2],
        EXIT => Vec::new(),
        CALL => vec![at + 1],
        JUMP => vec![target],
        jump if jump & 7 == JUMP => vec![at + 1, target],
        _ => vec![at + 1],
    }
}

/// The kernel refuses a program with instructions that cannot be reached, or without an end.
#[test]
fn every_instruction_is_reached() {
    for (name, code) in programs() {
        let mut is_reached = vec![false; code.len()];
        let mut pending = vec![0];
        while let Some(at) = pending.pop() {
            assert!(at < code.len(), "{name}: jumps to {at} of {}", code.len());
            if !std::mem::replace(&mut is_reached[at], true) {
                pending.extend(successors(&code, at));
                if code[at].code == LOAD_WIDE {
                    is_reached[at + 1] = true;
                }
            }
        }
        let unreached = is_reached.iter().position(|is_reached| !is_reached);
        assert_eq!(unreached, None, "{name}");
    }
}

#[test]
fn places_on_the_stack_do_not_overlap() {
    let mut places = [
        (GO_WORD, 8),
        (GO_STACK, 16),
        (GO_CALL, GO_CALL_KEY as i16),
        (VALUE, SESSION_VALUE as i16),
        (COUNT, 8),
        (OTHER, 8),
        (STACK, 8),
        (POSITION, 8),
        (END, 8),
        (START, 8),
        (KEY, SESSION_KEY as i16),
        (THREAD, 8),
    ];
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
    }
    assert_eq!(SESSION, KEY + 8);
    assert!(places[0].0 >= -512);
}

#[test]
fn a_record_has_the_fields_of_a_session_behind_its_own() {
    assert_eq!(HEADER_BYTES - FLAGS_OFFSET, SESSION_VALUE as i16 - SESSION_FLAGS);
}
