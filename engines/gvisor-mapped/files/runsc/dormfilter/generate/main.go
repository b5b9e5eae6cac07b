// Command generate prints the seccomp programs of the sentry and the gofer as a Go file of package
// dormfilter. It fails if one of them is not the program that a container would build for itself.
package main

import (
	"fmt"
	"os"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
	"gvisor.dev/gvisor/runsc/dormfilter"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

func main() {
	programs, err := generate()
	if err != nil {
		fmt.Fprintf(os.Stderr, "generate the seccomp programs: %v\n", err)
		os.Exit(1)
	}
	fmt.Print("// Made by dormfilter/generate when the engine is built.\n\npackage dormfilter\n\n")
	fmt.Print("import \"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp\"\n\n")
	fmt.Print("func init() {\n\tregister = func(programs map[string]precompiledseccomp.Program) {\n")
	for _, program := range programs {
		fmt.Print(program.Registration("\t\t", "precompiledseccomp", "programs"))
	}
	fmt.Print("\t}\n}\n")
}

func generate() ([]precompiledseccomp.Program, error) {
	sentry, err := sentryProgram()
	if err != nil {
		return nil, fmt.Errorf("sentry: %w", err)
	}
	files, err := gofer.Generate()
	if err != nil {
		return nil, fmt.Errorf("gofer: %w", err)
	}
	programs := []precompiledseccomp.Program{sentry, files}
	for _, program := range programs {
		clearVariables(program)
	}
	return programs, nil
}

// clearVariables makes the program the same in each build: its variables have values of this
// process, which RenderInstructions replaces.
func clearVariables(program precompiledseccomp.Program) {
	for _, offsets := range program.VarOffsets {
		for _, offset := range offsets {
			program.Bytecode32[offset] = 0
		}
	}
}

// sentryProgram returns gVisor's own program for the options with which Dormouse starts sandboxes.
func sentryProgram() (precompiledseccomp.Program, error) {
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		return precompiledseccomp.Program{}, err
	}
	opt := config.Options{Platform: systrap.PrecompiledSeccompInfo()[0], HostFilesystem: true, ControllerFD: 7}
	all, err := config.PrecompiledPrograms()
	if err != nil {
		return precompiledseccomp.Program{}, err
	}
	for _, program := range all {
		if program.Name != opt.ConfigKey() {
			continue
		}
		rules, denied := config.Rules(opt)
		return program, dormfilter.Check(program, opt.Vars(), dormfilter.Describe(rules, denied, config.SeccompOptions(opt)))
	}
	return precompiledseccomp.Program{}, fmt.Errorf("gVisor precompiles no program for %q", opt.ConfigKey())
}
