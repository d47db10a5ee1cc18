package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// ObserveElection returns e, the election of this name, such that the Guard's Observers and its Logger learn
// of campaigns and leaderships as they do of locks: Acquiring while Campaign waits, Acquired when it is
// elected, LeaseLost, with inUse, if it is deposed, and one Released at the end.
func (g *Guard[Tx]) ObserveElection(name string, e fence.Election) fence.Election {
	return &observedElection{e, name, g.report}
}

type observedElection struct {
	fence.Election
	name   string
	report *reporter
}

func (e *observedElection) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	start := time.Now()
	l, err := e.campaign(ctx, value)
	if err != nil {
		return nil, err
	}
	e.report.acquired(ctx, l.Grant(), time.Since(start))
	led := &observedLeadership{Leadership: l, report: e.report}
	l.AfterLost(led.lost)
	return led, nil
}

func (e *observedElection) campaign(ctx context.Context, value string) (fence.Leadership, error) {
	e.report.acquiring(ctx, e.name, 1)
	defer e.report.acquiring(ctx, e.name, -1)
	return e.Election.Campaign(ctx, value)
}

type observedLeadership struct {
	fence.Leadership
	report *reporter
	ended  sync.Once
}

func (l *observedLeadership) lost() {
	var loss *fence.LeaseLostError
	if errors.As(l.Err(), &loss) {
		l.report.leaseLost(loss, true)
	}
	l.released(nil)
}

func (l *observedLeadership) released(err error) {
	l.ended.Do(func() { l.report.released(l.Grant(), err) })
}

func (l *observedLeadership) Resign(ctx context.Context) error { return l.Release(ctx) }

// Release reports only what ends the leadership: if it was lost, lost does.
func (l *observedLeadership) Release(ctx context.Context) error {
	err := l.Leadership.Release(ctx)
	if !errors.Is(l.Err(), fence.ErrLeaseLost) {
		l.released(err)
	}
	return err
}
