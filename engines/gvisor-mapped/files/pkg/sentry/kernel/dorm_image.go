package kernel

import (
	"errors"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/state/statefile"
)

// finishImageLoad leaves private memory of all tasks and files in memory in the image, and reads the
// rest.
//
// Preconditions: the kernel is loaded, and no task runs.
func (k *Kernel) finishImageLoad(ctx context.Context, pagesFile *fd.FD) error {
	files := tmpfs.TakeLoaded()
	if pagesFile == nil || !k.mf.LoadDeferred() {
		return nil
	}
	mms, frs := k.privateMemory()
	frs = files.AppendRanges(k.mf, frs)
	pr := statefile.NewAsyncReader(pagesFile, 0)
	err := k.mf.FinishImageLoad(ctx, frs, pr)
	for m := range mms {
		m.MarkImageBacked()
	}
	if closeErr := pr.Close(); err == nil {
		err = closeErr
	}
	return err
}

// privateMemory returns the address spaces of all tasks, and their private memory.
//
// Preconditions: no task runs.
func (k *Kernel) privateMemory() (map[*mm.MemoryManager]struct{}, []memmap.FileRange) {
	mms := make(map[*mm.MemoryManager]struct{})
	k.tasks.mu.RLock()
	for t := range k.tasks.Root.tids {
		if m := t.image.MemoryManager; m != nil {
			mms[m] = struct{}{}
		}
		// A task in the middle of execve has its next address space already.
		if r, ok := t.runState.(*runSyscallAfterExecStop); ok && r.image.MemoryManager != nil {
			mms[r.image.MemoryManager] = struct{}{}
		}
	}
	k.tasks.mu.RUnlock()
	var frs []memmap.FileRange
	for m := range mms {
		frs = m.AppendPrivateRanges(frs)
	}
	return mms, frs
}

// MapSaved leaves private memory in the image that was saved to pages since the kernel was paused. It
// releases about limit bytes, and returns how many bytes are left.
func (k *Kernel) MapSaved(pages *fd.FD, limit uint64) (uint64, error) {
	k.extMu.Lock()
	defer k.extMu.Unlock()
	if !k.IsPaused() || k.OwnsPageTables() {
		return 0, errors.New("the kernel is not paused, or its memory cannot be mapped from an image")
	}
	mms, frs := k.privateMemory()
	left, err := k.mf.MapSaved(pages, frs, limit)
	// Also after an error, some memory may be in the image.
	for m := range mms {
		m.MarkMapped()
	}
	return left, err
}
