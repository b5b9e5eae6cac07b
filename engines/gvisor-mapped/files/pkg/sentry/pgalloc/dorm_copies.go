package pgalloc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/unet"
)

// Copies is the entry of the metadata of a save that says that the host copies the pages. The last file
// of the call is then a socket, on which the host is told what to copy.
//
// A message is the kind of its source, and copies of three numbers each: the position in the source, the
// position in the pages file, and the length. The first message of a source has its descriptor. The last
// message is the kind `end` and the length of the pages file. All numbers have 64 bits and the lowest byte
// first. The host answers with one byte, which is zero if it has copied everything.
const Copies = "dorm-copies"

const (
	// fromMemory is the kind of a memory file, fromImage that of the pages of an image. The host may
	// share blocks with an image, which does not change.
	fromMemory = 1
	fromImage  = 2
	end        = 3

	numberSize = 8
	// messageMax is how long a message is at most. Each copy takes 24 bytes.
	messageMax = 24 << 10
)

// hostCopies are the copies that the host makes for the image that is being saved. The kernel is paused
// meanwhile.
type hostCopies struct {
	socket *unet.Socket
	// source is the descriptor of the current source; it is sent if the host does not have it yet.
	source int
	isSent bool
	kind   uint64
	// text is the next message without its kind.
	text []byte
	// from, to and length are the copy that may still grow.
	from, to, length uint64
}

var copies hostCopies

// BeginCopies takes the entry of the metadata, and the socket from the files of a save. It returns the
// other files.
func BeginCopies(metadata map[string]string, files []*os.File) ([]*os.File, error) {
	if _, ok := metadata[Copies]; !ok {
		return files, nil
	}
	delete(metadata, Copies)
	if len(files) == 0 {
		return nil, errors.New("the host copies the pages, but has sent no socket")
	}
	last := len(files) - 1
	defer files[last].Close()
	nfd, err := unix.Dup(int(files[last].Fd()))
	if err != nil {
		return nil, err
	}
	socket, err := unet.NewSocket(nfd)
	if err != nil {
		unix.Close(nfd)
		return nil, err
	}
	copies = hostCopies{socket: socket, source: -1}
	return files[:last], nil
}

// EndCopies closes the socket. Before, FinishCopies has to wait for the copies if they are needed.
func EndCopies() {
	if copies.socket != nil {
		_ = copies.socket.Close()
	}
	copies = hostCopies{}
}

// HostCopies returns whether the host copies the pages.
func HostCopies() bool { return copies.socket != nil }

// FinishCopies waits until the host has copied everything.
//
// Preconditions: HostCopies returns true.
func FinishCopies(out *fd.FD) error {
	c := &copies
	length, err := unix.Seek(out.FD(), 0, unix.SEEK_CUR)
	if err != nil {
		return err
	}
	if err := c.send(); err != nil {
		return err
	}
	c.kind, c.isSent, c.text = end, true, binary.LittleEndian.AppendUint64(nil, uint64(length))
	if err := c.send(); err != nil {
		return err
	}
	var answer [1]byte
	if n, err := c.socket.Read(answer[:]); n != 1 || answer[0] != 0 {
		return fmt.Errorf("the host has not copied the pages (%v)", err)
	}
	return nil
}

// copyByHost has the host copy length bytes of file, which come next in the pages file. It returns false
// if the host does not copy.
func copyByHost(file memmap.File, off, length uint64, out *fd.FD) (bool, error) {
	c := &copies
	if c.socket == nil {
		return false, nil
	}
	at, err := unix.Seek(out.FD(), int64(length), unix.SEEK_CUR)
	if err != nil {
		return false, err
	}
	to := uint64(at) - length
	if source := file.FD(); source != c.source {
		if err := c.send(); err != nil {
			return false, err
		}
		c.source, c.isSent, c.kind = source, false, fromMemory
		if _, ok := file.(*imageFile); ok {
			c.kind = fromImage
		}
	}
	if c.length > 0 && c.from+c.length == off && c.to+c.length == to {
		c.length += length
		return true, nil
	}
	c.put()
	c.from, c.to, c.length = off, to, length
	if len(c.text) >= messageMax {
		return true, c.send()
	}
	return true, nil
}

// put adds the copy that may still grow to the next message.
func (c *hostCopies) put() {
	if c.length > 0 {
		for _, n := range []uint64{c.from, c.to, c.length} {
			c.text = binary.LittleEndian.AppendUint64(c.text, n)
		}
		c.length = 0
	}
}

// send sends the next message, if it has any copies.
func (c *hostCopies) send() error {
	c.put()
	if len(c.text) == 0 {
		return nil
	}
	message := append(binary.LittleEndian.AppendUint64(make([]byte, 0, numberSize+len(c.text)), c.kind), c.text...)
	writer := c.socket.Writer(true)
	if !c.isSent {
		writer.PackFDs(c.source)
	}
	if n, err := writer.WriteVec([][]byte{message}); n != len(message) {
		return fmt.Errorf("the host cannot be told what to copy: %w", err)
	}
	c.isSent, c.text = true, c.text[:0]
	return nil
}
