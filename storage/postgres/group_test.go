package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// What was committed before a call came is seen by it, also if a group is under way whose
// snapshot is older.
func TestGroup_CallSeesWhatWasCommittedBeforeIt(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool := newPool(t)
		queued := make(chan int, 16)
		g, err := guard.New(guardtest.NewLocker(), newStore(t, pool, at(level)), &guard.Config{
			MaxBatch: 8, MaxHold: time.Hour, Observers: []*guard.Observer{{Queued: func(_ context.Context, _ string, delta int) {
				if delta > 0 {
					queued <- delta
				}
			}}},
		})
		require.NoError(t, err)
		errs := make(chan error, 3)
		call := func(op storage.Func[pgx.Tx]) {
			go func() { errs <- guard.Do(t.Context(), g, resource, op) }()
			<-queued
		}
		var seen int64
		require.NoError(t, guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
			call(func(ctx context.Context, tx pgx.Tx) error {
				if err := statement("select 1")(ctx, tx); err != nil {
					return err
				}
				if err := guard.Do(t.Context(), g, "sku/2", set("y", 1)); err != nil {
					return err
				}
				call(get("y", &seen))
				return nil
			})
			call(set("x", 1))
			return nil
		}))
		for range 3 {
			require.NoError(t, <-errs)
		}
		require.EqualValues(t, 1, seen)
		require.NoError(t, g.Close(t.Context()))
	})
}

// What one member's work does to the COMMIT of the group is no error of the others: those run again if
// they may, and else get a temporary error.
func TestGroup_ErrorAtCommitIsNoOtherMembers(t *testing.T) {
	t.Parallel()
	const constraint = "alter table part add constraint whole foreign key (n) references whole deferrable initially deferred"
	for name, checked := range map[string]string{"ahead of the seal": constraint, "behind the seal": "select"} {
		for _, options := range [][]guard.Option{nil, {guard.Retryable()}} {
			t.Run(fmt.Sprintf("%s, %d options", name, len(options)), func(t *testing.T) {
				t.Parallel()
				pool := newPool(t)
				store := newStore(t, pool, nil)
				mustExec(t, pool, "create table whole (n int primary key); create table part (n int); "+checked)
				require.NoError(t, store.Check(t.Context()))
				mustExec(t, pool, "alter table part drop constraint if exists whole")
				queued := make(chan int, 16)
				g, err := guard.New(guardtest.NewLocker(), store, &guard.Config{MaxBatch: 8, MaxHold: time.Hour, Observers: []*guard.Observer{{
					Queued: func(_ context.Context, _ string, delta int) {
						if delta > 0 {
							queued <- delta
						}
					},
				}}})
				require.NoError(t, err)
				innocent, guilty := make(chan error, 1), make(chan error, 1)
				made := false
				require.NoError(t, guard.Do(t.Context(), g, resource, func(context.Context, pgx.Tx) error {
					go func() { innocent <- guard.Do(t.Context(), g, resource, set("x", 1), options...) }()
					<-queued
					go func() {
						guilty <- guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
							if !made {
								mustExec(t, pool, constraint)
							}
							made = true
							return statement("insert into part values (7)")(ctx, tx)
						}, guard.Retryable())
					}()
					<-queued
					return nil
				}))
				err = <-innocent
				require.NotErrorAs(t, err, new(*pgconn.PgError))
				if options == nil {
					require.ErrorContains(t, err, "its group did not commit")
					require.True(t, guard.SafeToRetry(err))
				} else {
					require.NoError(t, err)
				}
				require.ErrorContains(t, <-guilty, "23503")
				require.NoError(t, g.Close(t.Context()))
			})
		}
	}
}

// Calls that wait for one resource share a transaction, on one connection: functions if
// Config.MaxBatch says so, batches always.
func TestGroup_SharesATransaction(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, g *guard.Guard[pgx.Tx], i int) error{
		"functions": func(ctx context.Context, g *guard.Guard[pgx.Tx], i int) error {
			return guard.Do(ctx, g, resource, func(ctx context.Context, tx pgx.Tx) error {
				if err := add("x", 1)(ctx, tx); err != nil || i != 3 {
					return err
				}
				return errors.New("sold out")
			})
		},
		"batches": func(ctx context.Context, g *guard.Guard[pgx.Tx], _ int) error {
			var b postgres.Batch
			b.Exec("insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1").MustAffect(1)
			return guard.Exec(ctx, g, resource, &b)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, migrated(t), single)
			store := newStore(t, pool, nil)
			const n = 8
			queued := make(chan int, 2*n)
			g, err := guard.New(guardtest.NewLocker(), store, &guard.Config{MaxBatch: n, MaxHold: time.Hour, Observers: []*guard.Observer{{Queued: func(_ context.Context, _ string, delta int) { queued <- delta }}}})
			require.NoError(t, err)
			errs := make(chan error, n)
			require.NoError(t, guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
				for i := range n {
					go func() {
						if err := call(t.Context(), g, i); err != nil {
							errs <- fmt.Errorf("call %d: %w", i, err)
							return
						}
						errs <- nil
					}()
					<-queued
				}
				return set("x", 0)(ctx, tx)
			}))
			failed := 0
			for range n {
				if err := <-errs; err != nil {
					require.EqualError(t, err, "call 3: sold out")
					failed++
				}
			}
			holds(t, pool, "x", int64(n-failed))
			entries, err := store.Entries(t.Context(), resource, 0, 100)
			require.NoError(t, err)
			require.Len(t, entries, 3, "a claim, the first call, and one for all others")
			require.Len(t, entries[2].Ops, n-failed)
			require.NoError(t, g.Close(t.Context()))
		})
	}
}
