package fault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
)

// A fault's text begins with its kind, and each kind is listed once.
func TestKinds_AreTheFirstWordsOfAllFaults(t *testing.T) {
	said := []string{}
	for text, f := range map[string]fault.Fault{
		"pause w1":                        fault.Pause{Worker: 1},
		"pause w1 at read":                fault.PauseAt{Worker: 1, Point: "read"},
		"stop-the-world w1":               fault.StopTheWorld{Worker: 1},
		"kill w1":                         fault.Kill{Worker: 1},
		"kill w1 at read":                 fault.KillAt{Worker: 1, Point: "read"},
		"partition w1 from both, answers": fault.Partition{Worker: 1, From: fault.ToBoth, Way: fault.Answers},
		"delay w1 to etcd by 20ms ± 5ms":  fault.Delay{Worker: 1, To: fault.ToEtcd, Latency: 20 * time.Millisecond, Jitter: 5 * time.Millisecond},
		"half-open w1 to postgres":        fault.HalfOpen{Worker: 1, To: fault.ToPostgres},
		"reset w1 to postgres":            fault.Reset{Worker: 1, To: fault.ToPostgres},
		"revoke lease 3":                  fault.RevokeLease{Index: 3},
		"delete-lock 3":                   fault.DeleteLock{Index: 3},
		"etcd-pause the leader":           fault.EtcdPause{Member: fault.Leader},
		"etcd-kill member 2":              fault.EtcdKill{Member: 2},
		"etcd-isolate member 0":           fault.EtcdIsolate{},
		"etcd-compact":                    fault.EtcdCompact{},
		"etcd-nospace":                    fault.EtcdNoSpace{},
		"postgres-crash":                  fault.PostgresCrash{},
		"postgres-pause":                  fault.PostgresPause{},
		"terminate w1":                    fault.Terminate{Worker: 1},
		"tamper 3":                        fault.Tamper{Index: 3},
		"commit-swallowed w1":             fault.LoseCommit{Worker: 1, Loss: fault.Swallowed},
		"commit-unheard w1":               fault.LoseCommit{Worker: 1, Loss: fault.Unheard},
		"commit-held w1":                  fault.LoseCommit{Worker: 1, Loss: fault.Held},
	} {
		require.Equal(t, text, f.String())
		said = append(said, strings.Fields(text)[0])
	}
	var names []string
	for _, kind := range fault.Kinds() {
		require.Contains(t, said, kind.Name)
		require.NotContains(t, names, kind.Name)
		require.NotEmpty(t, kind.Summary)
		names = append(names, kind.Name)
	}
	require.Subset(t, names, said)
}
