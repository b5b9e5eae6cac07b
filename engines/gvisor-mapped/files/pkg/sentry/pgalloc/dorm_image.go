package pgalloc

import (
	"io"
	"sort"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/safecopy"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/sync"
)

const (
	// imageMinRun is the length of the shortest run that is mapped instead of read.
	imageMinRun = 64 << 10
	// imageMaxMappings limits how many runs are mapped. A process may have 65,530 mappings
	// (vm.max_map_count), and each copy of a part adds up to two.
	imageMaxMappings = 8 << 10
)

// imageFile is a read-only memmap.File over the pages file of an image. It is only passed to
// platform.AddressSpace.MapFile.
type imageFile struct {
	memmap.NoBufferedIOFallback
	fd int
}

func (*imageFile) IncRef(memmap.FileRange, uint32) {}
func (*imageFile) DecRef(memmap.FileRange)         {}
func (i *imageFile) FD() int                       { return i.fd }
func (*imageFile) MapInternal(memmap.FileRange, hostarch.AccessType) (safemem.BlockSeq, error) {
	return safemem.BlockSeq{}, linuxerr.ENODEV
}

// imageRun is a range of the MemoryFile whose content starts at an offset of the image. An offset
// with the bit inBase is one of the image's base.
type imageRun struct {
	fr  memmap.FileRange
	off uint64
}

// imageState is what a MemoryFile knows about the image that it was restored from.
type imageState struct {
	file *imageFile
	// base is the base of the image, or nil.
	base *imageBase
	// readAll is set if nothing can be mapped.
	readAll bool
	// pending are all runs, between LoadFrom and FinishImageLoad.
	pending []imageRun
	// copies counts the copies out of the image.
	copies atomicbitops.Uint64

	// filling is held while FillFromImage copies. It is locked before mu.
	filling sync.Mutex

	mu sync.RWMutex
	// backed maps ranges of the MemoryFile to image offset minus MemoryFile offset. The ranges
	// have no memory of their own: the chunk mappings show the image there, read-only.
	backed unfreeSet
}

// DeferLoad makes the next LoadFrom only note where pages are in the image and its base. Without a
// base, it changes nothing if memory cannot be mapped: if canMap is false, or if code in the image
// could not be executed, as on a file system that is mounted noexec.
func (f *MemoryFile) DeferLoad(pagesFD int, canMap bool) error {
	base := takeImageBase()
	canMap = canMap && !f.opts.DiskBackedFile
	// The guest maps code from the image, too, and the filter lets no process here try that.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(pagesFD, &fs); err != nil || fs.Flags&unix.ST_NOEXEC != 0 {
		log.Warningf("image-backed restore: code cannot be executed in the image's file system (flags %#x, %v), so all memory is read", fs.Flags, err)
		canMap = false
	}
	if !canMap && base == nil {
		return nil
	}
	nfd, err := unix.Dup(pagesFD)
	if err != nil {
		return err
	}
	f.image = &imageState{file: &imageFile{fd: nfd}, base: base, readAll: !canMap}
	return nil
}

// at returns the file that has an offset of the image, and the offset in that file.
func (im *imageState) at(off uint64) (*imageFile, uint64) {
	if off&inBase != 0 {
		return im.base.file, off &^ inBase
	}
	return im.file, off
}

// LoadDeferred returns whether FinishImageLoad has to be called.
func (f *MemoryFile) LoadDeferred() bool { return f.image != nil && f.image.pending != nil }

// deferRun notes where the content of fr is, which is next in the image's pages.
func (im *imageState) deferRun(fr memmap.FileRange, pr *statefile.AsyncReader) {
	note := func(length, off uint64) {
		if length > 0 {
			im.pending = append(im.pending, imageRun{memmap.FileRange{fr.Start, fr.Start + length}, off})
			fr.Start += length
		}
	}
	for im.base != nil && fr.Length() > 0 {
		own, referred, off := im.base.next(uint64(pr.Skip(0)), fr.Length())
		note(own, uint64(pr.Skip(int(own))))
		note(referred, off|inBase)
	}
	note(fr.Length(), uint64(pr.Skip(int(fr.Length()))))
}

// FinishImageLoad maps those parts of the image that belong to these ranges, and reads all others. The
// ranges are private memory, or those of files whose owner calls FillFromImage.
func (f *MemoryFile) FinishImageLoad(ctx context.Context, frs []memmap.FileRange, pr *statefile.AsyncReader) error {
	im := f.image
	if im.readAll {
		frs = nil
	}
	parts := im.mappable(frs)
	var mapped, read uint64
	next := 0
	for _, run := range im.pending {
		at := run.fr.Start
		readTo := func(end uint64) {
			if end <= at {
				return
			}
			fr := memmap.FileRange{at, end}
			in, off := pr, run.off+at-run.fr.Start
			if off&inBase != 0 {
				in, off = im.base.reader(), off&^inBase
			}
			f.forEachMappingSlice(fr, func(s []byte) {
				in.ReadAsyncAt(s, int64(off))
				off += uint64(len(s))
			})
			read += fr.Length()
			at = end
		}
		for ; next < len(parts) && parts[next].fr.Start < run.fr.End; next++ {
			part := parts[next]
			readTo(part.fr.Start)
			file, off := im.at(part.off)
			if err := f.remap(part.fr, file.fd, off, unix.PROT_READ); err != nil {
				log.Warningf("image-backed restore: cannot map %v, so it is read: %v", part.fr, err)
				continue
			}
			im.backed.InsertRange(part.fr, unfreeInfo{refs: part.off - part.fr.Start})
			mapped += part.fr.Length()
			at = part.fr.End
		}
		readTo(run.fr.End)
	}
	im.pending = nil
	log.Infof("image-backed restore: %d bytes left in the image in %d mappings, %d bytes read", mapped, len(parts), read)
	return im.base.finish()
}

// mappable returns the parts of the pending runs to map, by rising offset: those in these ranges, and
// of these only the longest if there are too many.
func (im *imageState) mappable(frs []memmap.FileRange) []imageRun {
	var set unwasteSet
	for _, fr := range frs {
		// Forked address spaces have ranges in common.
		addRange(&set, fr)
	}
	var parts []imageRun
	for _, run := range im.pending {
		for seg := set.LowerBoundSegment(run.fr.Start); seg.Ok() && seg.Start() < run.fr.End; seg = seg.NextSegment() {
			if fr := seg.Range().Intersect(run.fr); fr.Length() >= imageMinRun {
				parts = append(parts, imageRun{fr, run.off + fr.Start - run.fr.Start})
			}
		}
	}
	if len(parts) > imageMaxMappings {
		sort.Slice(parts, func(a, b int) bool { return parts[a].fr.Length() > parts[b].fr.Length() })
		parts = parts[:imageMaxMappings]
		sort.Slice(parts, func(a, b int) bool { return parts[a].fr.Start < parts[b].fr.Start })
	}
	return parts
}

// remap replaces the sentry's own mapping of fr.
func (f *MemoryFile) remap(fr memmap.FileRange, fd int, off uint64, prot uintptr) error {
	var err error
	f.forEachChunk(fr, func(chunk *chunkInfo, part memmap.FileRange) bool {
		_, _, errno := unix.Syscall6(unix.SYS_MMAP,
			chunk.mapping+uintptr(part.Start&chunkMask), uintptr(part.Length()), prot,
			unix.MAP_SHARED|unix.MAP_FIXED, uintptr(fd), uintptr(off+part.Start-fr.Start))
		if errno != 0 {
			err = errno
		}
		return errno == 0
	})
	return err
}

// ImageBacked returns whether some page of fr is in the image, and whether all are.
func (f *MemoryFile) ImageBacked(fr memmap.FileRange) (some, all bool) {
	im := f.image
	if im == nil {
		return false, false
	}
	im.mu.RLock()
	defer im.mu.RUnlock()
	all = true
	at := fr.Start
	for seg := im.backed.LowerBoundSegment(fr.Start); seg.Ok() && seg.Start() < fr.End; seg = seg.NextSegment() {
		some = true
		all = all && seg.Start() <= at
		at = seg.End()
	}
	return some, all && some && at >= fr.End
}

// ForEachBacking splits fr into ranges with one backing each: the image, or f itself.
func (f *MemoryFile) ForEachBacking(fr memmap.FileRange, fn func(part memmap.FileRange, file memmap.File, off uint64) error) error {
	im := f.image
	if im == nil {
		return fn(fr, f, fr.Start)
	}
	type piece struct {
		fr   memmap.FileRange
		file memmap.File
		off  uint64
	}
	var pieces []piece
	at := fr.Start
	im.mu.RLock()
	for seg := im.backed.LowerBoundSegment(fr.Start); seg.Ok() && seg.Start() < fr.End; seg = seg.NextSegment() {
		part := seg.Range().Intersect(fr)
		if part.Start > at {
			pieces = append(pieces, piece{memmap.FileRange{at, part.Start}, f, at})
		}
		file, off := im.at(part.Start + seg.Value().refs)
		pieces = append(pieces, piece{part, file, off})
		at = part.End
	}
	im.mu.RUnlock()
	if at < fr.End {
		pieces = append(pieces, piece{memmap.FileRange{at, fr.End}, f, at})
	}
	for _, p := range pieces {
		if err := fn(p.fr, p.file, p.off); err != nil {
			return err
		}
	}
	return nil
}

// ForEachImageBacked calls fn for each part of fr that is in the image.
func (f *MemoryFile) ForEachImageBacked(fr memmap.FileRange, fn func(memmap.FileRange)) {
	_ = f.ForEachBacking(fr, func(part memmap.FileRange, file memmap.File, _ uint64) error {
		if file != memmap.File(f) {
			fn(part)
		}
		return nil
	})
}

// AllocateImageCopy allocates memory and copies src into it, for the first write to memory in the
// image. It writes through the descriptor, which spares zeroing the pages and mapping them here. As
// Allocate, it returns the whole pages it has copied besides an error.
func (f *MemoryFile) AllocateImageCopy(src safemem.BlockSeq, opts AllocOpts) (memmap.FileRange, error) {
	f.image.copies.Add(1)
	opts.Mode = AllocateCallerIndirectCommit
	opts.ReaderFunc = nil
	fr, err := f.Allocate(src.NumBytes(), opts)
	if err != nil {
		return fr, err
	}
	at := fr.Start
	for ; !src.IsEmpty() && err == nil; src = src.Tail() {
		addr, left := src.Head().Addr(), uintptr(src.Head().Len())
		for left > 0 && err == nil {
			n, _, errno := unix.Syscall6(unix.SYS_PWRITE64, uintptr(f.FD()), addr, left, uintptr(at), 0, 0)
			switch errno {
			case 0:
				addr, left, at = addr+n, left-n, at+uint64(n)
			case unix.EINTR:
			case unix.EFAULT:
				// The image ends before this page, or the disk cannot read it.
				log.Warningf("image-backed memory: the image cannot be read at %v", memmap.FileRange{at, at + hostarch.PageSize})
				err = safecopy.BusError{Addr: addr}
			default:
				err = errno
			}
		}
	}
	if err != nil {
		end := at &^ (hostarch.PageSize - 1)
		f.DecRef(memmap.FileRange{end, fr.End})
		fr.End = end
	}
	return fr, err
}

// dropImage gives fr memory of its own, which is zero, after its last reference is gone. It returns
// false if the host cannot do that: then fr must not be used again.
//
// Preconditions: f.mu must be locked.
func (f *MemoryFile) dropImage(fr memmap.FileRange) bool {
	im := f.image
	if im == nil {
		return true
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	for seg := im.backed.LowerBoundSegment(fr.Start); seg.Ok() && seg.Start() < fr.End; seg = im.backed.LowerBoundSegment(fr.Start) {
		seg = im.backed.Isolate(seg, fr)
		part := seg.Range()
		if err := f.remap(part, f.FD(), part.Start, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			log.Warningf("image-backed memory: cannot take %v out of the image, so it is not used again: %v", part, err)
			return false
		}
		im.backed.Remove(seg)
	}
	return true
}

// savePages writes fr to pw, or has the host copy it. What is still in the image is referred to if the
// caller wants that, or else copied from file to file, which a file system that shares blocks does
// without reading it.
func (f *MemoryFile) savePages(fr memmap.FileRange, pw io.Writer) error {
	return f.ForEachBacking(fr, func(part memmap.FileRange, file memmap.File, off uint64) error {
		img, ok := file.(*imageFile)
		out, isFile := pw.(*fd.FD)
		if ok && isFile {
			if referred, err := imageMap.refer(img, part.Length(), off, out); referred || err != nil {
				f.noteSaved(part, off|inBase)
				return err
			}
		}
		if isFile {
			if err := f.noteSavedNext(part, out); err != nil {
				return err
			}
		}
		if isFile {
			if copied, err := copyByHost(file, off, part.Length(), out); copied || err != nil {
				return err
			}
		}
		if ok && isFile {
			in := int64(off)
			for part.Length() > 0 {
				n, err := unix.CopyFileRange(img.fd, &in, out.FD(), nil, int(part.Length()), 0)
				if err != nil || n <= 0 {
					log.Infof("image-backed memory: copy_file_range returned %d (%v), so %v is written", n, err, part)
					break
				}
				part.Start += uint64(n)
			}
		}
		if part.Length() == 0 {
			return nil
		}
		var ioErr error
		f.forEachMappingSlice(part, func(s []byte) {
			if ioErr == nil {
				_, ioErr = pw.Write(s)
			}
		})
		return ioErr
	})
}

// HasImage returns whether f was restored from an image that some memory may still be in.
func (f *MemoryFile) HasImage() bool { return f.image != nil }

// mappedBlock returns the block for bs, which maps a part of fr. Reads of memory in the image are
// prepared for a page that the disk cannot read; they fail then, and the sentry survives.
func (f *MemoryFile) mappedBlock(fr memmap.FileRange, bs []byte) safemem.Block {
	if some, _ := f.ImageBacked(fr); some {
		return safemem.BlockFromUnsafeSlice(bs)
	}
	return safemem.BlockFromSafeSlice(bs)
}
