package observe

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/internal/clock"
)

// How long one request of a Watcher may take, and how long it rests after one
// that failed.
const (
	requestTimeout = 2 * time.Second
	retryInterval  = 100 * time.Millisecond
)

// Watcher records which lock keys come and go under a prefix. It speaks the raw
// protocol because the client's own Watch resumes behind the caller's back, and
// here whether it could miss anything by that is the question.
type Watcher struct {
	client  *clientv3.Client
	prefix  string
	own     string           // key that comes when the watch stands, and whose end ends it
	created map[string]int64 // create revisions of the lock keys that are there
	cluster uint64
	last    []*mvccpb.Event // all of the latest revision seen
	again   int             // how many of these a watch that was resumed has shown again
	locks   Locks
	cancel  context.CancelFunc
	done    chan struct{} // closed when nothing is recorded any more
}

// Watch watches the lock keys under prefix, which is that of the lock service's
// Config, and returns once it does: every later change is recorded, and keys that
// are there already count as having come. ctx bounds the start alone.
//
// The watch outlives stops, crashes and changes of leader. What it could have
// missed something by is a Gap, and ends it: a compaction of what it hadn't read
// yet, an etcd that went back, or another one in its place. To know, it has the last
// revision that it saw shown once more whenever it resumes. While the member that it
// is connected to stands still it records nothing, and catches up afterwards, unless
// the client has keep-alives (DialKeepAliveTime), which make it look for another.
//
// Beside the locks it keeps a key of its own, <prefix>/observed/…. The caller must
// call Close, and close the client after that.
func Watch(ctx context.Context, client *clientv3.Client, prefix string) (*Watcher, error) {
	lasting, cancel := context.WithCancel(client.Ctx())
	w := &Watcher{
		client: client, prefix: prefix, own: prefix + "/observed/" + rand.Text(),
		created: map[string]int64{}, cancel: cancel, done: make(chan struct{}),
	}
	stop := context.AfterFunc(ctx, cancel)
	stream, err := w.begin(ctx, lasting)
	if !stop() {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("observe: watch of the locks under %q: %w", prefix, err)
	}
	go w.run(lasting, stream)
	return w, nil
}

// begin reads what is there, watches from then on, and waits until the watch has
// shown something.
func (w *Watcher) begin(ctx, lasting context.Context) (pb.Watch_WatchClient, error) {
	there, err := w.client.Get(ctx, w.prefix+"/locks/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return nil, err
	}
	for _, kv := range there.Kvs {
		w.record(&mvccpb.Event{Type: mvccpb.PUT, Kv: kv})
	}
	w.cluster = there.Header.ClusterId
	stream, err := w.open(lasting, there.Header.Revision+1)
	if err != nil {
		return nil, err
	}
	if _, err := w.client.Put(ctx, w.own, ""); err != nil {
		return nil, err
	}
	for len(w.last) == 0 {
		answer, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if w.take(answer) {
			return nil, errors.New(w.locks.Gap)
		}
	}
	return stream, nil
}

// open begins a watch at a revision.
func (w *Watcher) open(ctx context.Context, revision int64) (pb.Watch_WatchClient, error) {
	stream, err := pb.NewWatchClient(w.client.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, err
	}
	return stream, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(w.prefix + "/"), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(w.prefix + "/")), StartRevision: revision,
	}}})
}

// run records until the end was seen, there is a gap, or ctx ends.
func (w *Watcher) run(ctx context.Context, stream pb.Watch_WatchClient) {
	defer close(w.done)
	for stream != nil && !w.follow(stream) {
		stream = w.resume(ctx)
	}
}

// follow records what a stream brings until that breaks. It reports whether nothing
// is to be recorded any more.
func (w *Watcher) follow(stream pb.Watch_WatchClient) (ended bool) {
	for {
		answer, err := stream.Recv()
		if err != nil {
			return false
		}
		if w.take(answer) {
			return true
		}
	}
}

// resume opens a watch that broke at the last revision that it has seen, trying for
// as long as it takes. It returns nil if there is a gap, or if ctx ends.
func (w *Watcher) resume(ctx context.Context) pb.Watch_WatchClient {
	for {
		select {
		case <-ctx.Done():
			w.gap("the watch was given up")
			return nil
		case <-time.After(retryInterval):
		}
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		answer, err := w.client.Get(bounded, w.own, clientv3.WithCountOnly()) // no lagging member answers this
		cancel()
		switch {
		case err != nil:
			continue
		case answer.Header.ClusterId != w.cluster:
			w.gap("another etcd cluster has taken the place of the first")
			return nil
		case answer.Header.Revision < w.revision():
			w.gap("etcd went back from revision %d to %d", w.revision(), answer.Header.Revision)
			return nil
		}
		w.again = 0
		if stream, err := w.open(ctx, w.revision()); err == nil {
			return stream
		}
	}
}

// revision is the latest one seen.
func (w *Watcher) revision() int64 { return w.last[0].Kv.ModRevision }

// take takes what a watch brings. It reports whether nothing is to be recorded any
// more.
func (w *Watcher) take(answer *pb.WatchResponse) (ended bool) {
	switch {
	case answer.CompactRevision > 0:
		return w.gap("revisions up to %d were compacted before they were read", answer.CompactRevision)
	case answer.Canceled:
		return w.gap("etcd ended the watch: %s", answer.CancelReason)
	}
	for _, event := range answer.Events {
		if w.again < len(w.last) {
			if !same(event, w.last[w.again]) {
				return w.gap("etcd went back: revision %d is not what it was", w.revision())
			}
			w.again++
			continue
		}
		if len(w.last) > 0 && event.Kv.ModRevision != w.revision() {
			w.last = nil
		}
		w.last = append(w.last, event)
		w.again = len(w.last)
		if string(event.Kv.Key) == w.own && event.Type == mvccpb.DELETE {
			return true
		}
		w.record(event)
	}
	return false
}

// same says whether an event that is shown again is the one that it was.
func same(a, b *mvccpb.Event) bool {
	return a.Type == b.Type && a.Kv.ModRevision == b.Kv.ModRevision && string(a.Kv.Key) == string(b.Kv.Key)
}

// gap notes why something may be missing, and returns true: that is the end.
func (w *Watcher) gap(format string, args ...any) bool {
	w.locks.Gap = fmt.Sprintf(format, args...)
	return true
}

// record notes what became of a lock key; other keys don't count.
func (w *Watcher) record(event *mvccpb.Event) {
	key := string(event.Kv.Key)
	resource, ok := w.resource(key)
	if !ok {
		return
	}
	e := LockEvent{At: clock.Now(), Resource: resource, Revision: event.Kv.ModRevision}
	if event.Type == mvccpb.DELETE {
		e.Gone, e.Created = true, w.created[key]
		delete(w.created, key)
	} else {
		e.Created, e.Lease, e.Holder = event.Kv.CreateRevision, event.Kv.Lease, holder(event.Kv.Value)
		w.created[key] = e.Created
	}
	w.locks.Events = append(w.locks.Events, e)
}

// resource is what a lock key locks: all between <prefix>/locks/ and the last
// slash, unescaped if it can be. It is read here anew, and not by what wrote it.
func (w *Watcher) resource(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, w.prefix+"/locks/")
	if !ok {
		return "", false
	}
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		name = name[:slash]
	}
	if raw, err := url.PathUnescape(name); err == nil {
		name = raw
	}
	return name, true
}

// holder is who a lock key's value names; "" if it names nobody.
func holder(value []byte) string {
	var v struct{ Holder string }
	if json.Unmarshal(value, &v) != nil {
		return ""
	}
	return v.Holder
}

// Close ends the watch once it has seen all that was written before the call, and
// returns what it saw. If ctx ends before that there is a Gap. A second call returns
// the same. It must not be called concurrently.
func (w *Watcher) Close(ctx context.Context) Locks {
	if err := w.catchUp(ctx); err != nil {
		w.cancel()
		<-w.done
		w.gap("the watch did not get to the end: %v", err)
	}
	w.cancel()
	return w.locks
}

// catchUp removes the own key, until etcd has, and waits for the watch to see it.
func (w *Watcher) catchUp(ctx context.Context) error {
	for {
		select {
		case <-w.done:
			return nil
		default:
		}
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err := w.client.Delete(bounded, w.own)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryInterval):
		}
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// LeftKeys returns the lock keys that are there under the prefix of a lock
// service's Config, in order.
func LeftKeys(ctx context.Context, client *clientv3.Client, prefix string) ([]string, error) {
	there, err := client.Get(ctx, prefix+"/locks/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("observe: lock keys under %q: %w", prefix, err)
	}
	var keys []string
	for _, kv := range there.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}
