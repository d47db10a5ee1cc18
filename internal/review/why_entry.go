package review

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
)

// explainPosition explains the entry at a position.
func (r *Reader) explainPosition(ctx context.Context, x *Explanation, position int64) error {
	e, err := r.entry(ctx, x.Resource, position)
	switch {
	case err != nil:
		return err
	case e != nil:
		return r.explainEntry(ctx, x, *e)
	case x.Pruned != nil && position < x.Pruned.First:
		return r.explainNothing(ctx, x, fmt.Sprintf("The entry at position %d of %s was pruned.", position, x.Resource))
	}
	return r.explainNothing(ctx, x, fmt.Sprintf("%s has no entry at position %d.", x.Resource, position))
}

// explainEntry explains an entry.
func (r *Reader) explainEntry(ctx context.Context, x *Explanation, e audit.Entry) error {
	event := eventOf(e)
	event.Asked = true
	x.Entry = &event
	x.Title = fmt.Sprintf("Position %d of %s", e.Seq, x.Resource)
	x.Effect = EffectDone
	holder := who(grantOf(e.Grant))
	switch e.Kind {
	case storage.KindClaim:
		x.Conclusion = fmt.Sprintf("%s took over %s at %s.", holder, x.Resource, clock(e.At))
	case storage.KindVoid:
		x.Effect = EffectNone
		x.Conclusion = fmt.Sprintf("A transaction of %s, of which it was unknown whether it had committed, was ruled out at %s: it took no effect and never will.", holder, clock(e.At))
	default:
		x.Conclusion = fmt.Sprintf("A transaction of %s that wrote under the lock of %s committed at %s.", holder, x.Resource, clock(e.At))
	}
	if err := r.sayGrant(ctx, x, e); err != nil {
		return err
	}
	if e.Kind == storage.KindWrite {
		if err := r.sayTransaction(ctx, x, e); err != nil {
			return err
		}
	}
	entries, err := r.entries(ctx, x.Resource, e.Seq-nearby, e.Seq+nearby)
	for _, near := range entries {
		event := eventOf(near)
		event.Asked = near.Seq == e.Seq
		x.History = append(x.History, event)
	}
	return err
}

// sayGrant says under which grant an entry was made, and which one had the resource before a claim.
func (r *Reader) sayGrant(ctx context.Context, x *Explanation, e audit.Entry) error {
	claim, err := r.entry(ctx, x.Resource, e.Claim)
	if err != nil {
		return err
	}
	if claim == nil {
		x.say("Grant", "The claim of the grant, at position "+number(e.Claim)+", is missing.")
		return nil
	}
	t, err := r.tenure(ctx, *claim)
	if err != nil {
		return err
	}
	x.say("Grant", who(grantOf(e.Grant))+". "+t.String())
	if e.Kind != storage.KindClaim {
		return nil
	}
	before, err := r.entry(ctx, x.Resource, e.Seq-1)
	switch {
	case err != nil:
		return err
	case before != nil:
		x.say("Holder before", who(grantOf(before.Grant))+".")
	case e.Seq == 1:
		x.say("Holder before", "None: this is the first claim.")
	default:
		x.say("Holder before", "The entries before were pruned.")
	}
	return nil
}

// explainOperation explains the latest operation with an id.
func (r *Reader) explainOperation(ctx context.Context, x *Explanation, id string) error {
	var latest *audit.Operation
	count := 0
	for op, err := range r.history.Operations(ctx, audit.Filter{Resource: x.Resource, Op: storage.OpRecord{ID: id}}) {
		if err != nil {
			return err
		}
		latest, count = &op, count+1
	}
	if latest == nil {
		return r.explainNoOperation(ctx, x, id)
	}
	if err := r.explainEntry(ctx, x, latest.Entry); err != nil {
		return err
	}
	x.Title = fmt.Sprintf("Operation %s of %s", id, x.Resource)
	x.Conclusion = fmt.Sprintf("Operation %s took effect at %s, in a transaction of %s.", id, clock(latest.Entry.At), who(grantOf(latest.Entry.Grant)))
	if count > 1 {
		x.Conclusion = fmt.Sprintf("%d operations with the id %s took effect, the latest at %s, in a transaction of %s.", count, id, clock(latest.Entry.At), who(grantOf(latest.Entry.Grant)))
	}
	return nil
}

func (r *Reader) explainNoOperation(ctx context.Context, x *Explanation, id string) error {
	conclusion := fmt.Sprintf("No transaction that committed for %s recorded an operation with the id %s.", x.Resource, id)
	if x.Pruned != nil {
		conclusion += fmt.Sprintf(" Entries before %s were pruned: it may have taken effect before that.", clock(x.Pruned.At))
	} else {
		x.Effect = EffectNone
		conclusion += " Nothing was pruned, so none that was given this id has taken effect."
	}
	if err := r.explainNothing(ctx, x, conclusion); err != nil {
		return err
	}
	x.say("Ids", "An operation has the id that its program gave it. Rejections don't record ids.")
	return nil
}

// sayTransaction says what else the transaction of a write did.
func (r *Reader) sayTransaction(ctx context.Context, x *Explanation, e audit.Entry) error {
	switch len(e.Ops) {
	case 0:
		x.say("Operations", "The transaction recorded none.")
	case 1:
		x.say("Operation", operation(e.Ops[0])+".")
	default:
		x.say("Operations", fmt.Sprintf("%d shared the transaction, as a group, and took effect together: %s.", len(e.Ops), listing(e.Ops, operation)))
	}
	others, err := r.sharing(ctx, e)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		x.say("Other resources", fmt.Sprintf("The transaction wrote under the locks of these too: %s.", listing(others, func(o audit.Entry) string {
			return fmt.Sprintf("%s (position %d)", o.Grant.Resource, o.Seq)
		})))
	}
	return nil
}

// sharing returns the entries that the transaction of e wrote for other resources. They are from
// about the same time: a transaction seals all its resources with one statement.
func (r *Reader) sharing(ctx context.Context, e audit.Entry) ([]audit.Entry, error) {
	var others []audit.Entry
	f := audit.Filter{Since: e.At.Add(-sharingWithin), Until: e.At.Add(sharingWithin), Kinds: []storage.EntryKind{storage.KindWrite}}
	for other, err := range r.history.Entries(ctx, f) {
		if err != nil {
			return nil, err
		}
		if other.Tx == e.Tx && other.XID == e.XID && other.Grant.Resource != e.Grant.Resource {
			others = append(others, other)
		}
	}
	return others, nil
}

// sharingWithin is far longer than a seal may wait for the locks of fences.
const sharingWithin = time.Minute

// operation describes what an operation recorded.
func operation(op storage.OpRecord) string {
	var parts []string
	if op.Name != "" {
		parts = append(parts, op.Name)
	}
	if op.ID != "" {
		parts = append(parts, op.ID)
	}
	for _, key := range slices.Sorted(maps.Keys(op.Attrs)) {
		parts = append(parts, key+"="+op.Attrs[key])
	}
	if len(parts) == 0 {
		return "one that recorded nothing"
	}
	return strings.Join(parts, " ")
}

// listed is how many of several things are named.
const listed = 10

// listing names the first of several things.
func listing[T any](all []T, name func(T) string) string {
	var names []string
	for _, one := range all[:min(listed, len(all))] {
		names = append(names, name(one))
	}
	text := strings.Join(names, ", ")
	if more := len(all) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
