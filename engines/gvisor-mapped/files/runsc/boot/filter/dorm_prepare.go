package filter

import (
	"reflect"
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// prepared is the program that Prepare builds.
var prepared struct {
	mu     sync.Mutex
	opt    Options
	done   chan struct{}
	instrs []bpf.Instruction
}

// Prepare begins to build the program for opt. A sandbox that waits to be started or restored has
// time for that, which takes longer than the rest of an installation.
func Prepare(opt Options) {
	prepared.mu.Lock()
	defer prepared.mu.Unlock()
	if debugFilter || prepared.done != nil {
		return
	}
	prepared.opt, prepared.done = opt, make(chan struct{})
	go func() {
		defer close(prepared.done)
		// Without a program, Install builds it and reports why it cannot.
		if instrs, err := build(opt); err == nil {
			prepared.instrs = instrs
		}
	}()
}

// build returns the same program as seccomp.Install installs.
func build(opt Options) ([]bpf.Instruction, error) {
	seccompOpts := config.SeccompOptions(opt)
	rules, denyRules := config.Rules(opt)
	instrs, _, err := seccomp.BuildProgram([]seccomp.RuleSet{
		{Rules: denyRules, Action: seccompOpts.DefaultAction},
		{Rules: rules, Action: linux.SECCOMP_RET_ALLOW},
	}, seccompOpts)
	return instrs, err
}

// preparedFor returns the program that was built for exactly opt, or nil. It waits for one that is
// being built.
func preparedFor(opt Options) []bpf.Instruction {
	prepared.mu.Lock()
	done := prepared.done
	fits := done != nil && reflect.DeepEqual(prepared.opt, opt)
	prepared.mu.Unlock()
	if !fits {
		return nil
	}
	<-done
	return prepared.instrs
}
