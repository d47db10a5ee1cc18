// Package servicetest checks what a keylock.Service promises.
package servicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// Harness is a lock service for Check.
type Harness struct {
	// A and B are what two processes have of it.
	A, B keylock.Service
	// Expire ends the time of a resource's key.
	Expire func(ctx context.Context, resource string) error
	// Resource is free, and nobody else's.
	Resource string
}

// Check returns the first promise that the service breaks.
func Check(ctx context.Context, h Harness) error {
	run := &run{ctx: ctx}
	a := keylock.Request{Resource: h.Resource, Process: "a", Holder: "a-1", TTL: time.Minute, Mark: time.Minute}
	b, again := a, a
	b.Process, b.Holder, again.Holder = "b", "b-1", "a-2"

	run.check("Look finds no owner of what is free", run.look(h.A, a) == keylock.Owner{})
	a.Value = "v"
	first := run.acquire(h.A, a, 0)
	owner := run.look(h.B, a)
	run.check("Look and List return the owner", owner.Process == a.Process && owner.Holder == a.Holder && owner.Token == first && owner.Value == "v")
	all, err := h.B.List(ctx)
	run.must(err)
	listed := slices.IndexFunc(all, func(o keylock.Owner) bool { return o.Resource == h.Resource })
	run.check("Look and List return the owner", listed >= 0 && all[listed].Holder == a.Holder && all[listed].Token == first && all[listed].Left > 0)
	run.check("asked again it returns the same token", run.acquire(h.A, a, 0) == first)
	run.locked(h.A, again, a)
	run.check("calls of one process don't contend", !run.contended(h.A, a))
	run.free(h.A, again)
	run.locked(h.B, b, a)
	run.check("a holder learns that another process waits", run.contended(h.A, a))
	run.check("a holder renews", run.renews(h.A, a, first))
	a.Value = "w\nw"
	run.check("a renewal changes the value", run.renews(h.A, a, first) && run.look(h.A, a).Value == a.Value)
	run.check("nobody renews another's key", !run.renews(h.B, b, first))
	run.check("asked again after a renewal it returns the same token", run.acquire(h.A, a, 0) == first)
	run.free(h.B, b)
	run.locked(h.B, b, a)
	run.free(h.A, a)
	run.check("a key that was released isn't renewed", !run.renews(h.A, a, first))
	second := run.acquire(h.B, b, first)
	run.free(h.A, a)
	run.check("a release spares the next holder", run.renews(h.B, b, second))

	run.must(h.Expire(ctx, h.Resource))
	run.check("a key that is over isn't renewed", !run.renews(h.B, b, second))
	late := run.acquire(h.A, a, second)
	run.must(h.Expire(ctx, h.Resource))
	third := run.acquire(h.A, a, late)
	run.check("a holder that has the key anew doesn't renew it under its old token", !run.renews(h.A, a, late))
	run.must(h.A.Raise(ctx, h.Resource, third+1000))
	run.check("Raise keeps the token of a holder", run.acquire(h.A, a, 0) == third && run.renews(h.A, a, third))
	run.must(h.B.Raise(ctx, h.Resource, 1))
	run.free(h.A, a)
	fourth := run.acquire(h.B, b, third+1000)
	run.free(h.B, b)
	run.free(h.A, again)
	run.acquire(h.A, again, fourth)
	run.free(h.A, again)
	return run.broken
}

// run notes the first promise that is broken.
type run struct {
	ctx    context.Context
	broken error
}

func (r *run) check(promise string, kept bool) {
	if r.broken == nil && !kept {
		r.broken = errors.New("broken promise: " + promise)
	}
}

func (r *run) must(err error) {
	if r.broken == nil {
		r.broken = err
	}
}

func (r *run) acquire(s keylock.Service, of keylock.Request, above fence.Token) fence.Token {
	token, err := s.Acquire(r.ctx, of)
	r.must(err)
	r.check("tokens grow", token > above)
	return token
}

func (r *run) locked(s keylock.Service, of, holder keylock.Request) {
	_, err := s.Acquire(r.ctx, of)
	locked := new(fence.LockedError)
	r.check("one holder excludes others", errors.As(err, &locked))
	r.check(fmt.Sprintf("the holder is named: %v", err), locked.Holder == holder.Holder)
}

func (r *run) free(s keylock.Service, of keylock.Request) { r.must(s.Release(r.ctx, of)) }

func (r *run) renews(s keylock.Service, of keylock.Request, token fence.Token) bool {
	renewed, err := s.Renew(r.ctx, of, token)
	r.must(err)
	return renewed
}

func (r *run) look(s keylock.Service, of keylock.Request) keylock.Owner {
	owner, err := s.Look(r.ctx, of.Resource)
	r.must(err)
	if owner.Holder == "" {
		return keylock.Owner{}
	}
	return owner
}

func (r *run) contended(s keylock.Service, of keylock.Request) bool {
	are, err := s.Contended(r.ctx, []keylock.Request{of})
	r.must(err)
	return len(are) == 1 && are[0]
}
