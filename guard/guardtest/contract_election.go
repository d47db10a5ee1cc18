package guardtest

import (
	"context"
	"strings"

	"github.com/fencekit/fencekit/fence"
)

// election has each Locker join as a process of its own, if it is a fence.Elector.
func (r *lockerRun) election() {
	if _, has := r.locker().(fence.Elector); !has {
		return
	}
	join := func() fence.Election {
		elector := r.locker().(fence.Elector)
		_, err := elector.Election("")
		r.is(err, fence.ErrInvalid)
		e, err := elector.Election(r.name)
		r.check(err == nil, "Election: %v", err)
		return e
	}
	first, second, onlooker := join(), join(), join()
	leads := func(want fence.Leader) {
		r.Helper()
		got, err := first.Leader(r.ctx)
		r.check(err == nil && got == want, "Leader: %+v, %v, want %+v", got, err, want)
	}
	_, err := onlooker.Leader(r.ctx)
	r.is(err, fence.ErrNoLeader)
	seen, done := r.observing(onlooker)
	defer done()
	none := fence.Leader{}
	see := func(want, between fence.Leader) {
		r.Helper()
		for got := range seen {
			if got == want {
				return
			}
			r.check(got == between, "Observe: %+v, want %+v", got, want)
		}
		r.Fatalf("Observe ended, want %+v", want)
	}
	see(none, none)

	for _, value := range []string{"\xff", "\x00", strings.Repeat("x", fence.MaxValueLen+1)} {
		_, err = first.Campaign(r.ctx, value)
		r.is(err, fence.ErrInvalid)
	}
	led, err := first.Campaign(r.ctx, "a")
	r.check(err == nil, "Campaign: %v", err)
	see(fence.Leader{Grant: led.Grant(), Value: "a"}, none)
	_, err = second.Campaign(r.ended(), "b")
	r.is(err, context.Canceled)
	r.is(led.Proclaim(r.ended(), "b"), context.Canceled)
	r.is(led.Proclaim(r.ctx, "\xff"), fence.ErrInvalid)

	contended, elected := make(chan struct{}), &waiting{done: make(chan struct{})}
	var next fence.Leadership
	led.AfterContended(func() { close(contended) })
	go func() {
		defer close(elected.done)
		next, elected.err = second.Campaign(r.ctx, "b")
		elected.lease = next
	}()
	r.await("AfterContended, while another process campaigns", contended)
	longest := strings.Repeat("\x01", fence.MaxValueLen)
	r.check(led.Proclaim(r.ctx, longest) == nil, "Proclaim failed")
	see(fence.Leader{Grant: led.Grant(), Value: longest}, fence.Leader{Grant: led.Grant(), Value: "a"})
	leads(fence.Leader{Grant: led.Grant(), Value: longest})
	r.check(led.Resign(r.ctx) == nil, "Resign failed")
	r.is(led.Proclaim(r.ctx, "late"), fence.ErrReleased)
	r.check(led.Resign(r.ctx) == nil, "the second Resign failed")
	r.granted(elected)
	r.check(next.Grant().Compare(led.Grant()) > 0, "%v was elected after %v", next.Grant(), led.Grant())
	see(fence.Leader{Grant: next.Grant(), Value: "b"}, none)
	leads(fence.Leader{Grant: next.Grant(), Value: "b"})
	r.check(next.Resign(r.ctx) == nil, "Resign failed")
	see(none, none)
	done()
	for range seen {
	}
	_, err = onlooker.Leader(r.ended())
	r.is(err, context.Canceled)
}

// observing observes until done is called; seen is closed then.
func (r *lockerRun) observing(e fence.Election) (seen <-chan fence.Leader, done func()) {
	ctx, done := context.WithCancel(r.ctx)
	leaders := make(chan fence.Leader)
	go func() {
		defer close(leaders)
		for leader := range e.Observe(ctx) {
			select {
			case leaders <- leader:
			case <-ctx.Done():
			}
		}
	}()
	return leaders, done
}
