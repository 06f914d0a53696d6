//go:build topdeck_portable

package topdeck

// pin returns a number beyond all lanes: each record takes the slow path to the shared lane.
func pin() int { return lanesMax }

func unpin() {}
