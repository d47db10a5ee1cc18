package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
)

// processOn returns a process that takes locks and writes to a database.
func (e *epochOf) processOn(pool *pgxpool.Pool) *fencekit.Guard {
	g, err := fencekit.New(etcdserver.Client(e.t), pool, &fencekit.Config{Lock: etcd.Config{Prefix: e.prefix}})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, g.Close(context.Background())) })
	return g
}

// An epoch that was put by mistake granted a lock, and the grant is on its way in a request. No
// bump orders the next holder below it.
func TestEpochBump_OrdersLaterGrantsAfterThoseOfAMistake(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 1)
	pool := e.pool(0)
	require.NoError(t, execute(t, connect(t, e.dsns[0]), "create table stock (qty int); insert into stock values (3)"))
	set := func(r fencekit.Runner, qty int) error {
		return guard.Do(t.Context(), r, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update stock set qty = $1", qty)
			return err
		})
	}
	first, second, receiver := e.processOn(pool), e.processOn(pool), e.processOn(pool)
	e.put("8") // meant: 2; the database would accept up to 11
	lease, err := first.Locker.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	delayed := lease.Grant() // "3 are left, 3 are sold: 0", on its way to the receiver
	require.NoError(t, lease.Release(t.Context()))

	e.bump(cli.ExitViolated, "--trust", "databases")
	require.Equal(t, []int64{9, 9}, numbers(e.bump(cli.ExitOK)))
	lease, err = second.Locker.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	require.NoError(t, set(receiver.UnderGrant(lease.Grant()), 1), "2 of 3 are sold")
	require.NoError(t, lease.Release(t.Context()))
	var rejected *guard.RejectedError
	require.ErrorAs(t, set(receiver.UnderGrant(delayed), 0), &rejected)
	require.Equal(t, storage.ReasonEpochBehind, rejected.Reason)
}

// A raise that is recorded counts, also if the table of settings was restored alone.
func TestEpochBump_IsAboveRaisesThatTheSettingsForgot(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 1)
	e.bump(cli.ExitOK)
	e.bump(cli.ExitOK)
	require.NoError(t, execute(t, connect(t, e.dsns[0]), `alter table fence.setting disable trigger protect_epoch;
		update fence.setting set epoch = 1, token = 0; alter table fence.setting enable always trigger protect_epoch`))
	e.put("1")
	require.Equal(t, []int64{4, 4}, numbers(e.bump(cli.ExitOK)))
}
