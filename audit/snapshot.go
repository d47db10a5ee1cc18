package audit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// Exported is how much an export has.
type Exported struct {
	Resources int64 `json:"resources"`
	Entries   int64 `json:"entries"`
}

// Export writes one snapshot of the history to w as JSON lines, for resources whose names match a
// pattern ("" means all): everything but the results of kept operations. Memory doesn't grow with the
// number of entries. If Export fails, VerifyExports reports the missing end of what it has written.
func (d *Database) Export(ctx context.Context, w io.Writer, resources string) (done Exported, err error) {
	err = d.snapshot(ctx, func(s *snapshot) error {
		out, err := record.NewWriter(w, record.Begin{Of: record.OfDatabase, At: record.TimeOf(s.at), Resources: resources})
		if err != nil {
			return err
		}
		err = s.lines(resources, func(l *record.Line) error {
			switch {
			case l.Resource != nil:
				done.Resources++
			case l.Entry != nil:
				done.Entries++
			}
			return out.Write(l)
		})
		if err != nil {
			return err
		}
		return out.End()
	})
	if err != nil {
		return Exported{}, fmt.Errorf("audit: exporting the history: %w", err)
	}
	return done, nil
}

type snapshot struct {
	at     time.Time
	limits limits
	// each is record.Each on a query in which a word @table stands for a table of the schema.
	each func(query string, places []any, each func() error) error
}

// settings make all reads go along indexes, in their order: a sort would fill the server's disk.
const settings = `set transaction isolation level repeatable read; set local max_parallel_workers_per_gather = 0; set local enable_seqscan = off;
	set local enable_bitmapscan = off; set local enable_sort = off; set local enable_hashjoin = off; set local enable_mergejoin = off; ` + record.NoTimeouts

func (d *Database) snapshot(ctx context.Context, fn func(*snapshot) error) error {
	return record.ReadTx(ctx, d.pool, settings, func(tx pgx.Tx) error {
		s := &snapshot{limits: d.limits, each: func(query string, places []any, each func() error) error {
			return record.Each(ctx, tx.Conn(), d.tables.Replace(query), places, each)
		}}
		if err := tx.QueryRow(ctx, "select now()").Scan(&s.at); err != nil {
			return err
		}
		return fn(s)
	})
}

// lines calls each with the lines of an export, but for its first and its last. each must not keep a line.
func (s *snapshot) lines(pattern string, each func(*record.Line) error) error {
	r := &lineReader{snapshot: s, all: pattern == "", matches: glob.Matcher(pattern), line: each}
	var setting record.Setting
	err := s.each("select s.epoch, s.token, s.max_token_jump, (select max(e.epoch)::bigint from @epoch_raise e), (select string_agg(q.name, chr(10)) from @queue q) from @setting s where s.one", []any{&setting}, func() error {
		return each(&record.Line{Setting: &setting})
	})
	if err != nil {
		return err
	}
	if err := r.resources(); err != nil {
		return err
	}
	if !r.all {
		if err := r.named(glob.Prefix(pattern)); err != nil {
			return err
		}
	}
	return r.stray()
}

type lineReader struct {
	*snapshot
	all     bool // also what belongs to a number without a fence
	matches func(name string) bool
	line    func(*record.Line) error
	orphans []*record.Resource // checkpoints without a fence
}

func (r *lineReader) resources() error {
	var number int32
	var checkpoint *record.Checkpoint
	err := r.each("select c.resource, "+record.CheckpointColumns+" from @checkpoint c where not exists (select from @resource r where r.id = c.resource) order by c.resource", []any{&number, &checkpoint}, func() error {
		r.orphans = append(r.orphans, &record.Resource{Number: number, Checkpoint: checkpoint})
		return nil
	})
	for from := int64(math.MinInt32); err == nil && from <= math.MaxInt32; {
		var page []*record.Resource
		if page, err = r.page(from); err != nil {
			return err
		}
		to := int64(math.MaxInt32)
		if n := r.fitting(page); n < len(page) || n == r.limits.together {
			page = page[:n]
			to = int64(page[n-1].Number)
		}
		if r.all {
			err = r.read(from, to, page, true)
		} else {
			err = r.readMatching(page)
		}
		from = to + 1
	}
	return err
}

// fitting is how many of the resources are read together: who gets the lines keeps the operations and rejections of
// all of them in memory, of which there may be one for each entry.
func (r *lineReader) fitting(page []*record.Resource) int {
	var entries int64
	for i, one := range page {
		entries += one.Fence.Seq
		if one.Checkpoint != nil {
			entries -= one.Checkpoint.First
		}
		if entries > r.limits.entries && i > 0 {
			return i
		}
	}
	return len(page)
}

// readMatching reads what belongs to the resources that match, as many together as follow each other.
func (r *lineReader) readMatching(page []*record.Resource) error {
	for len(page) > 0 {
		n := slices.IndexFunc(page, func(one *record.Resource) bool { return !r.matches(one.Name) })
		if n < 0 {
			n = len(page)
		}
		if n > 0 {
			if err := r.read(int64(page[0].Number), int64(page[n-1].Number), page[:n], false); err != nil {
				return err
			}
		}
		page = page[min(n+1, len(page)):]
	}
	return nil
}

func (r *lineReader) page(from int64) (page []*record.Resource, err error) {
	query := fmt.Sprintf("select %s, %s, %s from @resource r left join @checkpoint c on c.resource = r.id left join @hold o on o.name = r.name where r.id >= %d order by r.id limit %d",
		record.FenceColumns, record.CheckpointColumns, record.HoldColumns, from, r.limits.together)
	var one record.Resource
	err = r.each(query, []any{&one.Fence, &one.Checkpoint, &one.Hold}, func() error {
		page = append(page, &record.Resource{Number: one.Fence.Number, Name: one.Fence.Name, Fence: one.Fence, Checkpoint: one.Checkpoint, Hold: one.Hold})
		return nil
	})
	return page, err
}

// read reads what belongs to the numbers from lo to hi: to those of the group alone, or to all. All but the entries
// is held in memory.
func (r *lineReader) read(lo, hi int64, group []*record.Resource, all bool) error {
	for _, orphan := range r.orphans {
		if number := int64(orphan.Number); all && number >= lo && number <= hi {
			group = append(group, orphan)
		}
	}
	slices.SortStableFunc(group, func(a, b *record.Resource) int { return cmp.Compare(a.Number, b.Number) })
	known := map[int32]bool{}
	for _, one := range group {
		known[one.Number] = true
		if err := r.line(&record.Line{Resource: one}); err != nil {
			return err
		}
	}
	rejections := fmt.Sprintf("select %s from @resource r join @rejection f on f.resource = r.name where r.id between %d and %d order by r.id", record.RejectionColumns, lo, hi)
	var rejection record.Rejection
	err := r.each(rejections, []any{&rejection}, func() error { return r.line(&record.Line{Rejection: &rejection}) })
	if err != nil {
		return err
	}
	operations := fmt.Sprintf("select %s from @operation k where k.resource between %d and %d order by k.resource, k.key", record.OperationColumns, lo, hi)
	var operation record.Operation
	err = r.each(operations, []any{&operation}, func() error {
		if all || known[operation.Resource] {
			return r.line(&record.Line{Operation: &operation})
		}
		return nil
	})
	if err != nil {
		return err
	}
	var entry record.Entry
	line := record.Line{Entry: &entry}
	entries := fmt.Sprintf("select %s from @history h where h.resource between %d and %d order by h.resource, h.seq", record.EntryColumns, lo, hi)
	return r.each(entries, []any{&entry}, func() error {
		if all || known[entry.Resource] {
			return r.line(&line)
		}
		return nil
	})
}

// named reads the numbers without a fence whose claims have a name that matches.
func (r *lineReader) named(prefix string) error {
	bound := fmt.Sprintf("convert_from(decode('%x', 'hex'), 'UTF8')", prefix)
	numbers := map[int32]bool{}
	var number int32
	var name string
	err := r.each("select h.resource, h.name from @history h where h.kind = 'c' and h.name >= "+bound+" and h.name <= "+bound+" || chr(1114111) and not exists (select from @resource r where r.id = h.resource)", []any{&number, &name}, func() error {
		if r.matches(name) {
			numbers[number] = true
		}
		return nil
	})
	for _, number := range slices.Sorted(maps.Keys(numbers)) {
		if err == nil {
			err = r.read(int64(number), int64(number), nil, true)
		}
	}
	return err
}

// stray reads the rejections and holds of resources that have no fence.
func (r *lineReader) stray() error {
	var rejection record.Rejection
	var hold record.Hold
	err := r.each("select "+record.RejectionColumns+" from @rejection f where not exists (select from @resource r where r.name = f.resource)", []any{&rejection}, func() error {
		if r.matches(rejection.Resource) {
			return r.line(&record.Line{Rejection: &rejection})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.each("select "+record.HoldColumns+" from @hold o where not exists (select from @resource r where r.name = o.name)", []any{&hold}, func() error {
		if r.matches(hold.Name) {
			return r.line(&record.Line{Hold: &hold})
		}
		return nil
	})
}
