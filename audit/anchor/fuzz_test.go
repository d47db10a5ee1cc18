package anchor_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit/anchor"
)

// fuzzKey is a key that is the same in each process that fuzzes.
const fuzzKey = "PRIVATE+KEY+example.com/shop+2779a61b+AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"

// Whatever a leaf is, if it was signed: it is read as a record that is written in the same way,
// or not at all. It is the same in a log and in a proof.
func FuzzRecord(f *testing.F) {
	f.Add(`{"at":"2026-01-02T03:04:05Z","resource":"sku/1","seq":1,"hash":"` + strings.Repeat("0a", 32) + `"}`)
	f.Add(`{"at":"9999-12-31T23:59:59-23:59","resource":"\u2028","seq":9223372036854775807}`)
	f.Add(`{"at":"2026-01-02T03:04:05Z","continues":"example.com/shop\n"}`)
	signer, err := note.NewSigner(fuzzKey)
	require.NoError(f, err)
	parsed, err := anchor.ParseSigner(fuzzKey)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, leaf string) {
		signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n1\n%s\n", origin, tlog.RecordHash([]byte(leaf)))}, signer)
		require.NoError(t, err)
		c, err := anchor.ParseCheckpoint(string(signed), parsed.Public())
		require.NoError(t, err)
		heads, inLog := anchor.ReadHeads(strings.NewReader(leaf+"\n"), c)
		head, inProof := anchor.ParseProof(fmt.Sprintf("c2sp.org/tlog-proof@v1\nextra %s\nindex 0\n\n%s", base64.StdEncoding.EncodeToString([]byte(leaf)), signed), parsed.Public())
		if inLog != nil {
			require.ErrorIs(t, inLog, anchor.ErrNotProven)
		}
		if inProof != nil {
			require.ErrorIs(t, inProof, anchor.ErrNotProven)
			require.Empty(t, heads)
			return
		}
		require.Equal(t, heads[0], head)
		require.NotEmpty(t, head.Resource)
		require.Positive(t, head.Seq)
	})
}
