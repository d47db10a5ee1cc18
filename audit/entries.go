package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage"
)

// Entry is the record of one move of a fence.
type Entry struct {
	storage.Entry
	// Claim is the position at which the grant claimed the resource. For a claim it is Seq.
	Claim int64
	// XID is the server's own id of the transaction.
	XID uint64
}

// Cursor returns the entry's cursor, for Filter.After.
func (e Entry) Cursor() Cursor { return Cursor{e.Grant.Resource, e.Seq} }

// Entries returns the entries that match f, which may have any field. An entry whose claim is missing has no
// token and no holder, and matches no filter by them. If reading fails, the last pair has the error.
func (d *Database) Entries(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	return paged(func() (func() ([]Entry, error), error) {
		if err := f.validate(); err != nil {
			return nil, err
		}
		r := &entryPages{spans: spans{Database: d, filter: f, after: f.After}}
		return func() ([]Entry, error) { return r.page(ctx) }, nil
	})
}

type entryPages struct {
	spans
	pending []span
}

func (r *entryPages) page(ctx context.Context) (entries []Entry, err error) {
	for len(entries) == 0 && err == nil {
		if len(r.pending) == 0 {
			if r.pending, err = r.next(ctx); err != nil || len(r.pending) == 0 {
				return nil, err
			}
		}
		within, rest := cut(r.pending, r.limits.entries)
		var unread []span
		entries, unread, err = r.read(ctx, within)
		r.pending = append(unread, rest...)
	}
	return entries, err
}

func (r *entryPages) read(ctx context.Context, within []span) (entries []Entry, unread []span, err error) {
	ids, froms, tos := arrays(within)
	where := conditions{args: []any{ids, froms, tos}}
	where.addTimes(&r.filter, "at", "at")
	if len(r.filter.Kinds) > 0 {
		kinds := make([]string, len(r.filter.Kinds))
		for i, kind := range r.filter.Kinds {
			kinds[i] = string(kind)
		}
		where.add("kind = any ($%d)", kinds)
	}
	if err := where.addOp(&r.filter); err != nil {
		return nil, nil, err
	}
	sql := "select s.n, e.kind, e.at, coalesce(e.epoch, 0), coalesce(e.token, 0), coalesce(e.holder, ''), e.position, e.claim_position, e.tx, e.xid, coalesce(e.ops, '[]')::text, decode(e.hash, 'hex')" +
		" from unnest($1::integer[], $2::bigint[], $3::bigint[]) with ordinality s (id, lo, hi, n)" +
		" cross join lateral (select * from @entry x where resource_id = s.id and position between s.lo and s.hi and " + where.where() +
		fmt.Sprintf(" order by position limit %d) e order by s.n, e.position limit %[1]d", r.limits.rows)
	last := 1
	entries, err = collect(ctx, r.Database, sql, where.args, func(row pgx.CollectableRow) (e Entry, err error) {
		var ops string
		err = row.Scan(&last, &e.Kind, &e.At, &e.Grant.Epoch, &e.Grant.Token, &e.Grant.Holder, &e.Seq, &e.Claim, &e.Tx, &e.XID, &ops, &e.Hash)
		e.Grant.Resource, e.Ops = within[last-1].name, record.Ops(ops)
		return e, err
	})
	if err == nil && len(entries) == r.limits.rows {
		unread = following(within, last-1, entries[r.limits.rows-1].Seq)
	}
	if r.filter.byOp() { // the server can't tell of malformed ops
		entries = slices.DeleteFunc(entries, func(e Entry) bool { return !slices.ContainsFunc(e.Ops, r.filter.matches) })
	}
	return entries, unread, err
}

// Operation is the record of one operation of a write.
type Operation struct {
	storage.OpRecord
	// Entry is the write. Operations that shared a transaction share the Entry.
	Entry Entry
}

// Operations returns the operations that match f, in the order of resource and position, and as the entry lists
// them. It accepts all fields but Kinds, and omits operations that recorded nothing. The cursor of an operation is its entry's: a
// reading that continues there skips the entry's other operations.
func (d *Database) Operations(ctx context.Context, f Filter) iter.Seq2[Operation, error] {
	return func(yield func(Operation, error) bool) {
		if len(f.Kinds) > 0 {
			yield(Operation{}, notFiltered("operations", "Kinds"))
			return
		}
		f.Kinds = []storage.EntryKind{storage.KindWrite}
		for e, err := range d.Entries(ctx, f) {
			if err != nil {
				yield(Operation{}, err)
				return
			}
			for _, op := range e.Ops {
				if f.matches(op) && !yield(Operation{op, e}, nil) {
					return
				}
			}
		}
	}
}

func (f *Filter) matches(op storage.OpRecord) bool {
	for key, value := range f.Op.Attrs {
		if has, ok := op.Attrs[key]; !ok || has != value {
			return false
		}
	}
	return (f.Op.ID == "" || op.ID == f.Op.ID) && (f.Op.Name == "" || op.Name == f.Op.Name)
}
