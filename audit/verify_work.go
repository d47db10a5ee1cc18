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

// where is the condition for the entries of a job.
func (j *job) where() string { return fmt.Sprintf("h.resource between %d and %d", j.lo, j.hi) }

// verifyJob verifies what a job has.
func verifyJob(ctx context.Context, p *planner, conn *pgx.Conn, j *job) error {
	if j.part != nil {
		return j.part.verify(ctx, p, conn)
	}
	subjects := map[int32]*subject{}
	for _, s := range j.subjects {
		subjects[s.number] = s
	}
	for number, checkpoint := range p.orphansOf(j) {
		subjects[number] = &subject{verification: p.run, number: number, checkpoint: checkpoint}
	}
	if err := p.load(ctx, conn, j, subjects); err != nil {
		return err
	}
	w := &walk{run: p.run, orphans: j.orphans, subjects: slices.Collect(maps.Values(subjects))}
	slices.SortFunc(w.subjects, func(a, b *subject) int { return cmp.Compare(a.number, b.number) })
	err := p.entries(ctx, conn, j.where(), w.next)
	if err == nil {
		w.upTo(math.MaxInt64)
	}
	return err
}

func (t *part) verify(ctx context.Context, p *planner, conn *pgx.Conn) error {
	c := t.chain
	err := p.entries(ctx, conn, fmt.Sprintf("h.resource = %d and h.seq > %d and h.seq <= %d", c.number, t.after, t.upTo), func(e *record.Entry) error {
		c.next(e)
		return nil
	})
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
func (p *planner) entries(ctx context.Context, conn *pgx.Conn, where string, each func(*record.Entry) error) error {
	var r record.EntryReader
	n := int64(0)
	defer func() { p.run.counts.entries.Add(n) }()
	return p.copyOut(ctx, conn, fmt.Sprintf("select %s from @history h where %s order by h.resource, h.seq", record.EntryColumns, where), func(c *record.Columns) error {
		e := r.Read(c)
		if err := c.Err(); err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
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
	err := p.rejections(ctx, conn, j, func(number int32, r *record.Rejection) error {
		rejections[number] = append(rejections[number], *r)
		return nil
	})
	if err != nil {
		return err
	}
	err = p.operations(ctx, conn, j, func(o *record.Operation) error {
		if subjects[o.Resource] == nil && j.orphans {
			subjects[o.Resource] = &subject{verification: p.run, number: o.Resource}
		}
		writes[o.Resource] = append(writes[o.Resource], keptWrite{o.Tx, o.At})
		return nil
	})
	for number, s := range subjects {
		s.sought = newSought(rejections[number], writes[number])
	}
	return err
}

// rejections reads the rejections of a job's resources, with their numbers.
func (p *planner) rejections(ctx context.Context, conn *pgx.Conn, j *job, each func(int32, *record.Rejection) error) error {
	query := "select r.id, %s from @resource r join @rejection f on f.resource = r.name where r.id between %d and %d order by r.id"
	return p.copyOut(ctx, conn, fmt.Sprintf(query, record.RejectionColumns, j.lo, j.hi), func(c *record.Columns) error {
		number, r := c.Int32(), c.Rejection()
		if err := c.Err(); err != nil {
			return err
		}
		return each(number, &r)
	})
}

// operations reads the kept operations of a job's resources.
func (p *planner) operations(ctx context.Context, conn *pgx.Conn, j *job, each func(*record.Operation) error) error {
	query := "select %s from @operation k where k.resource between %d and %d order by k.resource, k.key"
	return p.copyOut(ctx, conn, fmt.Sprintf(query, record.OperationColumns, j.lo, j.hi), func(c *record.Columns) error {
		o := c.Operation()
		if err := c.Err(); err != nil {
			return err
		}
		return each(&o)
	})
}

// orphansOf returns the checkpoints of resources of a job that have no fence.
func (p *planner) orphansOf(j *job) map[int32]*record.Checkpoint {
	of := map[int32]*record.Checkpoint{}
	for number, checkpoint := range p.orphans {
		if j.orphans && number >= j.lo && number <= j.hi {
			of[number] = checkpoint
		}
	}
	return of
}

// walk verifies the histories of several resources that are read one after the other.
type walk struct {
	run      *verification
	orphans  bool       // entries without a fence are verified too
	subjects []*subject // that are yet to come, by number
	now      *chain
}

func (w *walk) next(e *record.Entry) error {
	if w.now == nil || w.now.number != e.Resource {
		w.upTo(int64(e.Resource))
		switch {
		case len(w.subjects) > 0 && w.subjects[0].number == e.Resource:
			w.now, w.subjects = newChain(w.subjects[0]), w.subjects[1:]
		case w.orphans:
			w.now = newChain(&subject{verification: w.run, number: e.Resource, sought: newSought(nil, nil)})
		default:
			return nil
		}
	}
	w.now.next(e)
	return nil
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

// close ends a history that was verified in one part.
func (c *chain) close() {
	c.end()
	c.settle()
	if c.ends != nil && c.linked && c.name != "" && len(c.hash) == len(Head{}.Hash) {
		c.ends.add(knownHead{Head{c.name, c.seq, [32]byte(c.hash)}, c.at})
	}
	if !c.partial {
		c.counts.resources.Add(1)
	}
}
