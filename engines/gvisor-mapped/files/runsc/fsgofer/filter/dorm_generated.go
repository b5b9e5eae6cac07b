package filter

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/dormfilter"
)

// selfPID is the name of the process id of the gofer in its generated program.
const selfPID = "self_pid"

// generatedFor are the options that the generated program is for.
var generatedFor = Options{DirectFS: true}

// installGenerated installs the generated program. It returns false if there is none for opt.
func installGenerated(opt Options) (bool, error) {
	if opt != generatedFor {
		return false, nil
	}
	program, ok := dormfilter.Lookup(dormfilter.Gofer)
	if !ok {
		return false, nil
	}
	instrs, err := program.RenderInstructions(variables(os.Getpid()))
	if err != nil {
		return true, fmt.Errorf("render the program %q: %w", program.Name, err)
	}
	log.Debugf("Loaded the generated seccomp program %q", program.Name)
	return true, seccomp.SetFilter(instrs)
}

// Generate returns the program of generatedFor. It fails if that is not the program that Install
// would build in this process.
func Generate() (precompiledseccomp.Program, error) {
	vars := variables(os.Getpid())
	var names []string
	for name := range vars {
		names = append(names, name)
	}
	rules := func() seccomp.SyscallRules {
		s := allowedSyscalls.Copy()
		s.Merge(instrumentationFilters())
		return s
	}
	describe := func(s seccomp.SyscallRules) precompiledseccomp.ProgramDesc {
		return dormfilter.Describe(s, seccomp.DenyNewExecMappings.Copy(), seccomp.DefaultProgramOptions())
	}
	program, err := precompiledseccomp.Precompile(dormfilter.Gofer, names, func(values precompiledseccomp.Values) precompiledseccomp.ProgramDesc {
		s := rules()
		s.Remove(unix.SYS_TGKILL)
		s.Add(unix.SYS_TGKILL, seccomp.PerArg{seccomp.EqualTo(values.GetUint64(selfPID))})
		return describe(s)
	})
	if err != nil {
		return program, err
	}
	return program, dormfilter.Check(program, vars, describe(rules()))
}

func variables(pid int) precompiledseccomp.Values {
	values := precompiledseccomp.Values{}
	values.SetUint64(selfPID, uint64(pid))
	return values
}
