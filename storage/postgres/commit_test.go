package postgres_test

import (
	"bytes"
	"context"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func (f *faulty) doubt(t testing.TB, c storage.Claim, op storage.Op[pgx.Tx], action *pgproxy.Action) storage.InDoubt {
	t.Helper()
	f.proxy.OnCommit(func(string) *pgproxy.Action { return action })
	defer f.proxy.OnCommit(nil)
	_, err := attempt(t.Context(), f.store, op, c)
	doubt := inDoubt(t, err)
	require.NoError(t, action.Wait(t.Context()))
	f.conns.settle()
	return doubt
}

func (f *faulty) resolves(t testing.TB, d storage.InDoubt, want bool) {
	t.Helper()
	for range 2 {
		require.Equal(t, want, applied(t, f.direct, d))
	}
}

func TestResolve_CommitWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		f := newFaulty(t, level)
		c := claim(t, f.store, grant(5, "a"))
		d := f.doubt(t, c, set("x", 1), pgproxy.SwallowReply())
		f.resolves(t, d, true)
		claim(t, f.direct, grant(6, "b"))
		f.resolves(t, d, true)
		holds(t, f.pool, "x", 1)
		require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindClaim}, kinds(t, f.direct))
	})
}

func TestResolve_LateCommitIsRejected(t *testing.T) {
	t.Parallel()
	none := func(*testing.T, *faulty, storage.Claim) {}
	for name, c := range map[string]struct {
		level pgx.TxIsoLevel
		takes func(t *testing.T, f *faulty, c storage.Claim) // the position; else the void does
		state string
	}{
		"after a void":             {pgx.ReadCommitted, none, "ZF002"},
		"after a void, a snapshot": {pgx.RepeatableRead, none, "40001"},
		"after a newer claim": {pgx.ReadCommitted, func(t *testing.T, f *faulty, _ storage.Claim) {
			claimOnly(t, f.pool, grant(6, "b"))
		}, "ZF001"},
		"after a sibling's write": {pgx.ReadCommitted, func(t *testing.T, f *faulty, c storage.Claim) {
			write(t, f.direct, c, set("other", 1))
		}, "ZF002"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, c.level)
			claimed := write(t, f.store, claim(t, f.store, grant(5, "a")), set("x", 10))
			hold := pgproxy.HoldCommit()
			d := f.doubt(t, claimed, add("x", 1), hold)
			c.takes(t, f, claimed)
			f.resolves(t, d, false)
			answer, err := hold.Deliver(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{c.state}, answer.Errors)
			holds(t, f.pool, "x", 10)
			f.resolves(t, d, false)
		})
	}
}

func TestResolve_WaitsForASealUnderWay(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted)
	c := claim(t, f.store, grant(5, "a"))
	other := locked(t, f.pool, "select from fence.resource for no key update")
	d := storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9}
	impatient := newStore(t, f.pool, postgres.Config{}.With(postgres.Times{Lock: time.Millisecond}))
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := impatient.Resolve(bounded, d)
	require.ErrorContains(t, err, "55P03", "it waits for longer than it may")

	waiter := newStore(t, f.pool, &postgres.Config{StatementTimeout: time.Hour})
	resolve := background(func() (bool, error) { return waiter.Resolve(t.Context(), d) })
	waiting(t, f.pool, "transactionid")
	require.Empty(t, resolve)
	require.NoError(t, other.Rollback(t.Context()))
	require.Equal(t, result[bool]{}, receive(t, resolve))
	f.resolves(t, d, false)
}

// The server runs nothing of a seal's message before all of it has arrived, so a holder
// that stopped while it was sending holds no locks: a claim succeeds at once.
func TestSeal_TruncatedMessageLocksNothing(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted)
	for i, bytes := range []int{1, 5, 150, 1 << 20} {
		c := claim(t, f.store, grant(fence.Token(2*i+1), "a"))
		cut := pgproxy.Truncate(bytes)
		f.proxy.OnCommit(func(string) *pgproxy.Action { return cut })
		ctx, cancel := context.WithCancel(context.Background())
		commit := background(func() ([]storage.Claim, error) { return attempt(ctx, f.store, set("x", 1), c) })
		require.NoError(t, cut.Wait(t.Context()))
		_, err := f.pool.Exec(t.Context(), "select fence.claim_one($1, 1, $2, 'b', lock_ms => 1)", resource, 2*i+2)
		require.NoError(t, err)
		cancel()
		f.resolves(t, inDoubt(t, receive(t, commit).err), false)
		require.NoError(t, cut.Drop(t.Context()))
		holds(t, f.pool, "x", 0)
	}
}

func TestCommit_EndedBeforeTheSealIsNotInDoubt(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, &postgres.Config{Isolation: level, StatementTimeout: time.Hour})
		txn := begin(t, store, claim(t, store, grant(5, "a")))
		require.NoError(t, txn.Run(t.Context(), set("x", 1)))
		locked := locked(t, pool, "select from fence.resource for no key update")
		commit := commit(txn)
		mustExec(t, pool, "select pg_terminate_backend($1, 10000)", waiting(t, pool, "transactionid"))
		err := receive(t, commit).err
		require.NotErrorAs(t, err, new(*storage.InDoubtError))
		require.ErrorAs(t, err, new(*postgres.TransientError))
		require.NoError(t, locked.Rollback(t.Context()))
		holds(t, pool, "x", 0)
	})
}

// sleepInCommit makes COMMIT itself run a trigger: of a temporary table, which may be written to when the transaction
// is read only, and deferred once more each time that deferred triggers are run.
const sleepInCommit = `create temporary table late (left_over int);
	create function pg_temp.late() returns trigger language plpgsql as $$
	begin
		if new.left_over = 0 then
			perform pg_sleep(3600);
		end if;
		set constraints all deferred;
		insert into pg_temp.late values (new.left_over - 1);
		return null;
	end $$;
	create constraint trigger late after insert on late deferrable initially deferred for each row execute function pg_temp.late();
	insert into late values (3)`

func TestCommit_EndedBehindTheSealIsInDoubt(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted)
	c := claim(t, f.direct, grant(5, "a"))
	commit := background(func() ([]storage.Claim, error) {
		return attempt(context.Background(), f.direct, do(func(ctx context.Context, tx pgx.Tx) error {
			if err := set("x", 1)(ctx, tx); err != nil {
				return err
			}
			return statement(sleepInCommit)(ctx, tx)
		}), c)
	})
	pid := waiting(t, f.pool, "PgSleep")
	mustExec(t, f.pool, "select pg_terminate_backend($1, 10000)", pid)
	f.resolves(t, inDoubt(t, receive(t, commit).err), false)
	holds(t, f.pool, "x", 0)
}

// What asks for the hashes, behind the seal, ends in an answer by which a server that then goes away may have committed.
func TestCommit_EndedBehindTheHashesIsInDoubt(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted, single)
	claims, err := f.store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "a", Epoch: 1, Token: 5, Holder: "a"}}, storage.Claim{Grant: grant(5, "a")})
	require.NoError(t, err)
	claims, err = attempt(t.Context(), f.store, set("x", 1), claims...)
	require.NoError(t, err)
	f.onSeal(func(ask pgproxy.Ask, sql string) words {
		answer := ask(sql)
		commit := slices.IndexFunc(answer, func(m pgproto3.BackendMessage) bool { return reflect.DeepEqual(m, done("COMMIT")) })
		return append(answer[:commit], &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01", Message: "terminating connection", Routine: "ProcessInterrupts"})
	})
	txn := begin(t, f.store, claims...)
	require.NoError(t, txn.Run(t.Context(), set("x", 2)))
	_, err = txn.Commit(t.Context(), []storage.Move{{Hash: new([32]byte)}, {Hash: new([32]byte)}})
	f.resolves(t, inDoubt(t, err), true)
}

func wrapConn(cfg *pgxpool.Config, wrap func(net.Conn) net.Conn) {
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
}

type stuckConn struct {
	net.Conn
	peer  net.Conn
	stuck chan struct{}
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte(closeAll)) {
		return c.Conn.Write(b)
	}
	close(c.stuck)
	return c.peer.Write(b)
}

func (c *stuckConn) SetDeadline(at time.Time) error {
	_ = c.peer.SetDeadline(at)
	return c.Conn.SetDeadline(at)
}

func TestCommit_SendingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	pool := openPool(t, migrated(t), single, func(cfg *pgxpool.Config) {
		wrapConn(cfg, func(conn net.Conn) net.Conn { return &stuckConn{conn, near, stuck} })
	})
	store := newStore(t, pool, nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commit := background(func() ([]storage.Claim, error) { return txn.Commit(ctx, nil) })
	<-stuck
	cancel()
	require.ErrorAs(t, receive(t, commit).err, new(*storage.InDoubtError))
	getsItsOwnAnswers(t, pool)
}

// Severities are in the server's language. The store reads a warning at COMMIT from the field that isn't translated.
func TestCommit_WarningInAnotherLanguageIsInDoubt(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted, single)
	mustExec(t, f.pool, `create function warn() returns trigger language plpgsql as $$ begin raise warning 'careful'; return null; end $$;
		create constraint trigger warn after insert on item deferrable initially deferred for each row execute function warn()`)
	c := write(t, f.store, claim(t, f.store, grant(5, "a")), set("warns before COMMIT", 1))
	f.onSeal(func(ask pgproxy.Ask, sql string) words {
		answer := ask(sql)
		commit := slices.IndexFunc(answer, func(m pgproto3.BackendMessage) bool { return reflect.DeepEqual(m, done("COMMIT")) })
		warning := &pgproto3.NoticeResponse{Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: "01000", Message: "Warten auf synchrone Replikation wird storniert"}
		return slices.Insert(answer, commit, pgproto3.BackendMessage(warning))
	})
	_, err := attempt(t.Context(), f.store, set("x", 1), c)
	require.ErrorAs(t, err, new(*storage.InDoubtError))
	require.ErrorContains(t, err, "01000")
}
