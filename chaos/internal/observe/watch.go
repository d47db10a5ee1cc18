package observe

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/test/clock"
)

// How long one attempt to write the end of a watch may take, and the time between two.
const (
	endTimeout  = 2 * time.Second
	endInterval = 100 * time.Millisecond
)

// watch records lock keys. The client's watch survives crashes and changes of leader, or fails if etcd has
// compacted what it missed.
type watch struct {
	client  *clientv3.Client
	prefix  string
	end     string           // key whose creation ends the watch
	created map[string]int64 // create revisions of the lock keys that exist
	locks   Locks
	cancel  context.CancelFunc
	done    chan struct{} // closed when recording has ended
}

// start returns when every later change is recorded.
func (w *watch) start(ctx context.Context) error {
	w.end, w.created, w.done = w.prefix+"/observed/"+rand.Text(), map[string]int64{}, make(chan struct{})
	there, err := w.client.Get(ctx, w.end)
	if err != nil {
		return fmt.Errorf("observe: etcd's revision: %w", err)
	}
	var lasting context.Context
	lasting, w.cancel = context.WithCancel(w.client.Ctx())
	answers := w.client.Watch(lasting, w.prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(there.Header.Revision+1))
	go func() {
		defer close(w.done)
		for answer := range answers {
			if w.take(answer) {
				return
			}
		}
		w.locks.Gap = "the watch was ended before it had shown all"
	}()
	return nil
}

// take reports whether recording has ended.
func (w *watch) take(answer clientv3.WatchResponse) (ended bool) {
	if err := answer.Err(); err != nil {
		w.locks.Gap = err.Error()
		return true
	}
	for _, event := range answer.Events {
		if string(event.Kv.Key) == w.end {
			return true
		}
		w.record(event)
	}
	return false
}

func (w *watch) record(event *clientv3.Event) {
	key := string(event.Kv.Key)
	name, ok := strings.CutPrefix(key, w.prefix+"/locks/")
	if !ok {
		return
	}
	e := LockEvent{At: clock.Now(), Resource: resourceOf(name), Revision: event.Kv.ModRevision}
	if event.Type == mvccpb.DELETE {
		e.Gone, e.Created = true, w.created[key]
		delete(w.created, key)
	} else {
		var value struct{ Holder string }
		_ = json.Unmarshal(event.Kv.Value, &value) // a key without a holder has none
		e.Created, e.Lease, e.Holder = event.Kv.CreateRevision, event.Kv.Lease, value.Holder
		w.created[key] = e.Created
	}
	w.locks.Events = append(w.locks.Events, e)
}

// resourceOf is the resource in the name of a lock key. It doesn't use the code that wrote the key.
func resourceOf(name string) string {
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		name = name[:slash]
	}
	if raw, err := url.PathUnescape(name); err == nil {
		return raw
	}
	return name
}

// close ends the watch once it has shown everything written before the call. If ctx ends first there is a Gap.
func (w *watch) close(ctx context.Context) Locks {
	defer w.cancel()
	for {
		bounded, cancel := context.WithTimeout(ctx, endTimeout)
		_, err := w.client.Put(bounded, w.end, "")
		cancel()
		if err == nil || clock.Sleep(ctx, endInterval) != nil {
			break
		}
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		w.cancel()
		<-w.done
		w.locks.Gap = "the watch did not reach its end"
	}
	return w.locks
}

func (w *watch) left(ctx context.Context) (keys []string, err error) {
	there, err := w.client.Get(ctx, w.prefix+"/locks/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("lock keys under %q: %w", w.prefix, err)
	}
	for _, kv := range there.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}
