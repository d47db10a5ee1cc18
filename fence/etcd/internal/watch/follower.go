package watch

import (
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Follower follows a queue over the watch: for the acquisitions of this process in it, or for an observer of an
// election. Its methods may be called from several goroutines.
type Follower struct {
	Queue    string // prefix of the queue's keys; never changes
	Listener Listener

	// Guarded by Watcher.mu:
	id       int64 // of its watch; 0 if it isn't watched
	created  bool  // the server has answered that the watch is there, on the present stream
	serverID int64 // what the server calls the watch then
	fromNow  bool  // the watch has no revision to start from

	// What is known of the queue. Lists and events come in any order; the revision decides which is newer.
	mu    sync.Mutex
	wrote int64           // the highest create revision of an own key
	rev   int64           // keys is complete as of this revision; 0: no list yet
	keys  []Key           // in no order
	early []*mvccpb.Event // that arrived before the first list
	gaps  int32           // how often events were missed
}

// Listener is told what a Follower sees. Its methods must not block.
type Listener interface {
	// Changed is called when there may be something new to see.
	Changed()
	// Waits reports whether something waits in the queue, which is then also read, in case the watch misses an event.
	Waits() bool
	// Denied is called when etcd denies the right to read the queue. The Follower is no longer watched then.
	Denied(error)
}

// Wrote records that an own key was written, at the revision token. alone says that the queue had
// no other key then; gaps is as for Listed.
func (f *Follower) Wrote(gaps int32, name string, token int64, alone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrote = max(f.wrote, token)
	if alone {
		f.list(gaps, token, []Key{{Name: name, Created: token}})
	}
}

// Look calls look with the keys of the queue, which are complete as of rev; rev is 0 if the queue isn't known. look
// must not keep keys.
func (f *Follower) Look(look func(rev int64, keys []Key)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look(f.rev, f.keys)
}

// First is the first key of the queue, the zero Key if there is none; false if the queue isn't known.
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

// Events applies events of the watch. If one isn't of this queue it applies none and returns an error.
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

// has returns an error unless the key is in the queue: what answers is no etcd then.
func (f *Follower) has(kv *mvccpb.KeyValue) error {
	if len(kv.Key) < len(f.Queue) || string(kv.Key[:len(f.Queue)]) != f.Queue {
		return fmt.Errorf("etcd: an answer for %s shows the key %q", f.Queue, kv.Key)
	}
	return nil
}

// Gaps is how often events of the queue were missed so far. Take it before a request that shows the whole queue.
func (f *Follower) Gaps() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gaps
}

// Listed applies a list of the whole queue as of rev, which was asked for at this number of gaps. It returns
// false if the list is older than what is known, and an error if it is of something else.
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

// resume is the revision at which the watch has to start; 0 means from now on, and a list follows.
func (f *Follower) resume() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rev == 0 {
		return 0
	}
	return f.rev + 1
}

// missed records that events were lost: nothing is known until the next list.
func (f *Follower) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rev, f.keys, f.early = 0, nil, nil
	f.gaps++
}

// Key is a key of a queue.
type Key struct {
	Name    string // without the prefix of the queue
	Created int64  // its create revision; 0 if there is none
	Value   string // only for people, see cluster.LockValue; an own key may have none
}

func keyOf(name string, kv *mvccpb.KeyValue) Key {
	return Key{Name: name, Created: kv.CreateRevision, Value: string(kv.Value)}
}

// list applies a list of the whole queue as of rev. If events were missed since it was asked for, it
// may lack them: it changes nothing, and another one is under way. It returns false for a list that
// is older than what is known, or older than an own key (etcd has had bugs that served such reads).
// Callers hold mu.
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

// apply applies the events of a watch that has missed none since rev. Callers hold mu.
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
