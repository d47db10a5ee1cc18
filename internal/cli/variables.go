package cli

import (
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// hasVariable annotates a flag that an environment variable stands for; its value is taken once that was used.
const hasVariable = "variable"

// NameVariables has an environment variable stand for each of these flags, and says so in their help.
func NameVariables(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		f.Usage += " (" + variable(f) + ")"
		_ = flags.SetAnnotation(name, hasVariable, nil) // it fails for an unknown flag only
	}
}

func variable(f *pflag.Flag) string {
	return "FENCEKIT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// FillFromVariables takes the flags that were not given from their variables, if they have one, and
// marks them as changed. An empty variable counts as unset.
func FillFromVariables(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		_, has := f.Annotations[hasVariable]
		value := os.Getenv(variable(f))
		if err != nil || !has || f.Changed || value == "" {
			return
		}
		if bad := f.Value.Set(value); bad != nil {
			err = UsageErrorf("%s: %w", variable(f), bad)
			return
		}
		f.Changed, f.Annotations[hasVariable] = true, []string{"taken"}
	})
	return err
}

// IsGiven reports whether the command line has a flag. What a variable said doesn't count.
func IsGiven(f *pflag.Flag) bool { return f.Changed && len(f.Annotations[hasVariable]) == 0 }
