package boot

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/urpc"
)

// MapSavedOpts are the arguments of MapSaved.
type MapSavedOpts struct {
	// FilePayload has the pages file of the image.
	urpc.FilePayload

	// Limit is how many bytes of memory one call releases, about.
	Limit uint64
}

// MapSaved leaves the memory of the paused guest in the image that it was just saved to. It returns how many
// bytes are left for the next call.
func (cm *containerManager) MapSaved(o *MapSavedOpts, left *uint64) error {
	if len(o.Files) != 1 {
		return fmt.Errorf("got %d files, wanted the pages of an image", len(o.Files))
	}
	pages, err := o.ReleaseFD(0)
	if err != nil {
		return err
	}
	defer pages.Close()
	*left, err = cm.l.k.MapSaved(pages, o.Limit)
	return err
}
