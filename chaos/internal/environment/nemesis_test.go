package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/stretchr/testify/require"
)

// noted is a fault that does nothing, and counts how often it is injected and reverted.
type noted struct {
	fails, failsToRevert error
	injected, reverted   *atomic.Int32
}

func (noted) String() string { return "noted w0" }

func (f noted) Inject(context.Context, fault.Site) (func(context.Context) error, error) {
	f.injected.Add(1)
	if f.fails != nil {
		return nil, f.fails
	}
	return func(context.Context) error { f.reverted.Add(1); return f.failsToRevert }, nil
}

// once is a schedule of one fault.
func once(f fault.Fault) []fault.Step {
	return []fault.Step{{At: time.Millisecond, For: time.Millisecond, Fault: f}}
}

func TestPlay_RecordsInjectsAndRevertsEachFault(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fails, failsToRevert error
		says                 string
		reverted             int32
		recorded             []string
	}{
		"injected and reverted": {nil, nil, "", 1, []string{"injected noted w0", "reverted noted w0"}},
		"missed":                {fmt.Errorf("%w: it has gone", fault.ErrMissed), nil, "", 0, []string{"note missed"}},
		"it fails":              {broken, nil, "chaos: noted w0: broken", 0, nil},
		"it stays":              {nil, broken, "chaos: reverting noted w0: broken", 1, []string{"injected noted w0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Trace: history.NewTrace(history.NewRecorder(io.Discard))})
			f := noted{c.fails, c.failsToRevert, new(atomic.Int32), new(atomic.Int32)}
			err := s.play(patient(t), once(f))
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			require.EqualValues(t, 1, f.injected.Load())
			require.Equal(t, c.reverted, f.reverted.Load())
			var recorded []string
			for _, e := range s.cfg.Trace.Events() {
				recorded = append(recorded, string(e.Kind)+" "+e.Name)
			}
			require.Equal(t, c.recorded, recorded)
		})
	}
}
