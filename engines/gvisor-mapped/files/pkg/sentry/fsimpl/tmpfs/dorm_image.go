package tmpfs

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sync"
)

// loaded are the files that the last load has restored, until TakeLoaded.
var loaded struct {
	mu    sync.Mutex
	files []*regularFile
}

func noteLoaded(rf *regularFile) {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	loaded.files = append(loaded.files, rf)
}

// Loaded are the files that a load has restored.
type Loaded []*regularFile

// TakeLoaded returns the files that were loaded since it was last called.
func TakeLoaded() Loaded {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	files := loaded.files
	loaded.files = nil
	return files
}

// AppendRanges appends the ranges of mf that have the content of the files.
//
// Preconditions: no task runs.
func (l Loaded) AppendRanges(mf *pgalloc.MemoryFile, frs []memmap.FileRange) []memmap.FileRange {
	for _, rf := range l {
		if rf.inode.fs.mf != mf {
			continue
		}
		for seg := rf.data.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
			frs = append(frs, seg.FileRange())
		}
	}
	return frs
}

// imageFill is what a file knows about accesses to its memory in an image. It is protected by
// regularFile.dataMu.
type imageFill struct {
	end, unit uint64
}

// fillLocked fills memory of the file that is in an image, around required, and returns how much of
// optional to translate: nothing that is still in the image. The guest never maps a file from the
// image, since whoever writes would have to find all who have mapped it.
//
// Preconditions: rf.dataMu must be locked for writing; optional contains required.
func (rf *regularFile) fillLocked(required, optional memmap.MappableRange) (memmap.MappableRange, error) {
	mf := rf.inode.fs.mf
	if !mf.HasImage() || !rf.someInImageLocked(optional) {
		return optional, nil
	}
	fill := &rf.imageFill
	unit := mf.ImageUnit()
	if fill.unit != 0 && required.Start >= fill.end && required.Start < fill.end+fill.unit {
		unit = max(unit, min(fill.unit*4, hostarch.HugePageSize))
	}
	window := memmap.MappableRange{required.Start &^ (unit - 1), (required.End + unit - 1) &^ (unit - 1)}.Intersect(optional)
	fill.end, fill.unit = window.End, unit
	if rf.fillRangeLocked(window) == nil {
		return window, nil
	}
	// Something beside what is required cannot be read.
	return required, rf.fillRangeLocked(required)
}

func (rf *regularFile) someInImageLocked(mr memmap.MappableRange) bool {
	for seg := rf.data.LowerBoundSegment(mr.Start); seg.Ok() && seg.Start() < mr.End; seg = seg.NextSegment() {
		if some, _ := rf.inode.fs.mf.ImageBacked(seg.FileRangeOf(seg.Range().Intersect(mr))); some {
			return true
		}
	}
	return false
}

func (rf *regularFile) fillRangeLocked(mr memmap.MappableRange) error {
	for seg := rf.data.LowerBoundSegment(mr.Start); seg.Ok() && seg.Start() < mr.End; seg = seg.NextSegment() {
		if err := rf.inode.fs.mf.FillFromImage(seg.FileRangeOf(seg.Range().Intersect(mr))); err != nil {
			return err
		}
	}
	return nil
}
