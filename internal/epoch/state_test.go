package epoch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
)

// keys are keys that hold these epochs, in an etcd at revision 100.
func keys(numbers ...int64) (all []inspect.Epoch) {
	for _, n := range numbers {
		all = append(all, inspect.Epoch{Number: n, Revision: 100})
	}
	return all
}

// databases have seen these epochs.
func databases(numbers ...int64) (all []Database) {
	for _, n := range numbers {
		all = append(all, Database{Number: n, MaxJump: 10})
	}
	return all
}

func TestCompare_SaysWhyClaimsAreRejected(t *testing.T) {
	t.Parallel()
	fenceAt := func(epoch int64, token fence.Token) Database {
		return Database{Number: 5, MaxJump: 10, Highest: fence.Grant{Epoch: epoch, Token: token}}
	}
	for _, c := range []struct {
		key  int64
		d    Database
		want Drift
	}{
		{0, fenceAt(5, 1), NoEpoch},
		{4, fenceAt(5, 1), Behind},
		{5, fenceAt(5, 100), ""},
		{5, fenceAt(5, 101), TokensLow},
		{5, fenceAt(5, 100+FarAhead), TokensLow},
		{5, fenceAt(5, 101+FarAhead), Absurd},
		{5, fenceAt(4, 101), ""},
		{15, fenceAt(5, 101), ""},
		{16, fenceAt(5, 1), TooFar},
	} {
		require.Equal(t, c.want, Compare(keys(c.key)[0], c.d), "%d %v", c.key, c.d)
	}
	require.Equal(t, Behind, State{Keys: keys(5, 0, 4)}.Drift(fenceAt(5, 1)))
	require.EqualValues(t, "", State{Keys: keys(0, 5)}.Drift(fenceAt(5, 1)))
	require.EqualValues(t, 100, State{Keys: keys(1, 2)}.Revision())
}

func TestNext_IsAboveWhatWasAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keys      []inspect.Epoch
		databases []Database
		trust     Side
		want      int64
		says      string
	}{
		{keys(1), databases(1, 1), "", 2, ""},
		{keys(1), databases(1, 5), "", 6, ""},
		{keys(9), databases(1, 5), "", 10, ""},
		{keys(15), databases(1, 5), "", 16, ""},
		{keys(16), databases(1, 5), "", 0, "etcd's epoch is 16, and no database accepts more than 15. If you left out a database, add it. Otherwise --trust etcd raises the databases to 17"},
		{keys(16), databases(1, 5), Etcd, 17, ""},
		{keys(16), databases(1, 5), Databases, 0, "etcd's epoch 16 can't be lowered: a database has accepted it, or might"},
		{keys(25), databases(1, 5), Databases, 0, "etcd's epoch 25 can't be lowered"},
		{keys(25), databases(1, 5), Etcd, 26, ""},
		{keys(26), databases(1, 5), "", 0, "If etcd's was mistyped, --trust databases makes it 6"},
		{keys(26), databases(1, 5), Databases, 6, ""},
		{keys(26), databases(1, 5), Etcd, 27, ""},
		{keys(9), databases(5), Databases, 0, "etcd's epoch 9 can't be lowered"},
		{keys(4), databases(5), Databases, 6, ""},
		{keys(5), databases(5), Databases, 0, "etcd's epoch 5 can't be lowered"},
		{keys(0), databases(5), "", 0, "a key of etcd holds no epoch: with --trust databases it becomes 6"},
		{keys(0), databases(5), Etcd, 0, "a key of etcd holds no epoch"},
		{keys(0), databases(5), Databases, 6, ""},
		{keys(0, 5), databases(5), Databases, 6, ""},
		{keys(0, 9), databases(5), Databases, 10, ""},
		{keys(0, 9), databases(5), "", 0, "a key of etcd holds no epoch: with --trust databases it becomes 10"},
		{keys(0, 26), databases(5), Databases, 6, ""},
		// The slip of one prefix lowers no other, nor what is within reach of that, or of another database's limit.
		{keys(36, 9), databases(5), "", 0, "--trust databases makes it 10"},
		{keys(36, 9), databases(5), Databases, 10, ""},
		{keys(9, 36), databases(5), Databases, 10, ""},
		{keys(29, 9), databases(5), Databases, 0, "etcd's epoch 29 can't be lowered"},
		{keys(251), []Database{{Number: 5, MaxJump: 100}, {Number: 150, MaxJump: 10}}, Databases, 0, "etcd's epoch 251 can't be lowered"},
		{keys(351), []Database{{Number: 5, MaxJump: 100}, {Number: 150, MaxJump: 10}}, Databases, 151, ""},
		{keys(fence.MaxEpoch), databases(1), Etcd, 0, "the highest there is"},
		{keys(fence.MaxEpoch), databases(1), Databases, 2, ""},
		{keys(1), databases(fence.MaxEpoch), "", 0, "the highest there is"},
	} {
		got, err := State{Keys: c.keys, Databases: c.databases}.Next(c.trust)
		require.Equal(t, c.want, got, "%v", c)
		if c.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.says)
		}
	}
}
