package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

func (j *job) do(ctx context.Context, p *planner, conn *pgx.Conn) error {
	if j.part != nil {
		return j.part.verify(ctx, p, conn)
	}
	subjects := map[int32]*subject{}
	for _, s := range j.subjects {
		subjects[s.number] = s
	}
	for number, checkpoint := range p.orphans {
		if j.orphans && number >= j.lo && number <= j.hi {
			subjects[number] = &subject{verification: p.run, number: number, checkpoint: checkpoint}
		}
	}
	if err := p.load(ctx, conn, j, subjects); err != nil {
		return err
	}
	w := &walk{run: p.run, orphans: j.orphans, subjects: slices.Collect(maps.Values(subjects))}
	slices.SortFunc(w.subjects, func(a, b *subject) int { return cmp.Compare(a.number, b.number) })
	err := p.entries(ctx, conn, fmt.Sprintf("h.resource between %d and %d", j.lo, j.hi), w.next)
	if err == nil {
		w.upTo(math.MaxInt64)
	}
	return err
}

func (t *part) verify(ctx context.Context, p *planner, conn *pgx.Conn) error {
	c := t.chain
	err := p.entries(ctx, conn, fmt.Sprintf("h.resource = %d and h.seq > %d and h.seq <= %d", c.number, t.after, t.upTo), c.next)
	if err != nil {
		return err
	}
	if t.last {
		c.end()
		c.counts.resources.Add(1)
	}
	c.partVerified()
	return nil
}

// entries reads entries in the order of the primary key.
func (p *planner) entries(ctx context.Context, conn *pgx.Conn, where string, each func(*record.Entry)) error {
	var r entryReader
	n := int64(0)
	defer func() { p.run.counts.entries.Add(n) }()
	return copyOut(ctx, conn, fmt.Sprintf("select %s from %s.history h where %s order by h.resource, h.seq", entryColumns, p.d.schema, where), func(from row) error {
		e, err := r.read(from)
		if err != nil {
			return err
		}
		each(e)
		if n++; n == countEvery {
			p.run.counts.entries.Add(n)
			n = 0
		}
		return nil
	})
}

const countEvery = 1000

// load reads what is sought in the histories of a job. Resources without a fence are added to
// subjects, if they are part of it.
func (p *planner) load(ctx context.Context, conn *pgx.Conn, j *job, subjects map[int32]*subject) error {
	rejections, writes := map[int32][]record.Rejection{}, map[int32][]keptWrite{}
	err := p.copyOut(ctx, conn, fmt.Sprintf("select r.id, %s from @resource r join @rejection f on f.resource = r.name where r.id between %d and %d", rejectionColumns, j.lo, j.hi), func(c *columns) error {
		number := c.int32()
		rejections[number] = append(rejections[number], c.rejection())
		return c.err
	})
	if err != nil {
		return err
	}
	err = p.copyOut(ctx, conn, fmt.Sprintf("select k.resource, k.tx, k.at from @operation k where k.resource between %d and %d", j.lo, j.hi), func(c *columns) error {
		number := c.int32()
		if subjects[number] == nil && j.orphans {
			subjects[number] = &subject{verification: p.run, number: number}
		}
		writes[number] = append(writes[number], keptWrite{c.int64(), c.time()})
		return c.err
	})
	for number, s := range subjects {
		s.sought = newSought(rejections[number], writes[number])
	}
	return err
}

// walk verifies the histories of several resources that are read one after the other.
type walk struct {
	run      *verification
	orphans  bool       // entries without a fence are verified too
	subjects []*subject // that are yet to come, by number
	now      *chain
}

func (w *walk) next(e *record.Entry) {
	if w.now == nil || w.now.number != e.Resource {
		w.upTo(int64(e.Resource))
		switch {
		case len(w.subjects) > 0 && w.subjects[0].number == e.Resource:
			w.now, w.subjects = newChain(w.subjects[0]), w.subjects[1:]
		case w.orphans:
			w.now = newChain(&subject{verification: w.run, number: e.Resource, sought: newSought(nil, nil)})
		default:
			return
		}
	}
	w.now.next(e)
}

// upTo ends the present history, and those before a number, which have no entries.
func (w *walk) upTo(number int64) {
	if w.now != nil {
		w.now.close()
		w.now = nil
	}
	for len(w.subjects) > 0 && int64(w.subjects[0].number) < number {
		newChain(w.subjects[0]).close()
		w.subjects = w.subjects[1:]
	}
}

func (c *chain) close() {
	c.end()
	c.settle()
	c.counts.resources.Add(1)
}
