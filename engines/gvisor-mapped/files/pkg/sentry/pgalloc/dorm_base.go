package pgalloc

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/state/statefile"
)

// An image can leave out memory that is in another one, its base, and then comes with a map. The
// pages of a memory file follow each other in a stream; each piece of the map is a part of that
// stream which is in the base's pages file. The image's own pages file has the other parts, one
// after the other. A base never has a base itself. The first entry of the map identifies the base's
// pages file for whoever keeps the image: its inode, its device, and its size.

const (
	// inBase marks offsets in the base.
	inBase = 1 << 62
	// baseMinPiece is the length of the shortest part that is left out of an image.
	baseMinPiece = imageMinRun
	// basePieceSize is the size of an entry of the map: three numbers with the lowest byte first.
	basePieceSize = 24
	// baseMaxMap limits the size of a map.
	baseMaxMap = 64 << 20
)

// basePiece is a part of the stream of pages that is in the base.
type basePiece struct {
	// stream is its position in the stream, base in the base's pages file.
	stream, base, length uint64
}

// imageBase is the base of an image that is being restored.
type imageBase struct {
	// in owns the descriptor, or is nil.
	in   *fd.FD
	file *imageFile
	// pieces are the pieces that were not passed yet, and referred is the length of those that were.
	pieces   []basePiece
	referred uint64
	pr       *statefile.AsyncReader
}

// nextBase is the base of the image that is restored next. A process restores at most once.
var nextBase *imageBase

func takeImageBase() *imageBase {
	base := nextBase
	nextBase = nil
	return base
}

// SetImageBase says that the next image to be restored has a base.
func SetImageBase(mapFile, pages *fd.FD) error {
	defer mapFile.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(mapFile.FD(), &stat); err != nil {
		return err
	}
	if stat.Size%basePieceSize != 0 || stat.Size > baseMaxMap {
		return fmt.Errorf("the map of the image has %d bytes", stat.Size)
	}
	text := make([]byte, stat.Size)
	if n, err := mapFile.ReadAt(text, 0); n != len(text) {
		return fmt.Errorf("cannot read the map of the image: %v", err)
	}
	if err := unix.Fstat(pages.FD(), &stat); err != nil {
		return err
	}
	if len(text) <= basePieceSize || binary.LittleEndian.Uint64(text[16:]) != uint64(stat.Size) {
		return fmt.Errorf("the base of the image has %d bytes, which is not what its map of %d bytes says", stat.Size, len(text))
	}
	base := &imageBase{in: pages, file: &imageFile{fd: pages.FD()}}
	var end uint64
	for text = text[basePieceSize:]; len(text) > 0; text = text[basePieceSize:] {
		p := basePiece{binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:]), binary.LittleEndian.Uint64(text[16:])}
		if (p.stream|p.base|p.length)%hostarch.PageSize != 0 || p.stream < end || p.length == 0 || p.length > inBase || p.base >= inBase || p.stream >= inBase {
			return fmt.Errorf("the map of the image is invalid at %+v", p)
		}
		end = p.stream + p.length
		base.pieces = append(base.pieces, p)
	}
	nextBase = base
	return nil
}

// next splits what follows in the stream: own bytes in the image's own pages file, where off is the
// position, and after them referred bytes in the base. Their sum is between 1 and length.
func (b *imageBase) next(off, length uint64) (own, referred, base uint64) {
	if len(b.pieces) == 0 {
		return length, 0, 0
	}
	p := &b.pieces[0]
	if own = p.stream - (off + b.referred); own >= length {
		return length, 0, 0
	}
	referred, base = min(p.length, length-own), p.base
	b.referred += referred
	p.stream, p.base, p.length = p.stream+referred, p.base+referred, p.length-referred
	if p.length == 0 {
		b.pieces = b.pieces[1:]
	}
	return own, referred, base
}

// reader returns the reader of the base's pages file.
func (b *imageBase) reader() *statefile.AsyncReader {
	if b.pr == nil {
		b.pr = statefile.NewAsyncReader(b.in, 0)
	}
	return b.pr
}

// close closes the descriptor.
func (b *imageBase) close() {
	if b.in != nil {
		_ = b.in.Close()
	} else {
		unix.Close(b.file.fd)
	}
}

// finish waits until all parts are read.
func (b *imageBase) finish() error {
	if b == nil {
		return nil
	}
	if len(b.pieces) != 0 {
		return fmt.Errorf("the map of the image has %d pieces too many", len(b.pieces))
	}
	if b.pr == nil {
		return nil
	}
	return b.pr.Close()
}

// imageMapWriter is the map of an image that is being saved.
type imageMapWriter struct {
	out *fd.FD
	// base is the file that is referred to, or nil.
	base     *imageFile
	stat     unix.Stat_t
	pieces   []basePiece
	referred uint64
}

// imageMap is the map of the image that is being saved. The kernel is paused meanwhile.
var imageMap imageMapWriter

// BeginImageMap makes the next save leave out memory that is in the base, and write a map to out.
// The map is empty if the image is complete.
func BeginImageMap(out *fd.FD) { imageMap = imageMapWriter{out: out} }

// EndImageMap writes the map if the save had no error.
func EndImageMap(err error) error {
	m := imageMap
	imageMap = imageMapWriter{}
	if m.out == nil {
		return err
	}
	defer m.out.Close()
	if err != nil || len(m.pieces) == 0 {
		return err
	}
	text := make([]byte, 0, (1+len(m.pieces))*basePieceSize)
	for _, p := range append([]basePiece{{m.stat.Ino, m.stat.Dev, uint64(m.stat.Size)}}, m.pieces...) {
		for _, n := range []uint64{p.stream, p.base, p.length} {
			text = binary.LittleEndian.AppendUint64(text, n)
		}
	}
	if n, err := m.out.WriteAt(text, 0); n != len(text) {
		return fmt.Errorf("cannot write the map of the image: %w", err)
	}
	log.Infof("image-backed save: %d bytes left in the base in %d pieces", m.referred, len(m.pieces))
	return nil
}

// chooseBase decides whether the image that is being saved leaves out memory: only if that is half
// of its pages, and half of the base is still in use. So an image takes at most twice its space.
//
// Preconditions: f.mu must be locked.
func (f *MemoryFile) chooseBase() {
	im := f.image
	if imageMap.out == nil || im == nil {
		return
	}
	base, flag := im.file, uint64(0)
	if im.base != nil {
		base, flag = im.base.file, inBase
	}
	var stat unix.Stat_t
	if err := unix.Fstat(base.fd, &stat); err != nil {
		return
	}
	var found, all uint64
	im.mu.RLock()
	for seg := im.backed.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		if off := seg.Start() + seg.Value().refs; off&inBase == flag && seg.Range().Length() >= baseMinPiece {
			found += seg.Range().Length()
		}
	}
	im.mu.RUnlock()
	for seg := f.memAcct.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		if seg.ValuePtr().knownCommitted {
			all += seg.Range().Length()
		}
	}
	if found <= math.MaxUint64/2 && found*2 >= all && found*2 >= uint64(stat.Size) {
		imageMap.base, imageMap.stat = base, stat
	}
}

// refer leaves out length bytes of the stream that are at off of img, if they can be.
func (m *imageMapWriter) refer(img *imageFile, length, off uint64, out *fd.FD) (bool, error) {
	if m.base == nil || img != m.base || length < baseMinPiece || (len(m.pieces)+2)*basePieceSize > baseMaxMap {
		return false, nil
	}
	at, err := unix.Seek(out.FD(), 0, unix.SEEK_CUR)
	if err != nil {
		return false, err
	}
	stream := uint64(at) + m.referred
	m.referred += length
	if n := len(m.pieces); n > 0 {
		if last := &m.pieces[n-1]; last.stream+last.length == stream && last.base+last.length == off {
			last.length += length
			return true, nil
		}
	}
	m.pieces = append(m.pieces, basePiece{stream, off, length})
	return true, nil
}
