package guard

import (
	"context"
	"runtime/pprof"

	"github.com/fencekit/fencekit/internal/class"
	"github.com/fencekit/fencekit/storage"
)

// profileLabel is the key of the label that Config.ProfileLabels sets.
const profileLabel = "resource_class"

// profiles labels functions for profiles; nil if they have no labels.
type profiles struct{ classes *class.Set }

func newProfiles(cfg Config) *profiles {
	if !cfg.ProfileLabels {
		return nil
	}
	return &profiles{class.NewSet(class.DefaultLimit)}
}

// do calls f on this goroutine with the label of the first of resources. The goroutine has the
// labels of ctx afterwards, also if f panics or ends the goroutine.
func (p *profiles) do(ctx context.Context, resources []string, f func(ctx context.Context)) {
	of, _ := p.classes.Of(resources[0])
	pprof.Do(ctx, pprof.Labels(profileLabel, of), f)
}

// labelled returns op with the label of its resources, if it is a function of the caller's.
func labelled[Tx any](p *profiles, resources []string, op storage.Op[Tx]) storage.Op[Tx] {
	fn, ok := op.(storage.Func[Tx])
	if p == nil || !ok {
		return op
	}
	return storage.Func[Tx](func(ctx context.Context, tx Tx) (err error) {
		p.do(ctx, resources, func(ctx context.Context) { err = fn(ctx, tx) })
		return err
	})
}

// labelledHold returns fn, which runs under states, with the label of their resources.
func labelledHold[Tx any](p *profiles, states grantStates, fn func(context.Context, Runner[Tx]) error) func(context.Context, Runner[Tx]) error {
	if p == nil {
		return fn
	}
	return func(ctx context.Context, h Runner[Tx]) (err error) {
		p.do(ctx, states.resources(), func(ctx context.Context) { err = fn(ctx, h) })
		return err
	}
}
