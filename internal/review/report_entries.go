package review

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
)

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
	p.endTenure(nil)
	if err := r.completeClaims(ctx, report); err != nil {
		return err
	}
	return r.completeTenures(ctx, report)
}

func (p *periodEntries) add(e audit.Entry) {
	resource := e.Grant.Resource
	if resource != p.before.Grant.Resource {
		p.endTenure(nil)
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
			c.Before = &e.Grant
		}
	}
	return nil
}

// Tenure is a grant's time with a resource. It may have been released at any time after the last write:
// the record doesn't say.
type Tenure struct {
	Resource  string     `json:"resource"`
	Grant     Grant      `json:"grant"`
	ClaimedAt *time.Time `json:"claimed_at,omitempty"` // nil if the claim was pruned
	EndedAt   *time.Time `json:"ended_at,omitempty"`   // by the next claim; nil if none came in the covered time
	LastWrite *time.Time `json:"last_write_at,omitempty"`
	Writes    int64      `json:"writes"`  // in the period
	Seconds   float64    `json:"seconds"` // in the covered time, from the claim to the last write

	position int64 // of one of its entries
}

const longest = 10

// endTenure lists the present tenure if it is among the longest within the period. The next claim ended it, or the
// period.
func (p *periodEntries) endTenure(at *time.Time) {
	t := p.tenure
	p.tenure = Tenure{}
	if t.position == 0 { // the resource had no holder
		return
	}
	from := p.From
	if t.ClaimedAt != nil {
		from = *t.ClaimedAt
	}
	if t.EndedAt = at; t.LastWrite != nil {
		t.Seconds = max(t.LastWrite.Sub(from), 0).Seconds()
	}
	i, _ := slices.BinarySearchFunc(p.Tenures, t, func(one, t Tenure) int { return cmp.Compare(t.Seconds, one.Seconds) })
	p.Tenures = slices.Insert(p.Tenures, i, t)
	p.Tenures = p.Tenures[:min(len(p.Tenures), longest)]
}

// completeTenures finds the grants of the tenures, and the claims of those that began before the
// period. A tenure without any entry left isn't listed.
func (r *Reader) completeTenures(ctx context.Context, report *Report) error {
	found := []Tenure{}
	for _, t := range report.Tenures {
		e, err := r.entry(ctx, t.Resource, t.position)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		t.Grant = e.Grant
		if t.ClaimedAt == nil {
			claim, err := r.entry(ctx, t.Resource, e.Claim)
			if err != nil {
				return err
			}
			if claim != nil {
				t.ClaimedAt = &claim.At
			}
		}
		found = append(found, t)
	}
	report.Tenures = found
	return nil
}
