package mm

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

const (
	// imageStreams is the number of runs of rising writes that are followed per address space.
	imageStreams = 4
	// imageParts is the number of parts into which copies may cut a huge page before the rest of
	// it is copied as a whole.
	imageParts = 9
	// unmapMax is how many parts of an address space are unmapped one by one.
	unmapMax = 64
)

// imageCOWState is what an address space knows about first writes to memory in an image. It is
// protected by MemoryManager.activeMu.
type imageCOWState struct {
	end  [imageStreams]hostarch.Addr
	unit [imageStreams]hostarch.Addr
	next int

	// If inFault is true, copies leave the old mappings in place and are added to copied: the
	// fault handler maps them at once.
	inFault bool
	copied  hostarch.AddrRange
}

// AppendPrivateRanges appends the MemoryFile ranges of all private pmas.
func (mm *MemoryManager) AppendPrivateRanges(frs []memmap.FileRange) []memmap.FileRange {
	for pseg := mm.pmas.FirstSegment(); pseg.Ok(); pseg = pseg.NextSegment() {
		if pma := pseg.ValuePtr(); pma.private && pma.file == memmap.File(mm.mf) {
			frs = append(frs, pseg.fileRange())
		}
	}
	return frs
}

// MarkImageBacked makes those parts of private pmas copy-on-write that are in the image. Pmas of files
// that are in the image are dropped: the file is asked again for its memory, and fills it then.
//
// Preconditions: mm has no AddressSpace yet.
func (mm *MemoryManager) MarkImageBacked() {
	mm.activeMu.Lock()
	defer mm.activeMu.Unlock()
	if mm.as != nil {
		panic("AddressSpace exists before the image is mapped")
	}
	mm.markPrivateLocked()
	var shared []hostarch.AddrRange
	for pseg := mm.pmas.FirstSegment(); pseg.Ok(); pseg = pseg.NextSegment() {
		if pma := pseg.ValuePtr(); pma.private || pma.file != memmap.File(mm.mf) {
			continue
		}
		if some, _ := mm.mf.ImageBacked(pseg.fileRange()); some {
			shared = append(shared, pseg.Range())
		}
	}
	for _, ar := range shared {
		mm.invalidateLocked(ar, false /* invalidatePrivate */, true /* invalidateShared */)
	}
}

// MarkMapped does the same for an address space that exists, and maps what is in the image anew when it
// is used. Files in the image were so before.
//
// Preconditions: no task runs.
func (mm *MemoryManager) MarkMapped() {
	mm.activeMu.Lock()
	defer mm.activeMu.Unlock()
	marked := mm.markPrivateLocked()
	if len(marked) > unmapMax {
		marked = []hostarch.AddrRange{{marked[0].Start, marked[len(marked)-1].End}}
	}
	for _, ar := range marked {
		mm.unmapASLocked(ar)
	}
}

// markPrivateLocked makes those parts of private pmas copy-on-write that are in the image, and returns
// them by rising address.
//
// Preconditions: mm.activeMu must be locked for writing.
func (mm *MemoryManager) markPrivateLocked() []hostarch.AddrRange {
	var parts []hostarch.AddrRange
	for pseg := mm.pmas.FirstSegment(); pseg.Ok(); pseg = pseg.NextSegment() {
		pma := pseg.ValuePtr()
		if pma.file != memmap.File(mm.mf) || !pma.private {
			continue
		}
		fr, start := pseg.fileRange(), pseg.Start()
		mm.mf.ForEachImageBacked(fr, func(part memmap.FileRange) {
			parts = append(parts, hostarch.AddrRange{
				start + hostarch.Addr(part.Start-fr.Start),
				start + hostarch.Addr(part.End-fr.Start),
			})
		})
	}
	for _, ar := range parts {
		pseg := mm.pmas.FindSegment(ar.Start)
		if pma := pseg.ValuePtr(); !pma.needCOW || pma.maxPerms.Write {
			pseg = mm.pmas.Isolate(pseg, ar)
		}
		pma := pseg.ValuePtr()
		pma.needCOW = true
		pma.effectivePerms.Write = false
		pma.maxPerms.Write = false
		// It may have been taken for writing, or for memory that can always be read.
		pma.internalMappings = safemem.BlockSeq{}
	}
	return parts
}

// imageCopyRange returns the range to copy for a write to ar: a unit for a lonely write, up to a
// huge page for writes that continue where the last copy ended.
//
// Preconditions: mm.activeMu must be locked for writing.
func (mm *MemoryManager) imageCopyRange(ar hostarch.AddrRange) hostarch.AddrRange {
	c := &mm.imageCOW
	i, unit := -1, hostarch.Addr(mm.mf.ImageUnit())
	for k := range c.end {
		if c.unit[k] != 0 && ar.Start >= c.end[k] && ar.Start < c.end[k]+c.unit[k] {
			i, unit = k, max(unit, min(c.unit[k]*4, hostarch.HugePageSize))
			break
		}
	}
	if i < 0 {
		i = c.next
		c.next = (c.next + 1) % imageStreams
	}
	r := hostarch.AddrRange{ar.Start &^ (unit - 1), (ar.End + unit - 1) &^ (unit - 1)}
	c.end[i], c.unit[i] = r.End, unit
	return r
}

// imageFaultRangeLocked returns the range to prepare for a fault at ar: ar, or for a write to a
// huge page that copies have cut into many parts, all of it that vseg covers.
//
// Preconditions: mm.activeMu must be locked for writing.
func (mm *MemoryManager) imageFaultRangeLocked(vseg vmaIterator, ar hostarch.AddrRange, at hostarch.AccessType) hostarch.AddrRange {
	if !at.Write || !mm.isInImageLocked(ar) {
		return ar
	}
	huge := hugepageAligned(ar).Intersect(vseg.Range())
	parts := 0
	for pseg := mm.pmas.LowerBoundSegment(huge.Start); pseg.Ok() && pseg.Start() < huge.End; pseg = pseg.NextSegment() {
		parts++
	}
	if parts < imageParts {
		return ar
	}
	return huge
}

// isInImageLocked returns whether memory in the image is mapped at ar, which is one page.
func (mm *MemoryManager) isInImageLocked(ar hostarch.AddrRange) bool {
	if !mm.mf.HasImage() {
		return false
	}
	pseg := mm.pmas.FindSegment(ar.Start)
	if !pseg.Ok() || !pseg.ValuePtr().private || !pseg.ValuePtr().needCOW {
		return false
	}
	some, _ := mm.mf.ImageBacked(pseg.fileRangeOf(ar))
	return some
}

// isHostFile returns whether f is a file of the host, which shows the same file for ever. The guest's
// own files are in memory files.
func isHostFile(f memmap.File) bool {
	_, ok := f.(*pgalloc.MemoryFile)
	return !ok
}

// tookCopyLocked is called after a copy of old was put at ar. It returns whether the mapping there
// may stay until the fault handler replaces it: only a mapping of the image itself or of a file of
// the host still shows the old content, since its memory is not reused.
func (mm *MemoryManager) tookCopyLocked(ar hostarch.AddrRange, wasInFile bool) bool {
	c := &mm.imageCOW
	if !c.inFault || !wasInFile {
		return false
	}
	c.copied = joinAddrRanges(c.copied, ar)
	return true
}

// mapCopiesLocked maps what a fault has copied, in one step over the image, and returns whether it
// did. It must happen before activeMu is released: another thread could otherwise write to the copy
// while the guest still sees the image.
//
// Preconditions: mm.activeMu must be locked for writing; imageCOW.inFault is true.
func (mm *MemoryManager) mapCopiesLocked(one bool) bool {
	c := &mm.imageCOW
	c.inFault = false
	copied := c.copied
	c.copied = hostarch.AddrRange{}
	if copied.Length() == 0 {
		return false
	}
	if mm.as == nil {
		mm.unmapASLocked(copied)
		return false
	}
	effect := memmap.MMapPlatformEffect(memmap.PlatformEffectPopulate)
	if one {
		// All of it is committed, so the guest can be spared the faults.
		effect = memmap.PlatformEffectCommit
	}
	if err := mm.mapASLocked(mm.pmas.LowerBoundSegment(copied.Start), copied, effect); err != nil {
		mm.unmapASLocked(copied)
		return false
	}
	return true
}
