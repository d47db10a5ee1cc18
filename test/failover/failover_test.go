package failover_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

const (
	pairSKU  = "pair"
	mutexSKU = "mutex"
)

var loadSKUs = []string{"a", "b"}

// trial is a cluster, what sells on it, and what came of it.
type trial struct {
	*testing.T
	ctx         context.Context
	synchronous bool
	etcd        []string
	cluster     *patroni.Cluster
	pool        *pgxpool.Pool // through HAProxy, as all
	ledger      *ledger

	// The pairs, and who loses sales.
	fencedFirst, mutexFirst, second, loser *shop
	receiver                               *guard.Guard[pgx.Tx]

	firstWrites []time.Duration
	forced      []string // sales that were certainly lost
	stopped     int      // late writes of pairs that the fence rejected
}

// The primary is killed, paused, cut off and switched over, in turn, under load. A synchronous
// cluster loses no sale that was acknowledged. An asynchronous one loses what its standbys don't
// have, and each shop that sold some of it is told. No article is oversold in either; under etcd's Mutex
// one is, each time.
func TestFailovers_LoseNothingUnnamedAndOversellNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name        string
		synchronous bool
	}{{"synchronous", true}, {"asynchronous", false}} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*failovers+2)*3*time.Minute) // hangs no longer
			defer cancel()
			r := newTrial(t, ctx, mode.synchronous)
			selling, stop := context.WithCancel(ctx)
			var load sync.WaitGroup
			for n := range 3 {
				s := newShop(t, fmt.Sprintf("shop-%d", n), r.etcd, r.cluster.DSN())
				for _, sku := range loadSKUs {
					load.Go(func() { s.sellUntil(selling, r.ledger, sku) })
				}
			}
			defer load.Wait() // also if the test has failed
			defer stop()
			for n := range *failovers {
				r.lose(n, patroni.Faults[n%len(patroni.Faults)])
			}
			stop()
			load.Wait()
			r.judge()
		})
	}
}

func newTrial(t *testing.T, ctx context.Context, synchronous bool) *trial {
	t.Helper()
	r := &trial{T: t, ctx: ctx, synchronous: synchronous, ledger: newLedger()}
	members, err := etcdserver.StartCluster(ctx, 3, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, members.Stop(context.Background())) })
	r.etcd = members.Endpoints()
	r.cluster, err = patroni.Start(ctx, r.etcd, &patroni.Config{Synchronous: synchronous})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.cluster.Stop(context.Background())) })
	r.pool, err = pgxpool.New(ctx, r.cluster.DSN())
	require.NoError(t, err)
	t.Cleanup(r.pool.Close)
	_, err = postgres.Migrate(ctx, r.pool, "")
	require.NoError(t, err)
	_, err = r.pool.Exec(ctx, schema)
	require.NoError(t, err)
	skus := append(slices.Clone(loadSKUs), pairSKU, mutexSKU)
	for n := range *failovers {
		skus = append(skus, fmt.Sprintf("kept/%d", n), fmt.Sprintf("gone/%d", n))
	}
	_, err = r.pool.Exec(ctx, "insert into stock select s, $2 from unnest($1::text[]) s", skus, initial)
	require.NoError(t, err)
	open := func(name string) *shop { return newShop(t, name, r.etcd, r.cluster.DSN()) }
	r.fencedFirst, r.mutexFirst, r.second, r.loser = open("first"), open("first under Mutex"), open("second"), open("loser")
	store, err := postgres.NewStore(r.pool, nil)
	require.NoError(t, err)
	r.receiver, err = guard.New(nil, storage.Store[pgx.Tx](store), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.receiver.Close(context.Background())) })
	return r
}

// lose takes the primary away once, and waits until it is back.
func (r *trial) lose(n int, fault patroni.Fault) {
	old, timeline, err := r.cluster.Leader(r.ctx)
	require.NoError(r, err)
	id := func(who string) string { return fmt.Sprintf("%s/%d", who, n) }
	fenced, err := stallFenced(r.ctx, r.fencedFirst, r.receiver, id("pair/first"), pairSKU)
	require.NoError(r, err)
	defer func() { require.NoError(r, fenced.end()) }()
	mutex, err := stallMutex(r.ctx, r.mutexFirst, id("mutex/first"), mutexSKU)
	require.NoError(r, err)
	defer func() { require.NoError(r, mutex.end()) }()
	var forced *losses
	if !r.synchronous && fault.Name != patroni.SwitchedOver.Name {
		forced, err = force(r.ctx, r.loser, r.ledger, old, n)
		require.NoError(r, err)
		r.forced = append(r.forced, forced.ids...)
	}

	seen := r.ledger.firstElsewhere(old.Port(0))
	begun := time.Now()
	plain := plainWrites(r.ctx, r.cluster.DSN(), old.Port(0))
	require.NoError(r, fault.Inject(r.ctx, r.cluster, old), fault.Name)
	select {
	case at := <-seen:
		r.firstWrites = append(r.firstWrites, at.Sub(begun))
	case <-r.ctx.Done():
		require.NoError(r, r.ctx.Err(), "no sale behind the failover: %s", fault.Name)
	}
	leader, after, err := r.cluster.LeaderAfter(r.ctx, old)
	require.NoError(r, err)
	r.Logf("%d: %s was %s; %s, timeline %d after %d; first write without the guard after %.1f s, first sale after %.1f s",
		n+1, old.Name(), fault.Name, leader.Name(), after, timeline, (<-plain).Sub(begun).Seconds(), r.firstWrites[n].Seconds())

	require.NoError(r, sellUnderMutex(r.ctx, r.second, id("mutex/second"), mutexSKU))
	require.NoError(r, mutex.write(r.ctx))
	require.NoError(r, r.second.sellOne(r.ctx, r.ledger, id("pair/second"), pairSKU))
	require.ErrorIs(r, fenced.write(r.ctx), guard.ErrStaleToken)
	r.stopped++
	if forced != nil {
		require.NoError(r, forced.requireNamed(r.ctx, func(sku string, err error, want ...storage.Reason) storage.Reason {
			require.ErrorIs(r, err, guard.ErrFailedOver, sku)
			var rejected *guard.RejectedError
			require.ErrorAs(r, err, &rejected)
			require.Contains(r, want, rejected.Reason, sku)
			return rejected.Reason
		}))
	}
	require.NoError(r, fault.Revert(r.ctx, old))
	require.NoError(r, r.cluster.Settled(r.ctx))
}

// judge compares what was said with what is there.
func (r *trial) judge() {
	rows, err := r.pool.Query(r.ctx, "select id from sale")
	require.NoError(r, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r, err)
	there := map[string]bool{}
	for _, id := range ids {
		there[id] = true
	}
	lost := 0
	for id, s := range r.ledger.acknowledged {
		if !there[id] {
			lost++
			require.True(r, r.ledger.lossWasNamed(id), "%s of %s is lost, and no later call was told", id, s.shop)
		}
	}
	for id, err := range r.ledger.failed {
		require.False(r, there[id], "%s failed: %v", id, err)
	}
	for id, unknown := range r.ledger.unknown {
		var applied bool
		require.NoError(r, untilThere(r.ctx, func(ctx context.Context) (err error) {
			applied, err = unknown.Resolve(ctx)
			return err
		}), id)
		require.Equal(r, applied, there[id], "%s: %v", id, unknown)
	}
	for _, id := range r.forced {
		require.Contains(r, r.ledger.acknowledged, id)
		require.False(r, there[id], "%s is there: nothing was lost, so nothing is shown", id)
	}
	rounds := len(r.firstWrites)
	fenced, control := r.oversold("<>"), r.oversold("=")
	slices.Sort(r.firstWrites)
	r.Logf("%d failovers: acknowledged %d, lost %d (%d of them forced), each named, failed %d, rejected by the fence %d, unknown %d",
		rounds, len(r.ledger.acknowledged), lost, len(r.forced), len(r.ledger.failed), r.ledger.rejected+r.stopped, len(r.ledger.unknown))
	r.Logf("first write after a failover: median %.1f s, worst %.1f s", r.firstWrites[rounds/2].Seconds(), r.firstWrites[rounds-1].Seconds())
	r.Logf("oversold: %d; under etcd's Mutex without a fence: %d", fenced, control)
	if r.synchronous {
		require.Zero(r, lost, "acknowledged and lost")
	} else {
		require.NotEmpty(r, r.forced)
	}
	require.Zero(r, fenced, "oversold")
	require.Equal(r, rounds, control, "each pair under etcd's Mutex has to oversell by one, or the schedule shows nothing")
}

// oversold is how many more were sold than the stock knows of, of the article under etcd's
// Mutex, or of all others.
func (r *trial) oversold(mutex string) (n int) {
	require.NoError(r, r.pool.QueryRow(r.ctx, `
		select sum(greatest(0, quantity + (select count(*) from sale where sale.sku = stock.sku) - $1))
		from stock where sku `+mutex+` $2`, initial, mutexSKU).Scan(&n))
	return n
}
