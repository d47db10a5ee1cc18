package pgproxy_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
)

func TestInstead_AsksAndAnswers(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	var commit, insert []pgproto3.BackendMessage
	a := pgproxy.Instead(func(ask pgproxy.Ask, sql string) []pgproto3.BackendMessage {
		require.Equal(t, "select 1; commit", sql)
		commit = ask("commit")
		insert = ask("insert into ledger values (2), (3)")
		return []pgproto3.BackendMessage{
			&pgproto3.ErrorResponse{Severity: "ERROR", Code: "57P01", Message: "words of its own"},
			&pgproto3.ReadyForQuery{TxStatus: 'I'},
		}
	})
	f.proxy.OnCommit(always(a))
	_, err := conn.Exec(f.ctx, "select 1; commit")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "words of its own", pgErr.Message)
	require.NoError(t, a.Wait(f.ctx))
	require.Equal(t, []pgproto3.BackendMessage{&pgproto3.CommandComplete{CommandTag: []byte("COMMIT")}, &pgproto3.ReadyForQuery{TxStatus: 'I'}}, commit)
	require.Equal(t, []pgproto3.BackendMessage{&pgproto3.CommandComplete{CommandTag: []byte("INSERT 0 2")}, &pgproto3.ReadyForQuery{TxStatus: 'I'}}, insert)
	f.exec(conn, "select 1") // the connection goes on
	require.Equal(t, 3, f.ledger())
}
