package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv"
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
