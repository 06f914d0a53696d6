/*
 * topdeck: metrics in shared memory, for C11, C++11 and languages that can call C.
 *
 * Generated from crates/ffi by its tests (`cargo xtask golden` rewrites it): do not edit.
 *
 *     static td_counter answered;
 *     static td_histogram took;
 *
 *     td_register_counter(&(td_description){.name = "answered_total"}, &answered);
 *     td_register_histogram(&(td_description){.name = "answer_duration", .unit = "ns"}, &took);
 *     ...
 *     td_stopwatch since = td_stopwatch_start();
 *     answer(request);
 *     td_hist_record_since(took, since);
 *     td_count(answered, 1);
 *
 * The process has a file on tmpfs, and each thread a lane of it, of which it is the only writer: a
 * record is some plain instructions, without a call, a lock or a wait. `topdeck ls`, `cat` and
 * `top` read the file at any time, also after the process died. TOPDECK_SHM in the environment sets
 * another directory, or disables recording with "off".
 *
 * Errors. A function that may fail returns 0, or -1 and keeps the message for `td_error`. A metric
 * that could not be registered is zero; records in a metric that is zero are dropped, so that a
 * program need not check. Pointers may be NULL where documented; anywhere else NULL is an error, as
 * is text that is not UTF-8. The caller must ensure everything else: a metric is zero or was
 * registered with its type in this process.
 *
 * Threads. Every function may be called on any thread at any time; an object that a call writes
 * (`*metric`, `*operation`) must not be used by another thread during the call. Metrics may be
 * copied. No function is async-signal-safe, except `td_count` and `td_adjust` on x86-64, of a
 * metric that the same thread has counted in the same source file before.
 *
 * Processes. A forked process has a file of its own from its first record on, with the same
 * metrics, all at zero. `vfork` and a bare `clone` are not detected: call `exec` there. `exit` and
 * the return from `main` record a regular exit; a process that is killed, aborts or calls `_exit`
 * counts as crashed.
 *
 * Libraries. A shared object that uses the functions at the end of this header has a pointer for
 * each of its threads; like libtopdeck.so, it may be opened at any time and closed. libtopdeck.so
 * itself stays loaded until the process ends.
 */
#ifndef TOPDECK_H
#define TOPDECK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

