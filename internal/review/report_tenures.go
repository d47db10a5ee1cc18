package review

import (
	"cmp"
	"context"
	"slices"
	"time"
)

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

// longest is how many tenures are listed.
const longest = 10

// endTenure lists the present tenure if it is among the longest within the period.
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
		t.Grant = grantOf(e.Grant)
		if t.ClaimedAt == nil {
			claim, err := r.entry(ctx, t.Resource, e.Claim)
			if err != nil {
				return err
			}
			if claim != nil {
				at := claim.At.UTC()
				t.ClaimedAt = &at
			}
		}
		found = append(found, t)
	}
	report.Tenures = found
	return nil
}
