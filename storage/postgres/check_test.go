package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServerFacts_SayWhatIsNotSupported(t *testing.T) {
	t.Parallel()
	require.NoError(t, serverFacts{version: 140000}.check())
	err := serverFacts{version: 130999, versionText: "13.9"}.check()
	require.ErrorIs(t, err, ErrNotReady)
	require.ErrorContains(t, err, "not supported")
	require.ErrorContains(t, err, "13.9")
	err = serverFacts{version: 150000, recovery: true}.check()
	require.ErrorIs(t, err, ErrNotReady)
	require.ErrorContains(t, err, "not supported")
	require.ErrorContains(t, err, "standby")
	require.ErrorAs(t, err, new(*TransientError), "until a failover has ended")
	require.ErrorContains(t, serverFacts{prepared: 1}.checkPrepared(false), "not supported")
	require.NoError(t, serverFacts{prepared: 1}.checkPrepared(true))
	require.NoError(t, serverFacts{}.checkPrepared(false))
}
