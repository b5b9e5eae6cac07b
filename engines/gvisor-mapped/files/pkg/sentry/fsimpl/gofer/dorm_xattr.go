package gofer

import (
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
)

// userXattrs returns the names of the extended attributes of the file on the host that have no
// meaning for a kernel. Others are of the host, or have another form there.
func (d *directfsDentry) userXattrs() ([]string, error) {
	list, err := hostXattr(func(buf []byte) (int, error) { return unix.Flistxattr(d.controlFD, buf) })
	if err != nil {
		// Symbolic links and sockets are open without access, and cannot have such attributes.
		if err == unix.EBADF {
			return nil, linuxerr.EOPNOTSUPP
		}
		return nil, err
	}
	var names []string
	for _, name := range strings.Split(string(list), "\x00") {
		if strings.HasPrefix(name, linux.XATTR_USER_PREFIX) {
			names = append(names, name)
		}
	}
	return names, nil
}

// xattr returns the value of an extended attribute of the file on the host: all of it if size is 0,
// and never more bytes than it has.
func (d *directfsDentry) xattr(name string, size uint64) (string, error) {
	value, err := hostXattr(func(buf []byte) (int, error) { return unix.Fgetxattr(d.controlFD, name, buf) })
	if err == unix.EBADF {
		return "", linuxerr.EOPNOTSUPP
	}
	if err == nil && size != 0 && uint64(len(value)) > size {
		return "", linuxerr.ERANGE
	}
	return string(value), err
}

// hostXattr reads into a buffer that is long enough. Most attributes are short.
func hostXattr(read func([]byte) (int, error)) ([]byte, error) {
	for _, length := range []int{1024, linux.XATTR_SIZE_MAX} {
		buf := make([]byte, length)
		n, err := read(buf)
		if err == nil {
			return buf[:n], nil
		}
		if err != unix.ERANGE || length == linux.XATTR_SIZE_MAX {
			return nil, err
		}
	}
	return nil, unix.ERANGE
}
