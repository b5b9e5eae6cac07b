package systrap

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/atomicbitops"
)

// notifiersLeft is how many more stubs may notify. Each takes a file descriptor, and three quarters
// of those that the host allows are left to the files of the guest.
var notifiersLeft atomicbitops.Int64

// allowNotifications lets stubs notify. It is called before the filter of the sentry is installed.
func allowNotifications() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		notifiersLeft.Store(int64(min(limit.Cur, 1<<20) / 4))
	}
	seccompNotifyIsSupported = true
}

// mayNotify returns whether one more stub may notify. Stubs are reused, so none is given back.
func mayNotify() bool {
	return seccompNotifyIsSupported && notifiersLeft.Add(-1) >= 0
}

// syscallByNotification makes the stub execute the system call in sentryMessage, and waits until it
// has.
//
// A signal to the stub, such as that of SIGCONT or of the freezer, can end a notification at any
// time, even while it is answered; the stub then starts over and notifies anew. So a notification
// alone tells nothing. Its first argument counts the executed system calls, in a register that the
// guest cannot reach, as sentryMessage.state counts those that were requested.
func (t *syscallThread) syscallByNotification() error {
	requested := atomic.AddUint32(&t.sentryMessage.state, 1)
	for {
		switch errno := t.kickSeccompNotify(); errno {
		case 0, unix.ENOENT:
			// ENOENT: the notification has ended, and another one follows.
		case unix.EINTR:
			continue
		default:
			t.thread.kill()
			return fmt.Errorf("cannot answer a notification: %w", errno)
		}
		next, err := t.nextNotification()
		if err != nil {
			return err
		}
		switch next {
		case requested + 1:
			return nil
		case requested:
			// Not executed yet.
		default:
			t.thread.kill()
			return fmt.Errorf("the stub would execute the system call %d instead of %d", next, requested)
		}
	}
}

// nextNotification waits for a notification of the stub, and returns the number of the system call
// that it would execute next.
func (t *syscallThread) nextNotification() (uint32, error) {
	for {
		var notif linux.SeccompNotif
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, t.seccompNotify.Fd(),
			linux.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&notif)))
		if errno == 0 {
			t.seccompNotifyResp.ID = notif.ID
			return uint32(notif.Data.Args[0]), nil
		}
		// ENOENT: the notification has ended already.
		if (errno == unix.EINTR || errno == unix.ENOENT) && t.subproc.alive() {
			continue
		}
		t.thread.kill()
		return 0, fmt.Errorf("cannot receive a notification: %w", errno)
	}
}
