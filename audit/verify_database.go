package audit

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

// verify verifies a database: one connection plans which entries to read together, others read
// them and verify.
func (d *Database) verify(ctx context.Context, v VerifyOptions, run *verification) (at time.Time, err error) {
	err = d.snapshot(ctx, func(s *snapshot, conn *pgx.Conn) error {
		at = s.at
		if run.setting, err = s.setting(ctx, conn); err != nil {
			return err
		}
		all, err := s.estimate(ctx, conn)
		if err != nil {
			return err
		}
		defer run.showProgress(v.Progress, all)()
		p := &planner{snapshot: s, conn: conn, run: run, jobs: make(chan *job), do: verifyJob, divides: true, together: cmp.Or(v.together, entriesTogether)}
		if err := p.feed(ctx, p.workers(v)); err != nil {
			return err
		}
		return run.verifyWhole(ctx, s, conn)
	})
	return at, err
}

// workers returns how many connections read. The pool may allow fewer.
func (p *planner) workers(v VerifyOptions) int {
	n := v.Connections
	if n == 0 {
		n = defaultConnections
	}
	return min(n, int(p.d.pool.Config().MaxConns)-1)
}

// feed plans, and has workers do each job. It returns the first error of any of them.
func (p *planner) feed(ctx context.Context, workers int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			if err := p.join(ctx, func(conn *pgx.Conn) error { return p.work(ctx, conn) }); err != nil {
				cancel(err)
			}
		})
	}
	if err := p.plan(ctx); err != nil {
		cancel(err)
	}
	close(p.jobs)
	wg.Wait()
	return context.Cause(ctx)
}

func (p *planner) work(ctx context.Context, conn *pgx.Conn) error {
	for j := range p.jobs {
		if err := p.do(ctx, p, conn, j); err != nil {
			return err
		}
	}
	return nil
}

// showProgress calls show from time to time until the function that it returns is called.
func (v *verification) showProgress(show func(done, all int64), all int64) (stop func()) {
	if show == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show(v.counts.entries.Load(), all)
			case <-end:
				show(v.counts.entries.Load(), all)
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

const progressEvery = 200 * time.Millisecond

// estimate returns about how many entries there are.
func (s *snapshot) estimate(ctx context.Context, conn *pgx.Conn) (entries int64, err error) {
	err = s.copyOut(ctx, conn, "select least(sum(r.seq::numeric - coalesce(c.first, 1) + 1), 1e18)::bigint from @resource r left join @checkpoint c on c.resource = r.id", func(c *record.Columns) error {
		entries = c.Int64()
		return c.Err()
	})
	return entries, err
}

// strayRejections are those of resources that have no fence.
const strayRejections = "select " + record.RejectionColumns + " from @rejection f where not exists (select from @resource r where r.name = f.resource)"

// verifyWhole verifies what is about the whole database, after the resources.
func (v *verification) verifyWhole(ctx context.Context, s *snapshot, conn *pgx.Conn) error {
	v.verifyMarks()
	v.verifyUnseen(v.matches)
	if err := v.verifyTables(ctx, s, conn); err != nil {
		return err
	}
	if err := v.verifyNames(ctx, s, conn); err != nil {
		return err
	}
	return s.copyOut(ctx, conn, strayRejections, func(c *record.Columns) error {
		r := c.Rejection()
		if c.Err() == nil && v.matches(r.Resource) {
			v.settleStray(&r)
		}
		return c.Err()
	})
}

// settleStray lists a rejection of a resource that has no fence, unless no grant had one.
func (v *verification) settleStray(r *record.Rejection) {
	stray := &subject{verification: v, name: r.Resource, sought: newSought([]record.Rejection{*r}, nil)}
	stray.settle()
}

// verifyNames reports resources with two fences: each would let another holder in.
func (v *verification) verifyNames(ctx context.Context, s *snapshot, conn *pgx.Conn) error {
	return s.copyOut(ctx, conn, "select r.name, count(*) from @resource r group by r.name having count(*) > 1", func(c *record.Columns) error {
		name, n := c.Text(), c.Int64()
		if c.Err() == nil && v.matches(name) {
			v.findings.add(Finding{Kind: FindingWrongName, Resource: name, Text: "The resource has several fences: each would let another holder in.", Expected: "1", Found: number(n)})
		}
		return c.Err()
	})
}

// verifyUnseen reports known heads of resources that should be there and aren't.
func (v *verification) verifyUnseen(there func(name string) bool) {
	for name, heads := range v.known {
		if _, seen := v.seen.Load(name); seen || !v.matches(name) {
			continue
		}
		for _, h := range heads {
			if there(name) {
				v.comparedHead(h)
			} else {
				v.counts.leftOutHeads.Add(1)
			}
		}
		if h := heads[len(heads)-1]; there(name) {
			v.findings.add(Finding{Kind: FindingOlderState, Resource: name, Seq: h.Seq, Text: "The resource was known, and isn't there: the database went back to an older state, or the resource was removed.",
				Expected: "hash " + record.Hash(h.Hash[:]).String(), Found: "none"})
		}
	}
}
