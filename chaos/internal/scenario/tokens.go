package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

var forgedTokens = Scenario{
	Name: "forged-tokens", Family: "tokens", Workers: 2,
	Summary: "an old grant is replayed, and forged tokens are presented: of another resource, of another holder, absurdly high, out of bounds",
	Requires: []string{
		check.HitRejected + string(storage.StageClaim), string(storage.ReasonCollision), string(storage.ReasonTokenJump), check.HitPaused + workload.PointRead,
	},
	Script: steps((*script).tokens),
}

// tokens presents forged and superseded grants to the fence while the holder is paused in
// mid-operation. Each is rejected for its own reason and changes nothing, and the holder's
// operation succeeds.
func (s *script) tokens(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	old, err := s.grantOf(ctx, 0, s.sku())
	if err != nil {
		return err
	}
	foreign, err := s.grantOf(ctx, 0, s.Workload().Resources()[1])
	if err != nil {
		return err
	}
	op, err := s.stopAt(ctx, 1, workload.Op{Resource: s.sku()}, s.OperationBound(), workload.PointRead)
	if err != nil {
		return err
	}
	err = errors.Join(s.present(ctx, old, foreign), s.resume(1, workload.PointRead))
	e, waitErr := op.Wait(ctx)
	if err := errors.Join(err, waitErr); err != nil {
		return err
	}
	if e.Kind != history.OK {
		return fmt.Errorf("%w: the holder failed: %s", ErrWrong, e.Error)
	}
	return nil
}

// grantOf has a worker do an operation, and returns the grant that it claimed with.
func (s *script) grantOf(ctx context.Context, number int, resource string) (fence.Grant, error) {
	claims := s.Trace().Listen(func(e history.Event) bool { return e.Kind == history.Claimed && e.Resource == resource })
	defer claims.Stop()
	e, err := s.do(ctx, number, workload.Op{Resource: resource, Action: "do"})
	if err == nil && e.Kind != history.OK {
		err = fmt.Errorf("%w: %s", ErrWrong, e.Error)
	}
	if err != nil {
		return fence.Grant{}, err
	}
	e, err = claims.Next(ctx)
	return fence.Grant{Resource: resource, Epoch: e.Epoch, Token: fence.Token(e.Token), Holder: e.Holder}, err
}

// present presents forged grants. old was a grant of the resource, foreign is one of
// another resource.
func (s *script) present(ctx context.Context, old, foreign fence.Grant) error {
	bounds := workload.StoreBounds
	store, err := postgres.NewStore(s.Database(), &bounds)
	if err != nil {
		return err
	}
	var current fence.Token
	if err := s.Database().QueryRow(ctx, "select token from fence.resource where name = $1", old.Resource).Scan(&current); err != nil {
		return err
	}
	with := func(change func(g *fence.Grant)) fence.Grant {
		g := old
		change(&g)
		return g
	}
	var errs []error
	for _, forged := range []struct {
		name  string
		grant fence.Grant
		want  storage.Reason // "" for a grant that is invalid by itself
	}{
		{"an old grant, replayed", old, storage.ReasonStale},
		{"a token of another resource", with(func(g *fence.Grant) { g.Token, g.Holder = foreign.Token, foreign.Holder }), storage.ReasonStale},
		{"the holder's token by another", with(func(g *fence.Grant) { g.Token = current }), storage.ReasonCollision},
		{"the highest token", with(func(g *fence.Grant) { g.Token = fence.MaxToken }), storage.ReasonTokenJump},
		{"the highest epoch", with(func(g *fence.Grant) { g.Epoch = fence.MaxEpoch }), storage.ReasonTokenJump},
		{"a token beyond the highest", with(func(g *fence.Grant) { g.Token = fence.MaxToken + 1 }), ""},
		{"no token", with(func(g *fence.Grant) { g.Token = 0 }), ""},
		{"a negative token", with(func(g *fence.Grant) { g.Token = -1 }), ""},
	} {
		if err := s.forge(ctx, store, forged.grant, forged.want); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrWrong, forged.name, err))
		}
	}
	return errors.Join(errs...)
}

// forge writes under a forged grant. It fails unless the grant is rejected and nothing has
// changed.
func (s *script) forge(ctx context.Context, store *postgres.Store, grant fence.Grant, want storage.Reason) error {
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	receiver, err := guard.New(nil, store, nil)
	if err != nil {
		return err
	}
	err = guard.Do(ctx, receiver.UnderGrant(grant), grant.Resource, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update stock set available = 0")
		return err
	})
	rejection := new(guard.RejectedError)
	if errors.As(err, &rejection) {
		s.Trace().Record(worker.RejectionEvent(rejection))
	}
	after, stateErr := s.state(ctx)
	switch {
	case stateErr != nil:
		return stateErr
	case before != after:
		return fmt.Errorf("it changed %s to %s", before, after)
	case rejection.Reason != want, want == "" && !errors.As(err, new(*fence.InvalidGrantError)):
		return fmt.Errorf("it ended with %v, want %q", err, cmp.Or(want, "invalid grant"))
	}
	return nil
}

// state is all data that a grant can change.
func (s *script) state(ctx context.Context) (text string, err error) {
	err = s.Database().QueryRow(ctx, `select jsonb_build_array(
		(select jsonb_agg(s order by s.resource) from stock s),
		(select jsonb_agg(o order by o.id) from orders o),
		(select jsonb_agg(r order by r.id) from fence.resource r),
		(select jsonb_agg(e order by e.resource, e.seq) from fence.history e))::text`).Scan(&text)
	return text, err
}
