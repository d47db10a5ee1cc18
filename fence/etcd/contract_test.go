package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard/guardtest"
)

func TestContract(t *testing.T) {
	e, cfg := ownEtcd(t), fresh(t)
	client := dial(t, e.Endpoint())
	guardtest.TestLocker(t, guardtest.LockerHarness{
		New: func(t testing.TB) guardtest.ClosableLocker {
			l, err := NewLocker(client, cfg)
			require.NoError(t, err)
			return l
		},
		Lose: func(t testing.TB, l guardtest.ClosableLocker) {
			_, err := client.Revoke(patient(t), l.(*Locker).sessions.Current().ID)
			require.NoError(t, err)
		},
		Restart: func(t testing.TB) { require.NoError(t, e.Restart(patient(t))) },
		Ordered: true,
	})
}
