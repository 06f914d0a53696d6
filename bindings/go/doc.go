// Package topdeck records metrics in shared memory: a program counts and times with a few plain
// instructions, and any process of the host reads whole distributions at any time, also after the
// program has died (`topdeck ls`, `cat`, `top`, `in-flight`, `post-mortem`).
//
//	var answered = topdeck.NewCounter(topdeck.Description{Name: "answered_total"})
//	var took = topdeck.NewHistogram(topdeck.Description{Name: "answer_duration", Unit: "ns"})
//
//	func main() {
//		defer topdeck.Close()
//		timer := took.Start()
//		answer()
//		timer.Stop()
//		answered.Add(1)
//	}
//
// No configuration and no error handling is required: a metric that could not be registered records
// nothing, and its method Err returns the reason. TOPDECK_SHM in the environment sets another
// directory, or disables recording with "off".
//
// A record makes no system call and takes no lock: it pins the goroutine to its processor (P) for a
// few nanoseconds and writes to the lane of that P with plain instructions. All functions may be
// called by any goroutine at any time. The file is created by the first metric.
//
// Recording needs Linux on a 64-bit little-endian machine; elsewhere the package compiles and
// records nothing.
package topdeck
