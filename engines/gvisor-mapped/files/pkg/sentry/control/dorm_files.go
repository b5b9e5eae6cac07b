package control

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// A caller whose metadata has these entries wants the files of the container instead of its memory.
// Their values are the mount options of the /tmp that the caller has mounted, and the name of the
// entry at which it has mounted the program of its agent.
const (
	filesTmp   = "dorm-files-tmp"
	filesAgent = "dorm-files-agent"
)

// saveFiles writes what the upper layer of the root file system and /tmp contain. The first file
// gets the list, the second one the content. A third one is the second one, open for direct I/O.
func (s *State) saveFiles(o *SaveOpts) error {
	if n := len(o.FilePayload.Files); n != 2 && n != 3 {
		return fmt.Errorf("got %d files, wanted 2 or 3", n)
	}
	list, err := o.ReleaseFD(0)
	if err != nil {
		return err
	}
	defer list.Close()
	content, err := o.ReleaseFD(1)
	if err != nil {
		return err
	}
	defer content.Close()
	var direct *fd.FD
	if len(o.FilePayload.Files) == 3 {
		if direct, err = o.ReleaseFD(2); err != nil {
			return err
		}
		defer direct.Close()
	}

	s.Kernel.Pause()
	defer s.Kernel.Unpause()
	root, upper, err := rootOverlay(s.Kernel.VFS())
	if err != nil {
		return err
	}
	tmp := tmpOf(s.Kernel.VFS(), root, o.Metadata[filesTmp], o.Metadata[filesAgent])
	entries, bytes, err := tmpfs.WriteFiles(upper, tmp, list, content, direct)
	if err != nil {
		return err
	}
	log.Infof("files saved: %d entries, %d bytes", entries, bytes)
	return nil
}

// rootOverlay returns the overlay whose upper layer has a memory file of its own, which only the
// root file system has, and that layer. Mounts are not followed, since the guest may rearrange them.
func rootOverlay(all *vfs.VirtualFilesystem) (root, upper *vfs.Filesystem, err error) {
	for _, fs := range all.Filesystems() {
		layer := overlay.Upper(fs)
		if layer == nil || !tmpfs.IsOfRoot(layer) {
			continue
		}
		if root != nil {
			return nil, nil, fmt.Errorf("there is more than one root file system")
		}
		root, upper = fs, layer
	}
	if root == nil {
		return nil, nil, fmt.Errorf("no overlay has an upper layer with a memory file of its own")
	}
	return root, upper, nil
}

// tmpOf returns the tmpfs that the caller has mounted at /tmp, or nil. File systems that the guest
// has mounted there do not count: the program of the agent is mounted before any of the guest.
func tmpOf(all *vfs.VirtualFilesystem, root *vfs.Filesystem, options, agent string) *vfs.Filesystem {
	var tmp *vfs.Filesystem
	var tmpID, agentID uint64
	for _, m := range all.Mounted() {
		name, ok := overlay.TopName(root, m.Point)
		switch {
		case !ok:
		case name == agent:
			if agentID == 0 || m.ID < agentID {
				agentID = m.ID
			}
		case name == "tmp" && tmpfs.HasOptions(m.Filesystem, options):
			if tmp == nil || m.ID < tmpID {
				tmp, tmpID = m.Filesystem, m.ID
			}
		}
	}
	if agentID != 0 && tmpID > agentID {
		return nil
	}
	return tmp
}
