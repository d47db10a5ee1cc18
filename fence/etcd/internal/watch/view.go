package watch

import (
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

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

// Value is only for people, see keys.LockValue. An own key may have none.
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
