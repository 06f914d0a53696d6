package topdeck

// addOwned adds to a cell that no other goroutine writes now. The processor keeps the order of
// stores, and an aligned store is one instruction, so that readers see whole words.
func addOwned(cell *uint64, n uint64) { *cell += n }

func storeOwned(cell *uint64, value uint64) { *cell = value }
