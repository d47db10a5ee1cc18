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

// madeUp is a history that no store has written: of 12 resources, with grants of few holders, a
// clock that goes back now and then, and pruned beginnings.
type madeUp struct {
	*rand.Rand
	began   time.Time
	entries []audit.Entry
}

func newMadeUp(t *testing.T, pool *pgxpool.Pool, random *rand.Rand) *madeUp {
	h := &madeUp{Rand: random, began: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
	for n := range 12 {
		name := fmt.Sprintf([]string{"sku/%d", "order_%d", `x\%%%d`}[n%3], n)
		var id int32
		require.NoError(t, pool.QueryRow(t.Context(), `insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
			values (1, 1, 1, 0, 1, now(), 1, 1, '', 'h', $1) returning id`, name).Scan(&id))
		h.resource(t, pool, id, name)
	}
	slices.SortFunc(h.entries, func(a, b audit.Entry) int {
		return cmp.Or(strings.Compare(a.Grant.Resource, b.Grant.Resource), cmp.Compare(a.Seq, b.Seq))
	})
	return h
}

func (h *madeUp) resource(t *testing.T, pool *pgxpool.Pool, id int32, name string) {
	t.Helper()
	e := audit.Entry{}
	at := h.began
	gap := h.IntN(3) * 10
	for seq := int64(1); seq < int64(h.IntN(70)); seq++ {
		at = at.Add(time.Duration(h.IntN(20)-2) * 10 * time.Second)
		e = audit.Entry{Entry: storage.Entry{Grant: e.Grant, Kind: storage.KindWrite, At: at, Hash: []byte{byte(seq)}}, Claim: e.Claim, XID: uint64(seq)}
		e.Seq, e.Tx = seq, storage.TxID(h.Int64())
		switch {
		case seq == 1 || h.IntN(8) == 0:
			e.Kind, e.Claim = storage.KindClaim, seq
			e.Grant = fence.Grant{Resource: name, Epoch: 1, Token: e.Grant.Token + 1 + fence.Token(h.IntN(3)), Holder: fmt.Sprintf("host-%d/%d", h.IntN(3), seq)}
		case h.IntN(8) == 0:
			e.Kind = storage.KindVoid
		default:
			for range h.IntN(3) {
				e.Ops = append(e.Ops, h.op())
			}
		}
		if seq > 1 && seq <= int64(gap) && e.Kind != storage.KindClaim {
			continue // pruned
		}
		h.insert(t, pool, id, e)
		if e.Ops == nil {
			e.Ops = []storage.OpRecord{}
		}
		h.entries = append(h.entries, e)
	}
}

func (h *madeUp) op() storage.OpRecord {
	op := storage.OpRecord{ID: []string{"", "a", "b", `"<ü`}[h.IntN(4)], Name: []string{"", "sell"}[h.IntN(2)]}
	for _, key := range []string{"k", "l"} {
		if h.IntN(2) == 0 {
			op.Attrs = map[string]string{key: []string{"", "v"}[h.IntN(2)]}
		}
	}
	return op
}

func (h *madeUp) insert(t *testing.T, pool *pgxpool.Pool, id int32, e audit.Entry) {
	t.Helper()
	var err error
	if e.Kind == storage.KindClaim {
		_, err = pool.Exec(t.Context(), `insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, epoch, token, timeline, holder, name)
			values ($1, 'c', $2, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10)`, id, e.Seq, e.Tx, e.XID, e.At, e.Hash, e.Grant.Epoch, e.Grant.Token, e.Grant.Holder, e.Grant.Resource)
	} else {
		_, err = pool.Exec(t.Context(), `insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			id, string(e.Kind[0]), e.Seq, e.Claim, e.Tx, e.XID, e.At, e.Hash, e.Ops)
	}
	require.NoError(t, err)
}

// filter returns a filter by chance.
func (h *madeUp) filter() (f audit.Filter) {
	if h.IntN(2) == 0 {
		f.Resources = []string{"sku/*", "order_?", "order_1", `x\%*`, "*1*", "none", "sku/0"}[h.IntN(7)]
	} else if h.IntN(5) == 0 {
		f.Resource = []string{"sku/0", `x\%2`, "*"}[h.IntN(3)]
	}
	if h.IntN(2) == 0 {
		f.Since = h.began.Add(time.Duration(h.IntN(4000)) * time.Second)
	}
	if h.IntN(2) == 0 {
		f.Until = f.Since.Add(time.Duration(1+h.IntN(2000)) * time.Second)
		if f.Since.IsZero() {
			f.Until = h.began.Add(time.Duration(h.IntN(4000)) * time.Second)
		}
	}
	if h.IntN(3) == 0 {
		f.Kinds = [][]storage.EntryKind{{storage.KindClaim}, {storage.KindVoid}, {storage.KindWrite, storage.KindClaim}}[h.IntN(3)]
	}
	if h.IntN(3) == 0 {
		f.Holder = []string{"host-1/*", "host-?/1", "*7"}[h.IntN(3)]
	}
	if h.IntN(4) == 0 {
		f.MinToken = fence.Token(1 + h.IntN(8))
	}
	if h.IntN(4) == 0 {
		f.MaxToken = f.MinToken + fence.Token(h.IntN(5))
	}
	if h.IntN(3) == 0 {
		f.Op = h.op()
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
	isToken := e.Grant.Token >= f.MinToken && (f.MaxToken == 0 || e.Grant.Token <= f.MaxToken)
	isOp := f.Op.ID == "" && f.Op.Name == "" && len(f.Op.Attrs) == 0 || slices.ContainsFunc(e.Ops, func(op storage.OpRecord) bool { return hasOp(f, op) })
	isNamed := (f.Resource == "" || f.Resource == e.Grant.Resource) && glob(f.Resources, e.Grant.Resource)
	return isKind && isTime && isToken && isOp && isNamed && glob(f.Holder, e.Grant.Holder)
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
			compareFilters(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func compareFilters(t *testing.T, random *rand.Rand) {
	pool := openPool(t, template.Database(t))
	h := newMadeUp(t, pool, random)
	d := openHistory(t, pool)
	require.Equal(t, len(h.entries), len(list(t, d.Entries(t.Context(), audit.Filter{}))))
	for range 100 {
		d.ReadPages(h.IntN)
		f := h.filter()
		if h.IntN(3) == 0 {
			f.After = h.entries[h.IntN(len(h.entries))].Cursor()
		}
		want, wantOps := []audit.Entry(nil), []audit.Operation(nil)
		for _, e := range h.entries {
			if c := e.Cursor(); cmp.Or(strings.Compare(c.Resource, f.After.Resource), cmp.Compare(c.Seq, f.After.Seq)) <= 0 || !matches(f, e) {
				continue
			}
			want = append(want, e)
			for i, op := range e.Ops {
				if hasOp(f, op) {
					wantOps = append(wantOps, audit.Operation{OpRecord: op, Entry: e, Number: i + 1})
				}
			}
		}
		requireSame(t, want, list(t, d.Entries(t.Context(), f)), f)
		if f.Kinds == nil {
			got := list(t, d.Operations(t.Context(), f))
			require.Len(t, got, len(wantOps), "%+v", f)
			for i := range got {
				require.Equal(t, wantOps[i].OpRecord, got[i].OpRecord)
				require.Equal(t, wantOps[i].Number, got[i].Number)
				requireSame(t, []audit.Entry{wantOps[i].Entry}, []audit.Entry{got[i].Entry}, f)
			}
		}
	}
}

// requireSame compares entries, and the times by what they are.
func requireSame(t *testing.T, want, got []audit.Entry, f audit.Filter) {
	t.Helper()
	require.Equal(t, cursors(want), cursors(got), "%+v", f)
	for i := range got {
		got[i].At = got[i].At.UTC()
	}
	require.Equal(t, want, got, "%+v", f)
}

func cursors(entries []audit.Entry) (all []audit.Cursor) {
	for _, e := range entries {
		all = append(all, e.Cursor())
	}
	return all
}

// A reading that was left goes on at its cursor, and the iterator can be used again.
func TestEntries_GoOnAtACursor(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	h := newMadeUp(t, pool, rand.New(rand.NewPCG(7, 7)))
	d := openHistory(t, pool)
	d.ReadPages(h.IntN)
	var f audit.Filter
	var read []audit.Entry
	for range len(h.entries) {
		for e, err := range d.Entries(t.Context(), f) {
			require.NoError(t, err)
			read = append(read, e)
			f.After = e.Cursor()
			break
		}
	}
	requireSame(t, h.entries, read, f)
	require.Empty(t, list(t, d.Entries(t.Context(), f)))
	all := d.Entries(t.Context(), audit.Filter{})
	require.Equal(t, len(list(t, all)), len(list(t, all)))
}

func TestFilter_RejectsWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	d := openHistory(t, openPool(t, "postgres://nobody@127.0.0.1:1/none")) // no connection is made
	now := time.Now()
	calls := map[string]func(audit.Filter) error{
		"entries":    func(f audit.Filter) error { return failure(d.Entries(t.Context(), f)) },
		"operations": func(f audit.Filter) error { return failure(d.Operations(t.Context(), f)) },
		"rejections": func(f audit.Filter) error { return failure(d.Rejections(t.Context(), f)) },
		"fences":     func(f audit.Filter) error { return failure(d.Fences(t.Context(), f)) },
		"holds":      func(f audit.Filter) error { return failure(d.Holds(t.Context(), f)) },
	}
	for _, c := range []struct {
		filter audit.Filter
		not    string // the calls that reject it; "" for all
		says   string
	}{
		{audit.Filter{Resources: "\xff"}, "", "want UTF-8"},
		{audit.Filter{Resources: "a\x00"}, "", "without zero bytes"},
		{audit.Filter{Resource: "a", Resources: "b"}, "", "both a Resource"},
		{audit.Filter{Since: now, Until: now}, "entries operations rejections fences", "which is not after Since"},
		{audit.Filter{Kinds: []storage.EntryKind{"rejection"}}, "entries", "want claim, write or void"},
		{audit.Filter{Kinds: []storage.EntryKind{storage.KindVoid}}, "operations rejections fences holds", "can't be filtered by Kinds"},
		{audit.Filter{Holder: "\xff"}, "entries operations rejections fences", "want UTF-8"},
		{audit.Filter{Holder: "a"}, "holds", "can't be filtered by Holder"},
		{audit.Filter{Since: now}, "holds", "can't be filtered by Since"},
		{audit.Filter{MinToken: 5}, "holds", "can't be filtered by MinToken"},
		{audit.Filter{MaxToken: 5}, "holds", "can't be filtered by MaxToken"},
		{audit.Filter{MinToken: 5, MaxToken: 4}, "entries operations rejections fences", "tokens from 5 to 4"},
		{audit.Filter{MinToken: -1}, "entries operations rejections fences", "tokens from -1"},
		{audit.Filter{Op: storage.OpRecord{ID: "a"}}, "rejections fences holds", "can't be filtered by Op"},
		{audit.Filter{Op: storage.OpRecord{Attrs: map[string]string{"a": "\x00"}}}, "entries operations", "without zero bytes"},
		{audit.Filter{After: audit.Cursor{Resource: "a", Seq: 1}}, "fences holds", "is of none of the"},
		{audit.Filter{After: audit.Cursor{Seq: 1}}, "entries operations rejections fences", "no reading has returned"},
		{audit.Filter{After: audit.Cursor{Resource: "a", Seq: -1}}, "entries operations rejections fences", "no reading has returned"},
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
