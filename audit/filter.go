package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/storage"
)

// Filter selects the rows to read: those that match all fields that aren't zero. A method that doesn't accept a
// field fails with fence.ErrInvalid if that is set.
type Filter struct {
	// Resources is a pattern of names with * and ?; "" means all resources.
	Resources string
	// Resource is an exact name. It excludes Resources.
	Resource string
	// Since and Until bound the time by the server's clock: not before Since, and before Until.
	Since, Until time.Time
	// Kinds are kinds of entries; empty means all.
	Kinds []storage.EntryKind
	// Holder is a pattern, like Resources, for the grant's holder.
	Holder string
	// Op matches operations with this id, this name and at least these attributes, and entries with such a one.
	Op storage.OpRecord
	// After continues an earlier reading with the same filter: only rows after it are read.
	After Cursor
}

// Cursor is a place in the order of rows: by resources, compared bytewise, and then by Seq. It stays valid.
type Cursor struct {
	Resource string
	// Seq is the position of an entry, or that of an operation's; or the ID of a rejection.
	Seq int64
}

func notFiltered(call, field string) error {
	return fmt.Errorf("%w: %s can't be filtered by %s", fence.ErrInvalid, call, field)
}

func (f *Filter) validate() error {
	for _, text := range f.texts() {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%w: audit.Filter has %q, want UTF-8 without zero bytes", fence.ErrInvalid, text)
		}
	}
	for _, kind := range f.Kinds {
		switch kind {
		case storage.KindClaim, storage.KindWrite, storage.KindVoid:
		default:
			return fmt.Errorf("%w: audit.Filter has a kind %q, want %s, %s or %s", fence.ErrInvalid, kind, storage.KindClaim, storage.KindWrite, storage.KindVoid)
		}
	}
	switch {
	case f.Resource != "" && f.Resources != "":
		return fmt.Errorf("%w: audit.Filter has both a Resource, %q, and Resources, %q", fence.ErrInvalid, f.Resource, f.Resources)
	case !f.Until.IsZero() && !f.Since.Before(f.Until):
		return fmt.Errorf("%w: audit.Filter has Until %v, which is not after Since %v", fence.ErrInvalid, f.Until, f.Since)
	case f.After.Seq < 0 || f.After.Seq > 0 && f.After.Resource == "":
		return fmt.Errorf("%w: audit.Filter has the cursor %+v, which no reading has returned", fence.ErrInvalid, f.After)
	}
	return nil
}

func (f *Filter) texts() []string {
	texts := []string{f.Resources, f.Resource, f.Holder, f.After.Resource, f.Op.ID, f.Op.Name}
	for key, value := range f.Op.Attrs {
		texts = append(texts, key, value)
	}
	return texts
}

func (f *Filter) byTime() bool { return !f.Since.IsZero() || !f.Until.IsZero() }
func (f *Filter) byOp() bool   { return f.Op.ID != "" || f.Op.Name != "" || len(f.Op.Attrs) > 0 }

func (f *Filter) onlyClaims() bool { return len(f.Kinds) == 1 && f.Kinds[0] == storage.KindClaim }

type conditions struct {
	sql  []string
	args []any
}

// add adds a condition, in which %d stands for the number of the argument.
func (c *conditions) add(sql string, arg any) {
	c.args = append(c.args, arg)
	c.sql = append(c.sql, fmt.Sprintf(sql, len(c.args)))
}

func (c *conditions) where() string {
	return strings.Join(append([]string{"true"}, c.sql...), " and ")
}

func (c *conditions) addResource(f *Filter, column string) {
	switch {
	case f.Resource != "":
		c.add(column+" = $%d", f.Resource)
	case f.Resources != "":
		c.add(column+" like $%d", glob.Like(f.Resources))
	}
}

func (c *conditions) addTimes(f *Filter, since, until string) {
	if !f.Since.IsZero() {
		c.add(since+" >= $%d", f.Since)
	}
	if !f.Until.IsZero() {
		c.add(until+" < $%d", f.Until)
	}
}

// addTimeIndex requires what follows from addTimes, in the words of the index on at.
func (c *conditions) addTimeIndex(f *Filter) {
	const bin = "date_bin('10 minutes', %s, '2000-01-01 00:00:00Z')"
	at := fmt.Sprintf(bin, "at")
	if !f.Since.IsZero() {
		c.add(at+" >= "+fmt.Sprintf(bin, "$%d::timestamptz"), f.Since)
	}
	if !f.Until.IsZero() {
		c.add(at+" <= "+fmt.Sprintf(bin, "$%d::timestamptz"), f.Until)
	}
}

func (c *conditions) addGrant(f *Filter) {
	if f.Holder != "" {
		c.add("holder like $%d", glob.Like(f.Holder))
	}
}

// addOp requires an operation, unless they are malformed: the server may be unable to read those. An id also
// has to occur in the text as it is, which costs a tenth of reading the JSON.
func (c *conditions) addOp(f *Filter) error {
	if !f.byOp() {
		return nil
	}
	want, err := json.Marshal([]storage.OpRecord{f.Op})
	if err != nil {
		return err
	}
	sql := "case @well_formed(ops) when true then ops::jsonb @> $%d::text::jsonb when false then true end"
	if literal(f.Op.ID) {
		c.args = append(c.args, f.Op.ID)
		sql = fmt.Sprintf("case when strpos(ops::text, $%d) > 0 then ", len(c.args)) + sql + " end"
	}
	c.add(sql, string(want))
	return nil
}

func literal(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"\/<>&'`, r)
	})
}
