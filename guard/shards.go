package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Shards is a Runner over several Guards, each on a database of its own. A call runs on the
// Guard of the shard that its resources belong to ([ShardOf]). A call whose resources belong to
// different shards, and a call with the context of a function that runs on another shard, is
// an [*AcrossShardsError], before anything happens. Use NewShards; fencekit.NewShards also
// makes the Guards. Its methods may be called from several goroutines.
type Shards[Tx any] struct{ guards []*Guard[Tx] }

// maxShards bounds the hashes that a call computes: one for each shard and resource.
const maxShards = 1000

// NewShards returns a Runner over guards: the first is that of shard 0. All processes must have
// the same databases in the same order; a store that knows which shard it is, such as
// storage/postgres, rejects claims otherwise. Let the Guards have one lock service. It fails
// with ErrInvalid if there is no Guard, a nil one, or the same one twice.
func NewShards[Tx any](guards ...*Guard[Tx]) (*Shards[Tx], error) {
	if n := len(guards); n < 1 || n > maxShards {
		return nil, fmt.Errorf("%w: NewShards with %d Guards, want 1 to %d", ErrInvalid, n, maxShards)
	}
	for i, g := range guards {
		if g == nil || slices.Contains(guards[:i], g) {
			return nil, fmt.Errorf("%w: NewShards needs a Guard for each shard, and Guard %d is nil, or another one's too", ErrInvalid, i)
		}
	}
	return &Shards[Tx]{slices.Clone(guards)}, nil
}

// UnderGrant is [Guard.UnderGrant] on the Guard of the shard that the grants' resources belong to. If
// they belong to different shards, or the context of a call is that of a function that runs on
// another shard, a call fails with an [*AcrossShardsError] before anything happens.
func (s *Shards[Tx]) UnderGrant(grants ...fence.Grant) Runner[Tx] {
	return s.under((*Guard[Tx])(nil).UnderGrant(grants...))
}

// UnderLease is [Guard.UnderLease] on the Guard of the shard that the leases' resources belong to.
// Its calls fail as those of UnderGrant do.
func (s *Shards[Tx]) UnderLease(leases ...fence.Lease) Runner[Tx] {
	return s.under((*Guard[Tx])(nil).UnderLease(leases...))
}

// under returns a Runner under grants or leases as one on the Guard of their shard.
func (s *Shards[Tx]) under(runner Runner[Tx]) Runner[Tx] {
	b := runner.(*callerRunner[Tx])
	if s.empty() {
		return b // its calls fail: it has no Guard
	}
	b.shards, b.guard = s, s.guards[0]
	if len(b.grants) > 0 {
		b.guard = s.guardOf(b.grants[0].Resource)
	}
	return b
}

func (s *Shards[Tx]) empty() bool { return s == nil || len(s.guards) == 0 }

// guardOf returns the Guard of the shard that a resource belongs to.
func (s *Shards[Tx]) guardOf(resource string) *Guard[Tx] {
	return s.guards[ShardOf(resource, len(s.guards))]
}

// Close closes all Guards, at the same time, and returns their errors, joined: see
// [Guard.Close]. With the context of a function that runs under one of them it closes none.
func (s *Shards[Tx]) Close(ctx context.Context) error {
	if s.empty() {
		return errNoGuard
	}
	for _, g := range s.guards {
		if ctx.Value(g.key) != nil {
			return g.Close(ctx) // which says so
		}
	}
	errs := make([]error, len(s.guards))
	var closing sync.WaitGroup
	for i, g := range s.guards {
		closing.Go(func() { errs[i] = g.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

func (s *Shards[Tx]) run(ctx context.Context, resources []string, op storage.Op[Tx], o options) error {
	g, err := s.route(ctx, resources)
	if err != nil {
		return err
	}
	return g.run(ctx, resources, op, o)
}

func (s *Shards[Tx]) hold(ctx context.Context, resources []string, fn func(ctx context.Context, h Runner[Tx]) error, o options) error {
	g, err := s.route(ctx, resources)
	if err != nil {
		return err
	}
	return g.hold(ctx, resources, fn, o)
}

// route returns the Guard for a call on resources with ctx.
func (s *Shards[Tx]) route(ctx context.Context, resources []string) (*Guard[Tx], error) {
	if s.empty() {
		return nil, errNoGuard
	}
	of := s.guardOf(resources[0])
	for _, resource := range resources[1:] {
		if s.guardOf(resource) != of {
			return nil, s.across(resources)
		}
	}
	for shard, g := range s.guards {
		// A function that waited for a lock of another shard could wait in a circle.
		if in, ok := ctx.Value(g.key).(*runContext); ok && g != of {
			err := s.across(resources)
			err.Resources = append(resourcesOf(in.grants), err.Resources...)
			err.Shards = append(slices.Repeat([]int{shard}, len(in.grants)), err.Shards...)
			return nil, err
		}
	}
	return of, nil
}

func (s *Shards[Tx]) across(resources []string) *AcrossShardsError {
	e := &AcrossShardsError{Resources: slices.Clone(resources)}
	for _, resource := range resources {
		e.Shards = append(e.Shards, ShardOf(resource, len(s.guards)))
	}
	return e
}

// AcrossShardsError says that the resources of a call, or of its grants, belong to different shards,
// or to another one than those of the function that makes the call. Nothing was locked or written.
// It is ErrInvalid.
type AcrossShardsError struct {
	Resources []string
	Shards    []int // of each resource
}

func (e *AcrossShardsError) Error() string {
	first, other := 0, slices.IndexFunc(e.Shards, func(shard int) bool { return shard != e.Shards[0] })
	return fmt.Sprintf("guard: %s belongs to shard %d and %s to shard %d: no transaction spans two databases; "+
		"give names that belong together the same {tag}, or make a call for each shard, one after the other, with Once",
		e.Resources[first], e.Shards[first], e.Resources[other], e.Shards[other])
}

// Is reports whether target is ErrInvalid.
func (e *AcrossShardsError) Is(target error) bool { return target == ErrInvalid }
