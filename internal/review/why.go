package review

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
)

// Question selects what Why explains about a resource. At most one field besides Resource may be
// set; without one, Why explains the latest rejection.
type Question struct {
	Resource  string // an exact name, not empty
	Rejection int64  // the number of a rejection
	Token     fence.Token
	OpID      string
	Position  int64
}

// Why answers a question. If there is no record, the Explanation says so, and whether pruning may
// have removed it.
func (r *Reader) Why(ctx context.Context, q Question) (*Explanation, error) {
	pruned, err := r.pruned(ctx, q.Resource)
	if err != nil {
		return nil, err
	}
	x := &Explanation{Resource: q.Resource, Effect: EffectUnknown, Pruned: pruned, Facts: []Fact{}, History: []Event{}}
	switch {
	case q.OpID != "":
		err = r.explainOperation(ctx, x, q.OpID)
	case q.Position != 0:
		err = r.explainPosition(ctx, x, q.Position)
	case q.Rejection != 0:
		err = r.explainNumber(ctx, x, q.Rejection)
	default:
		err = r.explainLatest(ctx, x, q.Token)
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// explainNumber explains the rejection with a number.
func (r *Reader) explainNumber(ctx context.Context, x *Explanation, id int64) error {
	found, err := first(r.history.Rejections(ctx, audit.Filter{Resource: x.Resource, After: audit.Cursor{Resource: x.Resource, Seq: id - 1}}))
	if err != nil {
		return err
	}
	if found == nil || found.ID != id {
		return r.explainNothing(ctx, x, fmt.Sprintf("No rejection with the number %d of %s is recorded.", id, x.Resource))
	}
	return r.explainRejection(ctx, x, *found)
}

// explainLatest explains the latest rejection, of a token unless that is 0; without a rejection,
// what became of the token.
func (r *Reader) explainLatest(ctx context.Context, x *Explanation, token fence.Token) error {
	var latest *audit.Rejection
	for rejection, err := range r.history.Rejections(ctx, audit.Filter{Resource: x.Resource, MinToken: token, MaxToken: token}) {
		if err != nil {
			return err
		}
		if latest == nil || !rejection.Last.Before(latest.Last) {
			latest = &rejection
		}
	}
	switch {
	case latest != nil:
		return r.explainRejection(ctx, x, *latest)
	case token != 0:
		return r.explainToken(ctx, x, token)
	}
	return r.explainNothing(ctx, x, fmt.Sprintf("No rejection of %s is recorded.", x.Resource))
}

// explainToken explains the latest claim with a token, of which no rejection is recorded.
func (r *Reader) explainToken(ctx context.Context, x *Explanation, token fence.Token) error {
	claim, err := r.latestClaim(ctx, x.Resource, token)
	if err != nil {
		return err
	}
	if claim == nil {
		return r.explainNothing(ctx, x, fmt.Sprintf("Token %d never claimed %s, and no rejection of it is recorded.", token, x.Resource))
	}
	if err := r.explainEntry(ctx, x, *claim); err != nil {
		return err
	}
	x.Title = fmt.Sprintf("Token %d of %s", token, x.Resource)
	x.Conclusion = fmt.Sprintf("No rejection of token %d is recorded. %s", token, x.Conclusion)
	return nil
}

// explainNothing concludes that there is no record, and says what that is worth.
func (r *Reader) explainNothing(ctx context.Context, x *Explanation, conclusion string) error {
	x.Title, x.Conclusion = "No record", conclusion
	last, err := r.last(ctx, x.Resource)
	if err != nil {
		return err
	}
	if last == 0 {
		x.Conclusion += " The database has no history of a resource of this name; names are exact, to the letter."
		return nil
	}
	x.say("The record", x.extent(last))
	x.say("Rejections", "A rejection is recorded unless the database can't be reached at that moment. The record may have been pruned since, as the owner's policy allows.")
	return nil
}

// extent says what of the history is there.
func (x *Explanation) extent(last int64) string {
	if x.Pruned == nil {
		return fmt.Sprintf("The history of %s is complete: nothing was pruned. Its last position is %d.", x.Resource, last)
	}
	kept := ""
	if x.Pruned.Claim != 0 {
		kept = fmt.Sprintf(" but for the claim at position %d", x.Pruned.Claim)
	}
	return fmt.Sprintf("The history of %s was pruned: what came before position %d, that is before %s, is gone%s. Its last position is %d.", x.Resource, x.Pruned.First, clock(x.Pruned.At), kept, last)
}
