package etcd

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mark is the newest state of etcd that was seen at one time.
type mark struct {
	cluster  uint64
	term     uint64
	revision int64
	epoch    epoch
	restarts int // how often the watermark was restarted
}

// watermark notices that etcd went back to an older state.
//
// Answers overtake each other, so an answer is compared with what had been seen
// when its request was *sent*. And only answers to requests that went through
// raft count: they can't be older than that. Reads can (etcd #20418).
type watermark struct {
	epochKey string

	mu    sync.Mutex
	high  mark
	fault *WentBackError
}

func newWatermark(epochKey string) *watermark {
	return &watermark{epochKey: epochKey, high: mark{epoch: firstEpoch}}
}

// sending returns what has been seen so far, to be kept with a request.
func (w *watermark) sending() mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.high
}

// check takes the header of an answer to a request that was sent at the mark. It
// returns a *WentBackError if the answer is from an older state, and from then
// on for every answer until restart.
func (w *watermark) check(sent mark, h *pb.ResponseHeader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fault != nil:
	case sent.restarts != w.high.restarts: // asked of the state that was given up
	case sent.cluster != 0 && h.ClusterId != sent.cluster:
		w.fail("cluster id", sent.cluster, h.ClusterId)
	case h.RaftTerm < sent.term:
		w.fail("raft term", sent.term, h.RaftTerm)
	case h.Revision < sent.revision:
		w.fail("revision", uint64(sent.revision), uint64(h.Revision))
	default:
		w.high.cluster = h.ClusterId
		w.high.term = max(w.high.term, h.RaftTerm)
		w.high.revision = max(w.high.revision, h.Revision)
	}
	return w.err()
}

// sawEpoch takes the epoch that an answer to a request sent at the mark showed. One
// that is lower, but was put later, corrects a mistake: etcd's revision has risen, so
// no token is issued twice for it.
func (w *watermark) sawEpoch(sent mark, e epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fault != nil:
	case sent.restarts != w.high.restarts:
	case e.number < sent.epoch.number && e.revision <= sent.epoch.revision:
		w.fail("epoch", uint64(sent.epoch.number), uint64(e.number))
	case e.number >= w.high.epoch.number || e.revision > w.high.epoch.revision:
		w.high.epoch = e
	}
	return w.err()
}

func (w *watermark) fail(what string, seen, got uint64) {
	w.fault = &WentBackError{What: what, Seen: seen, Got: got, EpochKey: w.epochKey, Epoch: w.high.epoch.number}
}

// err is the fault as an error. Callers hold mu.
func (w *watermark) err() error {
	if w.fault == nil {
		return nil
	}
	return w.fault
}

// wentBack returns the fault, nil if there is none.
func (w *watermark) wentBack() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err()
}

// restart forgets the old state once the epoch was raised above every one seen:
// grants of the new epoch come after all that were issued before, whatever their
// tokens. Until then it returns the fault.
func (w *watermark) restart(e epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != nil && e.number > w.fault.Epoch {
		w.high, w.fault = mark{epoch: e, restarts: w.high.restarts + 1}, nil
	}
	return w.err()
}

// recheck asks etcd where it stands, in the background, until it answers. A
// restore breaks every connection, and a holder who only renews would not notice
// it: answers to renewals don't go through raft.
func (l *Locker) recheck() {
	if !l.rechecking.CompareAndSwap(false, true) {
		return
	}
	l.tasks.start(func(ctx context.Context) {
		defer l.rechecking.Store(false)
		for n := 0; ctx.Err() == nil && !l.askWhereItStands(ctx); n++ {
			pause(ctx, n, nil)
		}
	})
}

// askWhereItStands reports whether there was an answer.
func (l *Locker) askWhereItStands(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	// It goes through raft because it could write. What it never does is to delete,
	// which etcd allows when it is out of space, and where every locker may.
	key := l.keys.void(clientv3.NoLease, 0)
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	_, err := l.commit(ctx, l.client.Txn(ctx).If(never).Then(clientv3.OpDelete(key)))
	back := new(WentBackError)
	return err == nil || errors.As(err, &back) || errors.Is(err, errClientClosed)
}
