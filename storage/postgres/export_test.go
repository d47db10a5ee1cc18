package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
)

// TakeForNoneDeferrable sets that nothing in the database can be deferred until COMMIT, as a look has found just now.
func (s *Store) TakeForNoneDeferrable() {
	s.deferrable.none, s.deferrable.lastLook = true, time.Now()
}

// TakeForUnlisted sets that no eviction can list a transaction, however long that takes.
func (s *Store) TakeForUnlisted() { s.unlisted = time.Hour }

// Indirect makes the connection of a transaction one that may end at a pooler.
func Indirect(t storage.Txn[pgx.Tx]) { t.(*txn).conn.Conn().PgConn().CustomData()[directKey] = false }

func (s *Store) LookForDeferrable() { s.deferrable.lastLook = time.Time{} }

// NoteEarlierLook notes that the look before the last one has found nothing.
func (s *Store) NoteEarlierLook() {
	s.deferrable.note(s.deferrable.looks-1, &wire.Answer{Rows: [][]string{{"deferrable", "f"}}})
}

type Times = times

func (c *Config) Times() *Times { return &c.times }

func (c Config) With(t Times) *Config { c.times = t; return &c }

// StatusOf asks for the status of a transaction whose connection was lost.
func (s *Store) StatusOf(ctx context.Context, xid string, claims ...storage.Claim) string {
	return (&txn{store: s, claims: claims, beginning: beginning{xid: xid}}).status(ctx)
}

// PostgreSQL 17 ends a session with this FATAL error when transaction_timeout has
// passed. That is from its documentation: these tests run on servers without it.
func TestTransient_IsWhatPassesByItself(t *testing.T) {
	t.Parallel()
	fatal := &pgconn.PgError{Severity: "FATAL", Code: "25P04", Message: "terminating connection due to transaction timeout", Routine: "ProcessInterrupts"}
	for _, stage := range []storage.Stage{storage.StageClaim, storage.StageBegin, storage.StageRun, storage.StageSeal} {
		err := new(Store).explain(t.Context(), fatal, false, stage)
		require.NotErrorAs(t, err, new(*TransientError), stage)
		require.ErrorContains(t, err, "transaction_timeout", stage)
		require.True(t, errors.Is(err, fatal), stage)
	}
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

// TxOf returns the name of a transaction, which else a caller learns only from its COMMIT.
func TxOf(t storage.Txn[pgx.Tx]) storage.TxID { return t.(*txn).id }
