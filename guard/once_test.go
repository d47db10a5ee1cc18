package guard_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func counted(ctx context.Context, tx *memory.Tx) (int, error) {
	if err := increment("n")(ctx, tx); err != nil {
		return 0, err
	}
	return number(tx.Get("n"))
}

func TestOnce_TakesEffectOncePerKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var outcomes []guard.Outcome
	a := w.process("a", &guard.Config{Observers: []*guard.Observer{{Finished: func(_ context.Context, f guard.Operation) { outcomes = append(outcomes, f.Outcome) }}}})
	b := w.process("b", nil)
	for _, g := range []*guard.Guard[*memory.Tx]{a, b, a} {
		n, err := guard.Value(t.Context(), g, sku, counted, guard.Once("order-7", []byte("2 of 42")))
		require.NoError(t, err)
		require.Equal(t, 1, n, "the first answer")
	}
	require.Equal(t, []guard.Outcome{guard.OutcomeCommitted, guard.OutcomeRepeated}, outcomes)
	require.Equal(t, []storage.EntryKind{"claim", "write", "claim", "claim"}, w.kinds(), "a repeated answer moves no fence")
	n, err := guard.Value(t.Context(), a, sku, counted, guard.Once("order-8", []byte("2 of 42")))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = guard.Value(t.Context(), a, "sku/43", counted, guard.Once("order-7", []byte("2 of 42")))
	require.NoError(t, err)
	require.Equal(t, 3, n, "a key is a resource's own")
	repeated := &counting{}
	require.NoError(t, guard.Exec(t.Context(), a, sku, repeated, guard.Once("order-7", []byte("2 of 42"))))
	require.Equal(t, "1", string(repeated.kept), "an operation gets the results too")
	entries, err := w.store.Entries(t.Context(), sku, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "order-7", entries[1].Ops[0].ID, "the key is the id in the history")
	for i, opts := range [][]guard.ValueOption{{guard.OpID("a"), guard.Once("key-a", nil)}, {guard.Once("key-b", nil), guard.OpID("b")}} {
		require.NoError(t, doOnce(t.Context(), a, "ids", increment("n"), opts...))
		entries, err := w.store.Entries(t.Context(), "ids", int64(1+i), 1)
		require.NoError(t, err)
		require.Equal(t, string("ab"[i]), entries[0].Ops[0].ID, "unless it has one of its own")
	}
}

// counting is an operation that counts up, with no results of its own.
type counting struct{ results, kept []byte }

func (c *counting) Run(ctx context.Context, tx *memory.Tx) error { return increment("n")(ctx, tx) }
func (c *counting) Results() ([]byte, error)                     { return c.results, nil }
func (c *counting) SetResults(results []byte) error              { c.kept = results; return nil }

func TestOnce_RejectsAnotherRequest(t *testing.T) {
	w, g := newProcess(t)
	require.NoError(t, doOnce(t.Context(), g, sku, increment("n"), guard.Once("k", []byte("2"))))
	err := doOnce(t.Context(), g, sku, increment("n"), guard.Once("k", []byte("3")), guard.Retryable())
	require.ErrorIs(t, err, guard.ErrKeyReused)
	var reuse *storage.KeyReusedError
	require.ErrorAs(t, err, &reuse)
	require.Equal(t, storage.KeyReusedError{Resource: sku, Key: "k"}, *reuse)
	require.ErrorContains(t, err, `key "k" was used for another request`)
	require.Equal(t, "1", w.store.Read("n"))
	require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")), "the grant stays good")
}

// Several resources have the key together: with others it is another request, and no request that a caller chooses
// is that of a call over other resources.
func TestOnce_OverSeveralResources(t *testing.T) {
	w, g := newProcess(t)
	once, request := guard.Once("k", []byte("2")), sha256.Sum256([]byte("2"))
	both := []string{"x", "y"}
	require.NoError(t, doOnce(t.Context(), g, both, increment("n"), once))
	require.NoError(t, doOnce(t.Context(), g, []string{"y", "x"}, increment("n"), once))
	require.Equal(t, "1", w.store.Read("n"))
	for _, others := range [][]string{{"x", "z"}, {"a", "y"}, {"x"}, {"y"}} {
		require.ErrorIs(t, doOnce(t.Context(), g, others, increment("n"), once), guard.ErrKeyReused)
	}
	for _, names := range []any{both, []any{both, both}, "x"} {
		text, err := json.Marshal(names)
		require.NoError(t, err)
		chosen := append(text, request[:]...)
		require.ErrorIs(t, doOnce(t.Context(), g, "x", increment("n"), guard.Once("k", chosen)), guard.ErrKeyReused, "%s", text)
	}
	require.NoError(t, doOnce(t.Context(), g, "z", increment("n"), once))
	require.NoError(t, doOnce(t.Context(), g, []string{"a", "b", "c d"}, increment("n"), once))
	require.ErrorIs(t, doOnce(t.Context(), g, []string{"a", "b c", "d"}, increment("n"), once), guard.ErrKeyReused)
}

// The first call returns what a repeated one can: what the kept JSON decodes to.
func TestOnce_FirstAnswerIsWhatARepeatGets(t *testing.T) {
	w, g := newProcess(t)
	for i, value := range []any{1 << 60, "a\xffb", struct{ A, b int }{1, 2}, []byte("x"), map[int]string{1: "a"}, struct{}{}, (*int)(nil), ""} {
		var answers [2]any
		for n := range answers {
			var err error
			answers[n], err = guard.Value(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) (any, error) {
				return value, increment("n")(ctx, tx)
			}, guard.Once(strconv.Itoa(i), nil))
			require.NoError(t, err)
		}
		require.Equal(t, answers[1], answers[0])
	}
	require.Equal(t, "8", w.store.Read("n"))

	type answer struct{ Err error }
	_, err := guard.Value(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) (answer, error) {
		return answer{errShop}, increment("n")(ctx, tx)
	}, guard.Once("no way back", nil))
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorContains(t, err, "a repeated call could not decode it")
	require.Equal(t, "8", w.store.Read("n"), "nothing took effect")

	for range 2 {
		op := &counting{results: []byte("1")}
		require.NoError(t, guard.Exec(t.Context(), g, sku, op, guard.Once("op", nil)))
		require.Equal(t, "1", string(op.kept))
	}
}

func TestOnce_RejectsBadArguments(t *testing.T) {
	w, g := newProcess(t)
	for _, key := range []string{"", strings.Repeat("k", guard.MaxOpIDLen+1), "a\x00", "\xff"} {
		require.ErrorIs(t, doOnce(t.Context(), g, sku, increment("n"), guard.Once(key, nil)), guard.ErrInvalid)
	}
	for _, both := range [][]guard.ValueOption{{guard.ReadOnly(), guard.Once("k", nil)}, {guard.Once("k", nil), guard.ReadOnly()}} {
		require.ErrorIs(t, doOnce(t.Context(), g, sku, increment("n"), both...), guard.ErrInvalid)
	}
	err := guard.Exec(t.Context(), g, sku, storage.Func[*memory.Tx](increment("n")), guard.Once("k", nil))
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorContains(t, err, "Once needs an Op with results")
	_, err = guard.Value(t.Context(), g, sku, func(context.Context, *memory.Tx) (chan int, error) { return nil, nil }, guard.Once("k", nil))
	require.ErrorIs(t, err, guard.ErrInvalid)
	big := func(ctx context.Context, tx *memory.Tx) (string, error) {
		return strings.Repeat("x", guard.MaxResultLen), increment("n")(ctx, tx)
	}
	_, err = guard.Value(t.Context(), g, sku, big, guard.Once("k", nil))
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorContains(t, err, "65538 bytes")
	require.Empty(t, w.store.Read("n"), "nothing took effect")
	_, err = guard.Value(t.Context(), g, sku, big)
	require.NoError(t, err, "without Once any value will do")
}

// A result that was kept for another type can't be given back, nor one that wasn't
// kept: the zero value would be taken for the answer.
func TestOnce_ResultThatDoesNotFitIsAnError(t *testing.T) {
	w, g := newProcess(t)
	once := guard.Once("k", nil)
	_, err := guard.Value(t.Context(), g, sku, counted, once)
	require.NoError(t, err)
	_, err = guard.Value(t.Context(), g, sku, func(context.Context, *memory.Tx) (string, error) { return "", nil }, once)
	require.EqualError(t, err, `guard: sku/42: the result that was kept under key "k" doesn't fit; call with the type that it was kept with, or take a new key for a new operation: json: cannot unmarshal number into Go value of type string`)

	require.NoError(t, guard.Exec(t.Context(), g, "sku/43", &counting{}, once))
	_, err = guard.Value(t.Context(), g, "sku/43", counted, once)
	require.EqualError(t, err, `guard: sku/43: the result that was kept under key "k" doesn't fit; call with the type that it was kept with, or take a new key for a new operation: the call that took effect was one without a result`)
	require.Equal(t, "2", w.store.Read("n"))
}

// The call's first run took no effect, and left a value behind; another call with the
// same key took effect meanwhile.
func TestOnce_AnswerHasNothingOfAnEarlierRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process("a", nil), w.process("b", nil)
		by := func(name string) func(context.Context, *memory.Tx) (map[string]bool, error) {
			return func(ctx context.Context, tx *memory.Tx) (map[string]bool, error) {
				return map[string]bool{name: true}, increment("n")(ctx, tx)
			}
		}
		once := guard.Once("k", nil)
		w.store.SetFaults(memory.Faults{Commit: fates(memory.RequestLost), Resolve: func(storage.InDoubt) error {
			w.store.SetFaults(memory.Faults{})
			w.locks.Lose(sku)
			_, err := guard.Value(t.Context(), b, sku, by("b"), once)
			require.NoError(t, err)
			return nil
		}})
		answer, err := guard.Value(t.Context(), a, sku, by("a"), once, guard.Retryable())
		require.NoError(t, err)
		require.Equal(t, map[string]bool{"b": true}, answer)
		require.Equal(t, "1", w.store.Read("n"))
	})
}
