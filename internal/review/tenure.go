package review

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/audit"
)

// wholeTenure is the time for which a grant had a resource, whether within a period or not.
type wholeTenure struct {
	claim audit.Entry
	next  *audit.Entry // the claim that ended it, if one did
	last  *audit.Entry // of the grant
}

// tenure returns how long the grant of a claim had the resource, and its last entry.
func (r *Reader) tenure(ctx context.Context, claim audit.Entry) (t wholeTenure, err error) {
	t.claim = claim
	resource := claim.Grant.Resource
	if t.next, err = r.claimAfter(ctx, resource, claim.Seq); err != nil {
		return t, err
	}
	var last int64
	if t.next != nil {
		last = t.next.Seq - 1
	} else if last, err = r.last(ctx, resource); err != nil {
		return t, err
	}
	t.last, err = r.entry(ctx, resource, last)
	return t, err
}

// String says from when to when, and what was done.
func (t wholeTenure) String() string {
	s := "It claimed the resource at " + clock(t.claim.At) + " (position " + number(t.claim.Seq) + ")"
	if t.next == nil {
		s += " and has had it since: no other has claimed"
	} else {
		s += fmt.Sprintf(" and had it for %s, until %s claimed at %s", lasting(t.next.At.Sub(t.claim.At)), who(grantOf(t.next.Grant)), clock(t.next.At))
	}
	if t.last == nil || t.last.Seq == t.claim.Seq {
		return s + ". It wrote nothing."
	}
	return s + ". Its last entry is that of " + clock(t.last.At) + " (position " + number(t.last.Seq) + ")."
}
