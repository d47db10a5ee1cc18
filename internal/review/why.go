package review

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
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
	Claims    []tenure   `json:"claims,omitempty"` // the last ones of a resource without a rejection, if Question has nothing else
	History   []Event    `json:"history"`          // events before and after, in order, with gaps
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

// Found reports whether there is any record.
func (x *Explanation) Found() bool { return x.Rejection != nil || x.Entry != nil || x.Claims != nil }

// Text writes x with lines of at most width characters, as far as words allow.
func (x *Explanation) Text(w io.Writer, width int) error { return x.page().text(w, width) }

func (x *Explanation) page() page {
	p := page{Title: x.Title, Conclusion: x.Conclusion, Facts: x.Facts, Footnote: footnote}
	last, oneDay := int64(0), true
	for i, e := range x.History {
		day := e.At.UTC().Format(time.DateOnly) + " "
		oneDay = oneDay && (i == 0 || day == p.Day)
		p.Day = day
		line := historyLine{At: clock(e.At), Kind: e.Kind, Text: e.Grant.String(), Asked: e.Asked}
		if e.Position != 0 {
			if last != 0 && e.Position > last+1 {
				p.Lines = append(p.Lines, historyLine{Position: "...", Text: fmt.Sprintf("%d more", e.Position-last-1)})
			}
			last, line.Position = e.Position, fmt.Sprint(e.Position)
		}
		if did := e.Did(); len(did) > 0 {
			line.Text += ": " + list(did)
		}
		p.Lines = append(p.Lines, line)
	}
	if !oneDay {
		p.Day = ""
	}
	return p
}

// Grant is a grant without its resource.
type Grant struct {
	Epoch  int64       `json:"epoch"`
	Token  fence.Token `json:"token"`
	Holder string      `json:"holder"`
}

// String names the holder. Tokens rise within an epoch: one above the first is named too.
func (g Grant) String() string {
	if g.Epoch > 1 {
		return fmt.Sprintf("%s (epoch %d, token %d)", g.Holder, g.Epoch, g.Token)
	}
	return fmt.Sprintf("%s (token %d)", g.Holder, g.Token)
}

// Rejection is the record of a rejection.
type Rejection struct {
	Resource string         `json:"resource"`
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

// Event is an entry, or a rejection, in the order of what happened.
type Event struct {
	Kind     string       `json:"kind"` // claim, write, void or rejection
	Position int64        `json:"position,omitempty"`
	At       time.Time    `json:"at"` // of a rejection, the first or the last
	Grant    Grant        `json:"grant"`
	Tx       storage.TxID `json:"tx,string,omitempty"`
	Ops      ops          `json:"ops,omitempty"`
	Asked    bool         `json:"asked,omitempty"` // the explained event itself
	Claim    int64        `json:"-"`               // the position of its claim
}

type ops []storage.OpRecord

func (o *ops) UnmarshalJSON(text []byte) error {
	*o = record.Ops(string(text))
	return nil
}

const kindRejection = "rejection"

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
	Claim   Event     `json:"claim"`
	Next    *Event    `json:"next,omitempty"`    // the claim that ended it, if one did
	Last    *Event    `json:"last,omitempty"`    // of the grant
	Evicted *eviction `json:"evicted,omitempty"` // of Claims alone
}

type eviction struct {
	Grant  Grant     `json:"grant"`
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
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
	Claims   []tenure
	history  []Event
}

// facts are the names of facts, in the order of the page. Each is the name of a template.
var facts = []string{"When", "Rejected", "Holder then", "Attempted", "Why it was rejected", "Took effect", "Grant", "Holder before", "How they ended", "Operations", "Other resources", "The record", "Rejections", "Ids"}

// Why answers a question. If there is no record, the Explanation says so, and whether pruning may
// have removed it.
func (r *Reader) Why(ctx context.Context, q Question) (*Explanation, error) {
	s := &story{Question: q, history: []Event{}}
	err := r.read(ctx, record.ReadTx, &s.Pruned, "select to_json(p) from ("+statement("pruned")+") p where resource = $1", q.Resource)
	if err == nil {
		err = r.find(ctx, s)
	}
	switch {
	case err != nil:
	case s.Rejected != nil:
		err = r.readRejection(ctx, s)
	case s.Entry != nil:
		err = r.readEntry(ctx, s)
	default:
		err = r.readClaims(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	x := &Explanation{Resource: q.Resource, Effect: s.effect(), Rejection: s.Rejected, Entry: s.Entry, Facts: []Fact{}, Claims: s.Claims, History: s.history, Pruned: s.Pruned}
	if x.Title, err = sentence("title", s); err != nil {
		return nil, err
	}
	if x.Conclusion, err = sentence("conclusion", s); err != nil {
		return nil, err
	}
	for _, c := range s.Claims {
		text, err := sentence("claim", c)
		if err != nil {
			return nil, err
		}
		x.Facts = append(x.Facts, Fact{fmt.Sprintf("Claim %d", c.Claim.Position), text})
	}
	told, err := tell(facts, s)
	x.Facts = append(x.Facts, told...)
	return x, err
}

const maxClaims = 10

// readClaims reads where the fence is and, if nothing else was asked, the last claims, with the entry before each.
func (r *Reader) readClaims(ctx context.Context, s *story) error {
	err := r.read(ctx, record.ReadTx, &s.Last, "select to_json(position) from @current_fence x where resource = $1", s.Resource)
	if err != nil || s.Question != (Question{Resource: s.Resource}) {
		return err
	}
	s.history, err = r.events(ctx, s.Resource, fmt.Sprintf(`position = any ($2::bigint || array(
		select unnest(array[seq - 1, seq]) from (select seq from @history where kind = 'c' and name = $1 order by seq desc limit %d) c))`, maxClaims), s.Last)
	if err != nil {
		return err
	}
	var evictions []eviction
	err = r.read(ctx, record.ReadTx, &evictions, `select coalesce(json_agg(json_build_object('grant', json_build_object('epoch', epoch, 'token', token, 'holder', holder),
		'at', at, 'by', operator, 'reason', reason)), '[]') from @lock_eviction where resource = $1`, s.Resource)
	var next, last *Event
	for i := range slices.Backward(s.history) {
		e := &s.history[i]
		last = cmp.Or(last, e)
		if e.Kind != string(storage.KindClaim) || len(s.Claims) == maxClaims {
			continue
		}
		e.Asked = true
		t := tenure{Claim: *e, Next: next, Last: last}
		if at := slices.IndexFunc(evictions, func(e eviction) bool { return e.Grant == t.Claim.Grant }); at >= 0 {
			t.Evicted = &evictions[at]
		}
		s.Claims = append(s.Claims, t)
		next, last = e, nil
	}
	slices.Reverse(s.Claims)
	return err
}

// events returns the entries of a resource, $1, to which a condition applies.
func (r *Reader) events(ctx context.Context, resource, condition string, args ...any) ([]Event, error) {
	var rows []struct {
		Event
		Of int64 `json:"claim_position"`
	}
	err := r.read(ctx, record.ReadTx, &rows, statement("events")+condition+") e", append([]any{resource}, args...)...)
	found := make([]Event, len(rows))
	for i, row := range rows {
		found[i] = row.Event
		found[i].Claim = row.Of
	}
	return found, err
}

func (r *Reader) event(ctx context.Context, resource, condition string, args ...any) (*Event, error) {
	found, err := r.events(ctx, resource, condition, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

const (
	atPosition = "position = $2"
	nearby     = "position between $2 - 2 and $2 + 2"
)

// claim is the condition of the first or the last claim, as the index on claims has it, to which another applies.
func claim(which, condition string) string {
	return "position = (select " + which + "(seq) from @history where kind = 'c' and name = $1 and " + condition + ")"
}

func (r *Reader) find(ctx context.Context, s *story) (err error) {
	q := s.Question
	position := q.Position
	if q.OpID != "" {
		for op, err := range r.history.Operations(ctx, audit.Filter{Resource: q.Resource, Op: storage.OpRecord{ID: q.OpID}}) {
			if err != nil {
				return err
			}
			s.Count++
			position = op.Entry.Seq // the latest
		}
	}
	switch {
	case position != 0:
		s.Entry, err = r.event(ctx, q.Resource, atPosition, position)
	case q.OpID == "":
		latest := " where resource = $1 and $2::bigint in (0, id) and $3::bigint in (0, token) order by last_at desc, id desc limit 1"
		err = r.read(ctx, record.ReadTx, &s.Rejected, "select to_json(r) from ("+statement("rejection")+latest+") r", q.Resource, q.Rejection, int64(q.Token))
		if err == nil && s.Rejected == nil && q.Token != 0 {
			s.Entry, err = r.event(ctx, q.Resource, claim("max", "token = $2"), int64(q.Token))
		}
	}
	if s.Entry != nil {
		s.Entry.Asked = true
	}
	return err
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
	if s.Own, err = r.tenure(ctx, s.Resource, atPosition, e.Claim); err != nil {
		return err
	}
	switch e.Kind {
	case string(storage.KindClaim):
		s.Before, err = r.event(ctx, s.Resource, atPosition, e.Position-1)
	case string(storage.KindWrite):
		err = r.read(ctx, record.ReadTx, &s.Others, statement("others"), s.Resource, e.Position, e.At)
	}
	if err != nil {
		return err
	}
	s.history, err = r.events(ctx, s.Resource, nearby, e.Position)
	for i := range s.history {
		s.history[i].Asked = s.history[i].Position == e.Position
	}
	return err
}

// tenure returns that of the claim to which a condition applies.
func (r *Reader) tenure(ctx context.Context, resource, condition string, args ...any) (*tenure, error) {
	c, err := r.event(ctx, resource, condition, args...)
	if err != nil || c == nil {
		return nil, err
	}
	t := &tenure{Claim: *c}
	if t.Next, err = r.event(ctx, resource, claim("min", "seq > $2"), c.Position); err != nil {
		return nil, err
	}
	end := int64(math.MaxInt64)
	if t.Next != nil {
		end = t.Next.Position
	}
	t.Last, err = r.event(ctx, resource, "position < $2 order by position desc limit 1", end)
	return t, err
}

// readRejection reads what a rejection is to be seen among: the claims of both holders, and what came
// just before and after the newer claim and the rejection.
func (r *Reader) readRejection(ctx context.Context, s *story) (err error) {
	of := func(g Grant) (*tenure, error) {
		return r.tenure(ctx, s.Resource, claim("min", "(epoch, token, holder) = ($2, $3, $4)"), g.Epoch, int64(g.Token), g.Holder)
	}
	if s.Own, err = of(s.Rejected.Rejected); err != nil {
		return err
	}
	if s.Other, err = of(s.Rejected.Current); err != nil {
		return err
	}
	var own, other *int64
	if s.Own != nil {
		own = &s.Own.Claim.Position
	}
	if s.Other != nil {
		other = &s.Other.Claim.Position
	}
	if s.history, err = r.events(ctx, s.Resource, statement("beside"), own, other, s.Rejected.First); err != nil {
		return err
	}
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
