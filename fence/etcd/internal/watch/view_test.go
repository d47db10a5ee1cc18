package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func keyAt(name string, created int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(name), CreateRevision: created, ModRevision: created}
}

func put(name string, rev int64) *mvccpb.Event {
	return &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: keyAt(name, rev)}
}

func del(name string, rev int64) *mvccpb.Event {
	return &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(name), ModRevision: rev}}
}

func waitingView() *view { return &view{wrote: 10} }

func key(name string, created int64) Key { return Key{Name: name, Created: created} }

func TestView_IgnoresEventsThatTheListContains(t *testing.T) {
	v := waitingView()
	v.apply([]*mvccpb.Event{put("a", 5), del("a", 6)}, 0)
	require.True(t, v.list(12, []Key{key("own", 10), key("z", 12)}, 0))
	v.apply([]*mvccpb.Event{put("y", 11), del("z", 11)}, 0)
	require.Equal(t, []Key{key("own", 10), key("z", 12)}, v.keys)
}

func TestView_IgnoresOldLists(t *testing.T) {
	v := waitingView()
	require.False(t, v.list(9, nil, 0), "from before the own key was written")
	require.Zero(t, v.rev)
	require.True(t, v.list(12, []Key{key("own", 10)}, 0))
	require.False(t, v.list(11, []Key{key("a", 5), key("own", 10)}, 0))
	require.Equal(t, []Key{key("own", 10)}, v.keys)
}
