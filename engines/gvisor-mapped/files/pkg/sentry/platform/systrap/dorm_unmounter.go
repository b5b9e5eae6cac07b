package systrap

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
)

// ForkUnmounter forks a process that unmounts path when it reads a byte from r, and ends then. It
// also ends when nothing can be read any more. It keeps only r and the standard streams open.
//
// The child shares no memory with this process, so it has capabilities and mounts of this moment.
// It does only what a child may do between beforeFork and an exec: see forkStub.
//
//go:norace
func ForkUnmounter(r int, path string) error {
	target, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	var (
		one   [1]byte
		pid   uintptr
		n     uintptr
		errno unix.Errno
	)
	const sync = 3

	beforeFork()
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		afterFork()
		return errno
	}
	if pid != 0 {
		afterFork()
		return nil
	}
	afterForkInChild()

	if r != sync {
		if _, _, errno = unix.RawSyscall(unix.SYS_DUP3, uintptr(r), sync, 0); errno != 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
		}
	}
	if _, _, errno = unix.RawSyscall(unix.SYS_CLOSE_RANGE, sync+1, ^uintptr(0)>>32, 0); errno != 0 {
		// Linux before 5.9.
		for fd := uintptr(sync + 1); fd < 1024; fd++ {
			unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	for {
		n, _, errno = unix.RawSyscall(unix.SYS_READ, sync, uintptr(unsafe.Pointer(&one)), 1)
		if errno != unix.EINTR {
			break
		}
	}
	if errno == 0 && n == 1 {
		if _, _, errno = unix.RawSyscall(unix.SYS_UMOUNT2, uintptr(unsafe.Pointer(target)), linux.MNT_DETACH, 0); errno == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	panic("unreachable")
}
