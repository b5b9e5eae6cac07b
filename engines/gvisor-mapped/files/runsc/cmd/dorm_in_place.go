package cmd

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/syndtr/gocapability/capability"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// Of linux/securebits.h.
const (
	secbitNoRoot             = 1 << 0
	secbitNoRootLocked       = 1 << 1
	secbitNoAmbientRaise     = 1 << 6
	secbitNoAmbientRaiseLock = 1 << 7
)

// forkProcUnmounter forks the process that unmounts /proc for umountProc, and returns the descriptor
// for that, which an exec keeps open. It stands in for execProcUmounter, which starts runsc again
// for one system call.
func forkProcUnmounter() int {
	var ends [2]int
	if err := unix.Pipe2(ends[:], 0); err != nil {
		util.Fatalf("error creating a pipe: %v", err)
	}
	if err := systrap.ForkUnmounter(ends[0], "/proc"); err != nil {
		util.Fatalf("error forking the unmounter of /proc: %v", err)
	}
	if err := unix.Close(ends[0]); err != nil {
		util.Fatalf("error closing a pipe: %v", err)
	}
	return ends[1]
}

// capUser is the data of capset(2), version 3.
type capUser struct {
	header struct {
		version uint32
		pid     int32
	}
	data [2]struct {
		effective   uint32
		permitted   uint32
		inheritable uint32
	}
}

// applyCapsInPlace leaves all threads of this process the capabilities that setCapsAndCallSelf
// would leave it, without an exec. It returns false, and has changed nothing, where a thread
// may not set its secure bits.
//
// setCapsAndCallSelf limits what a later exec can gain by the bounding set, which takes a system call
// for each capability and thread. Here an exec gains nothing, whoever the user is: no capability
// is inheritable or ambient, and the user id 0 means nothing to an exec.
func applyCapsInPlace(caps *specs.LinuxCapabilities) (bool, error) {
	current, err := capability.NewPid2(0)
	if err != nil {
		return false, err
	}
	if err := current.Load(); err != nil {
		return false, err
	}
	wanted := &capUser{}
	wanted.header.version = unix.LINUX_CAPABILITY_VERSION_3
	for which, names := range map[capability.CapType][]string{capability.EFFECTIVE: caps.Effective, capability.PERMITTED: caps.Permitted} {
		set, err := trimCaps(names, current)
		if err != nil {
			return false, err
		}
		for _, c := range set {
			data, bit := &wanted.data[c/32], uint32(1)<<(c%32)
			if which == capability.EFFECTIVE {
				data.effective |= bit
			} else {
				data.permitted |= bit
			}
		}
	}
	const bits = secbitNoRoot | secbitNoRootLocked | secbitNoAmbientRaise | secbitNoAmbientRaiseLock
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, bits, 0); errno != 0 {
		return false, nil
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return true, fmt.Errorf("clear ambient capabilities: %w", errno)
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&wanted.header)), uintptr(unsafe.Pointer(&wanted.data)), 0)
	runtime.KeepAlive(wanted)
	if errno != 0 {
		return true, fmt.Errorf("set capabilities: %w", errno)
	}
	log.Infof("Capabilities applied to all threads: %+v", wanted.data)
	return true, nil
}
