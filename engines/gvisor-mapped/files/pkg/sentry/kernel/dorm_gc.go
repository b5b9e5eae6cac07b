package kernel

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// copyingGCPercent is how much a small heap may grow before garbage is collected while the
	// kernel is saved or loaded. Nearly all of the heap is alive then, so collecting finds little.
	copyingGCPercent = 400
	// copyingGrowth bounds that growth for large heaps, in bytes, where the default allows less.
	copyingGrowth = 96 << 20
	// keptGarbage is how much more memory than before may stay with the heap afterwards, in bytes.
	keptGarbage = 48 << 20
	// releaseDelay is when memory above keptGarbage is given back. The first calls of a sandbox
	// that wakes should not wait for a collection.
	releaseDelay = time.Second
	// muchGarbage is given back at once, in bytes, because the guest may need its room, and because
	// a collection takes less time than the copying that has just ended.
	muchGarbage = 256 << 20
)

// copyingPercent returns how far a heap with live bytes may grow, in percent, where the default is
// before.
func copyingPercent(live uint64, before int) int {
	percent := copyingGCPercent
	if live > 0 && copyingGrowth*100/live < uint64(percent) {
		percent = int(copyingGrowth * 100 / live)
	}
	return max(percent, before)
}

// heapSize returns the bytes of the heap that the host has provided.
func heapSize(stats *runtime.MemStats) uint64 { return stats.HeapSys - stats.HeapReleased }

// collectLess lets the heap grow further before the next collections, until the returned function
// is called. That function also gives back memory if the heap has become much larger: nobody else
// would before the next collection, which an idle kernel reaches after minutes.
func collectLess() func() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	size := heapSize(&stats)
	before := debug.SetGCPercent(copyingGCPercent)
	if before < 0 {
		debug.SetGCPercent(before)
		return func() {}
	}
	percent := copyingPercent(stats.HeapAlloc, before)
	debug.SetGCPercent(percent)
	var over atomic.Bool
	// The finalizer of an unreachable object runs once after each collection.
	type collected struct{ _ [16]byte }
	var tune func(*collected)
	tune = func(*collected) {
		if over.Load() {
			return
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		live := stats.NextGC * 100 / uint64(100+percent)
		percent = copyingPercent(live, before)
		debug.SetGCPercent(percent)
		if over.Load() {
			debug.SetGCPercent(before)
			return
		}
		runtime.SetFinalizer(new(collected), tune)
	}
	runtime.SetFinalizer(new(collected), tune)
	return func() {
		over.Store(true)
		debug.SetGCPercent(before)
		delay := releaseDelay
		if hasGrown(size + muchGarbage) {
			delay = 0
		}
		time.AfterFunc(delay, func() {
			if hasGrown(size + keptGarbage) {
				debug.FreeOSMemory()
			}
		})
	}
}

// hasGrown returns whether the heap is larger than size, in bytes.
func hasGrown(size uint64) bool {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return heapSize(&stats) > size
}
