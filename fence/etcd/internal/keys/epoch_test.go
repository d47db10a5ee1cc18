package keys

import (
	"testing"

	"github.com/stretchr/testify/require"
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
		bad := new(EpochError)
		require.ErrorAs(t, err, &bad, "%q", text)
		require.Equal(t, EpochError{Key: "k", Value: text}, *bad)
	}
}
