package kernel

import (
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/state/statefile"
)

// finishImageLoad leaves private memory of all tasks in the image, and reads the rest.
//
// Preconditions: the kernel is loaded, and no task runs.
func (k *Kernel) finishImageLoad(ctx context.Context, pagesFile *fd.FD) error {
	if !k.mf.LoadDeferred() {
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
	var private []memmap.FileRange
	for m := range mms {
		private = m.AppendPrivateRanges(private)
	}
	pr := statefile.NewAsyncReader(pagesFile, 0)
	err := k.mf.FinishImageLoad(ctx, private, pr)
	for m := range mms {
		m.MarkImageBacked()
	}
	if closeErr := pr.Close(); err == nil {
		err = closeErr
	}
	return err
}
