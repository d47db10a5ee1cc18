package watch

import (
	"fmt"
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
