package review

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// explainRejection explains a rejection.
func (r *Reader) explainRejection(ctx context.Context, x *Explanation, rejection audit.Rejection) error {
	rejected, current := grantOf(rejection.Grant), grantOf(rejection.Current)
	x.Effect = EffectNone
	x.Rejection = rejectionOf(rejection)
	before := ""
	if x.Rejection.Since != nil {
		before = " " + lasting(rejection.First.Sub(rejection.Since)) + " before"
	}
	words := explainReason(rejection.Reason)
	x.Title = fmt.Sprintf("Rejection %d of %s: %s", rejection.ID, x.Resource, rejection.Reason)
	x.Conclusion = fmt.Sprintf("%s was rejected%s, because %s. Nothing that it attempted then took effect.",
		who(rejected), times(rejection.Count), strings.NewReplacer("{holder}", who(current), "{before}", before).Replace(words.because))

	own, err := r.claimOf(ctx, rejection.Grant)
	if err != nil {
		return err
	}
	claimed, err := r.claimOf(ctx, rejection.Current)
	if err != nil {
		return err
	}
	x.say("When", when(rejection))
	if err := r.sayHolders(ctx, x, rejection, own, claimed); err != nil {
		return err
	}
	x.say("Attempted", explainStage(rejection.Stage))
	x.say("Why it was rejected", words.meaning)
	x.say("Took effect", "Nothing. A transaction that is rejected leaves no trace but this record.")
	if x.History, err = r.around(ctx, rejection, own, claimed); err != nil {
		return err
	}
	x.addRejections(rejection)
	return nil
}

// sayHolders says who was rejected and who had the resource, as far as their claims are there.
func (r *Reader) sayHolders(ctx context.Context, x *Explanation, rejection audit.Rejection, own, claimed *audit.Entry) error {
	held := x.neverClaimed()
	if own != nil {
		t, err := r.tenure(ctx, *own)
		if err != nil {
			return err
		}
		held = t.String()
	}
	x.say("Rejected", who(grantOf(rejection.Grant))+". "+held)
	held = "It is the highest that the database had seen; it is no claim of this resource."
	switch {
	case claimed != nil:
		t, err := r.tenure(ctx, *claimed)
		if err != nil {
			return err
		}
		held = t.String()
	case rejection.Current.Holder != "":
		held = "The history has no such claim: it was lost in a failover or a restore, or the record was made up."
		if x.Pruned != nil {
			held = "The history has no such claim: it was pruned, or lost in a failover or a restore, or the record was made up."
		}
	}
	if rejection.Current == (fence.Grant{Resource: x.Resource}) {
		x.say("Holder then", "None is known.")
		return nil
	}
	x.say("Holder then", who(grantOf(rejection.Current))+". "+held)
	return nil
}

func (x *Explanation) neverClaimed() string {
	if x.Pruned != nil {
		return "No claim of it is in the history, or no longer: entries before " + clock(x.Pruned.At) + " were pruned."
	}
	return "It never claimed the resource."
}

// when says when a rejection was, and how often.
func when(r audit.Rejection) string {
	if r.Count == 1 {
		return "Once, at " + clock(r.First) + "."
	}
	return fmt.Sprintf("%d times, first at %s, last at %s.", r.Count, clock(r.First), clock(r.Last))
}

func times(n int64) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" %d times", n)
}

// nearby is how many entries are shown on either side of what is explained.
const nearby = 2

// around returns the entries that a rejection is to be seen among: the claims of both holders, and
// what came just before and after the newer claim and the rejection.
func (r *Reader) around(ctx context.Context, rejection audit.Rejection, own, claimed *audit.Entry) ([]Event, error) {
	resource := rejection.Grant.Resource
	shown := map[int64]Event{}
	add := func(position int64) error {
		entries, err := r.entries(ctx, resource, position-nearby, position+nearby)
		for _, e := range entries {
			shown[e.Seq] = eventOf(e)
		}
		return err
	}
	if own != nil {
		shown[own.Seq] = eventOf(*own)
	}
	if claimed != nil {
		if err := add(claimed.Seq); err != nil {
			return nil, err
		}
	}
	before, err := r.lastBefore(ctx, resource, rejection.First)
	if err != nil {
		return nil, err
	}
	if err := add(before); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(shown), func(a, b Event) int { return int(a.Position - b.Position) }), nil
}

// latestClaim returns the claim with a token that has the highest position, nil if there is none.
func (r *Reader) latestClaim(ctx context.Context, resource string, token fence.Token) (latest *audit.Entry, err error) {
	for e, err := range r.history.Entries(ctx, audit.Filter{Resource: resource, Kinds: []storage.EntryKind{storage.KindClaim}, MinToken: token, MaxToken: token}) {
		if err != nil {
			return nil, err
		}
		latest = &e
	}
	return latest, nil
}
