package pgalloc

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// A sandbox may stay paused after its memory was saved. Once the image is durable, MapSaved releases the
// memory and maps it from the image instead, as if it had been restored from there. So the next save
// finds there what did not change.

// savedPages is where the last save has put the content of a memory file.
type savedPages struct {
	// ino and dev identify the pages file.
	ino, dev uint64
	// base is the file of the parts that were left out, or nil.
	base *imageFile
	// runs are by rising memory offset. Once isMapped is true, they are those that are still to be
	// mapped.
	runs     []imageRun
	isMapped bool
}

// beginSaved forgets the save before.
//
// Preconditions: f.mu must be locked; chooseBase was called.
func (f *MemoryFile) beginSaved(pw io.Writer) {
	f.saved = nil
	out, ok := pw.(*fd.FD)
	var stat unix.Stat_t
	if !ok || unix.Fstat(out.FD(), &stat) != nil {
		return
	}
	f.saved = &savedPages{ino: stat.Ino, dev: stat.Dev, base: imageMap.base}
}

// noteSaved notes that the content of fr is at off of the image, or of its base.
func (f *MemoryFile) noteSaved(fr memmap.FileRange, off uint64) {
	s := f.saved
	if s == nil {
		return
	}
	if n := len(s.runs); n > 0 {
		if last := &s.runs[n-1]; last.fr.End == fr.Start && last.off+last.fr.Length() == off {
			last.fr.End = fr.End
			return
		}
	}
	s.runs = append(s.runs, imageRun{fr, off})
}

// noteSavedNext notes that the content of fr comes next in out.
func (f *MemoryFile) noteSavedNext(fr memmap.FileRange, out *fd.FD) error {
	at, err := unix.Seek(out.FD(), 0, unix.SEEK_CUR)
	if err == nil {
		f.noteSaved(fr, uint64(at))
	}
	return err
}

// ForgetSaved makes MapSaved fail until the next save. It is called when tasks may change memory.
func (f *MemoryFile) ForgetSaved() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved = nil
}

// dropUnusedImage closes an image of which nothing was mapped. The host takes an open image for one that the
// memory needs.
//
// Preconditions: f.mu must be locked; no task has run since the last save.
func (f *MemoryFile) dropUnusedImage() {
	if im := f.image; im != nil && im.file != nil && im.base == nil && im.backed.IsEmpty() {
		unix.Close(im.file.fd)
		f.image = nil
		f.unreleased.RemoveAll()
	}
}

// MapSaved maps memory in frs, which is private, from the image that the last save has written to pages. The
// first call after a save only maps what is in an image already; each other one releases about limit
// bytes. It returns how many bytes are left for the next call. After an error, some memory may be in the
// image.
//
// Preconditions: no task has run since that save. The caller marks what is in the image then.
func (f *MemoryFile) MapSaved(pages *fd.FD, frs []memmap.FileRange, limit uint64) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.saved
	if s == nil {
		return 0, errors.New("it is not known where the memory was saved")
	}
	var stat unix.Stat_t
	if err := unix.Fstat(pages.FD(), &stat); err != nil {
		return 0, err
	}
	if stat.Ino != s.ino || stat.Dev != s.dev {
		return 0, errors.New("the memory was saved to another file")
	}
	err := f.mapSome(pages, frs, limit)
	if err != nil {
		f.saved = nil
		f.dropUnusedImage()
		return 0, err
	}
	var left uint64
	for _, run := range s.runs {
		left += run.fr.Length()
	}
	return left + uint64(f.unreleased.Span()), nil
}

// mapSome does the work of MapSaved.
//
// Preconditions: f.mu must be locked; f.saved is not nil.
func (f *MemoryFile) mapSome(pages *fd.FD, frs []memmap.FileRange, limit uint64) error {
	s := f.saved
	if !s.isMapped {
		return f.beginMapping(pages, frs)
	}
	released := uint64(0)
	for !f.unreleased.IsEmpty() && released < limit {
		released += f.releaseMapped(limit - released)
	}
	for len(s.runs) > 0 && released < limit {
		run := s.runs[0]
		run.fr = firstOf(run.fr, limit-released)
		if err := f.checkRun(f.image, run); err != nil {
			return err
		}
		if s.runs[0].fr.Start, s.runs[0].off = run.fr.End, run.off+run.fr.Length(); s.runs[0].fr.Length() == 0 {
			s.runs = s.runs[1:]
		}
		f.mapRun(f.image, run)
		f.image.mu.Lock()
		f.image.backed.InsertRange(run.fr, unfreeInfo{refs: run.off - run.fr.Start})
		f.image.mu.Unlock()
		f.decommitMapped(run.fr)
		released += run.fr.Length()
	}
	return nil
}

// firstOf returns the first part of fr, which has limit bytes, rounded down to a huge page, but at least one.
func firstOf(fr memmap.FileRange, limit uint64) memmap.FileRange {
	if length := max(limit, hostarch.HugePageSize) &^ (hostarch.HugePageSize - 1); fr.Length() > length {
		fr.End = fr.Start + length
	}
	return fr
}

// releaseMapped releases some memory that was left when its range was mapped. It returns how many bytes
// the range has.
//
// Preconditions: f.mu must be locked; some memory is unreleased.
func (f *MemoryFile) releaseMapped(limit uint64) uint64 {
	im := f.image
	// FillFromImage uses the memory of a range that is still backed.
	im.filling.Lock()
	defer im.filling.Unlock()
	fr := firstOf(f.unreleased.FirstSegment().Range(), limit)
	f.unreleased.RemoveRange(fr)
	for _, part := range im.backedParts(fr) {
		f.decommitMapped(part)
	}
	return fr.Length()
}

// beginMapping makes the saved image the image of f. What is in an image already is in the new one when
// it returns, and its memory is not released yet; the other runs are left.
//
// Preconditions: f.mu must be locked.
func (f *MemoryFile) beginMapping(pages *fd.FD, frs []memmap.FileRange) error {
	s := f.saved
	var fs unix.Statfs_t
	if err := unix.Fstatfs(pages.FD(), &fs); err != nil || fs.Flags&unix.ST_NOEXEC != 0 || f.opts.DiskBackedFile {
		return fmt.Errorf("memory cannot be mapped from the image (flags %#x, %v)", fs.Flags, err)
	}
	before := f.image
	if before == nil {
		before = &imageState{}
	}
	parts, left, err := s.mappableSaved(before, frs)
	if err != nil {
		return err
	}
	nfd, err := unix.Dup(pages.FD())
	if err != nil {
		return err
	}
	after := &imageState{file: &imageFile{fd: nfd}}
	if s.base != nil {
		after.base = &imageBase{file: s.base}
		if before.base != nil && before.base.file == s.base {
			after.base.in = before.base.in
		}
	}
	// A part may have memory besides what is in an image, so that after the first one is mapped, the
	// state before is wrong. One that is mapped as it will be is the same, and would be read from the disk.
	for _, part := range parts {
		if file, off := after.at(part.off); before.maps(part.fr, file, off) {
			continue
		}
		if err := f.checkRun(after, part); err != nil {
			unix.Close(nfd)
			return err
		}
	}
	for _, part := range parts {
		f.mapRun(after, part)
		after.backed.InsertRange(part.fr, unfreeInfo{refs: part.off - part.fr.Start})
	}
	for _, part := range parts {
		_ = f.ForEachBacking(part.fr, func(fr memmap.FileRange, file memmap.File, _ uint64) error {
			if file == memmap.File(f) {
				addRange(&f.unreleased, fr)
			}
			return nil
		})
	}
	f.image = after
	if before.file != nil && before.file != s.base {
		unix.Close(before.file.fd)
	}
	if before.base != nil && before.base.file != s.base {
		before.base.close()
	}
	s.runs, s.isMapped = left, true
	return nil
}

// mappableSaved returns the parts of the saved runs that are in an image now, and other parts of frs that can
// be mapped.
func (s *savedPages) mappableSaved(before *imageState, frs []memmap.FileRange) (parts, left []imageRun, err error) {
	before.mu.RLock()
	defer before.mu.RUnlock()
	var set unwasteSet
	for _, fr := range frs {
		// Forked address spaces have ranges in common.
		addRange(&set, fr)
	}
	var backed uint64
	for seg := before.backed.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		addRange(&set, seg.Range())
		backed += seg.Range().Length()
	}
	for _, run := range s.runs {
		for seg := set.LowerBoundSegment(run.fr.Start); seg.Ok() && seg.Start() < run.fr.End; seg = seg.NextSegment() {
			fr := seg.Range().Intersect(run.fr)
			part := imageRun{fr, run.off + fr.Start - run.fr.Start}
			var inImage uint64
			for seg := before.backed.LowerBoundSegment(fr.Start); seg.Ok() && seg.Start() < fr.End; seg = seg.NextSegment() {
				inImage += seg.Range().Intersect(fr).Length()
			}
			switch {
			case inImage > 0:
				parts = append(parts, part)
				backed -= inImage
			case fr.Length() >= imageMinRun:
				left = append(left, part)
			}
		}
	}
	if backed != 0 {
		return nil, nil, fmt.Errorf("%d bytes are in the image before and not in this one", backed)
	}
	if len(parts)+len(left) > imageMaxMappings {
		return nil, nil, fmt.Errorf("the image has %d parts to map", len(parts)+len(left))
	}
	return parts, left, nil
}

// maps returns whether all of fr is mapped from file at off.
func (im *imageState) maps(fr memmap.FileRange, file *imageFile, off uint64) bool {
	im.mu.RLock()
	defer im.mu.RUnlock()
	at := fr.Start
	for seg := im.backed.LowerBoundSegment(at); at < fr.End; seg = seg.NextSegment() {
		if !seg.Ok() || seg.Start() > at {
			return false
		}
		if from, start := im.at(at + seg.Value().refs); from != file || start != off+at-fr.Start {
			return false
		}
		at = seg.End()
	}
	return true
}

// addRange adds fr to a set that may have parts of it.
func addRange(set *unwasteSet, fr memmap.FileRange) {
	set.RemoveRange(fr)
	set.InsertRange(fr, unwasteInfo{})
}

// checkRun returns an error if a run has not the content that the image has.
func (f *MemoryFile) checkRun(im *imageState, run imageRun) error {
	if file, off := im.at(run.off); !f.isContentOf(file, run.fr, off) {
		return fmt.Errorf("%v is not what the image has at %#x", run.fr, run.off)
	}
	return nil
}

// mapRun maps a run from the image. If the host cannot do that, a part may be mapped, so the sandbox
// ends: the image has its memory.
func (f *MemoryFile) mapRun(im *imageState, run imageRun) {
	file, off := im.at(run.off)
	if err := f.remap(run.fr, file.fd, off, unix.PROT_READ); err != nil {
		panic(fmt.Sprintf("cannot map %v from the image: %v", run.fr, err))
	}
}

// decommitMapped releases the memory of fr, which is in the image.
func (f *MemoryFile) decommitMapped(fr memmap.FileRange) {
	if err := f.decommitFile(fr); err != nil {
		// It is cleared before it is used again.
		log.Warningf("image-backed memory: cannot release %v: %v", fr, err)
	}
}

// isContentOf compares the first and the last page of fr with a file.
func (f *MemoryFile) isContentOf(file *imageFile, fr memmap.FileRange, off uint64) bool {
	var read [hostarch.PageSize]byte
	for _, start := range []uint64{fr.Start, fr.End - hostarch.PageSize} {
		if n, err := unix.Pread(file.fd, read[:], int64(off+start-fr.Start)); n != len(read) || err != nil {
			return false
		}
		same := true
		f.forEachMappingSlice(memmap.FileRange{start, start + hostarch.PageSize}, func(s []byte) {
			same = same && bytes.Equal(s, read[:len(s)])
		})
		if !same {
			return false
		}
	}
	return true
}
