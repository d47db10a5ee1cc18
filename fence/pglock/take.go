package pglock

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// Taking is one transaction of the caller's in which rows are taken together with their locks: see Locker.Take.
type Taking struct {
	locker  *Locker
	session *session.Session[int64]
	call    int64
	done    []*lease
	offered []*lease
}

// Taken is what Try took: a lease, and where the claim that was made with it left the fence.
type Taken struct {
	fence.Lease
	Fence, Seq, Tx int64
	Place          int // among the names that Try was called with
}

// Take calls run, which takes resources by Taking.Try in a transaction that it commits. That also gives back done, leases
// of this Locker, whose Release then has nothing to do. If run returns an error, what Try took, and done, is given back
// in the background, since the transaction may have committed all the same. A lease that was lost meanwhile is over. It
// is for package jobs.
func (l *Locker) Take(ctx context.Context, done []fence.Lease, run func(ctx context.Context, t *Taking) error) (err error) {
	if l.closing.IsClosed() {
		return errClosed
	}
	t := &Taking{locker: l}
	t.session, err = l.sessions.Live(ctx)
	if err != nil {
		return failed(ctx, "take", err)
	}
	l.mu.Lock()
	l.lastCall++
	t.call = l.lastCall
	l.calls[t.call] = true
	for _, d := range done {
		if p := d.(*lease); p.Session == t.session && p.Over() == nil {
			p.asking = true // until the answer
			p.finish(fence.ErrReleased)
			t.done = append(t.done, p)
		}
	}
	l.mu.Unlock()
	defer t.settle(&err)
	err = errors.New("pglock: a panic") // unless run returns
	err = run(ctx, t)
	return err
}

// settle notes the outcome. What Try took belongs to its caller only without an error.
func (t *Taking) settle(err *error) {
	l := t.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, t.call)
	for _, p := range append(t.done, t.offered...) {
		took := p.grant.Token > 0 && !p.stored
		switch p.asking = false; {
		case p.stored && *err == nil: // it was given back
			close(p.settled)
		case p.stored:
			p.giveBack()
		case took && *err == nil && p.Over() == nil:
			p.owns, p.stored = true, true
			close(p.decided)
		default:
			if took {
				p.doubt = t.call + 1 // its COMMIT may arrive
			}
			if p.Over() != nil {
				p.giveBack()
			} else {
				p.finish(errAbandoned)
			}
		}
	}
}

// ErrSessionOver is an error of Try: begin another transaction.
var ErrSessionOver = errors.New("pglock: the session is over")

// Try takes up to want of resources, in their order, in tx, which is at READ COMMITTED. It passes over what others own,
// await or just move. shard is that of the store. It may be called several times before COMMIT.
func (t *Taking) Try(ctx context.Context, tx pgx.Tx, want int, shard string, names ...string) (took []Taken, err error) {
	l := t.locker
	ps := make([]*lease, len(names))
	for i, name := range names {
		if err := fence.ValidateResource(name); err != nil {
			return nil, err
		}
		ps[i] = l.newLease(t.session, name, "")
	}
	t.offered = append(t.offered, ps...)
	one := Taken{Tx: rand.Int64N(1<<62) + 1}
	rows, err := tx.Query(ctx, "select o_place, coalesce(o_epoch, 0), coalesce(o_token, 0), coalesce(o_fence, 0), coalesce(o_seq, 0) from "+l.database.schema+".take($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		t.session.ID, t.call, encodeAll(t.done, (*lease).resource), encodeAll(t.done, (*lease).holder),
		encodeAll(ps, (*lease).resource), encodeAll(ps, (*lease).holder), want, one.Tx, shard)
	if err != nil {
		return nil, err
	}
	alive := false
	var epoch, token int64
	_, err = pgx.ForEachRow(rows, []any{&one.Place, &epoch, &token, &one.Fence, &one.Seq}, func() error {
		if alive = true; one.Place == 0 {
			return nil
		}
		one.Place--
		p := ps[one.Place]
		l.mu.Lock()
		p.grant.Epoch, p.grant.Token = epoch, fence.Token(token)
		l.mu.Unlock()
		one.Lease = p
		took = append(took, one)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !alive:
		t.session.End(fence.LossExpired)
		return nil, ErrSessionOver
	}
	return took, nil
}

// EndExpired ends the sessions of processes that have gone, whose leases are free then.
func (l *Locker) EndExpired(ctx context.Context) error {
	if err := l.endExpired(ctx); err != nil {
		return failed(ctx, "end expired sessions", err)
	}
	return nil
}
