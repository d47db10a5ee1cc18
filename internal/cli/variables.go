package cli

import (
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// NameVariables adds to each flag's help the variable that stands for it.
func NameVariables(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { f.Usage += " (" + Variable(f) + ")" })
}

// Variable names the environment variable that stands for a flag.
func Variable(f *pflag.Flag) string {
	return "FENCEKIT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// FillFromVariables takes the flags that were not given from their variables, and
// marks them as changed. An empty variable counts as unset.
func FillFromVariables(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(Variable(f))
		if err != nil || f.Changed || value == "" {
			return
		}
		if bad := f.Value.Set(value); bad != nil {
			err = UsageErrorf("%s: %w", Variable(f), bad)
			return
		}
		f.Changed = true
	})
	return err
}
