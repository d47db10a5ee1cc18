package review

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/audit"
)

// holding is the time for which a grant had the fence.
type holding struct {
	claim audit.Entry
	next  *audit.Entry // the claim that ended it, if one did
	last  *audit.Entry // of the grant
}

// holding returns how long the grant of a claim had the fence, and what it wrote.
func (r *Reader) holding(ctx context.Context, claim audit.Entry) (h holding, err error) {
	h.claim = claim
	resource := claim.Grant.Resource
	if h.next, err = r.claimAfter(ctx, resource, claim.Seq); err != nil {
		return h, err
	}
	var last int64
	if h.next != nil {
		last = h.next.Seq - 1
	} else if last, err = r.last(ctx, resource); err != nil {
		return h, err
	}
	h.last, err = r.entry(ctx, resource, last)
	return h, err
}

// String says from when to when, and what was done.
func (h holding) String() string {
	s := "It claimed the resource at " + clock(h.claim.At) + " (position " + number(h.claim.Seq) + ")"
	if h.next == nil {
		s += " and has had it since: no other has claimed"
	} else {
		s += fmt.Sprintf(" and had it for %s, until %s claimed at %s", lasting(h.next.At.Sub(h.claim.At)), who(grantOf(h.next.Grant)), clock(h.next.At))
	}
	if h.last == nil || h.last.Seq == h.claim.Seq {
		return s + ". It wrote nothing."
	}
	return s + ". Its last entry is that of " + clock(h.last.At) + " (position " + number(h.last.Seq) + ")."
}

// who names a grant's holder.
func who(g Grant) string { return fmt.Sprintf("%s (token %d)", g.Holder, g.Token) }

// clock writes a time, to the millisecond, in UTC.
func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000") }

func number(n int64) string { return fmt.Sprint(n) }

// lasting writes a duration with as much precision as people need.
func lasting(d time.Duration) string {
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds()) // a server's clock can go back
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(time.Second/10).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", minutes, int(d.Seconds())%60)
	case days == 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	}
	return fmt.Sprintf("%d d %d h", days, hours)
}
