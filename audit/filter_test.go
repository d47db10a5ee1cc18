package audit_test

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

func openHistory(t testing.TB, pool *pgxpool.Pool) *audit.Database {
	t.Helper()
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	return d
}

// list returns what an iterator yields, which must not fail.
func list[T any](t testing.TB, all iter.Seq2[T, error]) (items []T) {
	t.Helper()
	for item, err := range all {
		require.NoError(t, err)
		items = append(items, item)
	}
	return items
}

// randomFilter returns a filter by chance, of what entries have.
func randomFilter(random *rand.Rand, entries []audit.Entry) (f audit.Filter) {
	one := entries[random.IntN(len(entries))]
	oneIn := func(n int) bool { return random.IntN(n) == 0 }
	if oneIn(2) {
		f.Resources = []string{"sku/*", "order_?", "order_1", `x\%*`, "*1*", "none", "sku/0"}[random.IntN(7)]
	} else if oneIn(5) {
		f.Resource = []string{one.Grant.Resource, "*"}[random.IntN(2)]
	}
	if oneIn(2) {
		f.Since = one.At.Add(-time.Duration(random.IntN(300)) * time.Second)
	}
	if oneIn(2) {
		f.Until = one.At.Add(time.Duration(1+random.IntN(300)) * time.Second) // which is after Since
	}
	if oneIn(3) {
		f.Kinds = [][]storage.EntryKind{{storage.KindClaim}, {storage.KindVoid}, {storage.KindWrite, storage.KindClaim}}[random.IntN(3)]
	}
	if oneIn(3) {
		f.Holder = []string{one.Grant.Holder, "w?rker-1/*", "*7"}[random.IntN(3)]
	}
	if len(one.Ops) > 0 && oneIn(2) {
		op := one.Ops[random.IntN(len(one.Ops))]
		f.Op = []storage.OpRecord{op, {ID: op.ID}, {Name: op.Name}, {Attrs: op.Attrs}, {ID: op.ID, Name: "none"}}[random.IntN(5)]
	}
	if oneIn(3) {
		f.After = entries[random.IntN(len(entries))].Cursor()
	}
	return f
}

// matches reports whether f admits e, as its comments say.
func matches(f audit.Filter, e audit.Entry) bool {
	glob := func(pattern, name string) bool {
		quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
		return pattern == "" || regexp.MustCompile("^"+quoted+"$").MatchString(name)
	}
	isKind := len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)
	isTime := !e.At.Before(f.Since) && (f.Until.IsZero() || e.At.Before(f.Until))
	isOp := f.Op.ID == "" && f.Op.Name == "" && len(f.Op.Attrs) == 0 || slices.ContainsFunc(e.Ops, func(op storage.OpRecord) bool { return hasOp(f, op) })
	isNamed := (f.Resource == "" || f.Resource == e.Grant.Resource) && glob(f.Resources, e.Grant.Resource)
	return isKind && isTime && isOp && isNamed && glob(f.Holder, e.Grant.Holder)
}

func hasOp(f audit.Filter, op storage.OpRecord) bool {
	for key, value := range f.Op.Attrs {
		if has, ok := op.Attrs[key]; !ok || has != value {
			return false
		}
	}
	return (f.Op.ID == "" || f.Op.ID == op.ID) && (f.Op.Name == "" || f.Op.Name == op.Name)
}

// Whatever the filter, the size of the pages and the place to begin at, what is read is what the
// filter says, in order.
func TestEntries_AreThoseThatTheFilterAdmits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			compareFilters(t, seed)
		})
	}
}

// compareFilters makes a history with a clock that goes back now and then.
func compareFilters(t *testing.T, seed uint64) {
	pool := openPool(t, template.Database(t))
	h := newHistory(t, pool, seed)
	h.resources = []string{"sku/0", "sku/1", "order_1", "order12", `x\%2`}
	h.grow(150)
	h.unprotected("history", "update fence.history set at = timestamptz '2026-03-03 10:00Z' + (seq * 10 + seq * 7919 % 50) * interval '1 s'")
	d := openHistory(t, pool)
	entries := list(t, d.Entries(t.Context(), audit.Filter{}))
	for range 100 {
		d.ReadPages(h.random.IntN)
		f := randomFilter(h.random, entries)
		var want []audit.Entry
		var wantOps []audit.Operation
		for _, e := range entries {
			if c := e.Cursor(); cmp.Or(strings.Compare(c.Resource, f.After.Resource), cmp.Compare(c.Seq, f.After.Seq)) <= 0 || !matches(f, e) {
				continue
			}
			want = append(want, e)
			for _, op := range e.Ops {
				if hasOp(f, op) {
					wantOps = append(wantOps, audit.Operation{OpRecord: op, Entry: e})
				}
			}
		}
		all := d.Entries(t.Context(), f)
		require.Equal(t, want, list(t, all), "%+v", f)
		require.Equal(t, want, list(t, all), "again: %+v", f)
		if f.Kinds == nil {
			require.Equal(t, wantOps, list(t, d.Operations(t.Context(), f)), "%+v", f)
		}
	}
}

func TestFilter_RejectsWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	d := openHistory(t, openPool(t, "postgres://nobody@127.0.0.1:1/none")) // no connection is made
	now := time.Now()
	calls := map[string]func(audit.Filter) error{
		"entries":    func(f audit.Filter) error { return failure(d.Entries(t.Context(), f)) },
		"operations": func(f audit.Filter) error { return failure(d.Operations(t.Context(), f)) },
		"rejections": func(f audit.Filter) error { return failure(d.Rejections(t.Context(), f)) },
	}
	for _, c := range []struct {
		filter audit.Filter
		not    string // the calls that reject it; "" for all
		says   string
	}{
		{audit.Filter{Resources: "\xff"}, "", "want UTF-8"},
		{audit.Filter{Resources: "a\x00"}, "", "without zero bytes"},
		{audit.Filter{Resource: "a", Resources: "b"}, "", "both a Resource"},
		{audit.Filter{Since: now, Until: now}, "", "which is not after Since"},
		{audit.Filter{Kinds: []storage.EntryKind{"rejection"}}, "entries", "want claim, write or void"},
		{audit.Filter{Kinds: []storage.EntryKind{storage.KindVoid}}, "operations rejections", "can't be filtered by Kinds"},
		{audit.Filter{Op: storage.OpRecord{ID: "a"}}, "rejections", "can't be filtered by Op"},
		{audit.Filter{Op: storage.OpRecord{Attrs: map[string]string{"a": "\x00"}}}, "entries operations", "without zero bytes"},
		{audit.Filter{After: audit.Cursor{Seq: 1}}, "", "no reading has returned"},
		{audit.Filter{After: audit.Cursor{Resource: "a", Seq: -1}}, "", "no reading has returned"},
	} {
		for name, call := range calls {
			if strings.Contains(c.not, name) || c.not == "" {
				err := call(c.filter)
				require.ErrorIs(t, err, fence.ErrInvalid, "%s %+v", name, c.filter)
				require.ErrorContains(t, err, c.says, name)
			}
		}
	}
}

// failure returns the error of an iterator that yields nothing else.
func failure[T any](all iter.Seq2[T, error]) (failure error) {
	for _, err := range all {
		if failure != nil {
			return nil
		}
		failure = err
	}
	return failure
}
