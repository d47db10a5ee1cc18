package chaos_test

import (
	"testing"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/chaos/result"
)

// The shortest of what "make chaos" does: a script with controls that break, each
// place where an operation waits, and random faults.
func TestRun_FencedHoldsWhereControlsBreak(t *testing.T) {
	chaos.Test(t, chaos.Config{
		Scenarios: []string{"stalled-holder"},
		Groups:    []string{result.Fenced, "no-lock", "etcd-mutex", "token-compare"},
	})
}

func TestRun_ALeaseThatEndsAnywhereIsHarmless(t *testing.T) {
	chaos.Test(t, chaos.Config{Scenarios: []string{"expiry-at-every-await"}})
}

func TestRun_RandomFaultsAreHarmless(t *testing.T) {
	chaos.Test(t, chaos.Config{Scenarios: []string{"unknown-commits"}})
}

// Three scripts whose servers do nothing wrong.
func TestRun_ForgersWaitersAndUsersAreHarmless(t *testing.T) {
	chaos.Test(t, chaos.Config{Scenarios: []string{"forged-tokens", "zombie-waiter", "user-code"}})
}
