package tmpfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// The list has one record for each entry, a directory before its entries, which are in ascending
// order of their names. crates/dorm-memory-image/src/files_image.rs describes the format.
const (
	filesMagic = "dormfil1"
	filesEnd   = "dormfend"

	recordEnd       = 0
	recordDirectory = 1
	recordReplacing = 2
	recordFile      = 3
	recordSymlink   = 4
	recordHardLink  = 5
	recordFifo      = 6
	recordWhiteout  = 7
	recordSocket    = 8
	recordDevice    = 9

	pathMax = 4095
	// pieceSize is how much content is looked at at once.
	pieceSize = 64 << 10
	// holesFrom is the length from which the holes of the memory file are looked for. Reading one
	// gives it memory.
	holesFrom = 256 << 10

	opaqueXattr   = linux.XATTR_TRUSTED_PREFIX + "overlay.opaque"
	overlayXattrs = linux.XATTR_TRUSTED_PREFIX + "overlay."
)

// IsOfRoot returns whether fs is a tmpfs with a memory file that only the root file system of a
// container has.
func IsOfRoot(fs *vfs.Filesystem) bool {
	t, ok := fs.Impl().(*filesystem)
	return ok && strings.HasSuffix(t.mf.RestoreID(), ":/")
}

// HasOptions returns whether fs is a tmpfs that was mounted with these options, and has its files in
// the memory file of the kernel.
func HasOptions(fs *vfs.Filesystem, options string) bool {
	t, ok := fs.Impl().(*filesystem)
	return ok && t.mopts == options && t.mf.RestoreID() == ""
}

// WriteFiles writes a list of all entries of upper, and their content. If direct is not nil, it is the
// file content, open for direct I/O. If tmp is not nil, its root
// directory takes the place of the entry "tmp". It returns the number of entries and of bytes.
//
// Preconditions: the kernel is paused, and both are tmpfs.
func WriteFiles(upper, tmp *vfs.Filesystem, list io.Writer, content, direct *fd.FD) (entries, size uint64, err error) {
	w := &filesWriter{
		list:    bufio.NewWriterSize(list, 1<<20),
		content: newContentWriter(content, direct),
		first:   make(map[*inode]string),
		scratch: make([]byte, pieceSize),
	}
	if _, err := w.list.WriteString(filesMagic); err != nil {
		return 0, 0, err
	}
	root := upper.Impl().(*filesystem)
	root.mu.RLock()
	defer root.mu.RUnlock()
	var other *filesystem
	if tmp != nil {
		other = tmp.Impl().(*filesystem)
		other.mu.RLock()
		defer other.mu.RUnlock()
	}
	if err := w.directory(root, other); err != nil {
		return 0, 0, err
	}
	w.record = append(w.record[:0], recordEnd)
	w.record = binary.LittleEndian.AppendUint64(w.record, w.entries)
	w.record = binary.LittleEndian.AppendUint64(w.record, w.size)
	w.record = append(w.record, filesEnd...)
	if _, err := w.list.Write(w.record); err != nil {
		return 0, 0, err
	}
	if err := w.list.Flush(); err != nil {
		return 0, 0, err
	}
	return w.entries, w.size, w.content.flush()
}

type filesWriter struct {
	list          *bufio.Writer
	content       *contentWriter
	entries, size uint64
	// first has the path of the first entry of each file with several links.
	first  map[*inode]string
	path   []byte
	depth  uint64
	record []byte
	pieces []byte
	// scratch is the content that is being looked at.
	scratch []byte
}

// level is a directory whose entries are being written.
type level struct {
	fs       *filesystem
	children []*dentry
	path     int
}

// directory writes the tree of root. A guest can nest directories without end, so this does not
// recurse.
func (w *filesWriter) directory(root, tmp *filesystem) error {
	children, err := w.entry(root, root.root, "")
	if err != nil {
		return err
	}
	levels := []level{{root, children, 0}}
	isTmpLeft := tmp != nil
	for len(levels) > 0 {
		at := &levels[len(levels)-1]
		w.path, w.depth = w.path[:at.path], uint64(len(levels))
		fs, d, name := at.fs, (*dentry)(nil), ""
		if len(at.children) > 0 {
			d = at.children[0]
			name = d.name
		}
		// The second tree comes at the position of its name.
		if isTmpLeft && len(levels) == 1 && (d == nil || name >= "tmp") {
			isTmpLeft = false
			if name == "tmp" {
				at.children = at.children[1:]
			}
			fs, d, name = tmp, tmp.root, "tmp"
		} else if d != nil {
			at.children = at.children[1:]
		}
		if d == nil {
			levels = levels[:len(levels)-1]
			continue
		}
		if len(w.path) > 0 {
			w.path = append(w.path, '/')
		}
		w.path = append(w.path, name...)
		if len(w.path) > pathMax {
			return fmt.Errorf("a path is longer than %d bytes", pathMax)
		}
		children, err := w.entry(fs, d, name)
		if err != nil {
			return err
		}
		if children != nil {
			levels = append(levels, level{fs, children, len(w.path)})
		}
	}
	return nil
}

// entry writes the record of d, and returns its entries if it is a directory.
func (w *filesWriter) entry(fs *filesystem, d *dentry, name string) ([]*dentry, error) {
	i := d.inode
	attributes := i.xattrs.All()
	kind := byte(0)
	switch impl := i.impl.(type) {
	case *directory:
		kind = recordDirectory
		if attributes[opaqueXattr] == "y" && fs.mf.RestoreID() != "" {
			kind = recordReplacing
		}
	case *regularFile:
		kind = recordFile
	case *symlink:
		kind = recordSymlink
	case *namedPipe:
		kind = recordFifo
	case *socketFile:
		kind = recordSocket
	case *deviceFile:
		kind = recordDevice
		if impl.kind == vfs.CharDevice && impl.major == 0 && impl.minor == 0 && fs.mf.RestoreID() != "" {
			kind = recordWhiteout
		}
	default:
		return nil, fmt.Errorf("unknown file type %T", impl)
	}
	first, isLinked := "", false
	if kind == recordFile || kind == recordSymlink || kind == recordFifo {
		if first, isLinked = w.first[i]; isLinked {
			kind = recordHardLink
		} else if i.nlink.Load() > 1 {
			w.first[i] = string(w.path)
		}
	}
	w.entries++
	w.record = append(w.record[:0], kind)
	w.record = binary.AppendUvarint(w.record, w.depth)
	w.text(name)
	for _, n := range []uint32{i.mode.Load() &^ linux.S_IFMT, i.uid.Load(), i.gid.Load()} {
		w.record = binary.AppendUvarint(w.record, uint64(n))
	}
	w.record = binary.AppendVarint(w.record, i.mtime.Load())
	switch kind {
	case recordHardLink:
		w.text(first)
	case recordFile:
		if err := w.file(fs, i.impl.(*regularFile)); err != nil {
			return nil, err
		}
	case recordSymlink:
		w.text(i.impl.(*symlink).target)
	}
	if kind <= recordFifo && kind != recordHardLink {
		w.xattrs(attributes)
	}
	if _, err := w.list.Write(w.record); err != nil {
		return nil, err
	}
	dir, ok := i.impl.(*directory)
	if !ok {
		return nil, nil
	}
	children := make([]*dentry, 0, len(dir.childMap))
	for _, child := range dir.childMap {
		children = append(children, child)
	}
	sort.Slice(children, func(a, b int) bool { return children[a].name < children[b].name })
	return children, nil
}

func (w *filesWriter) text(s string) {
	w.record = binary.AppendUvarint(w.record, uint64(len(s)))
	w.record = append(w.record, s...)
}

func (w *filesWriter) xattrs(all map[string]string) {
	var names []string
	for name := range all {
		if !strings.HasPrefix(name, overlayXattrs) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	w.record = binary.AppendUvarint(w.record, uint64(len(names)))
	for _, name := range names {
		w.text(name)
		w.text(all[name])
	}
}

// file appends the size of a file and the pieces of its content to the record, and writes the
// content. A piece is a gap since the last one and a length. Zero pages are left out.
func (w *filesWriter) file(fs *filesystem, f *regularFile) error {
	f.dataMu.RLock()
	defer f.dataMu.RUnlock()
	size := f.size.Load()
	w.record = binary.AppendUvarint(w.record, size)
	w.pieces = w.pieces[:0]
	p := piece{}
	count := uint64(0)
	end := func() {
		if p.length > 0 {
			w.pieces = binary.AppendUvarint(binary.AppendUvarint(w.pieces, p.gap), p.length)
			count++
		}
		p = piece{}
	}
	// at is the end of the last page with content.
	at := uint64(0)
	for seg := f.data.FirstSegment(); seg.Ok() && seg.Start() < size; seg = seg.NextSegment() {
		mr := seg.Range()
		mr.End = min(mr.End, size)
		fr := seg.FileRangeOf(mr)
		err := forEachDataRange(fs.mf, fr, func(part memmap.FileRange) error {
			return w.pages(fs.mf, part, func(off uint64, page []byte) error {
				start := mr.Start + off - fr.Start
				if start != at || p.length == 0 {
					end()
					p.gap = start - at
				}
				p.length += uint64(len(page))
				at = start + uint64(len(page))
				w.size += uint64(len(page))
				return w.content.write(page)
			})
		})
		if err != nil {
			return err
		}
	}
	end()
	w.record = binary.AppendUvarint(w.record, count)
	w.record = append(w.record, w.pieces...)
	return nil
}

type piece struct{ gap, length uint64 }

var zeroPage [hostarch.PageSize]byte

// pages calls fn for each page in fr that is not zero, with its position.
func (w *filesWriter) pages(mf *pgalloc.MemoryFile, fr memmap.FileRange, fn func(uint64, []byte) error) error {
	for fr.Length() > 0 {
		part := memmap.FileRange{fr.Start, min(fr.End, fr.Start+pieceSize)}
		blocks, err := mf.MapInternal(part, hostarch.Read)
		if err != nil {
			return err
		}
		text := w.scratch[:part.Length()]
		if _, err := safemem.CopySeq(safemem.BlockSeqOf(safemem.BlockFromSafeSlice(text)), blocks); err != nil {
			return err
		}
		for off := part.Start; len(text) > 0; off += hostarch.PageSize {
			page := text[:min(len(text), hostarch.PageSize)]
			if !bytes.Equal(page, zeroPage[:len(page)]) {
				if err := fn(off, page); err != nil {
					return err
				}
			}
			text = text[len(page):]
		}
		fr.Start = part.End
	}
	return nil
}

// forEachDataRange calls fn for the parts of fr that have memory.
func forEachDataRange(mf *pgalloc.MemoryFile, fr memmap.FileRange, fn func(memmap.FileRange) error) error {
	if fr.Length() < holesFrom {
		return fn(fr)
	}
	for fr.Length() > 0 {
		start, err := unix.Seek(mf.FD(), int64(fr.Start), unix.SEEK_DATA)
		if err == unix.ENXIO || err == nil && uint64(start) >= fr.End {
			return nil
		}
		if err != nil {
			return fn(fr)
		}
		end, err := unix.Seek(mf.FD(), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		// Pages are read whole.
		part := memmap.FileRange{max(fr.Start, uint64(start)&^(hostarch.PageSize-1)), min(fr.End, uint64(end))}
		if err := fn(part); err != nil {
			return err
		}
		fr.Start = min(fr.End, (part.End+hostarch.PageSize-1)&^(hostarch.PageSize-1))
	}
	return nil
}
