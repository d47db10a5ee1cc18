package anchor_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/fence"
)

func TestProve_TheLastRecordThatTheCheckpointCovers(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for i, want := range []int64{1, 2, 3} {
		text, err := anchor.Prove(bytes.NewReader(s.log(t)), s.checkpoints[i], "b")
		require.NoError(t, err)
		head, err := anchor.ParseProof(text, s.key)
		require.NoError(t, err)
		require.Equal(t, audit.Head{Resource: "b", Seq: want, Hash: s.source["b"][want-1]}, head)
		require.True(t, strings.HasSuffix(text, "\n\n"+s.checkpoints[i].Note))
		require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte("sku/1")), "nothing of the others")
	}
	for _, resource := range []string{"c", "", "no such"} {
		_, err := anchor.Prove(bytes.NewReader(s.log(t)), s.checkpoints[0], resource)
		require.ErrorIs(t, err, fence.ErrInvalid, resource)
	}
	text := s.log(t)
	text[3] ^= 1
	_, err := anchor.Prove(bytes.NewReader(text), s.last(), "b")
	require.ErrorIs(t, err, anchor.ErrNotProven)
}

// A proof is not one of another record, another place, or another tree.
func TestParseProof_RefusesPartsOfOtherProofs(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	prove := func(i int, resource string) (parts []string) {
		text, err := anchor.Prove(bytes.NewReader(s.log(t)), s.checkpoints[i], resource)
		require.NoError(t, err)
		head, signed, _ := strings.Cut(text, "\n\n")
		return append(strings.SplitN(head, "\n", 4), signed)
	}
	ours := prove(2, "a")
	for _, theirs := range [][]string{prove(2, "b"), prove(0, "a"), prove(2, "c")} {
		for part := 1; part < len(ours); part++ {
			mixed := append([]string{}, ours...)
			mixed[part] = theirs[part]
			if mixed[part] == ours[part] {
				continue
			}
			_, err := anchor.ParseProof(strings.Join(mixed[:4], "\n")+"\n\n"+mixed[4], s.key)
			require.ErrorIs(t, err, anchor.ErrNotProven)
		}
	}
	_, other := newKey(t)
	_, err := anchor.ParseProof(strings.Join(ours[:4], "\n")+"\n\n"+ours[4], other)
	require.ErrorIs(t, err, anchor.ErrNotProven)
}

// A leaf that Fencekit never wrote is no head, also if it is signed.
func TestParseProof_RefusesLeavesThatAreNoHeads(t *testing.T) {
	t.Parallel()
	private, _, err := anchor.NewKey(origin)
	require.NoError(t, err)
	signer, err := note.NewSigner(private)
	require.NoError(t, err)
	parsed, err := anchor.ParseSigner(private)
	require.NoError(t, err)
	for _, leaf := range []string{
		"", "{}", "null", `{"at":"2026-01-02T03:04:05Z","continues":"x"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":0,"hash":"` + strings.Repeat("00", 32) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":1,"hash":"` + strings.Repeat("00", 31) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":1,"hash":"` + strings.Repeat("0A", 32) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","resource":"b","seq":1,"hash":"` + strings.Repeat("00", 32) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":1,"hash":"` + strings.Repeat("00", 32) + `","more":1}`,
	} {
		root := tlog.RecordHash([]byte(leaf))
		signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n1\n%s\n", origin, root)}, signer)
		require.NoError(t, err)
		_, err = anchor.ParseProof(fmt.Sprintf("c2sp.org/tlog-proof@v1\nextra %s\nindex 0\n\n%s", base64.StdEncoding.EncodeToString([]byte(leaf)), signed), parsed.Public())
		require.ErrorIs(t, err, anchor.ErrNotProven, leaf)
		require.ErrorContains(t, err, "has no head", leaf)
	}
}
