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

func waitingView() *view { return &view{own: "own", token: 10} }

func TestView_OwnsOnlyWhenAllSmallerRevisionsAreGone_F2(t *testing.T) {
	v := waitingView()
	require.True(t, v.list(11, []*mvccpb.KeyValue{keyAt("a", 5), keyAt("b", 7), keyAt("own", 10), keyAt("z", 11)}))
	require.False(t, v.first())
	v.apply([]*mvccpb.Event{del("b", 12)})
	require.False(t, v.first(), "the next in line vanished, the holder is still there")
	v.apply([]*mvccpb.Event{del("a", 13)})
	require.True(t, v.first())
	require.True(t, v.contended())
	v.apply([]*mvccpb.Event{del("z", 14)})
	require.False(t, v.contended())
}

func TestView_DecidesNothingBeforeTheFirstList(t *testing.T) {
	v := waitingView()
	v.apply([]*mvccpb.Event{del("a", 12)})
	require.False(t, v.first())
	require.False(t, v.gone())
	require.True(t, v.list(11, []*mvccpb.KeyValue{keyAt("a", 5), keyAt("own", 10)}))
	require.True(t, v.first(), "the event was newer than the list")
}

func TestView_IgnoresEventsThatTheListContains(t *testing.T) {
	v := waitingView()
	v.apply([]*mvccpb.Event{put("a", 5), del("a", 6)})
	require.True(t, v.list(12, []*mvccpb.KeyValue{keyAt("own", 10), keyAt("z", 12)}))
	v.apply([]*mvccpb.Event{put("y", 11), del("z", 11)})
	require.Equal(t, map[string]Key{"own": {Created: 10}, "z": {Created: 12}}, v.keys)
}

func TestView_AppliesAllEventsOfOneRevision(t *testing.T) {
	v := waitingView()
	require.True(t, v.list(12, []*mvccpb.KeyValue{keyAt("a", 5), keyAt("b", 6), keyAt("own", 10)}))
	v.apply([]*mvccpb.Event{del("a", 13), del("b", 13)})
	require.True(t, v.first())
	require.EqualValues(t, 13, v.rev)
}

func TestView_IgnoresOldLists(t *testing.T) {
	v := waitingView()
	require.False(t, v.list(9, nil), "from before the own key was written")
	require.False(t, v.gone())
	require.True(t, v.list(12, []*mvccpb.KeyValue{keyAt("own", 10)}))
	require.False(t, v.list(11, []*mvccpb.KeyValue{keyAt("a", 5), keyAt("own", 10)}))
	require.True(t, v.first())
}

// N8 (iv): that a key of the own name exists doesn't make it the own key.
func TestView_NoticesAnotherKeyOfTheSameName_N8(t *testing.T) {
	listed := waitingView()
	require.True(t, listed.list(20, []*mvccpb.KeyValue{keyAt("own", 15)}))
	require.True(t, listed.gone())
	require.False(t, listed.first())

	watched := waitingView()
	watched.alone()
	watched.apply([]*mvccpb.Event{del("own", 11), put("own", 12)})
	require.True(t, watched.gone())
	require.False(t, watched.first())
}

func TestView_AnOverwrittenKeyStaysTheSame(t *testing.T) {
	v := waitingView()
	v.alone()
	v.apply([]*mvccpb.Event{{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{Key: []byte("own"), CreateRevision: 10, ModRevision: 11}}})
	require.False(t, v.gone())
	require.True(t, v.first())
}

func TestView_ForgetsWhenEventsWereMissed(t *testing.T) {
	v := waitingView()
	v.alone()
	v.forget()
	require.False(t, v.gone())
	require.False(t, v.first())
	require.True(t, v.list(10, []*mvccpb.KeyValue{keyAt("own", 10)}))
	require.True(t, v.first())
}

func TestView_NamesTheHolderOfTheFirstKey(t *testing.T) {
	v := waitingView()
	require.Empty(t, v.holder())
	v.owner = []byte(`{"holder":"A"}`)
	require.Equal(t, "A", v.holder(), "before the first list")
	value := func(kv *mvccpb.KeyValue, holder string) *mvccpb.KeyValue {
		kv.Value = []byte(`{"holder":"` + holder + `"}`)
		return kv
	}
	v.list(11, []*mvccpb.KeyValue{value(keyAt("b", 7), "B"), value(keyAt("a", 5), "A"), value(keyAt("own", 10), "O"), value(keyAt("z", 11), "Z")})
	require.Equal(t, "A", v.holder())
	v.apply([]*mvccpb.Event{del("a", 12)})
	require.Equal(t, "B", v.holder())
	v.apply([]*mvccpb.Event{del("b", 13)})
	require.Empty(t, v.holder(), "the own key is the first")
}
