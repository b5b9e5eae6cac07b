package kernel

import (
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
