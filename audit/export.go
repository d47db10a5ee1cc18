package audit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

// Exported is how much an export has.
type Exported struct {
	Resources int64 `json:"resources"`
	Entries   int64 `json:"entries"`
}

// Export writes one snapshot of the history to w as JSON lines, for resources whose names match a
// pattern ("" means all). It writes all that VerifyExports needs: everything but the results of kept
// operations. The pool must allow at least two connections. Memory doesn't grow with the number of
// entries. If Export fails, what it has written is no export: VerifyExports reports the missing end.
func (d *Database) Export(ctx context.Context, w io.Writer, resources string) (Exported, error) {
	x := exporter{run: VerifyOptions{Resources: resources}.begin()}
	err := d.snapshot(ctx, func(s *snapshot, conn *pgx.Conn) (err error) {
		begin := record.Begin{Of: record.OfDatabase, At: record.TimeOf(s.at), Resources: resources}
		if x.out, err = record.NewWriter(w, begin); err != nil {
			return err
		}
		setting, err := s.setting(ctx, conn)
		if err != nil {
			return err
		}
		if err := x.out.Write(&record.Line{Setting: &setting}); err != nil {
			return err
		}
		p := &planner{snapshot: s, conn: conn, run: x.run, jobs: make(chan *job), do: x.job, together: entriesTogether}
		if err := p.feed(ctx, 1); err != nil {
			return err
		}
		if err := x.rest(ctx, s, conn); err != nil {
			return err
		}
		return x.out.End()
	})
	if err != nil {
		return Exported{}, fmt.Errorf("audit: exporting the history: %w", err)
	}
	return Exported{x.run.counts.resources.Load(), x.run.counts.entries.Load()}, nil
}

type exporter struct {
	run *verification
	out *record.Writer
}

// job writes what a job has: its resources, and then what belongs to them.
func (x *exporter) job(ctx context.Context, p *planner, conn *pgx.Conn, j *job) error {
	resources := map[int32]*record.Resource{}
	for _, s := range j.subjects {
		resources[s.number] = &record.Resource{Number: s.number, Name: s.name, Fence: s.fence, Checkpoint: s.checkpoint, Hold: s.held}
	}
	for number, checkpoint := range p.orphansOf(j) {
		resources[number] = &record.Resource{Number: number, Checkpoint: checkpoint}
	}
	for _, number := range slices.SortedFunc(maps.Keys(resources), cmp.Compare) {
		if err := x.out.Write(&record.Line{Resource: resources[number]}); err != nil {
			return err
		}
		x.run.counts.resources.Add(1)
	}
	belongs := func(number int32) bool { return j.orphans || resources[number] != nil }
	err := p.rejections(ctx, conn, j, func(_ int32, r *record.Rejection) error { return x.out.Write(&record.Line{Rejection: r}) })
	if err != nil {
		return err
	}
	err = p.operations(ctx, conn, j, func(o *record.Operation) error {
		if !belongs(o.Resource) {
			return nil
		}
		return x.out.Write(&record.Line{Operation: o})
	})
	if err != nil {
		return err
	}
	return p.entries(ctx, conn, j.where(), func(e *record.Entry) error {
		if !belongs(e.Resource) {
			return nil
		}
		return x.out.Write(&record.Line{Entry: e})
	})
}

// rest writes the rejections and holds of resources that have no fence.
func (x *exporter) rest(ctx context.Context, s *snapshot, conn *pgx.Conn) error {
	err := s.copyOut(ctx, conn, strayRejections, func(c *record.Columns) error {
		r := c.Rejection()
		if c.Err() != nil || !x.run.matches(r.Resource) {
			return nil
		}
		return x.out.Write(&record.Line{Rejection: &r})
	})
	if err != nil {
		return err
	}
	return s.copyOut(ctx, conn, "select "+record.HoldColumns+" from @hold o where not exists (select from @resource r where r.name = o.name)", func(c *record.Columns) error {
		h := c.Hold()
		if c.Err() != nil || !x.run.matches(h.Name) {
			return nil
		}
		return x.out.Write(&record.Line{Hold: h})
	})
}
