package queue

import (
	"errors"
	"time"
	"unique"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Position is one acquisition: one key in the queue of a resource, from before it is
// written until it is known to be gone. It is over when it is released, given up or lost,
// and settled when its key is gone and no request that is still under way can write it.
type Position struct {
	line     *line
	session  *session.Session
	holder   string
	campaign *string // what a candidate proclaims at first, nil for a lock

	flight *flight // that writes the key; guarded by sender.mu

	// The rest is guarded by line.mu.
	token     fence.Token // 0 until the key is known to be written
	epoch     int64
	pred      int64         // create revision of the key that was directly ahead when this one was written; 0 if there was none
	clear     bool          // no other process's key is ahead
	first     bool          // it owns the resource
	answered  bool          // it is known whether the key was written, or that this can't be known
	clearing  bool          // what is left is being removed
	asked     bool          // the key is gone; a renewal will tell why
	cannotSee bool          // etcd denies the holder the right to read the queue
	placed    bool          // it has one of the line's places
	isSettled bool          // see untilSettled
	confirmed bool          // the key is known to be gone
	left      leftover      // what there may be in etcd, once it is answered
	queued    int64         // when it was made, see keys.LockValue; never changes
	number    int16         // of its key, see freeNumber; never changes
	tries     int32         // how often what is left could not be removed
	failed    error         // why the key wasn't written, or that etcd denies a waiter the right to read the queue
	cause     error         // why it is over; nil before
	news      chan struct{} // holds one signal for the Acquire to look again; nil unless it waits
	settled   chan struct{} // closed when it is settled; nil while no call waits for that
	watchers  *callback     // that wait for contention
	onLoss    func()        // called when it is lost; or nil
	lifetime  *lifetime     // made when it is asked for
}

// newPosition returns a position under the session, for a caller that has a place; nil if
// the session is over.
func (l *line) newPosition(s *session.Session, campaign *string) *Position {
	q := l.queues
	p := &Position{
		line: l, session: s, campaign: campaign, placed: true,
		holder: keys.NewHolder(q.label), queued: time.Now().UnixMilli(),
	}
	l.mu.Lock()
	p.number = l.freeNumber(s)
	l.add(p)
	l.contend(p)
	l.mu.Unlock()
	if !s.Attach(p) {
		l.mu.Lock()
		l.drop(p)
		l.mu.Unlock()
		return nil
	}
	return p
}

// key is the key in etcd.
func (p *Position) key() string { return p.line.follower.Queue() + p.name() }

// name is the key without the prefix of the queue. The same few names serve in all lines, so each
// is in memory once.
func (p *Position) name() string {
	return unique.Make(p.line.queues.cluster.Keys.Name(p.session.ID, int32(p.number))).Value()
}

// is reports whether k is the key of p.
func (p *Position) is(k watch.Key) bool { return p.token != 0 && k.Created == int64(p.token) } // mutant: another-key-of-the-name-is-the-own

// over reports whether p is no longer wanted. Callers hold the line's mu.
func (p *Position) over() bool { return p.cause != nil }

// tell wakes the Acquire of p. Callers hold the line's mu.
func (p *Position) tell() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// written takes the result of the Txn that wrote the key, with the create revision of the
// key directly ahead, 0 if there is none.
func (p *Position) written(token fence.Token, epoch, pred int64) {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.isSettled {
		return
	}
	p.answered, p.left, p.token, p.epoch, p.pred = true, leftKey, token, epoch, pred
	l.drop(p)
	l.add(p)
	l.follower.Wrote(p.name(), int64(token), pred == 0)
	l.progress()
	switch {
	case p.over():
	case p.first:
		l.followSoon()
	default:
		l.follow()
	}
	p.tell()
}

// unwritten takes the error of the Txn that writes the key. certain means that the Txn has not
// written the key and never will.
func (p *Position) unwritten(err error, certain bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.answered, p.failed = true, err
	switch {
	case certain:
		p.left = leftNothing
	case errors.Is(err, rpctypes.ErrNoSpace):
		p.left = leftUnlessFull
	default:
		p.left = leftDoubt
	}
	if p.cause == nil {
		p.cause = errAbandoned
	}
	p.tell()
}

// granted is the grant; its token is 0 until the key is written.
func (p *Position) granted() fence.Grant {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return fence.Grant{Resource: p.line.resource, Epoch: p.epoch, Token: p.token, Holder: p.holder}
}

// encode returns the content of p's key, which proclaims value. With MutexKeys a
// candidate's key holds value alone: etcd's own tools show it as it is.
func (p *Position) encode(epoch int64, value string) (string, error) {
	if p.campaign != nil && p.line.queues.cluster.Keys.Mutex {
		return value, nil
	}
	return keys.LockValue{Holder: p.holder, Epoch: epoch, Queued: p.queued, Value: value}.Encode()
}
