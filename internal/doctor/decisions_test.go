package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

func TestLoopback_IsWhatNoOtherMachineReaches(t *testing.T) {
	t.Parallel()
	for endpoint, local := range map[string]bool{
		"http://127.0.0.1:2379": true, "https://localhost:2379": true, "localhost:2379": true, "[::1]:2379": true, "127.0.0.1": true,
		"http://10.0.0.1:2379": false, "http://0.0.0.0:2379": false, "etcd-1:2379": false, "http://localhost.example:2379": false,
	} {
		require.Equal(t, local, isLoopback(endpoint), endpoint)
	}
}

func idsOf(found []Finding) (ids []string) {
	for _, f := range found {
		ids = append(ids, f.ID)
	}
	return ids
}

// Holders claim while fences are read: what etcd has granted by the second reading is no trouble.
func TestAhead_TellsAFalseGrantFromAnOlderEtcd(t *testing.T) {
	t.Parallel()
	d := &database{}
	at := func(token int64) state { return state{"r", fence.Token(token), "h-1"} }
	require.Empty(t, d.judgeAhead([]state{at(90), at(100)}, 100))
	require.Equal(t, []string{"etcd-went-back"}, idsOf(d.judgeAhead([]state{at(101)}, 100)))
	require.Equal(t, []string{"etcd-went-back"}, idsOf(d.judgeAhead([]state{at(100 + 1<<30)}, 100)))
	require.Equal(t, []string{"fence-token-absurd"}, idsOf(d.judgeAhead([]state{at(101 + 1<<30), at(99)}, 100)))
	both := d.judgeAhead([]state{at(1 << 40), at(101 + 1<<30), at(101)}, 100)
	require.Equal(t, []string{"fence-token-absurd", "etcd-went-back"}, idsOf(both))
	require.Contains(t, both[0].Seen, "2 fences: ")
}
