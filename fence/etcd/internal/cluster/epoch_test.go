package cluster

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestParseEpoch_TakesOneFormPerNumber(t *testing.T) {
	e, err := ParseEpoch("k", nil)
	require.NoError(t, err)
	require.Equal(t, Epoch{Number: 1}, e)
	for text, want := range map[string]int64{"1": 1, "2": 2, "2147483647": 2147483647} {
		e, err := ParseEpoch("k", []*mvccpb.KeyValue{{Value: []byte(text)}})
		require.NoError(t, err)
		require.Equal(t, Epoch{Number: want, Text: text}, e)
	}
	for _, text := range []string{"", "0", "-1", "+2", "02", " 2", "2\n", "2.0", "0x2", "1e3", "1_0", "2147483648", "99999999999999999999", "two"} {
		_, err := ParseEpoch("k", []*mvccpb.KeyValue{{Value: []byte(text)}})
		require.ErrorContains(t, err, fmt.Sprintf("k holds %q;", text))
	}
}

func header(cluster, term uint64, revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: cluster, RaftTerm: term, Revision: revision}
}

func TestWatermark_NoticesAnOlderState(t *testing.T) {
	for what, h := range map[string]*pb.ResponseHeader{
		"cluster id": header(8, 3, 100),
		"raft term":  header(7, 2, 100),
		"revision":   header(7, 3, 99),
	} {
		w := newWatermark("p/epoch")
		require.NoError(t, w.check(w.Sending(), header(7, 3, 100)))
		fault := new(WentBackError)
		require.ErrorAs(t, w.check(w.Sending(), h), &fault, what)
		require.Equal(t, what, fault.What)
		require.Contains(t, fault.Error(), "p/epoch")
		require.Error(t, w.check(w.Sending(), header(7, 3, 200)), "stays until the epoch is raised")
	}
}

func TestWatermark_AcceptsAnswersThatOvertakeEachOther(t *testing.T) {
	w := newWatermark("p/epoch")
	require.NoError(t, w.check(w.Sending(), header(7, 3, 100)))
	slow := w.Sending()
	require.NoError(t, w.check(w.Sending(), header(7, 4, 200)))
	require.NoError(t, w.check(slow, header(7, 3, 150)), "it was sent before 200 was seen")
	require.Error(t, w.check(w.Sending(), header(7, 4, 199)), "the late answer has not lowered the mark")
}

func TestWatermark_DistinguishesACorrectedMistakeFromAnOlderState(t *testing.T) {
	slip := Epoch{Number: 1000, Text: "1000", Revision: 50}
	for revision, back := range map[int64]bool{40: true, 60: false} {
		w := newWatermark("p/epoch")
		require.NoError(t, w.sawEpoch(w.Sending(), slip))
		right := Epoch{Number: 2, Text: "2", Revision: revision}
		err := w.sawEpoch(w.Sending(), right)
		require.Equal(t, back, err != nil, "put at revision %d", revision)
		if back {
			fault := new(WentBackError)
			require.ErrorAs(t, err, &fault)
			require.Equal(t, WentBackError{What: "epoch", Seen: 1000, Got: 2, EpochKey: "p/epoch", Epoch: 1000}, *fault)
		} else {
			require.Equal(t, right, w.Sending().Epoch)
		}
	}
}

func TestWatermark_RestartsOnlyAboveEveryEpochSeen(t *testing.T) {
	w := newWatermark("p/epoch")
	require.NoError(t, w.sawEpoch(w.Sending(), Epoch{Number: 2, Text: "2"}))
	require.NoError(t, w.check(w.Sending(), header(7, 3, 100)))
	before := w.Sending()
	require.Error(t, w.check(before, header(7, 3, 50)))
	require.Error(t, w.restart(Epoch{Number: 2, Text: "2"}))
	require.NoError(t, w.restart(Epoch{Number: 3, Text: "3"}))
	require.NoError(t, w.WentBack())
	require.NoError(t, w.check(before, header(7, 3, 100)), "an answer to a request from before the restart is ignored")
	require.NoError(t, w.check(w.Sending(), header(7, 1, 60)))
	require.Error(t, w.check(w.Sending(), header(7, 1, 59)))
}
