package pgalloc

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

const (
	// imageUnit is the number of bytes to copy for an access that continues no other.
	imageUnit = 64 << 10
	// imageCopiesSmall and imageCopiesLarge are the numbers of copies after which such an access
	// copies 256 KiB and 2 MiB. Each copy adds up to two mappings to the sentry, and to a stub, of
	// which the host allows 65,530.
	imageCopiesSmall = 8 << 10
	imageCopiesLarge = 16 << 10
)

// ImageUnit returns the number of bytes to copy out of the image for an access that continues no
// other.
func (f *MemoryFile) ImageUnit() uint64 {
	switch copies := f.image.copies.Load(); {
	case copies >= imageCopiesLarge:
		return hostarch.HugePageSize
	case copies >= imageCopiesSmall:
		return imageUnit * 4
	}
	return imageUnit
}

// FillFromImage gives what is still in the image in fr memory of its own, at the same place and with
// the same content. It is for memory of files: whoever maps it sees one place, so that a copy elsewhere
// would be another file. No address space may map the image there.
//
// It returns an error if the image cannot be read; what is filled by then is usable.
//
// Preconditions: the caller holds a reference on fr.
func (f *MemoryFile) FillFromImage(fr memmap.FileRange) error {
	im := f.image
	if some, _ := f.ImageBacked(fr); !some {
		return nil
	}
	// A write may begin and end within a page.
	fr.Start &^= hostarch.PageSize - 1
	fr.End = (fr.End + hostarch.PageSize - 1) &^ (hostarch.PageSize - 1)
	im.filling.Lock()
	defer im.filling.Unlock()
	for _, part := range im.backedParts(fr) {
		if err := f.copyFromImage(part); err != nil {
			// The image is still mapped. Copied bytes do no harm: released memory is cleared before it
			// is used again.
			log.Warningf("image-backed memory: the image cannot be read in %v: %v", part, err)
			return linuxerr.EIO
		}
		// Readers find the same content before and after.
		im.mu.Lock()
		err := f.remap(part, f.FD(), part.Start, unix.PROT_READ|unix.PROT_WRITE)
		if err == nil {
			im.backed.RemoveRange(part)
		}
		im.mu.Unlock()
		if err != nil {
			log.Warningf("image-backed memory: cannot map %v: %v", part, err)
			return linuxerr.ENOMEM
		}
		im.copies.Add(1)
	}
	return nil
}

// backedParts returns the parts of fr that are in the image.
func (im *imageState) backedParts(fr memmap.FileRange) []memmap.FileRange {
	im.mu.RLock()
	defer im.mu.RUnlock()
	var parts []memmap.FileRange
	for seg := im.backed.LowerBoundSegment(fr.Start); seg.Ok() && seg.Start() < fr.End; seg = seg.NextSegment() {
		parts = append(parts, seg.Range().Intersect(fr))
	}
	return parts
}

// copyFromImage writes what the sentry sees in fr to the same place of f.
func (f *MemoryFile) copyFromImage(fr memmap.FileRange) error {
	at := fr.Start
	var err error
	f.forEachMappingSlice(fr, func(s []byte) {
		for len(s) > 0 && err == nil {
			n, writeErr := unix.Pwrite(f.FD(), s, int64(at))
			switch {
			case writeErr == unix.EINTR:
			case writeErr != nil:
				err = writeErr
			default:
				s, at = s[n:], at+uint64(n)
			}
		}
	})
	return err
}
