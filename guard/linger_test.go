package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

// Two batches share a transaction of 4 ms. After 1 ms another process waits for the resource.
// Unless the callers call again, it gets the resource 0.5 ms after they are answered.
func TestLinger_KeepsTheResourceForCallersThatWereAnsweredTogether(t *testing.T) {
	for name, test := range map[string]struct {
		hold   time.Duration // how long calls may still begin; 0: the default
		again  bool
		close  bool
		writes string        // in order; which calls of "again" share a transaction depends on when they run
		at     time.Duration // when the other process is done
	}{
		"they call again":     {again: true, writes: "a b a b other", at: 4*time.Millisecond + 500*time.Microsecond},
		"they don't":          {writes: "a b other", at: 4*time.Millisecond + 500*time.Microsecond},
		"its time is over":    {hold: 2 * time.Millisecond, writes: "a b other", at: 4 * time.Millisecond},
		"its time ends first": {hold: 3200 * time.Microsecond, writes: "a b other", at: 4*time.Millisecond + 200*time.Microsecond},
		"the Guard closes":    {close: true, writes: "a b other", at: 4 * time.Millisecond},
		"one call alone":      {writes: "h other", at: 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupOf(t, nil, func(t *testing.T, g *group) {
				if test.hold > 0 {
					guard.SetMaxHold(g.guard, test.hold)
				}
				start, b := time.Now(), g.process("b", nil)
				var at time.Duration
				other := make(chan error, 1)
				go func() {
					time.Sleep(time.Millisecond)
					err := guard.Do(t.Context(), b, sku, put("k", "o"), guard.Name("other"))
					at = time.Since(start)
					other <- err
				}()
				if test.close {
					go func() {
						time.Sleep(2 * time.Millisecond)
						_ = g.guard.Close(context.Background())
					}()
				}
				again := func(c call) call {
					return func(ctx context.Context) error {
						err := c(ctx)
						if err == nil && test.again {
							err = c(ctx)
						}
						return err
					}
				}
				slowly := sleeping(4 * time.Millisecond)
				if test.again {
					slept := false
					slowly = func(ctx context.Context, tx *memory.Tx) error {
						if !slept {
							slept = true
							return sleeping(4*time.Millisecond)(ctx, tx)
						}
						return nil
					}
				}
				calls := []call{again(g.batch("a", slowly)), again(g.batch("b", put("k", "b")))}
				if name == "one call alone" {
					calls = []call{g.batch("h", slowly)}
				}
				for _, err := range g.together(calls...) {
					require.NoError(t, err)
				}
				require.NoError(t, <-other)
				require.Equal(t, test.at, at)
				wrote := strings.Join(g.history(), " ")
				if test.again {
					wrote = strings.Replace(wrote, " b a other", " a b other", 1)
				}
				require.Equal(t, test.writes, wrote)
				require.Equal(t, 2, g.locks.Grants())
			})
		})
	}
}
