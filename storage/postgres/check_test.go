package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

func TestServerFacts_SayWhatIsNotSupported(t *testing.T) {
	t.Parallel()
	require.NoError(t, serverFacts{version: 140000}.check(false))
	err := serverFacts{version: 130999, versionText: "13.9"}.check(false)
	require.ErrorIs(t, err, ErrNotReady)
	require.ErrorContains(t, err, "not supported")
	require.ErrorContains(t, err, "13.9")
}

// PostgreSQL 17 ends a session with this FATAL error when transaction_timeout has
// passed. That is from its documentation: these tests run on servers without it.
func TestExplain_TransactionTimeoutIsTransientAndNamed(t *testing.T) {
	t.Parallel()
	fatal := &pgconn.PgError{Severity: "FATAL", Code: "25P04", Message: "terminating connection due to transaction timeout", Routine: "ProcessInterrupts"}
	for _, stage := range []storage.Stage{storage.StageClaim, storage.StageBegin, storage.StageRun, storage.StageSeal} {
		err := new(Store).explain(t.Context(), fatal, false, stage)
		require.ErrorAs(t, err, new(*TransientError), stage)
		require.ErrorContains(t, err, "transaction_timeout", stage)
		require.True(t, errors.Is(err, fatal), stage)
	}
}

func TestTransient_IsWhatPassesByItself(t *testing.T) {
	t.Parallel()
	for want, all := range map[bool][]pgconn.PgError{
		true: {
			{Code: "40001"}, {Code: "40P01"}, {Code: "55P03"}, {Code: "57P01", Severity: "FATAL"},
			{Code: "26000"}, {Code: "0A000", Routine: "RevalidateCachedQuery"}, // of statements that pgx prepares anew
		},
		false: {{Code: "0A000", Routine: "ExecRenameStmt"}, {Code: "23505"}, {Code: "25006"}},
	} {
		for _, err := range all {
			require.Equal(t, want, transient(&err), err.Code)
		}
	}
}
