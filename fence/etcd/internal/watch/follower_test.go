package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func listed(t *testing.T, f *Follower, rev int64, kvs ...*mvccpb.KeyValue) {
	t.Helper()
	used, err := f.Listed(f.Gaps(), rev, kvs)
	require.NoError(t, err)
	require.True(t, used)
}

// A watch from now on misses what changed between a list and its beginning, also if the list's answer
// comes after that. The answer to the Txn that writes the first key is such a list.
func TestWatch_ForgetsWhatWasListedBeforeIt(t *testing.T) {
	w := &Watcher{wake: make(chan struct{}, 1), lastID: firstID, watches: map[int64]*Follower{}}
	s := &stream{Watcher: w, ids: map[int64]int64{}}
	f := &Follower{Queue: "q/", Listener: make(signal, 10)}
	w.Add(f)
	asked := f.Gaps()
	listed(t, f, 5, keyAt("q/a", 5))
	s.next()
	_, fromNow, err := s.answered(&pb.WatchResponse{Created: true, WatchId: f.id, Header: &pb.ResponseHeader{Revision: 7}})
	require.NoError(t, err)
	require.True(t, fromNow)
	_, known := f.First()
	require.False(t, known, "what was listed before the watch")
	_, err = f.Listed(asked, 6, []*mvccpb.KeyValue{keyAt("q/a", 5)})
	require.NoError(t, err)
	_, known = f.First()
	require.False(t, known, "what was asked for before the watch")
	f.Wrote(asked, "a", 5, true)
	_, known = f.First()
	require.False(t, known, "what was written before the watch")
	require.Error(t, f.Events([]*mvccpb.Event{put("q/c", 9), put("other/c", 9)}), "of another queue")
	require.NoError(t, f.Events([]*mvccpb.Event{put("q/c", 9)}))
	_, known = f.First()
	require.False(t, known, "events show what was added, not what was there")
	listed(t, f, 8, keyAt("q/b", 7))
	first, known := f.First()
	require.True(t, known)
	require.Equal(t, key("b", 7), first)
}

type signal chan struct{}

func (s signal) Changed()     { s <- struct{}{} }
func (s signal) Waits() bool  { return false }
func (s signal) Denied(error) {}

func keyAt(name string, created int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(name), CreateRevision: created, ModRevision: created}
}

func put(name string, rev int64) *mvccpb.Event {
	return &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: keyAt(name, rev)}
}

func del(name string, rev int64) *mvccpb.Event {
	return &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(name), ModRevision: rev}}
}

func key(name string, created int64) Key { return Key{Name: name, Created: created} }

func TestFollower_IgnoresEventsThatTheListContains(t *testing.T) {
	f := &Follower{wrote: 10}
	f.apply([]*mvccpb.Event{put("a", 5), del("a", 6)})
	require.True(t, f.list(0, 12, []Key{key("own", 10), key("z", 12)}))
	f.apply([]*mvccpb.Event{put("y", 11), del("z", 11)})
	require.Equal(t, []Key{key("own", 10), key("z", 12)}, f.keys)
}

func TestFollower_IgnoresOldLists(t *testing.T) {
	f := &Follower{wrote: 10}
	require.False(t, f.list(0, 9, nil), "from before the own key was written")
	require.Zero(t, f.rev)
	require.True(t, f.list(0, 12, []Key{key("own", 10)}))
	require.False(t, f.list(0, 11, []Key{key("a", 5), key("own", 10)}))
	require.Equal(t, []Key{key("own", 10)}, f.keys)
}
