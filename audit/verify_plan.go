package audit

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

const (
	// entriesTogether is about how many entries a job reads, and resourcesTogether how many
	// fences at most.
	entriesTogether   = 100_000
	resourcesTogether = 1000
)

// job is what one worker reads at a time: the whole histories of the resources whose numbers are
// from lo to hi, or a part of one.
type job struct {
	lo, hi   int32
	subjects []*subject // with fences, by number
	orphans  bool       // resources without a fence are part of it
	part     *part      // of the history of subjects[0]
}

// part is the entries of one resource after a position.
type part struct {
	chain       *chain
	after, upTo int64
	last        bool
}

// planner divides the history into jobs.
type planner struct {
	*snapshot
	conn *pgx.Conn
	run  *verification
	jobs chan *job
	do   func(context.Context, *planner, *pgx.Conn, *job) error
	// divides: a long history becomes several jobs.
	divides  bool
	together int64 // about how many entries a job reads

	next    int64 // the number from which on nothing was planned yet
	group   []*subject
	planned int64                        // entries of group, about
	orphans map[int32]*record.Checkpoint // without a fence
}

// plan sends jobs until all resources are in one.
func (p *planner) plan(ctx context.Context) error {
	p.next = math.MinInt32
	if err := p.orphanCheckpoints(ctx); err != nil {
		return err
	}
	for from := int64(math.MinInt32); ; {
		page, err := p.page(ctx, from)
		if err != nil {
			return err
		}
		for _, s := range page {
			if err := p.add(ctx, s); err != nil {
				return err
			}
		}
		if len(page) < resourcesTogether {
			break
		}
		from = int64(page[len(page)-1].number) + 1
	}
	if !p.run.all {
		return p.planOrphans(ctx)
	}
	return p.flush(ctx, math.MaxInt32)
}

// page returns the resources from a number on, in the order of their numbers.
func (p *planner) page(ctx context.Context, from int64) (page []*subject, err error) {
	query := fmt.Sprintf("select %s, %s, %s from @resource r left join @checkpoint c on c.resource = r.id left join @hold o on o.name = r.name where r.id >= %d order by r.id limit %d",
		record.FenceColumns, record.CheckpointColumns, record.HoldColumns, from, resourcesTogether)
	err = p.copyOut(ctx, p.conn, query, func(c *record.Columns) error {
		s := &subject{verification: p.run, fence: c.Fence(), checkpoint: c.Checkpoint(), held: c.Hold()}
		s.number, s.name = s.fence.Number, s.fence.Name
		page = append(page, s)
		return c.Err()
	})
	return page, err
}

// add plans a resource. Numbers between those of resources that are verified belong to a job
// too, since entries may have no fence, unless only some resources are asked for.
func (p *planner) add(ctx context.Context, s *subject) error {
	if !p.run.matches(s.name) {
		err := p.flush(ctx, s.number-1)
		p.next = int64(s.number) + 1
		return err
	}
	p.run.see(s.name)
	if !p.run.all && len(p.group) == 0 {
		p.next = int64(s.number)
	}
	about := s.fence.Seq
	if s.checkpoint != nil {
		about -= s.checkpoint.First
	}
	if p.divides && about > 2*p.together {
		if err := p.flush(ctx, s.number-1); err != nil {
			return err
		}
		p.next = int64(s.number) + 1
		return p.divide(ctx, s)
	}
	p.group = append(p.group, s)
	if p.planned += about; p.planned >= p.together || len(p.group) >= resourcesTogether {
		return p.flush(ctx, s.number)
	}
	return nil
}

// flush sends what is planned as a job up to a number.
func (p *planner) flush(ctx context.Context, hi int32) error {
	j := &job{lo: int32(p.next), hi: hi, subjects: p.group, orphans: p.run.all}
	empty := p.next > int64(hi) || len(p.group) == 0 && !p.run.all
	p.next, p.group, p.planned = int64(hi)+1, nil, 0
	if empty {
		return nil
	}
	return p.send(ctx, j)
}

func (p *planner) send(ctx context.Context, j *job) error {
	select {
	case p.jobs <- j:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// divide plans one resource with a long history as parts, which are verified independently:
// each begins with what the entry before it says, which is verified in the part before.
func (p *planner) divide(ctx context.Context, s *subject) error {
	if err := p.load(ctx, p.conn, &job{lo: s.number, hi: s.number}, map[int32]*subject{s.number: s}); err != nil {
		return err
	}
	s.parts.Add(1)                                // until all are planned
	c, after := newChain(s), int64(math.MinInt64) // what a prune left before the checkpoint is in the first part
	for {
		end, err := p.boundary(ctx, s, c.seq)
		if err != nil {
			return err
		}
		s.parts.Add(1)
		if end == nil {
			if err := p.send(ctx, &job{subjects: []*subject{s}, part: &part{c, after, math.MaxInt64, true}}); err != nil {
				return err
			}
			s.partVerified()
			return nil
		}
		if err := p.send(ctx, &job{subjects: []*subject{s}, part: &part{c, after, end.seq, false}}); err != nil {
			return err
		}
		c, after = end, end.seq
	}
}

// boundary returns a chain that goes on from an entry after a position, with no more entries in
// between than one job reads; nil if there is none.
func (p *planner) boundary(ctx context.Context, s *subject, after int64) (next *chain, err error) {
	if after > math.MaxInt64-p.together {
		return nil, nil
	}
	query := fmt.Sprintf(boundaryQuery, s.number, after, after+p.together)
	err = p.copyOut(ctx, p.conn, query, func(c *record.Columns) error {
		next = &chain{subject: s, seq: c.Int64(), hash: c.Hash(), linked: true, tx: c.Int64()}
		next.claim.seq = c.Int64()
		next.heads, _ = s.knownAfter(s.name, next.seq)
		if c.Kind() != record.Claim {
			return c.Err()
		}
		next.claim.at = c.Time()
		next.claim.readable = !c.IsNull()
		next.claim.grant = grant{c.Int64(), c.Int64()}
		next.claim.timeline, next.claim.holder = c.Int32(), c.Text()
		if !c.IsNull() {
			next.claim.before = &grant{c.Int64(), c.Int64()}
		}
		return c.Err()
	})
	return next, err
}

// boundaryQuery reads an entry, its claim, and the grant of the claim before that. Where many
// positions have no entry it is the next that has one.
const boundaryQuery = `select h.seq, h.hash, h.tx, h.claim, c.kind, c.at, c.epoch, c.token, c.timeline, c.holder, b.epoch, b.token
	from @history h
	left join @history c on c.resource = h.resource and c.seq = h.claim
	left join lateral (select * from @history b where b.resource = h.resource and b.name = c.name and b.kind = 'c' and b.seq < c.seq order by b.seq desc limit 1) b on true
	where h.resource = %[1]d
	and h.seq = coalesce((select max(seq) from @history where resource = %[1]d and seq > %[2]d and seq <= %[3]d), (select min(seq) from @history where resource = %[1]d and seq > %[3]d))`

// partVerified settles what was sought in a history when its last part was verified.
func (s *subject) partVerified() {
	if s.parts.Add(-1) == 0 {
		s.settle()
	}
}

// orphanCheckpoints reads the checkpoints of resources that have no fence.
func (p *planner) orphanCheckpoints(ctx context.Context) error {
	p.orphans = map[int32]*record.Checkpoint{}
	return p.copyOut(ctx, p.conn, "select c.resource, "+record.CheckpointColumns+" from @checkpoint c where not exists (select from @resource r where r.id = c.resource)", func(c *record.Columns) error {
		number := c.Int32()
		p.orphans[number] = c.Checkpoint()
		return c.Err()
	})
}

// planOrphans plans the resources without a fence whose claims have a name that is asked for.
func (p *planner) planOrphans(ctx context.Context) error {
	if err := p.flush(ctx, math.MaxInt32); err != nil {
		return err
	}
	prefix := "convert_from(decode('" + hex.EncodeToString([]byte(p.run.prefix)) + "', 'hex'), 'UTF8')"
	orphans := map[int32]bool{}
	err := p.copyOut(ctx, p.conn, "select h.resource, h.name from @history h where h.kind = 'c' and h.name >= "+prefix+" and h.name <= "+prefix+" || chr(1114111) and not exists (select from @resource r where r.id = h.resource)", func(c *record.Columns) error {
		number, name := c.Int32(), c.Text()
		if c.Err() == nil && p.run.matches(name) {
			orphans[number] = true
		}
		return c.Err()
	})
	for number := range orphans {
		if err == nil {
			err = p.send(ctx, &job{lo: number, hi: number, orphans: true})
		}
	}
	return err
}
