package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
)

// errNoReexec: main or TestMain doesn't call Reexec first.
var errNoReexec = errors.New("testenv: call testenv.Reexec first in main, or testenv.Main in TestMain")

// roleVar is the environment variable that gives a child of this binary its role.
const roleVar = "FENCEKIT_TESTENV_ROLE"

// reexecCalled keeps a binary that doesn't call Reexec from starting itself as a child:
// the child would do what its parent does, and start children itself.
var reexecCalled atomic.Bool

// PlayRole makes a child that was started for one of these roles, or to be the janitor,
// just that: then it doesn't return. Otherwise it returns at once.
func PlayRole(roles map[string]func()) {
	reexecCalled.Store(true)
	role := os.Getenv(roleVar)
	if role == "" {
		return
	}
	_ = os.Unsetenv(roleVar)
	play, known := roles[role]
	switch {
	case known:
		play()
	case role == roleJanitor:
		playJanitor()
	default:
		fmt.Fprintf(os.Stderr, "testenv: unknown role %q in %s\n", role, roleVar)
		os.Exit(64)
	}
}

// InRole is a command that runs this binary in a role, with what Environ returns.
func InRole(role string, args []string, without ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(Environ(without...), roleVar+"="+role)
	return cmd, nil
}

// Environ is the environment without variables of these prefixes, which would configure a
// server, unnoticed.
func Environ(without ...string) []string { return Without(os.Environ(), without...) }

// Without is an environment without variables of these prefixes.
func Without(environ []string, prefixes ...string) []string {
	var kept []string
	for _, v := range environ {
		if !hasPrefix(v, prefixes) {
			kept = append(kept, v)
		}
	}
	return kept
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
