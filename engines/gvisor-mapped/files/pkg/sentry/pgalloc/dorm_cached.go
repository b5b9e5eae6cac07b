package pgalloc

import (
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/log"
)

// CachedBytes is the entry of the metadata of a save that says how many bytes of the pages file are
// in the page cache of the host already. So many are written through it.
const CachedBytes = "dorm-cached-bytes"

const (
	// savePart is how much is written at once, and how much the disk is told to write at once. A disk
	// that begins only when much has been written lets the writer wait.
	savePart = 8 << 20
)

// cachedPages is how the pages of the image that is being saved are written. The kernel is paused
// meanwhile.
var cachedPages struct {
	left bool
	// limit is the position at which direct I/O begins.
	limit, pushed int64
	parts         chan [2]int64
}

// BeginCachedPages takes the entry of the metadata, and makes the next save obey it.
func BeginCachedPages(metadata map[string]string, out *fd.FD) error {
	text, ok := metadata[CachedBytes]
	if !ok {
		return nil
	}
	delete(metadata, CachedBytes)
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	file, err := unix.Dup(out.FD())
	if err != nil {
		return err
	}
	// All parts fit, so that the writer never waits for the disk here.
	parts := make(chan [2]int64, limit/savePart+1)
	c := &cachedPages
	c.left, c.limit, c.pushed, c.parts = true, limit, 0, parts
	go func() {
		defer unix.Close(file)
		for part := range parts {
			if err := unix.SyncFileRange(file, part[0], part[1], unix.SYNC_FILE_RANGE_WRITE); err != nil {
				log.Infof("cannot tell the disk to begin writing: %v", err)
			}
		}
	}()
	return nil
}

// EndCachedPages ends the obedience. The disk may still be told to begin writing.
func EndCachedPages() {
	if cachedPages.left {
		cachedPages.left = false
		close(cachedPages.parts)
	}
}

// wrotePages lets the disk begin to write, and begins direct I/O where nothing is cached. Positions
// are whole pages.
func wrotePages(out *fd.FD) error {
	c := &cachedPages
	if !c.left || c.pushed < 0 {
		return nil
	}
	at, err := unix.Seek(out.FD(), 0, unix.SEEK_CUR)
	if err != nil {
		return err
	}
	if at-c.pushed >= savePart || at >= c.limit {
		select {
		case c.parts <- [2]int64{c.pushed, at - c.pushed}:
		default:
		}
		c.pushed = at
	}
	if at < c.limit {
		return nil
	}
	c.pushed = -1
	flags, err := unix.FcntlInt(uintptr(out.FD()), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(out.FD()), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err != nil {
		log.Infof("cannot write the rest of the pages with direct I/O: %v", err)
	}
	return nil
}
