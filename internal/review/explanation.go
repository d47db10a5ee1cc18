package review

import (
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

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

// Fact is a named paragraph of an Explanation.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Columns are the columns of an Explanation in CSV, which omits the facts and the history.
func (*Explanation) Columns() []string { return []string{"resource", "title", "effect", "conclusion"} }

// Cells are the values of Columns.
func (x *Explanation) Cells() []string {
	return []string{x.Resource, x.Title, string(x.Effect), x.Conclusion}
}

func (x *Explanation) say(name, text string) { x.Facts = append(x.Facts, Fact{name, text}) }

// Grant is a grant without its resource.
type Grant struct {
	Epoch  int64       `json:"epoch"`
	Token  fence.Token `json:"token"`
	Holder string      `json:"holder"`
}

func grantOf(g fence.Grant) Grant { return Grant{g.Epoch, g.Token, g.Holder} }

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

func rejectionOf(r audit.Rejection) *Rejection {
	rejection := &Rejection{
		ID: r.ID, Reason: r.Reason, Stage: r.Stage, Rejected: grantOf(r.Grant), Current: grantOf(r.Current),
		Count: r.Count, First: r.First.UTC(), Last: r.Last.UTC(),
	}
	if !r.Since.IsZero() {
		since := r.Since.UTC()
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
}

const kindRejection = "rejection"

func eventOf(e audit.Entry) Event {
	return Event{Kind: string(e.Kind), Position: e.Seq, At: e.At.UTC(), Grant: grantOf(e.Grant), Tx: e.Tx, Ops: e.Ops}
}

// addRejections puts a rejection, at its first and last time, among the entries of x.
func (x *Explanation) addRejections(r audit.Rejection) {
	times := []time.Time{r.First}
	if r.Last.After(r.First) {
		times = append(times, r.Last)
	}
	for _, at := range times {
		i := 0
		for i < len(x.History) && !x.History[i].At.After(at) {
			i++
		}
		event := Event{Kind: kindRejection, At: at.UTC(), Grant: grantOf(r.Grant), Asked: true}
		x.History = append(x.History[:i], append([]Event{event}, x.History[i:]...)...)
	}
}
