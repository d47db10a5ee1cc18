package control

import (
	"fmt"
	"slices"
	"strings"
)

// All returns the controls, always in the same order.
func All() []Control {
	return []Control{
		noLock,
		etcdMutex,
		redisSetnx,
		redisSetnxExpire,
		redisWatchdog,
		redisReplica,
		redlock,
		postgresAdvisory,
		tokenCompare,
		leaseEquality,
		clientClock,
		checkWithoutLock,
		groupMatching,
		groupRerun,
	}
}

// ByName returns a control. It fails with *NoControlError if none has that name.
func ByName(name string) (Control, error) {
	all := All()
	i := slices.IndexFunc(all, func(c Control) bool { return c.Name == name })
	if i < 0 {
		return Control{}, &NoControlError{name}
	}
	return all[i], nil
}

// NoControlError says that no control has a name, and which there are.
type NoControlError struct{ Name string }

func (e *NoControlError) Error() string {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name)
	}
	return fmt.Sprintf("control: no control is named %q; there are %s", e.Name, strings.Join(names, ", "))
}
