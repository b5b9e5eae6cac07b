package pgalloc

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// madvPopulateRead is MADV_POPULATE_READ of Linux 5.14.
const madvPopulateRead = 22

// memoryParts are the parts of a range that have memory, by rising offset. All others are zero.
type memoryParts struct {
	known bool
	parts []memmap.FileRange
}

// memoryIn returns the parts of f that have memory, from off on as far as s, where f is mapped. It maps
// their pages at once: a fault maps 16 pages, and reading a page that has no memory allocates it.
func (f *MemoryFile) memoryIn(s []byte, off uint64) memoryParts {
	fr := memmap.FileRange{off, off + uint64(len(s))}
	if some, _ := f.ImageBacked(fr); some || f.opts.DiskBackedFile {
		return memoryParts{}
	}
	found := memoryParts{known: true}
	for at := fr.Start; at < fr.End; {
		start, err := unix.Seek(f.FD(), int64(at), unix.SEEK_DATA)
		if err == unix.ENXIO || err == nil && uint64(start) >= fr.End {
			break
		}
		end, endErr := unix.Seek(f.FD(), start, unix.SEEK_HOLE)
		if err != nil || endErr != nil || end <= start {
			return memoryParts{}
		}
		part := memmap.FileRange{uint64(start), uint64(end)}.Intersect(fr)
		// If the host cannot do that, reading maps them.
		unix.Syscall(unix.SYS_MADVISE, uintptr(unsafe.Pointer(&s[part.Start-off])), uintptr(part.Length()), madvPopulateRead)
		found.parts = append(found.parts, part)
		at = part.End
	}
	return found
}

// isZero returns whether the page at off has no memory. It must be called with rising offsets.
func (m *memoryParts) isZero(off uint64) bool {
	for len(m.parts) > 0 && m.parts[0].End <= off {
		m.parts = m.parts[1:]
	}
	return m.known && (len(m.parts) == 0 || off < m.parts[0].Start)
}
