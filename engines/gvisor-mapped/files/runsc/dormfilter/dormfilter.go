// Package dormfilter holds the seccomp programs that were generated when the engine was built.
package dormfilter

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

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
