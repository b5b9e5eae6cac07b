package systrap

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/hostarch"
)

// What the stub's signal handler puts into si_errno of a page fault: this bit, and the error code
// of the processor. si_errno of a fault is otherwise 0.
const (
	hasFaultCode  = 1 << 16
	faultWasWrite = 1 << 1
	faultWasFetch = 1 << 4
)

// faultAccess returns the access that caused the fault in si, if the stub told it, or else guess.
// It clears si_errno, which the guest must see as 0.
func faultAccess(si *linux.SignalInfo, guess hostarch.AccessType) hostarch.AccessType {
	code := si.Errno
	si.Errno = 0
	if code&hasFaultCode == 0 {
		return guess
	}
	guess.Write = code&faultWasWrite != 0
	guess.Execute = guess.Execute || code&faultWasFetch != 0
	return guess
}
