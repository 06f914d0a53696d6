//! A process that was forked off has no keeper until it asks.

#![allow(unsafe_code, reason = "nothing safe forks")]

use std::thread;
use std::time::Duration;

#[test]
fn a_forked_process_has_a_clock_of_its_own() {
    clock::now();
    thread::sleep(Duration::from_millis(50));
    // SAFETY: the child calls what is allowed after a fork of one thread among many: it reads clocks, sleeps and starts
    // a thread (glibc makes that safe), and leaves without running anybody's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let comparisons = clock::status().comparisons;
        let before = clock::now();
        // The line that it has got ends within two seconds; whoever asks then starts the keeper.
        for _ in 0..60 {
            thread::sleep(Duration::from_millis(50));
            clock::now();
        }
        let is_good = clock::now() > before && clock::status().comparisons != comparisons;
        // SAFETY: ends the process, and nothing else.
        unsafe { libc::_exit(i32::from(!is_good)) };
    }
    let mut status = 0;
    // SAFETY: waits for the process that was just made, and writes how it ended.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child says that its clock stands or is kept by nobody");
}
