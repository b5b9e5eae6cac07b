package overlay

import "gvisor.dev/gvisor/pkg/sentry/vfs"

// Upper returns the file system of the upper layer of fs; nil if fs is not an overlay, or has none.
func Upper(fs *vfs.Filesystem) *vfs.Filesystem {
	o, ok := fs.Impl().(*filesystem)
	if !ok || !o.opts.UpperRoot.Ok() {
		return nil
	}
	return o.opts.UpperRoot.Mount().Filesystem()
}

// TopName returns the name of d if d is in the root directory of fs, which is an overlay.
//
// Preconditions: the kernel is paused.
func TopName(fs *vfs.Filesystem, d *vfs.Dentry) (string, bool) {
	if d == nil {
		return "", false
	}
	entry, ok := d.Impl().(*dentry)
	if !ok || fs.Impl() != vfs.FilesystemImpl(entry.fs) {
		return "", false
	}
	parent := entry.parent.Load()
	if parent == nil || parent.parent.Load() != nil {
		return "", false
	}
	return entry.name, true
}
