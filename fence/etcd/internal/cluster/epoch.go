package cluster

import (
	"fmt"
	"strconv"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// Epoch is the state of the epoch key. No key means epoch 1.
type Epoch struct {
	Number   int64
	Text     string
	Revision int64
}

var FirstEpoch = Epoch{Number: 1}

func ParseEpoch(key string, kvs []*mvccpb.KeyValue) (Epoch, error) {
	if len(kvs) == 0 {
		return FirstEpoch, nil
	}
	text := string(kvs[0].Value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > fence.MaxEpoch || strconv.FormatInt(n, 10) != text {
		return Epoch{}, Because(fence.InvalidEpoch, "etcd: epoch key %s holds %q; want a decimal number from 1 to %d", key, text, fence.MaxEpoch)
	}
	return Epoch{Number: n, Text: text, Revision: kvs[0].ModRevision}, nil
}

func (e Epoch) Unchanged(key string) clientv3.Cmp {
	if e.Text == "" {
		return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(key), "=", e.Text)
}

type Mark struct {
	cluster  uint64
	term     uint64
	revision int64
	Epoch    Epoch
	restarts int
}

func (m Mark) Revision() int64 { return m.revision }

// watermark notices that etcd went back. Answers overtake each other, so one is compared with what had been seen
// when its request was *sent*. Only requests that go through raft count: reads can be answered with an older state
// (etcd-io/etcd issue 20418).
type watermark struct {
	epochKey string

	mu    sync.Mutex
	high  Mark
	fault *WentBackError
}

func newWatermark(epochKey string) *watermark {
	return &watermark{epochKey: epochKey, high: Mark{Epoch: FirstEpoch}}
}

// Sending returns the mark that Check compares an answer with. Call it before the request.
func (w *watermark) Sending() Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.high
}

func (w *watermark) check(sent Mark, h *pb.ResponseHeader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fault != nil:
	case sent.restarts != w.high.restarts:
	case sent.cluster != 0 && h.ClusterId != sent.cluster:
		w.fail("cluster id", sent.cluster, h.ClusterId)
	case h.RaftTerm < sent.term:
		w.fail("raft term", sent.term, h.RaftTerm)
	case h.Revision < sent.revision: // mutant: went-back-to-an-earlier-revision
		w.fail("revision", uint64(sent.revision), uint64(h.Revision))
	default:
		w.high.cluster = h.ClusterId
		w.high.term = max(w.high.term, h.RaftTerm)
		w.high.revision = max(w.high.revision, h.Revision)
	}
	return w.err()
}

// sawEpoch accepts a lower epoch if it was put later, to correct a mistake: the revision has risen, so no token is
// issued twice.
func (w *watermark) sawEpoch(sent Mark, e Epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fault != nil:
	case sent.restarts != w.high.restarts:
	case e.Number < sent.Epoch.Number && e.Revision <= sent.Epoch.Revision: // mutant: epoch-of-an-older-state-is-put-right
		w.fail("epoch", uint64(sent.Epoch.Number), uint64(e.Number))
	case e.Number >= w.high.Epoch.Number || e.Revision > w.high.Epoch.Revision:
		w.high.Epoch = e
	}
	return w.err()
}

func (w *watermark) fail(what string, seen, got uint64) {
	w.fault = &WentBackError{What: what, Seen: seen, Got: got, EpochKey: w.epochKey, Epoch: w.high.Epoch.Number}
}

func (w *watermark) err() error {
	if w.fault == nil {
		return nil
	}
	return w.fault
}

func (w *watermark) WentBack() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err()
}

// restart forgets the old state once the epoch is above every one seen: later grants order after all earlier ones.
func (w *watermark) restart(e Epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != nil && e.Number > w.fault.Epoch { // mutant: went-back-goes-on-in-the-same-epoch
		w.high, w.fault = Mark{Epoch: e, restarts: w.high.restarts + 1}, nil
	}
	return w.err()
}

type WentBackError struct {
	What     string // "cluster id", "raft term", "revision" or "epoch"
	Seen     uint64
	Got      uint64
	EpochKey string
	Epoch    int64
}

func (e *WentBackError) Error() string {
	how := "went back from %d to %d"
	if e.What == "cluster id" {
		how = "changed from %x to %x"
	}
	return fmt.Sprintf("etcd: %s "+how+", as after a restore from a backup: tokens could be issued twice; "+
		"raise the epoch key %s above %d: fencectl epoch bump --reason TEXT", e.What, e.Seen, e.Got, e.EpochKey, e.Epoch)
}

func (e *WentBackError) UnavailableReason() fence.UnavailableReason { return fence.WentBack }
