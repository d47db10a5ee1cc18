package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
)

// Of 2,000 guarded increments every fifth loses its COMMIT or the reply to it,
// half each. Each is repeated until it has taken effect, and does so once.
func TestStore_CountsExactlyWhileCommitsAreLost(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 250
	f := newFaulty(t)
	var swallowed, unanswered atomic.Int64
	f.proxy.OnQuery(func(sql string) *pgproxy.Action {
		if len(sql) < 15 || sql[:15] != "set constraints" || rand.IntN(5) != 0 {
			return nil
		}
		if rand.IntN(2) == 0 {
			swallowed.Add(1)
			return pgproxy.SwallowCommit()
		}
		unanswered.Add(1)
		return pgproxy.SwallowReply()
	})
	var wg sync.WaitGroup
	var applied, voided atomic.Int64
	failures := make(chan error, workers)
	for w := range workers {
		wg.Go(func() {
			failures <- f.increment(t.Context(), fmt.Sprintf("counter/%d", w), each, &applied, &voided)
		})
	}
	wg.Wait()
	for range workers {
		require.NoError(t, <-failures)
	}
	for w := range workers {
		holds(t, f.pool, fmt.Sprintf("counter/%d", w), each)
	}
	require.Equal(t, unanswered.Load(), applied.Load(), "COMMITs that arrived")
	require.Equal(t, swallowed.Load(), voided.Load(), "COMMITs that did not")
	require.Equal(t, workers*each, query[int](t, f.pool, "select count(*) from fence.history where kind = 'w'"))
	t.Logf("%d replies and %d COMMITs lost", applied.Load(), voided.Load())
	verifyChain(t, f.pool)
}

// increment adds one to a counter n times under one grant, and resolves COMMITs in doubt.
func (f faulty) increment(ctx context.Context, counter string, n int, applied, voided *atomic.Int64) error {
	g := fence.Grant{Resource: counter, Epoch: 1, Token: 1, Holder: "worker"}
	c, err := claimOne(ctx, f.direct, g)
	if err != nil {
		return err
	}
	for done := 0; done < n; {
		claims, err := attempt(ctx, f.store, add(counter, 1), c)
		var doubt *storage.InDoubtError
		switch {
		case err == nil:
			c = claims[0]
			done++
			continue
		case !errors.As(err, &doubt):
			return err
		}
		took, err := f.direct.Resolve(ctx, doubt.InDoubt)
		if err != nil {
			return err
		}
		if took {
			applied.Add(1)
			done++
		} else {
			voided.Add(1)
		}
		if c, err = claimOne(ctx, f.direct, g); err != nil {
			return err
		}
	}
	return nil
}
