package watch

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
)

// view is what a follower knows about a queue: its keys, complete as of a revision. Lists
// and events come from different requests, in any order; the revision decides which is
// newer. Callers synchronise.
type view struct {
	own   string
	token int64 // create revision of own

	rev   int64           // keys is complete as of this revision; 0: no list yet
	keys  map[string]Key  // by key
	early []*mvccpb.Event // arrived before the first list
	owner []byte          // value of the first key when own was written, nil if that was own
}

// Key is a key of a queue.
type Key struct {
	Created int64  // its create revision; 0 if there is none
	Value   []byte // only for people, see keys.LockValue
}

// alone starts the view of a key that was the first of its queue when it was written: then
// it was the only key.
func (v *view) alone() {
	v.rev, v.keys = v.token, map[string]Key{v.own: {Created: v.token}}
}

// forget drops what is known, because events are missing. The next list starts anew.
func (v *view) forget() { v.rev, v.keys, v.early = 0, nil, nil }

// list applies a list of the whole queue as of rev. It ignores a list that is older than
// what is known, or older than the own key (etcd has had bugs that served such reads), and
// reports whether it used the list.
func (v *view) list(rev int64, kvs []*mvccpb.KeyValue) bool {
	if rev < max(v.rev, v.token) {
		return false
	}
	v.rev, v.keys = rev, make(map[string]Key, len(kvs))
	for _, kv := range kvs {
		v.keys[string(kv.Key)] = Key{kv.CreateRevision, kv.Value}
	}
	early := v.early
	v.early = nil
	v.apply(early)
	return true
}

// apply applies the events of a watch that has missed none since rev.
func (v *view) apply(events []*mvccpb.Event) {
	if v.rev == 0 {
		v.early = append(v.early, events...)
		return
	}
	known := v.rev
	for _, ev := range events {
		kv := ev.Kv
		if kv.ModRevision <= known {
			continue
		}
		if ev.Type == mvccpb.Event_DELETE {
			delete(v.keys, string(kv.Key))
		} else {
			v.keys[string(kv.Key)] = Key{kv.CreateRevision, kv.Value}
		}
		v.rev = max(v.rev, kv.ModRevision)
	}
}

// gone reports whether the own key is known to be gone, or replaced by another one of the
// same name.
func (v *view) gone() bool { return v.rev != 0 && v.keys[v.own].Created != v.token }

// first reports whether the own key exists and every key with a smaller create revision is
// gone. It isn't enough that the next smaller one is gone: that may be a waiter that gave
// up.
func (v *view) first() bool {
	if v.rev == 0 || v.gone() {
		return false
	}
	for _, k := range v.keys {
		if k.Created < v.token {
			return false
		}
	}
	return true
}

// holder is the holder that the first key of the queue names, as far as is known:
// "" if it isn't, or if that is the own key.
func (v *view) holder() string {
	if v.rev == 0 {
		return keys.HolderIn(v.owner)
	}
	if first := v.head(); first.Created < v.token {
		return keys.HolderIn(first.Value)
	}
	return ""
}

// head is the first of the queue, with create revision 0 if there is none.
func (v *view) head() Key {
	var first Key
	for _, k := range v.keys {
		if first.Created == 0 || k.Created < first.Created {
			first = k
		}
	}
	return first
}

// contended reports whether there are other keys in the queue.
func (v *view) contended() bool { return len(v.keys) > 1 }
