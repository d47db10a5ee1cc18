package audit

import (
	"context"
	"iter"

	"github.com/fencekit/fencekit/storage"
)

// Operation is the record of one operation of a write.
type Operation struct {
	storage.OpRecord
	// Entry is the write. Operations that shared a transaction share the Entry.
	Entry Entry
	// Number is the operation's place among the operations of the write, from 1.
	Number int
}

// Operations returns the operations that match f, in the order of resource, position and Number.
// It accepts all fields of the filter except Kinds, and omits operations that recorded nothing.
// It reads page by page, as Entries does. The cursor of an operation is its entry's: a reading
// that continues there skips the remaining operations of that entry.
func (d *Database) Operations(ctx context.Context, f Filter) iter.Seq2[Operation, error] {
	return func(yield func(Operation, error) bool) {
		if err := f.validate("operations", takesTimes|takesGrants|takesOps|takesAfter); err != nil {
			yield(Operation{}, err)
			return
		}
		f.Kinds = []storage.EntryKind{storage.KindWrite}
		for e, err := range d.Entries(ctx, f) {
			if err != nil {
				yield(Operation{}, err)
				return
			}
			for i, op := range e.Ops {
				if f.matches(op) && !yield(Operation{op, e, i + 1}, nil) {
					return
				}
			}
		}
	}
}

// matches reports whether op has all that f.Op has.
func (f *Filter) matches(op storage.OpRecord) bool {
	for key, value := range f.Op.Attrs {
		if has, ok := op.Attrs[key]; !ok || has != value {
			return false
		}
	}
	return (f.Op.ID == "" || op.ID == f.Op.ID) && (f.Op.Name == "" || op.Name == f.Op.Name)
}
