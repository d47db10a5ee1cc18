package watch

import (
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Follower follows a queue, for acquisitions of this process or an observer of an election. It is safe for
// concurrent use.
type Follower struct {
	Queue    string // prefix of its keys; never changes
	Listener Listener

	// Guarded by Watcher.mu:
	id       int64 // of its watch; 0 if unwatched
	created  bool
	serverID int64
	fromNow  bool // the watch begins now, without a start revision

	// Lists and events come in any order; the revision decides which is newer.
	mu    sync.Mutex
	wrote int64 // highest create revision of an own key
	rev   int64 // keys is complete up to this revision; 0 without a list
	keys  []Key
	early []*mvccpb.Event // events that came before the first list
	gaps  int32
}

// Listener is told what a Follower sees. Its methods must not block.
type Listener interface {
	Changed()
	Waits() bool
	// Denied tells that etcd denies the right to read the queue, which is no longer watched.
	Denied(error)
}

// Wrote records an own key, written at revision token; alone says that the queue had no other. For gaps see Listed.
func (f *Follower) Wrote(gaps int32, name string, token int64, alone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrote = max(f.wrote, token)
	if alone {
		f.list(gaps, token, []Key{{Name: name, Created: token}})
	}
}

// Look calls look with the keys as of rev, which is 0 if nothing is known. look must not keep keys.
func (f *Follower) Look(look func(rev int64, keys []Key)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look(f.rev, f.keys)
}

func (f *Follower) First() (first Key, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.keys {
		if first.Created == 0 || k.Created < first.Created {
			first = k
		}
	}
	return first, f.rev != 0
}

func (f *Follower) Events(evs []*mvccpb.Event) error {
	for _, ev := range evs {
		if err := f.has(ev.Kv); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.apply(evs)
	f.mu.Unlock()
	f.Listener.Changed()
	return nil
}

func (f *Follower) has(kv *mvccpb.KeyValue) error {
	if len(kv.Key) < len(f.Queue) || string(kv.Key[:len(f.Queue)]) != f.Queue {
		return fmt.Errorf("etcd: an answer for %s shows the key %q", f.Queue, kv.Key)
	}
	return nil
}

// Gaps counts missed events. Take it before a request that reads the whole queue.
func (f *Follower) Gaps() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gaps
}

// Listed applies a list of the whole queue that was requested at this number of gaps. It returns false if the list
// is too old.
func (f *Follower) Listed(gaps int32, rev int64, kvs []*mvccpb.KeyValue) (bool, error) {
	keys := make([]Key, len(kvs))
	for i, kv := range kvs {
		if err := f.has(kv); err != nil {
			return false, err
		}
		keys[i] = keyOf(string(kv.Key[len(f.Queue):]), kv)
	}
	f.mu.Lock()
	used := f.list(gaps, rev, keys)
	f.mu.Unlock()
	f.Listener.Changed()
	return used, nil
}

func (f *Follower) resume() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rev == 0 {
		return 0
	}
	return f.rev + 1
}

func (f *Follower) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rev, f.keys, f.early = 0, nil, nil
	f.gaps++
}

type Key struct {
	Name    string
	Created int64
	Value   string
}

func keyOf(name string, kv *mvccpb.KeyValue) Key {
	return Key{Name: name, Created: kv.CreateRevision, Value: string(kv.Value)}
}

// list ignores a list if events were missed since it was requested: another one is under way. It returns false if
// the list is older than what is known or than an own key; etcd has had bugs that served such reads. Callers hold
// mu.
func (f *Follower) list(gaps int32, rev int64, keys []Key) bool {
	if gaps != f.gaps { // mutant: list-from-before-the-watch-counts
		return true
	}
	if rev < max(f.rev, f.wrote) { // mutant: list-from-before-the-key-counts
		return false
	}
	f.rev, f.keys = rev, keys
	early := f.early
	f.early = nil
	f.apply(early)
	return true
}

// apply applies events that follow rev without a gap. Callers hold mu.
func (f *Follower) apply(events []*mvccpb.Event) {
	if f.rev == 0 {
		f.early = append(f.early, events...)
		return
	}
	known := f.rev
	for _, ev := range events {
		kv := ev.Kv
		if kv.ModRevision <= known { // mutant: events-that-the-list-contains-count-again
			continue
		}
		name := kv.Key[len(f.Queue):]
		i := slices.IndexFunc(f.keys, func(k Key) bool { return k.Name == string(name) })
		switch {
		case ev.Type == mvccpb.DELETE && i >= 0:
			f.keys = slices.Delete(f.keys, i, i+1)
		case ev.Type == mvccpb.DELETE:
		case i >= 0:
			f.keys[i] = keyOf(f.keys[i].Name, kv)
		default:
			f.keys = append(f.keys, keyOf(string(name), kv))
		}
		f.rev = max(f.rev, kv.ModRevision)
	}
}
