package anchor_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
)

// unclaimed is a database with one fence at position 0.
type unclaimed struct{ chains }

func (unclaimed) Heads(context.Context) iter.Seq2[audit.Head, error] {
	return func(yield func(audit.Head, error) bool) { yield(audit.Head{Resource: "new"}, nil) }
}

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

// A run that fails on the way signs nothing.
func TestAnchor_RecordsNothingIfReadingFails(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]anchor.Source{"heads": brokenHeads{}, "contradicting": &brokenEntries{}, "a name that is not in UTF-8": chains{"\xff": {{1}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSample(t)
			if broken, ok := source.(*brokenEntries); ok {
				broken.chains = s.source
				s.source.move("a")
			}
			before := s.log(t)
			log, err := anchor.Open(s.path, s.signer)
			require.NoError(t, err)
			_, err = log.Anchor(t.Context(), source)
			require.Error(t, err)
			require.NoError(t, log.Close())
			require.Equal(t, before, s.log(t))
		})
	}
}

type brokenHeads struct{ chains }

func (brokenHeads) Heads(context.Context) iter.Seq2[audit.Head, error] {
	return func(yield func(audit.Head, error) bool) {
		if yield(audit.Head{Resource: "z", Seq: 1}, nil) {
			yield(audit.Head{}, errors.New("lost"))
		}
	}
}

type brokenEntries struct{ chains }

func (*brokenEntries) CompareHeads(context.Context, []audit.Head) (rewritten, unproven []audit.Head, err error) {
	return nil, nil, errors.New("lost")
}
