package compressio

import (
	"bufio"
	"encoding/binary"
	"io"
)

var (
	_ io.ByteReader = (*SimpleReader)(nil)
	_ io.ByteWriter = (*SimpleWriter)(nil)
)

// singleSize is the size of a chunk of one byte without a hash. A number in a kernel's state is
// written one byte at a time, and each write is a chunk of its own.
const singleSize = 5

// maxNumber is the length of the longest number, in bytes.
const maxNumber = 10

// ReadNumber reads an unsigned number that was written one byte at a time: seven bits in each, the
// lowest ones first, and the eighth bit in all but the last. It reads nothing and returns false if
// the bytes are not there in this form; then they have to be read one at a time, which also finds
// errors.
func (r *SimpleReader) ReadNumber() (uint64, bool) {
	in, ok := r.in.(*bufio.Reader)
	if !ok || r.key != nil || r.done < r.chunkSize {
		return 0, false
	}
	if in.Buffered() < singleSize {
		// This fills the buffer, or fails again where the error is reported.
		_, _ = in.Peek(singleSize)
	}
	p, _ := in.Peek(min(in.Buffered(), singleSize*maxNumber))
	var number uint64
	for i := 0; len(p) >= singleSize && binary.BigEndian.Uint32(p) == 1; i++ {
		b := p[singleSize-1]
		if i == maxNumber-1 && b > 1 {
			return 0, false
		}
		number |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			_, _ = in.Discard(singleSize * (i + 1))
			return number, true
		}
		p = p[singleSize:]
	}
	return 0, false
}

// ReadByte implements io.ByteReader.
func (r *SimpleReader) ReadByte() (byte, error) {
	// The byte that ends a chunk may be followed by its hash.
	if in, ok := r.in.(*bufio.Reader); ok && r.key == nil && r.done+1 < r.chunkSize {
		b, err := in.ReadByte()
		if err == nil {
			r.done++
			return b, nil
		}
	}
	var one [1]byte
	if _, err := io.ReadFull(r, one[:]); err != nil {
		return 0, err
	}
	return one[0], nil
}

// WriteByte implements io.ByteWriter.
func (w *SimpleWriter) WriteByte(b byte) error {
	if w.key == nil && !w.closed {
		_, err := w.out.Write(append(w.out.AvailableBuffer(), 0, 0, 0, 1, b))
		return err
	}
	_, err := w.Write([]byte{b})
	return err
}
