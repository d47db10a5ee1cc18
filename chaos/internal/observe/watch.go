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

// How long one request of a Watcher may take, and how long the Watcher waits after one
// that failed.
const (
	requestTimeout = 2 * time.Second
	retryInterval  = 100 * time.Millisecond
)

// Watcher records the creation and deletion of lock keys under a prefix. It uses the raw
// protocol because the client's own Watch resumes without telling its caller, which would
// then not know whether it missed anything.
type Watcher struct {
	client  *clientv3.Client
	prefix  string
	own     string           // key that is created when the watch is open, and whose deletion ends it
	created map[string]int64 // create revisions of the lock keys that exist
	cluster uint64
	last    []*mvccpb.Event // all events of the latest revision seen
	again   int             // how many of these a resumed watch has shown again
	locks   Locks
	cancel  context.CancelFunc
	done    chan struct{} // closed when recording has ended
}

// Watch watches the lock keys under prefix, which is that of the lock service's Config. When
// it returns, every later change is recorded, and existing keys are recorded as created. ctx
// bounds the start alone.
//
// The watch survives pauses, crashes and changes of leader. An event by which it could have
// missed something is a Gap, and ends it: a compaction of revisions that it hadn't read, an
// etcd that went back to an older state, or another cluster in its place. To notice, it reads
// the last revision that it saw once more whenever it resumes. While the member that it is
// connected to is paused it records nothing, and catches up afterwards, unless the client has
// keep-alives (DialKeepAliveTime) and so connects to another member.
//
// Beside the locks it creates its own key, <prefix>/observed/…. The caller must call Close,
// and close the client after that.
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

// begin reads the existing keys, opens the watch, and waits until it has shown an event.
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

// open opens a watch at a revision.
func (w *Watcher) open(ctx context.Context, revision int64) (pb.Watch_WatchClient, error) {
	stream, err := pb.NewWatchClient(w.client.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, err
	}
	return stream, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(w.prefix + "/"), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(w.prefix + "/")), StartRevision: revision,
	}}})
}

// run records until the watch has seen its end, there is a gap, or ctx ends.
func (w *Watcher) run(ctx context.Context, stream pb.Watch_WatchClient) {
	defer close(w.done)
	for stream != nil && !w.follow(stream) {
		stream = w.resume(ctx)
	}
}

// follow records the events of a stream until it breaks. It reports whether recording has
// ended.
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

// resume opens a broken watch again, at the last revision that it has seen, and retries. It
// returns nil if there is a gap, or if ctx ends.
func (w *Watcher) resume(ctx context.Context) pb.Watch_WatchClient {
	for {
		select {
		case <-ctx.Done():
			w.gap("the watch was ended while it was broken")
			return nil
		case <-time.After(retryInterval):
		}
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		answer, err := w.client.Get(bounded, w.own, clientv3.WithCountOnly()) // linearizable: a lagging member doesn't answer it
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

// revision is the latest revision seen.
func (w *Watcher) revision() int64 { return w.last[0].Kv.ModRevision }

// take takes an answer of the watch. It reports whether recording has ended.
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

// same reports whether an event that is shown again is the same.
func same(a, b *mvccpb.Event) bool {
	return a.Type == b.Type && a.Kv.ModRevision == b.Kv.ModRevision && string(a.Kv.Key) == string(b.Kv.Key)
}

// gap notes why events may be missing, and returns true: recording has ended.
func (w *Watcher) gap(format string, args ...any) bool {
	w.locks.Gap = fmt.Sprintf(format, args...)
	return true
}

// record records an event of a lock key; it ignores other keys.
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

// resource is the resource of a lock key: everything between <prefix>/locks/ and the last
// slash, unescaped if possible. It doesn't use the code that wrote the key.
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

// holder is the holder in a lock key's value; "" if it has none.
func holder(value []byte) string {
	var v struct{ Holder string }
	if json.Unmarshal(value, &v) != nil {
		return ""
	}
	return v.Holder
}

// Close ends the watch once it has seen everything written before the call, and returns what
// it saw. If ctx ends first there is a Gap. A second call returns the same. It must not be
// called concurrently.
func (w *Watcher) Close(ctx context.Context) Locks {
	if err := w.catchUp(ctx); err != nil {
		w.cancel()
		<-w.done
		w.gap("the watch did not reach its end: %v", err)
	}
	w.cancel()
	return w.locks
}

// catchUp deletes the own key, with retries, and waits until the watch has seen that.
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

// LeftKeys returns the lock keys under the prefix of a lock service's Config, in order.
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
