package systrap

import "sync/atomic"

const (
	// patchAfter is the use of a system call instruction at which it is patched. Patching copies
	// the page of code, unmaps it, and lets the next fetch from it fault, which takes as long as
	// several tens of unpatched system calls. Most instructions of a short process are used once.
	patchAfter = 16
	// patchSlots is how many instructions are counted per stub at a time.
	patchSlots = 64
)

// patchCounters counts the uses of system call instructions. Each slot holds the lowest 48 bits of
// an address, and above them how often it was used. Instructions that share a slot are counted
// anew in turns, and races lose counts: both only delay patches.
type patchCounters [patchSlots]atomic.Uint64

// shouldPatch counts a use of the instruction that ends at ip, and returns whether to patch it.
func (p *patchCounters) shouldPatch(ip uintptr) bool {
	const one = 1 << 48
	at := uint64(ip) & (one - 1)
	slot := &p[(at^at>>12)%patchSlots]
	seen := slot.Load()
	if seen&(one-1) != at {
		seen = at
	}
	if seen += one; seen>>48 >= patchAfter {
		slot.Store(0)
		return true
	}
	slot.Store(seen)
	return false
}
