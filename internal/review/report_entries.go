package review

import (
	"context"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
)

// periodEntries follows the entries of a period, resource by resource.
type periodEntries struct {
	*Report
	before audit.Entry // the one before, of whatever resource
	wrote  bool        // the present resource has a write
	tenure Tenure
}

// readEntries reads the entries of the period, and then what was before the period of what is
// listed.
func (r *Reader) readEntries(ctx context.Context, report *Report) error {
	p := &periodEntries{Report: report}
	for e, err := range r.history.Entries(ctx, audit.Filter{Resources: report.Resources, Since: report.From, Until: report.Until}) {
		if err != nil {
			return err
		}
		p.add(e)
	}
	p.endResource()
	if err := r.completeClaims(ctx, report); err != nil {
		return err
	}
	return r.completeTenures(ctx, report)
}

func (p *periodEntries) add(e audit.Entry) {
	resource := e.Grant.Resource
	if resource != p.before.Grant.Resource {
		p.endResource()
		p.Counts.Resources++
		p.wrote = false
		first := e.Seq
		if e.Kind == storage.KindClaim {
			first-- // the tenure that it ended
		}
		p.tenure = Tenure{Resource: resource, position: first}
	}
	at := e.At.UTC()
	switch e.Kind {
	case storage.KindClaim:
		p.Counts.Claims++
		claim := Claim{Resource: resource, Position: e.Seq, At: at, Grant: grantOf(e.Grant)}
		if p.before.Grant.Resource == resource && p.before.Seq == e.Seq-1 {
			before := grantOf(p.before.Grant)
			claim.Before = &before
		}
		p.Claims = appendUpTo(p.Claims, claim)
		p.endTenure(&at)
		p.tenure = Tenure{Resource: resource, ClaimedAt: &at, position: e.Seq}
	case storage.KindVoid:
		p.Counts.Voids++
		p.Voids = appendUpTo(p.Voids, Void{resource, e.Seq, at, grantOf(e.Grant)})
	default:
		if !p.wrote {
			p.wrote = true
			p.Counts.ResourcesWritten++
		}
		p.Counts.Writes++
		p.Counts.Operations += int64(len(e.Ops))
		p.tenure.Writes++
		p.tenure.LastWrite = &at
	}
	p.before = e
}

// endResource ends the tenure that lasted to the end of the period.
func (p *periodEntries) endResource() { p.endTenure(nil) }

// completeClaims finds who had the resources before the claims whose entry before lies
// outside of the period.
func (r *Reader) completeClaims(ctx context.Context, report *Report) error {
	for i := range report.Claims {
		c := &report.Claims[i]
		if c.Before != nil || c.Position == 1 {
			continue
		}
		e, err := r.entry(ctx, c.Resource, c.Position-1)
		if err != nil {
			return err
		}
		if e != nil {
			before := grantOf(e.Grant)
			c.Before = &before
		}
	}
	return nil
}
