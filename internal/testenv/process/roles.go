package process

import (
	"fmt"
	"os"
	"sync/atomic"
)

// RoleVar tells a child of this binary what it was started to be.
const RoleVar = "FENCEKIT_TESTENV_ROLE"

// reexecCalled guards against a binary whose child would do what its parent
// does, and start children itself.
var reexecCalled atomic.Bool

// PlayRole makes a child that was started for one of these roles, or to be the janitor,
// just that: then it doesn't return. Otherwise it returns at once.
func PlayRole(roles map[string]func()) {
	reexecCalled.Store(true)
	role := os.Getenv(RoleVar)
	if role == "" {
		return
	}
	_ = os.Unsetenv(RoleVar)
	play, known := roles[role]
	switch {
	case known:
		play()
	case role == roleJanitor:
		playJanitor()
	default:
		fmt.Fprintf(os.Stderr, "testenv: unknown role %q in %s\n", role, RoleVar)
		os.Exit(64)
	}
}
