package anchor_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
)

// A violation is reported by each run, however the resource moves on, and its record stays the
// last good one. The other resources are recorded.
func TestAnchor_ReportsWhatTheDatabaseContradicts(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	a, b, c := s.source.head("a"), s.source.head("b"), s.source.head("c")
	s.source["a"] = s.source["a"][:1]
	s.source["b"][len(s.source["b"])-1] = [32]byte{1}
	delete(s.source, "c")
	s.source.move("sku/1 <\u2028\x01>")
	gone := anchor.Violation{Logged: c}

	done := run(t, s.path, s.signer, s.source)
	require.Equal(t, []anchor.Violation{{a, s.source.head("a")}, {b, s.source.head("b")}, gone}, done.Violations)
	require.Equal(t, 1, done.Recorded)
	require.Equal(t, "a went back: the log has position 2, the database 1", done.Violations[0].String())
	require.Contains(t, done.Violations[1].String(), "b was rewritten: at position 3 the log has hash ")
	require.Equal(t, "c is gone: the log has position 1", gone.String())

	rewritten := audit.Head{Resource: "a", Seq: 2, Hash: [32]byte{2}}
	s.source["a"] = append(s.source["a"], rewritten.Hash, [32]byte{3}, [32]byte{4})
	s.source.move("b")
	b2 := audit.Head{Resource: "b", Seq: 3, Hash: [32]byte{1}}
	for range 2 {
		done = run(t, s.path, s.signer, s.source)
		require.Equal(t, []anchor.Violation{{a, rewritten}, {b, b2}, gone}, done.Violations)
		require.Zero(t, done.Recorded)
	}
	heads, err := anchor.ReadHeads(bytes.NewReader(s.log(t)), done.Checkpoint)
	require.NoError(t, err)
	require.Len(t, heads, 8)
}
