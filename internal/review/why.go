package review

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
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

// Explanation is the answer to a Question.
type Explanation struct {
	Resource   string `json:"resource"`
	Title      string `json:"title"`
	Conclusion string `json:"conclusion"` // one sentence, or two
	// Effect says whether the rejected or explained operation took effect.
	Effect    Effect     `json:"effect"`
	Rejection *Rejection `json:"rejection,omitempty"` // nil if no rejection is explained
	Entry     *Event     `json:"entry,omitempty"`     // the explained entry, by position or operation; or nil
	Facts     []Fact     `json:"facts"`
	History   []Event    `json:"history"` // events before and after, in order, with gaps
	Pruned    *Pruned    `json:"pruned,omitempty"`
}

// Effect says whether something took effect.
type Effect string

// The effects.
const (
	EffectDone    Effect = "yes"
	EffectNone    Effect = "no"
	EffectUnknown Effect = "unknown" // the history doesn't say, or was pruned
)

// Columns are those of a table and of CSV, which omit the facts and the history.
func (x *Explanation) Columns() any {
	return struct {
		Resource, Title string
		Effect          Effect
		Conclusion      string
	}{x.Resource, x.Title, x.Effect, x.Conclusion}
}

// Grant is a grant without its resource.
type Grant struct {
	Epoch  int64       `json:"epoch"`
	Token  fence.Token `json:"token"`
	Holder string      `json:"holder"`
}

func grantOf(g fence.Grant) Grant { return Grant{g.Epoch, g.Token, g.Holder} }

// String names the holder. Tokens rise within an epoch: one above the first is named too.
func (g Grant) String() string {
	if g.Epoch > 1 {
		return fmt.Sprintf("%s (epoch %d, token %d)", g.Holder, g.Epoch, g.Token)
	}
	return fmt.Sprintf("%s (token %d)", g.Holder, g.Token)
}

// Rejection is the record of a rejection.
type Rejection struct {
	ID       int64          `json:"id"`
	Reason   storage.Reason `json:"reason"`
	Stage    storage.Stage  `json:"stage"`
	Rejected Grant          `json:"rejected"`
	Current  Grant          `json:"current"`
	Since    *time.Time     `json:"current_since,omitempty"`
	Count    int64          `json:"count"`
	First    time.Time      `json:"first_at"`
	Last     time.Time      `json:"last_at"`
}

func rejectionOf(r audit.Rejection) Rejection {
	rejection := Rejection{
		ID: r.ID, Reason: r.Reason, Stage: r.Stage, Rejected: grantOf(r.Grant), Current: grantOf(r.Current),
		Count: r.Count, First: r.First.UTC(), Last: r.Last.UTC(),
	}
	if since := r.Since.UTC(); !since.IsZero() {
		rejection.Since = &since
	}
	return rejection
}

// Event is an entry, or a rejection, in the order of what happened.
type Event struct {
	Kind     string             `json:"kind"` // claim, write, void or rejection
	Position int64              `json:"position,omitempty"`
	At       time.Time          `json:"at"` // of a rejection, the first or the last
	Grant    Grant              `json:"grant"`
	Tx       storage.TxID       `json:"tx,string,omitempty"`
	Ops      []storage.OpRecord `json:"ops,omitempty"`
	Asked    bool               `json:"asked,omitempty"` // the explained event itself
	Claim    int64              `json:"-"`               // the position of its claim

	xid uint64
}

const kindRejection = "rejection"

func eventOf(e audit.Entry) Event {
	return Event{Kind: string(e.Kind), Position: e.Seq, At: e.At.UTC(), Grant: grantOf(e.Grant), Tx: e.Tx, Ops: e.Ops, Claim: e.Claim, xid: e.XID}
}

// Did lists what the operations recorded.
func (e Event) Did() (all []string) {
	for _, op := range e.Ops {
		all = append(all, cmp.Or(Words(op), "one that recorded nothing"))
	}
	return all
}

// Words are what an operation recorded, in a line.
func Words(op storage.OpRecord) string {
	parts := slices.DeleteFunc([]string{op.Name, op.ID}, func(part string) bool { return part == "" })
	for _, key := range slices.Sorted(maps.Keys(op.Attrs)) {
		parts = append(parts, key+"="+op.Attrs[key])
	}
	return strings.Join(parts, " ")
}

type tenure struct {
	Claim Event
	Next  *Event // the claim that ended it, if one did
	Last  *Event // of the grant
}

// story is what is known for the answer to a Question. The templates tell it.
type story struct {
	Question
	Rejected *Rejection // the explained rejection; or
	Entry    *Event     // the explained entry; or neither
	Own      *tenure    // of the rejected grant, or that of Entry; nil if its claim isn't there
	Other    *tenure    // of the grant that had the resource at a rejection
	Before   *Event     // the entry before a claim
	Count    int        // of operations with the id
	Others   []string   // resources that the transaction of Entry wrote too
	Pruned   *Pruned
	Last     int64 // the position of the fence
	history  []Event
}

// facts are the names of facts, in the order of the page. Each is the name of a template.
var facts = []string{"When", "Rejected", "Holder then", "Attempted", "Why it was rejected", "Took effect", "Grant", "Holder before", "Operations", "Other resources", "The record", "Rejections", "Ids"}

// Why answers a question. If there is no record, the Explanation says so, and whether pruning may
// have removed it.
func (r *Reader) Why(ctx context.Context, q Question) (*Explanation, error) {
	s := &story{Question: q, history: []Event{}}
	if err := r.pruned(ctx, "f.name = $1", []any{q.Resource}, func(p PrunedResource) { s.Pruned = &p.Pruned }); err != nil {
		return nil, err
	}
	err := r.find(ctx, s)
	switch {
	case err != nil:
	case s.Rejected != nil:
		err = r.readRejection(ctx, s)
	case s.Entry != nil:
		err = r.readEntry(ctx, s)
	default:
		s.Last, err = r.last(ctx, q.Resource)
	}
	if err != nil {
		return nil, err
	}
	x := &Explanation{Resource: q.Resource, Effect: s.effect(), Rejection: s.Rejected, Entry: s.Entry, History: s.history, Pruned: s.Pruned}
	if x.Title, err = sentence("title", s); err != nil {
		return nil, err
	}
	if x.Conclusion, err = sentence("conclusion", s); err != nil {
		return nil, err
	}
	x.Facts, err = tell(facts, s)
	return x, err
}

func (r *Reader) find(ctx context.Context, s *story) error {
	q := s.Question
	switch {
	case q.OpID != "":
		for op, err := range r.history.Operations(ctx, audit.Filter{Resource: q.Resource, Op: storage.OpRecord{ID: q.OpID}}) {
			if err != nil {
				return err
			}
			s.Count++
			s.explain(eventOf(op.Entry)) // the latest
		}
		return nil
	case q.Position != 0:
		e, err := r.entry(ctx, q.Resource, q.Position)
		if e != nil {
			s.explain(*e)
		}
		return err
	}
	f := audit.Filter{Resource: q.Resource, MinToken: q.Token, MaxToken: q.Token}
	if q.Rejection != 0 {
		f.After = audit.Cursor{Resource: q.Resource, Seq: q.Rejection - 1}
	}
	var rejection *audit.Rejection // without a number, the latest
	for one, err := range r.history.Rejections(ctx, f) {
		if err != nil {
			return err
		}
		if q.Rejection != 0 && one.ID != q.Rejection {
			break
		}
		if rejection == nil || !one.Last.Before(rejection.Last) {
			rejection = &one
		}
	}
	if rejection != nil {
		rejected := rejectionOf(*rejection)
		s.Rejected = &rejected
	}
	if rejection != nil || q.Token == 0 {
		return nil
	}
	for claim, err := range r.history.Entries(ctx, claims(q.Resource, q.Token)) {
		if err != nil {
			return err
		}
		s.explain(eventOf(claim)) // the latest
	}
	return nil
}

func (s *story) explain(e Event) {
	e.Asked = true
	s.Entry = &e
}

func (s *story) effect() Effect {
	switch {
	case s.Rejected != nil, s.Entry != nil && s.Entry.Kind == string(storage.KindVoid), s.Entry == nil && s.OpID != "" && s.Pruned == nil:
		return EffectNone
	case s.Entry != nil:
		return EffectDone
	}
	return EffectUnknown
}

func (r *Reader) readEntry(ctx context.Context, s *story) (err error) {
	e := s.Entry
	if s.Own, err = r.tenure(ctx, s.Resource, func() (*Event, error) { return r.entry(ctx, s.Resource, e.Claim) }); err != nil {
		return err
	}
	if e.Kind == string(storage.KindClaim) {
		if s.Before, err = r.entry(ctx, s.Resource, e.Position-1); err != nil {
			return err
		}
	}
	if e.Kind == string(storage.KindWrite) {
		if err := r.readOthers(ctx, s); err != nil {
			return err
		}
	}
	s.history, err = r.entries(ctx, s.Resource, e.Position-nearby, e.Position+nearby)
	for i := range s.history {
		s.history[i].Asked = s.history[i].Position == e.Position
	}
	return err
}

const nearby = 2

// readOthers reads which other resources the transaction of an entry wrote. Those entries are from
// about the same time: a transaction seals all its resources with one statement.
func (r *Reader) readOthers(ctx context.Context, s *story) error {
	const within = time.Minute // far longer than a seal may wait for the locks of fences
	f := audit.Filter{Since: s.Entry.At.Add(-within), Until: s.Entry.At.Add(within), Kinds: []storage.EntryKind{storage.KindWrite}}
	for other, err := range r.history.Entries(ctx, f) {
		if err != nil {
			return err
		}
		if other.Tx == s.Entry.Tx && other.XID == s.Entry.xid && other.Grant.Resource != s.Resource {
			s.Others = append(s.Others, fmt.Sprintf("%s (position %d)", other.Grant.Resource, other.Seq))
		}
	}
	return nil
}

func (r *Reader) tenure(ctx context.Context, resource string, find func() (*Event, error)) (*tenure, error) {
	claim, err := find()
	if err != nil || claim == nil {
		return nil, err
	}
	t := &tenure{Claim: *claim}
	after := claims(resource, 0)
	after.After = audit.Cursor{Resource: resource, Seq: claim.Position}
	next, err := first(r.history.Entries(ctx, after))
	if err != nil {
		return nil, err
	}
	var last int64
	if next != nil {
		event := eventOf(*next)
		t.Next, last = &event, next.Seq-1
	} else if last, err = r.last(ctx, resource); err != nil {
		return nil, err
	}
	t.Last, err = r.entry(ctx, resource, last)
	return t, err
}

// readRejection reads what a rejection is to be seen among: the claims of both holders, and what came
// just before and after the newer claim and the rejection.
func (r *Reader) readRejection(ctx context.Context, s *story) (err error) {
	of := func(g Grant) func() (*Event, error) {
		return func() (*Event, error) {
			for e, err := range r.history.Entries(ctx, claims(s.Resource, g.Token)) {
				if event := eventOf(e); err != nil || event.Grant == g {
					return &event, err
				}
			}
			return nil, nil
		}
	}
	if s.Own, err = r.tenure(ctx, s.Resource, of(s.Rejected.Rejected)); err != nil {
		return err
	}
	if s.Other, err = r.tenure(ctx, s.Resource, of(s.Rejected.Current)); err != nil {
		return err
	}
	shown := map[int64]Event{}
	if s.Own != nil {
		shown[s.Own.Claim.Position] = s.Own.Claim
	}
	before, err := r.lastBefore(ctx, s.Resource, s.Rejected.First)
	if err != nil {
		return err
	}
	around := []int64{before}
	if s.Other != nil {
		around = append(around, s.Other.Claim.Position)
	}
	for _, position := range around {
		entries, err := r.entries(ctx, s.Resource, position-nearby, position+nearby)
		if err != nil {
			return err
		}
		for _, e := range entries {
			shown[e.Position] = e
		}
	}
	s.history = slices.SortedFunc(maps.Values(shown), func(a, b Event) int { return int(a.Position - b.Position) })
	s.addRejection(s.Rejected.First)
	if s.Rejected.Last.After(s.Rejected.First) {
		s.addRejection(s.Rejected.Last)
	}
	return nil
}

func (s *story) addRejection(at time.Time) {
	i := slices.IndexFunc(s.history, func(e Event) bool { return e.At.After(at) })
	if i < 0 {
		i = len(s.history)
	}
	s.history = slices.Insert(s.history, i, Event{Kind: kindRejection, At: at, Grant: s.Rejected.Rejected, Asked: true})
}
