//go:build !amd64

package topdeck

import "sync/atomic"

// addOwned adds to a cell that no other goroutine writes now; stores stay in order.
func addOwned(cell *uint64, n uint64) { atomic.StoreUint64(cell, atomic.LoadUint64(cell)+n) }

func storeOwned(cell *uint64, value uint64) { atomic.StoreUint64(cell, value) }
