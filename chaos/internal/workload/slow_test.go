package workload

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThinking_LastsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, end := Thinking{Lasts: time.Hour}.Pass(t.Context())
		defer end()
		require.Equal(t, time.Hour, time.Since(began))
		require.NoError(t, ctx.Err())

		over := make(chan struct{})
		close(over)
		_, endOver := Thinking{Lasts: time.Hour, Deaf: true, Over: over}.Pass(t.Context())
		defer endOver()
		require.Equal(t, time.Hour, time.Since(began), "it ends with the load")
	})
}

// A deaf operation goes on after the end of its context, but not for ever.
func TestThinking_DeafIgnoresTheEndOfItsContext(t *testing.T) {
	for deaf, lasts := range map[bool]time.Duration{false: 0, true: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			cancel()
			began := time.Now()
			after, end := Thinking{Lasts: time.Minute, Deaf: deaf}.Pass(ctx)
			defer end()
			require.Equal(t, lasts, time.Since(began))
			require.Equal(t, deaf, after.Err() == nil)
			deadline, _ := after.Deadline()
			require.Equal(t, began.Add(time.Hour), deadline)
		})
	}
}
