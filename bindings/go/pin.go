//go:build !topdeck_portable

package topdeck

import _ "unsafe" // for go:linkname

// pin keeps the goroutine on its P, and the P from any other goroutine, until unpin; it returns the
// number of the P. The runtime does not export it, but promises to keep both names and signatures
// for the packages that use them (go.dev/issue/67401). With the build tag topdeck_portable all
// goroutines share one lane instead, with atomic instructions.
//
//go:linkname pin runtime.procPin
//go:nosplit
func pin() int

//go:linkname unpin runtime.procUnpin
//go:nosplit
func unpin()
