package kernel

import "runtime/debug"

// copyingGCPercent is how much the heap may grow before garbage is collected while the kernel is
// saved or loaded. Nearly all of the heap is alive then, so collecting finds little.
const copyingGCPercent = 400

// collectLess lets the heap grow further before the next collections, until the returned function
// is called.
func collectLess() func() {
	before := debug.SetGCPercent(copyingGCPercent)
	return func() { debug.SetGCPercent(before) }
}
