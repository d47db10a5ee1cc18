package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/guardtest"
)

func TestContract(t *testing.T) { guardtest.TestLocker(t, harness(t)) }

func BenchmarkLocker(b *testing.B) { guardtest.BenchmarkLocker(b, harness(b)) }

func harness(t testing.TB) guardtest.LockerHarness {
	e, cfg := ownEtcd(t), fresh(t)
	client := dial(t, e.Endpoint())
	return guardtest.LockerHarness{
		New: func(t testing.TB) guardtest.ClosableLocker {
			l, err := New(client, cfg)
			require.NoError(t, err)
			return l
		},
		Lose: func(t testing.TB, l guardtest.ClosableLocker) {
			_, err := client.Revoke(patient(t), l.(*Locker).sessions.Current().ID)
			require.NoError(t, err)
		},
		Restart:      func(t testing.TB) { require.NoError(t, e.Restart(patient(t))) },
		MissDeadline: func(_ testing.TB, held fence.Lease) { held.(*position).Session.MissDeadline() },
		Ordered:      true,
	}
}
