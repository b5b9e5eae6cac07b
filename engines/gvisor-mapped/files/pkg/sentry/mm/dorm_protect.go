package mm

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

const (
	// reprotectBytes and reprotectParts limit what is mapped anew with fewer permissions. Of a
	// larger range, little may be used afterwards.
	reprotectBytes = 1 << 20
	reprotectParts = 4
)

// reprotectASLocked takes permissions from the mappings in ar after its pmas have lost them. It
// maps them anew over the old ones where that is cheap, which spares the guest the next fault, and
// else unmaps them.
//
// Preconditions: mm.activeMu must be locked for writing; ar is not empty.
func (mm *MemoryManager) reprotectASLocked(ar hostarch.AddrRange) {
	if mm.as == nil || ar.Length() > reprotectBytes {
		mm.unmapASLocked(ar)
		return
	}
	first := mm.pmas.LowerBoundSegment(ar.Start)
	parts := 0
	for pseg := first; pseg.Ok() && pseg.Start() < ar.End; pseg = pseg.NextSegment() {
		pma := pseg.ValuePtr()
		perms := pma.effectivePerms
		if pma.needCOW {
			perms.Write = false
		}
		// mapASLocked would leave what is inaccessible as it was.
		if parts++; parts > reprotectParts || !perms.Any() {
			mm.unmapASLocked(ar)
			return
		}
	}
	if err := mm.mapASLocked(first, ar, memmap.PlatformEffectPopulate); err != nil {
		mm.unmapASLocked(ar)
	}
}
