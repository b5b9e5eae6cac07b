package vfs

// MountedOn is a file system, and the entry on which it is mounted; nil if it is mounted on none.
type MountedOn struct {
	Filesystem *Filesystem
	Point      *Dentry
	ID         uint64
}

// Mounted returns all mounts that have a mount point.
//
// Preconditions: the kernel is paused.
func (vfs *VirtualFilesystem) Mounted() []MountedOn {
	vfs.mountMu.Lock()
	defer vfs.mountMu.Unlock()
	var all []MountedOn
	for _, mnt := range vfs.saveMounts() {
		all = append(all, MountedOn{mnt.fs, mnt.point(), mnt.ID})
	}
	return all
}

// Filesystems returns all file systems that are in use. It takes no references.
//
// Preconditions: the kernel is paused.
func (vfs *VirtualFilesystem) Filesystems() []*Filesystem {
	vfs.filesystemsMu.Lock()
	defer vfs.filesystemsMu.Unlock()
	var all []*Filesystem
	for fs := range vfs.filesystems {
		if fs.ReadRefs() > 0 {
			all = append(all, fs)
		}
	}
	return all
}
