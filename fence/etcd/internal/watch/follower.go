package watch

import (
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Follower follows a queue over the watch: for an acquisition in it, or for an
// observer of an election. Its methods may be called from several goroutines.
type Follower struct {
	queue   string          // prefix of the queue's keys
	over    <-chan struct{} // closed when the follower has ended
	changed func()          // called when there may be something new to see
	denied  func(error)     // called once if etcd denies the right to read the queue; it is no longer watched then

	mu   sync.Mutex
	view view
}

// NewFollower returns a Follower of the keys that begin with queue, until over is
// closed. changed is called when there may be something new to see, denied once if etcd denies
// the right to read the queue; it is no longer watched then.
func NewFollower(queue string, over <-chan struct{}, changed func(), denied func(error)) *Follower {
	return &Follower{queue: queue, over: over, changed: changed, denied: denied}
}

// Wrote records that the follower's own key was written at revision token. first says
// whether it is the first of the queue; if not, ahead is the value of the first key.
func (f *Follower) Wrote(key string, token int64, first bool, ahead []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.own, f.view.token = key, token
	if first {
		f.view.alone()
	} else {
		f.view.owner = ahead
	}
}

// State is what a follower knows about its own key.
type State struct {
	First     bool // it exists, and every key with a lower create revision is gone
	Gone      bool // it is gone, or another key has its name
	Contended bool // there are other keys in the queue
}

// State returns what is known now.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return State{First: f.view.first(), Gone: f.view.gone(), Contended: f.view.contended()}
}

// Holder is the holder that the first key of the queue names, as far as is known:
// "" if it isn't, or if that is the own key.
func (f *Follower) Holder() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view.holder()
}

// Head is the first key of the queue; false if the queue isn't known.
func (f *Follower) Head() (Key, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view.head(), f.view.rev != 0
}

// events applies events of the watch.
func (f *Follower) events(evs []*mvccpb.Event) {
	f.mu.Lock()
	f.view.apply(evs)
	f.mu.Unlock()
	f.changed()
}

// listed applies a list of the whole queue as of rev. It returns false if the list is older
// than what is known.
func (f *Follower) listed(rev int64, kvs []*mvccpb.KeyValue) bool {
	f.mu.Lock()
	used := f.view.list(rev, kvs)
	f.mu.Unlock()
	f.changed()
	return used
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

func (f *Follower) ended() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}
