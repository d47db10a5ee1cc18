package review

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
)

// Hold is the time for which a grant had a resource.
type Hold struct {
	Resource  string     `json:"resource"`
	Grant     Grant      `json:"grant"`
	ClaimedAt *time.Time `json:"claimed_at,omitempty"` // nil if the claim was pruned
	EndedAt   *time.Time `json:"ended_at,omitempty"`   // by the next claim; nil if none came in the period
	LastWrite *time.Time `json:"last_write_at,omitempty"`
	Writes    int64      `json:"writes"`  // in the period
	Seconds   float64    `json:"seconds"` // how much of it lies in the period

	position int64 // of one of its entries
}

// longest is how many holds are listed.
const longest = 10

// periodEntries follows the entries of a period, resource by resource.
type periodEntries struct {
	*Report
	before audit.Entry // the one before, of whatever resource
	wrote  bool        // the present resource has a write
	hold   Hold
}

// readEntries reads the entries of the period, and then what was before the period of what is
// listed.
func (r *Reader) readEntries(ctx context.Context, report *Report) error {
	p := &periodEntries{Report: report}
	for e, err := range r.history.Entries(ctx, audit.Filter{Resources: report.Resources, Since: report.From, Until: report.To}) {
		if err != nil {
			return err
		}
		p.add(e)
	}
	p.endResource()
	if err := r.completeClaims(ctx, report); err != nil {
		return err
	}
	return r.completeHolds(ctx, report)
}

func (p *periodEntries) add(e audit.Entry) {
	resource := e.Grant.Resource
	if resource != p.before.Grant.Resource {
		p.endResource()
		p.Counts.Resources++
		p.wrote = false
		first := e.Seq
		if e.Kind == storage.KindClaim {
			first-- // the hold that it ended
		}
		p.hold = Hold{Resource: resource, position: first}
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
		p.endHold(&at)
		p.hold = Hold{Resource: resource, ClaimedAt: &at, position: e.Seq}
	case storage.KindVoid:
		p.Counts.Voids++
		p.Voids = appendUpTo(p.Voids, Void{resource, e.Seq, at, grantOf(e.Grant)})
	default:
		if !p.wrote {
			p.wrote = true
			p.Counts.Written++
		}
		p.Counts.Writes++
		p.Counts.Operations += int64(len(e.Ops))
		p.hold.Writes++
		p.hold.LastWrite = &at
	}
	p.before = e
}

// endResource ends the hold that lasted to the end of the period.
func (p *periodEntries) endResource() { p.endHold(nil) }

// endHold lists the present hold if it is among the longest within the period.
func (p *periodEntries) endHold(at *time.Time) {
	h := p.hold
	p.hold = Hold{}
	if h.position == 0 { // the resource had no holder
		return
	}
	from, to := p.From, p.To
	if h.ClaimedAt != nil {
		from = *h.ClaimedAt
	}
	if h.EndedAt = at; at != nil {
		to = *at
	}
	h.Seconds = max(to.Sub(from), 0).Seconds()
	i, _ := slices.BinarySearchFunc(p.Holds, h, func(one, h Hold) int { return cmp.Compare(h.Seconds, one.Seconds) })
	p.Holds = slices.Insert(p.Holds, i, h)
	p.Holds = p.Holds[:min(len(p.Holds), longest)]
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
			before := grantOf(e.Grant)
			c.Before = &before
		}
	}
	return nil
}

// completeHolds finds the grants of the holds, and the claims of those that began before the
// period. A hold without any entry left isn't listed.
func (r *Reader) completeHolds(ctx context.Context, report *Report) error {
	found := []Hold{}
	for _, h := range report.Holds {
		e, err := r.entry(ctx, h.Resource, h.position)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		h.Grant = grantOf(e.Grant)
		if h.ClaimedAt == nil {
			claim, err := r.entry(ctx, h.Resource, e.Claim)
			if err != nil {
				return err
			}
			if claim != nil {
				at := claim.At.UTC()
				h.ClaimedAt = &at
			}
		}
		found = append(found, h)
	}
	report.Holds = found
	return nil
}
