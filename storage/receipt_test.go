package storage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

func TestReceipt_HasOneTextForm(t *testing.T) {
	t.Parallel()
	r := storage.Receipt{
		{Grant: fence.Grant{Resource: "a: b/é", Epoch: 1, Token: 131, Holder: "w b/1"}, Position: storage.Position{Seq: 7, Tx: 70}, Hash: [32]byte{0xAB, 31: 1}},
		{Grant: fence.Grant{Resource: "c", Epoch: 2, Token: 5, Holder: "w"}, Position: storage.Position{Seq: 1, Tx: 70}},
	}
	text := r.String()
	require.Equal(t, "fencekit1 7:70:ab"+strings.Repeat("0", 60)+"01:fence1:1:131:w%20b%2F1:a%3A%20b%2F%C3%A9 1:70:"+strings.Repeat("0", 64)+":fence1:2:5:w:c", text)
	parsed, err := storage.ParseReceipt(text)
	require.NoError(t, err)
	require.Equal(t, r, parsed)
	require.Empty(t, storage.Receipt(nil).String())
	for i := range text { // whatever is changed, it is another receipt, or none
		for _, changed := range []string{text[:i], text[:i] + text[i+1:], text[:i] + "~" + text[i+1:], text[:i] + "0" + text[i:], text[:i] + strings.ToUpper(text[i:])} {
			if other, err := storage.ParseReceipt(changed); err == nil && changed != text {
				require.NotEqual(t, r, other, changed)
			} else if err != nil {
				require.ErrorIs(t, err, fence.ErrInvalid)
				require.Nil(t, other)
			}
		}
	}
}
