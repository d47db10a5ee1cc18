package watch

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Follower follows a queue over the watch: for the acquisitions of this process in it, or
// for an observer of an election. Its methods may be called from several goroutines.
type Follower struct {
	queue    string // prefix of the queue's keys
	listener Listener

	// Guarded by Watcher.mu:
	id       int64 // of its watch; 0 if it isn't watched
	created  bool  // the server has answered that the watch is there, on the present stream
	serverID int64 // what the server calls the watch then
	fromNow  bool  // the watch has no revision to start from

	removed atomic.Bool // from its Watcher

	mu   sync.Mutex
	view view
}

// Listener is told what a Follower sees. Its methods must not block.
type Listener interface {
	// Changed is called when there may be something new to see.
	Changed()
	// Denied is called when etcd denies the right to read the queue. The Follower is no
	// longer watched then.
	Denied(error)
}

// Init makes f, which is zero, follow the keys that begin with queue.
func (f *Follower) Init(queue string, listener Listener) { f.queue, f.listener = queue, listener }

// NewFollower returns a Follower of the keys that begin with queue.
func NewFollower(queue string, listener Listener) *Follower {
	f := new(Follower)
	f.Init(queue, listener)
	return f
}

// Queue is the prefix of the queue's keys.
func (f *Follower) Queue() string { return f.queue }

// Wrote records that an own key was written, at the revision token. alone says that the queue had
// no other key then.
func (f *Follower) Wrote(name string, token int64, alone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.wrote = max(f.view.wrote, token)
	if alone {
		f.view.list(token, []Key{{Name: name, Created: token}}, len(f.queue))
	}
}

// Look calls f with the keys of the queue, which are complete as of rev; rev is 0 if the
// queue isn't known. f must not keep keys.
func (f *Follower) Look(look func(rev int64, keys []Key)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look(f.view.rev, f.view.keys)
}

// First is the first key of the queue; false if the queue isn't known.
func (f *Follower) First() (Key, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view.first(), f.view.rev != 0
}

// Events applies events of the watch. If one isn't of this queue it applies none and returns an error.
func (f *Follower) Events(evs []*mvccpb.Event) error {
	for _, ev := range evs {
		if err := f.has(ev.Kv); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.view.apply(evs, len(f.queue))
	f.mu.Unlock()
	f.listener.Changed()
	return nil
}

// has returns an error unless the key is in the queue: what answers is no etcd then.
func (f *Follower) has(kv *mvccpb.KeyValue) error {
	if len(kv.Key) < len(f.queue) || string(kv.Key[:len(f.queue)]) != f.queue {
		return fmt.Errorf("etcd: an answer for %s shows the key %q", f.queue, kv.Key)
	}
	return nil
}

// Listed applies a list of the whole queue as of rev. It returns false if the list is older
// than what is known, and an error if it is of something else.
func (f *Follower) Listed(rev int64, kvs []*mvccpb.KeyValue) (bool, error) {
	keys := make([]Key, len(kvs))
	for i, kv := range kvs {
		if err := f.has(kv); err != nil {
			return false, err
		}
		keys[i] = keyOf(string(kv.Key[len(f.queue):]), kv)
	}
	f.mu.Lock()
	used := f.view.list(rev, keys, len(f.queue))
	f.mu.Unlock()
	f.listener.Changed()
	return used, nil
}

// resume is the revision at which the watch has to start; 0 means from now on, and a list
// follows.
func (f *Follower) resume() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view.rev == 0 {
		return 0
	}
	return f.view.rev + 1
}

// missed records that events were lost: nothing is known until the next list.
func (f *Follower) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.forget()
}

// view is what a follower knows about a queue: its keys, complete as of a revision. Lists
// and events come from different requests, in any order; the revision decides which is
// newer. Callers synchronise.
type view struct {
	wrote int64        // the highest create revision of an own key
	rev   int64        // keys is complete as of this revision; 0: no list yet
	keys  []Key        // in no order
	early *earlyEvents // that arrived before the first list; nil if none have
}

// earlyEvents take one word of a view, of which there are many, while there are none.
type earlyEvents struct{ events []*mvccpb.Event }

// Key is a key of a queue.
type Key struct {
	Name    string  // without the prefix of the queue
	Created int64   // its create revision; 0 if there is none
	value   *[]byte // nil if it is empty, and for an own key, of which there may be many
}

func keyOf(name string, kv *mvccpb.KeyValue) Key {
	k := Key{Name: name, Created: kv.CreateRevision}
	if value := kv.Value; len(value) > 0 {
		k.value = &value
	}
	return k
}

// Value is only for people, see cluster.LockValue. An own key may have none.
func (k Key) Value() []byte {
	if k.value == nil {
		return nil
	}
	return *k.value
}

// forget drops what is known, because events are missing. The next list starts anew.
func (v *view) forget() { v.rev, v.keys, v.early = 0, nil, nil }

// list applies a list of the whole queue as of rev. It ignores a list that is older than
// what is known, or older than an own key (etcd has had bugs that served such reads), and
// reports whether it used the list.
func (v *view) list(rev int64, keys []Key, prefix int) bool {
	if rev < max(v.rev, v.wrote) { // mutant: list-from-before-the-key-counts
		return false
	}
	v.rev, v.keys = rev, keys
	if early := v.early; early != nil {
		v.early = nil
		v.apply(early.events, prefix)
	}
	return true
}

// apply applies the events of a watch that has missed none since rev. prefix is the length
// of the queue's prefix.
func (v *view) apply(events []*mvccpb.Event, prefix int) {
	if v.rev == 0 {
		if v.early == nil {
			v.early = &earlyEvents{}
		}
		v.early.events = append(v.early.events, events...)
		return
	}
	known := v.rev
	for _, ev := range events {
		kv := ev.Kv
		if kv.ModRevision <= known { // mutant: events-that-the-list-contains-count-again
			continue
		}
		name := kv.Key[prefix:]
		i := slices.IndexFunc(v.keys, func(k Key) bool { return k.Name == string(name) })
		switch {
		case ev.Type == mvccpb.DELETE && i >= 0:
			v.keys = slices.Delete(v.keys, i, i+1)
		case ev.Type == mvccpb.DELETE:
		case i >= 0:
			v.keys[i] = keyOf(v.keys[i].Name, kv)
		default:
			v.keys = append(v.keys, keyOf(string(name), kv))
		}
		v.rev = max(v.rev, kv.ModRevision)
	}
}

// first is the first key of the queue, with create revision 0 if there is none.
func (v *view) first() Key {
	var first Key
	for _, k := range v.keys {
		if first.Created == 0 || k.Created < first.Created {
			first = k
		}
	}
	return first
}
