package tmpfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
)

const (
	// contentPart is how much is written at once.
	contentPart = 1 << 20
	// contentCached is how much is written through the page cache, which is charged to the container
	// and takes the memory that its own files need. Writing a little directly would take longer.
	contentCached = 64 << 20
	contentAlign  = 4 << 10
)

// contentWriter writes a file from its beginning to its end.
type contentWriter struct {
	file *fd.FD
	// direct is the same file, open for direct I/O, or nil.
	direct *fd.FD
	part   []byte
	off    int64
}

func newContentWriter(file, direct *fd.FD) *contentWriter {
	room := make([]byte, contentPart+contentAlign)
	skip := -uintptr(unsafe.Pointer(&room[0])) & (contentAlign - 1)
	return &contentWriter{file: file, direct: direct, part: room[skip : skip : skip+contentPart]}
}

func (w *contentWriter) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), contentPart-len(w.part))
		w.part = append(w.part, p[:n]...)
		p = p[n:]
		if len(w.part) == contentPart {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes what is left. Only the last part may be shorter than contentPart.
func (w *contentWriter) flush() error {
	file := w.file
	if w.direct != nil && w.off >= contentCached && len(w.part) == contentPart {
		file = w.direct
	}
	for rest := w.part; len(rest) > 0; {
		n, err := unix.Pwrite(file.FD(), rest, w.off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n%contentAlign != 0:
			// What follows is not aligned any more.
			file = w.file
		}
		rest = rest[n:]
		w.off += int64(n)
	}
	w.part = w.part[:0]
	return nil
}
