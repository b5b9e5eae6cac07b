package kernel

import (
	"bufio"
	"io"

	"gvisor.dev/gvisor/pkg/fd"
)

// metadataReader returns where the state of memory files is read.
func metadataReader(pagesMetadata *fd.FD) io.Reader { return bufio.NewReader(pagesMetadata) }

// metadataWriter returns where the state of memory files is written, and a function that must be
// called at the end: w, or a buffer for pagesMetadata if it is not nil. Numbers are written one byte
// at a time.
func metadataWriter(w io.Writer, pagesMetadata *fd.FD) (io.Writer, func() error) {
	if pagesMetadata == nil {
		return w, func() error { return nil }
	}
	buffered := bufio.NewWriter(pagesMetadata)
	return buffered, buffered.Flush
}
