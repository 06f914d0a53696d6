/*
 * topdeck: metrics in shared memory, for C11, C++11 and all that can call C.
 *
 * Made out of crates/ffi by its tests (`cargo xtask golden` writes it anew): change that, not this.
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
 * The process has a file in memory (tmpfs), and each thread a lane of it, in which it alone writes:
 * a record is some plain instructions, without a call, a lock or a wait, and `topdeck ls`, `cat`
 * and `top` read it at any moment, also after the process died. TOPDECK_SHM in the environment
 * names another folder than the usual one, or says "off".
 *
 * Errors. What may fail returns 0, or -1 and leaves the reason to `td_error`. A metric that could
 * not be registered is zero; what is recorded in a metric that is zero goes nowhere, so that a
 * program need not ask. Pointers may be NULL where it says so; anywhere else NULL is an error, as
 * is text that is not UTF-8. All else about what comes in is the caller's promise: a metric is zero
 * or what was registered as one of its type in this process.
 *
 * Threads. Every function may be called on any thread at any time; an object that is written by a
 * call (`*metric`, `*operation`) must not be used by another thread meanwhile. Metrics are copied
 * as one likes. None of the functions is for signal handlers, but for `td_count` and `td_adjust` on
 * x86-64, of a metric that the same thread has counted in the same file of source before.
 *
 * Processes. One that is forked off has a file of its own from its first record on, with the same
 * metrics, all at zero. Of `vfork` and a bare `clone` it knows nothing: call `exec` there. `exit`
 * and the end of `main` leave word that the process ended as it meant to; a process that is killed,
 * aborts or calls `_exit` is one that died.
 *
 * Libraries. A shared object that uses the functions at the end of this header has a pointer for
 * each of its threads; like libtopdeck.so, it may be opened at any time and closed. libtopdeck.so
 * itself stays until the process ends.
 */
#ifndef TOPDECK_H
#define TOPDECK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

