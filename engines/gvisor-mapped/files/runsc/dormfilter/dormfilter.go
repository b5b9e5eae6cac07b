// Package dormfilter holds the seccomp programs that were generated when the engine was built.
package dormfilter

import (
	"fmt"
	"reflect"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

// Gofer is the name of the program of a gofer for direct access to files and without sockets.
const Gofer = "dorm gofer"

// register is set by the generated file. The program that generates it is built without.
var register func(map[string]precompiledseccomp.Program)

// Register adds all generated programs by their names.
func Register(programs map[string]precompiledseccomp.Program) {
	if register != nil {
		register(programs)
	}
}

// Lookup returns the generated program of that name.
func Lookup(name string) (precompiledseccomp.Program, bool) {
	programs := make(map[string]precompiledseccomp.Program)
	Register(programs)
	program, ok := programs[name]
	return program, ok
}

// Describe returns what seccomp.Install builds a program from.
func Describe(rules, denied seccomp.SyscallRules, options seccomp.ProgramOptions) precompiledseccomp.ProgramDesc {
	return precompiledseccomp.ProgramDesc{
		Rules: []seccomp.RuleSet{
			{Rules: denied, Action: options.DefaultAction},
			{Rules: rules, Action: linux.SECCOMP_RET_ALLOW},
		},
		SeccompOptions: options,
	}
}

// Check fails unless the program, with these values, is the one that is built from desc.
func Check(program precompiledseccomp.Program, values precompiledseccomp.Values, desc precompiledseccomp.ProgramDesc) error {
	built, _, err := seccomp.BuildProgram(desc.Rules, desc.SeccompOptions)
	if err != nil {
		return err
	}
	rendered, err := program.RenderInstructions(values)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(built, rendered) {
		return fmt.Errorf("the program %q differs from the one that is built from its rules", program.Name)
	}
	return nil
}
