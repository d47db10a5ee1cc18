// Package e2e has tests that run the whole of Fencekit against real servers: what an
// outage of etcd or Postgres, a restore, an election or a raised epoch does to callers of
// package guard.
package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/storage"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// requireRejected requires that err is a rejection for a reason.
func requireRejected(t testing.TB, err error, want storage.Reason) {
	t.Helper()
	rejected := new(storage.RejectedError)
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, want, rejected.Reason)
}
