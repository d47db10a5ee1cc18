package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// historyRow is a row of "tokens history": an entry or a rejection. Numbers that JavaScript
// can't represent exactly are strings.
type historyRow struct {
	Resource string             `json:"resource"`
	Position int64              `json:"position,omitempty"` // of an entry
	Kind     string             `json:"kind"`
	At       time.Time          `json:"at"` // of a rejection: the first
	Epoch    int64              `json:"epoch"`
	Token    fence.Token        `json:"token"`
	Holder   string             `json:"holder"`
	Claim    int64              `json:"claim_position,omitempty"`
	Tx       storage.TxID       `json:"tx,string,omitempty"`
	XID      uint64             `json:"xid,string,omitempty"`
	Ops      []storage.OpRecord `json:"ops,omitempty"`
	Hash     string             `json:"hash,omitempty"`
	Rejected *rejected          `json:"rejected,omitempty"`
	Cursor   string             `json:"cursor"` // for --after
}

// rejected has the fields that only a rejection has.
type rejected struct {
	Reason  storage.Reason `json:"reason"`
	Stage   storage.Stage  `json:"stage"`
	Count   int64          `json:"count"`
	Last    time.Time      `json:"last_at"`
	Epoch   int64          `json:"current_epoch"`
	Token   fence.Token    `json:"current_token"`
	Holder  string         `json:"current_holder"`
	Claimed *time.Time     `json:"current_since,omitempty"`
}

func entryRow(e audit.Entry, end historyEnd) historyRow {
	return historyRow{
		Resource: e.Grant.Resource, Position: e.Seq, Kind: string(e.Kind), At: e.At.UTC(), Epoch: e.Grant.Epoch, Token: e.Grant.Token, Holder: e.Grant.Holder,
		Claim: e.Claim, Tx: e.Tx, XID: e.XID, Ops: e.Ops, Hash: hex.EncodeToString(e.Hash), Cursor: end.String(),
	}
}

func rejectionRow(r audit.Rejection, end historyEnd) historyRow {
	return historyRow{
		Resource: r.Grant.Resource, Kind: rejectionKind, At: r.First.UTC(), Epoch: r.Grant.Epoch, Token: r.Grant.Token, Holder: r.Grant.Holder, Cursor: end.String(),
		Rejected: &rejected{
			Reason: r.Reason, Stage: r.Stage, Count: r.Count, Last: r.Last.UTC(),
			Epoch: r.Current.Epoch, Token: r.Current.Token, Holder: r.Current.Holder, Claimed: timeOrNil(r.Since),
		},
	}
}

func (historyRow) Columns() []string {
	return []string{"resource", "position", "kind", "at", "epoch", "token", "holder", "claim_position", "tx", "xid", "ops", "hash",
		"reason", "stage", "count", "last_at", "current_epoch", "current_token", "current_holder", "current_since", "cursor"}
}

func (r historyRow) Cells() []string {
	cells := []string{r.Resource, "", r.Kind, r.At.Format(time.RFC3339Nano), number(r.Epoch), r.Token.String(), r.Holder}
	if c := r.Rejected; c != nil {
		since := ""
		if c.Claimed != nil {
			since = c.Claimed.Format(time.RFC3339Nano)
		}
		cells = append(cells, "", "", "", "", "", string(c.Reason), string(c.Stage), number(c.Count), c.Last.Format(time.RFC3339Nano),
			number(c.Epoch), c.Token.String(), c.Holder, since)
	} else {
		cells[1] = number(r.Position)
		ops, _ := json.Marshal(r.Ops)
		if len(r.Ops) == 0 {
			ops = nil
		}
		cells = append(cells, number(r.Claim), number(r.Tx), strconv.FormatUint(r.XID, 10), string(ops), r.Hash, "", "", "", "", "", "", "", "")
	}
	return append(cells, r.Cursor)
}

func number[T ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// historyLine is a row in the table format, reduced to fit a terminal.
type historyLine struct{ historyRow }

func (historyLine) Columns() []string {
	return []string{"resource", "position", "kind", "at", "epoch", "token", "details"}
}

func (l historyLine) Cells() []string {
	position := ""
	if l.Rejected == nil {
		position = number(l.Position)
	}
	return []string{l.Resource, position, l.Kind, l.At.Format(time.RFC3339), number(l.Epoch), l.Token.String(), l.details()}
}

func (l historyLine) details() string {
	if c := l.Rejected; c != nil {
		times := ""
		if c.Count > 1 {
			times = fmt.Sprintf(" %d times until %s", c.Count, c.Last.Format(time.RFC3339))
		}
		return fmt.Sprintf("%s: %s%s%s", l.Holder, c.Reason, times, l.rejectedBy())
	}
	var ops []string
	for _, op := range l.Ops {
		if said := words(op); said != "" {
			ops = append(ops, said)
		}
	}
	if len(ops) == 0 {
		return l.Holder
	}
	return l.Holder + ": " + strings.Join(ops, "; ")
}

// rejectedBy names the grant that had the fence, or what the database had seen, and its epoch if that is another.
func (l historyLine) rejectedBy() string {
	var by []string
	if c := l.Rejected; c.Epoch != l.Epoch && c.Epoch > 0 {
		by = append(by, fmt.Sprintf("epoch %d", c.Epoch))
	}
	if c := l.Rejected; c.Token > 0 {
		by = append(by, fmt.Sprintf("token %v", c.Token))
	}
	if len(by) == 0 {
		return ""
	}
	text := ", by " + strings.Join(by, ", ")
	if l.Rejected.Holder != "" {
		text += " of " + l.Rejected.Holder
	}
	return text
}

// words are what an operation recorded, in a line.
func words(op storage.OpRecord) string {
	var parts []string
	for _, part := range []string{op.Name, op.ID} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(op.Attrs)) {
		parts = append(parts, key+"="+op.Attrs[key])
	}
	return strings.Join(parts, " ")
}
