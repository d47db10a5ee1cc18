package worker

import (
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// A connection that failed at the seal is no rejection by the database, even if the grant
// is then found stale.
func TestRejectionEvent_HasTheCauseThatEndedTheTransaction(t *testing.T) {
	at := func(err error) string {
		return RejectionEvent(&guard.RejectedError{Reason: storage.ReasonStale, Stage: storage.StageSeal, Err: err}).Cause
	}
	require.Empty(t, at(nil))
	require.Empty(t, at(&pgconn.PgError{Code: "40001"}))
	require.Equal(t, "unexpected EOF", at(io.ErrUnexpectedEOF))
	require.Contains(t, at(&pgconn.PgError{Code: "57P01"}), "57P01")
}
