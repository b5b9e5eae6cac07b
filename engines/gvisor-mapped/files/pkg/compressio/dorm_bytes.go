package compressio

import (
	"bufio"
	"io"
)

var _ io.ByteReader = (*SimpleReader)(nil)

// ReadByte implements io.ByteReader. Most of a kernel's state is numbers of one byte or two, which
// are read one byte at a time.
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
