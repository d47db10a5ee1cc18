package fencectl

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage"
)

func newTokens() *cobra.Command {
	d := &databaseFlags{timeout: time.Hour}
	return connected(d, newCommand("tokens", nil), newTokensHistory(d))
}

type tokensHistory struct {
	filter      audit.Filter
	kinds       []string
	limit, last int

	entries, rejections bool // which of the two are read
}

const historyLimit = 100

func newTokensHistory(d *databaseFlags) *cobra.Command {
	h := &tokensHistory{}
	cmd := newCommand("tokens history", func(cmd *cobra.Command, args []string) error {
		h.filter.Resources = args[0]
		if err := h.parse(cmd); err != nil {
			return err
		}
		return h.run(cmd, d)
	})
	flags := cmd.Flags()
	flags.Var((*instant)(&h.filter.Since), "since", "not before this time")
	flags.Var((*instant)(&h.filter.Until), "until", "before this time")
	flags.StringSliceVar(&h.kinds, "kind", nil, "only these: claim, write, void, rejection")
	flags.StringVar(&h.filter.Holder, "holder", "", "only holders that match this pattern with * and ?; of a rejection, the rejected holder")
	flags.StringVar(&h.filter.Op.ID, "op-id", "", "only writes that contain an operation with this id (guard.OpID)")
	flags.StringVar(&h.filter.Op.Name, "op-name", "", "only writes that contain an operation with this name (guard.OpName)")
	flags.IntVar(&h.limit, "limit", 0, fmt.Sprintf("the highest number of rows; 0 means %d for a table, and no limit for JSON", historyLimit))
	flags.IntVar(&h.last, "last", 0, "only so many rows, the newest ones, the newest first")
	cmd.MarkFlagsMutuallyExclusive("last", "limit")
	return cmd
}

func (h *tokensHistory) parse(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case changed("until") && !h.filter.Since.Before(h.filter.Until):
		return cli.UsageErrorf("--until is %v, want it after --since, %v", cmd.Flag("until").Value, cmd.Flag("since").Value)
	case h.limit < 0:
		return cli.UsageErrorf("--limit is %d, want at least 0", h.limit)
	case changed("last") && h.last < 1:
		return cli.UsageErrorf("--last is %d, want at least 1", h.last)
	case !changed("last") && h.limit == 0 && !cli.AsJSON(cmd):
		h.limit = historyLimit
	}
	return h.parseKinds()
}

const rejectionKind = "rejection"

var historyKinds = []string{string(storage.KindClaim), string(storage.KindWrite), string(storage.KindVoid), rejectionKind}

// parseKinds decides what is read. Only writes record operations.
func (h *tokensHistory) parseKinds() error {
	for _, kind := range h.kinds {
		switch {
		case !slices.Contains(historyKinds, kind):
			return cli.UsageErrorf("--kind is %q, want claim, write, void or rejection", kind)
		case kind != rejectionKind:
			h.filter.Kinds = append(h.filter.Kinds, storage.EntryKind(kind))
		}
	}
	byOp := h.filter.Op.ID != "" || h.filter.Op.Name != ""
	h.entries = len(h.kinds) == 0 || len(h.filter.Kinds) > 0
	h.rejections = len(h.kinds) == 0 && !byOp || slices.Contains(h.kinds, rejectionKind)
	return nil
}

func (h *tokensHistory) run(cmd *cobra.Command, d *databaseFlags) error {
	var written error
	p := page{limit: h.limit}
	rows, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) (rows []historyRow, err error) {
		if h.last > 0 {
			if err := h.skip(ctx, db, d.schema); err != nil {
				return nil, err
			}
		}
		read := p.of(h.read(ctx, db.history))
		if h.last > 0 {
			read = newest(read, h.last)
		}
		if cli.AsJSON(cmd) {
			written = cli.WriteLines(cmd.OutOrStdout(), read)
		} else {
			rows = slices.Collect(read)
		}
		if p.n == 0 && p.failed == nil && written == nil {
			return rows, d.requireKnown(ctx, db, h.filter.Resources, strings.ContainsAny(h.filter.Resources, "*?"))
		}
		return rows, p.failed
	})
	if err == nil {
		err = cmp.Or(written, cli.WriteTable(cmd.OutOrStdout(), rows))
	}
	switch {
	case err != nil:
		return err
	case p.n > h.limit && h.limit > 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "there are more rows: raise --limit, or take -o json")
	case p.n == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing matches")
	}
	return nil
}

func (h *tokensHistory) read(ctx context.Context, db *audit.Database) iter.Seq2[historyRow, error] {
	entries := func(func(audit.Entry, error) bool) {}
	rejections := func(func(audit.Rejection, error) bool) {}
	if h.entries {
		entries = db.Entries(ctx, h.filter)
	}
	if h.rejections {
		f := h.filter
		f.Kinds = nil
		f.After = audit.Cursor{}
		rejections = db.Rejections(ctx, f)
	}
	return merge(entries, rejections)
}

// skip makes read begin with the last entries of a resource, where all of its entries match.
func (h *tokensHistory) skip(ctx context.Context, db *session, schema string) error {
	f := h.filter
	narrowed := len(h.kinds) > 0 || f.Holder+f.Op.ID+f.Op.Name != "" || !f.Since.IsZero() || !f.Until.IsZero()
	if narrowed || strings.ContainsAny(f.Resources, "*?") {
		return nil
	}
	var end int64
	err := record.ReadTx(ctx, db.Pool, "", func(tx pgx.Tx) error {
		sql := fmt.Sprintf("select coalesce(max(seq), 0) from %s.resource where name = $1", pgx.Identifier{schema}.Sanitize())
		return tx.QueryRow(ctx, sql, f.Resources).Scan(&end)
	})
	h.filter.After = audit.Cursor{Resource: f.Resources, Seq: max(end-int64(h.last), 0)}
	return err
}

func newest(rows iter.Seq[historyRow], n int) iter.Seq[historyRow] {
	var kept []historyRow
	cut := func() {
		slices.SortStableFunc(kept, func(a, b historyRow) int {
			return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Position, a.Position))
		})
		kept = kept[:min(len(kept), n)]
	}
	for row := range rows {
		if kept = append(kept, row); len(kept) > 2*n {
			cut()
		}
	}
	cut()
	return slices.Values(kept)
}

type page struct {
	limit, n int // one more than the limit if rows follow
	failed   error
}

func (p *page) of(rows iter.Seq2[historyRow, error]) iter.Seq[historyRow] {
	return func(yield func(historyRow) bool) {
		for row, err := range rows {
			if err != nil {
				p.failed = err
				return
			}
			if p.n++; p.limit > 0 && p.n > p.limit || !yield(row) {
				return
			}
		}
	}
}

// merge merges entries and rejections. A rejection comes before the first entry of its resource
// that is later than its first time. Both are in the order of the resources.
func merge(entries iter.Seq2[audit.Entry, error], rejections iter.Seq2[audit.Rejection, error]) iter.Seq2[historyRow, error] {
	return func(yield func(historyRow, error) bool) {
		nextEntry, stopEntries := iter.Pull2(entries)
		defer stopEntries()
		nextRejection, stopRejections := iter.Pull2(rejections)
		defer stopRejections()
		e, noEntry, hasEntry := nextEntry()
		r, noRejection, hasRejection := nextRejection()
		for hasEntry || hasRejection {
			if err := cmp.Or(noEntry, noRejection); err != nil {
				yield(historyRow{}, err)
				return
			}
			var row historyRow
			if hasEntry && (!hasRejection || !before(r, e)) {
				row = entryRow(e)
				e, noEntry, hasEntry = nextEntry()
			} else {
				row = rejectionRow(r)
				r, noRejection, hasRejection = nextRejection()
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

func before(r audit.Rejection, e audit.Entry) bool {
	if r.Grant.Resource != e.Grant.Resource {
		return r.Grant.Resource < e.Grant.Resource
	}
	return r.First.Before(e.At)
}

// historyRow is a row of "tokens history": an entry or a rejection. Numbers that JavaScript
// can't represent exactly are strings.
type historyRow struct {
	Resource string             `json:"resource"`
	Position int64              `json:"position,omitempty"`
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
}

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

func entryRow(e audit.Entry) historyRow {
	g := e.Grant
	return historyRow{
		Resource: g.Resource, Position: e.Seq, Kind: string(e.Kind), At: e.At.UTC(), Epoch: g.Epoch, Token: g.Token, Holder: g.Holder,
		Claim: e.Claim, Tx: e.Tx, XID: e.XID, Ops: e.Ops, Hash: hex.EncodeToString(e.Hash),
	}
}

func rejectionRow(r audit.Rejection) historyRow {
	g := r.Grant
	return historyRow{
		Resource: g.Resource, Kind: rejectionKind, At: r.First.UTC(), Epoch: g.Epoch, Token: g.Token, Holder: g.Holder,
		Rejected: &rejected{
			Reason: r.Reason, Stage: r.Stage, Count: r.Count, Last: r.Last.UTC(),
			Epoch: r.Current.Epoch, Token: r.Current.Token, Holder: r.Current.Holder, Claimed: timeOrNil(r.Since),
		},
	}
}

// Columns are those of a table.
func (l historyRow) Columns() any {
	return struct {
		Resource string
		Position int64 `json:",omitempty"`
		Kind     string
		At       time.Time
		Epoch    int64
		Token    fence.Token
		Details  string
	}{l.Resource, l.Position, l.Kind, l.At, l.Epoch, l.Token, l.details()}
}

func (l historyRow) details() string {
	if c := l.Rejected; c != nil {
		text := l.Holder + ": " + string(c.Reason)
		if c.Count > 1 {
			text += fmt.Sprintf(" %d times until %s", c.Count, c.Last.Format(time.RFC3339))
		}
		if c.Epoch > 0 || c.Token > 0 { // that had the fence, or what the database had seen
			epoch := ""
			if c.Epoch > 1 { // tokens rise within an epoch
				epoch = fmt.Sprintf("epoch %d, ", c.Epoch)
			}
			text += ", by " + strings.TrimSpace(fmt.Sprintf("%s (%stoken %d)", c.Holder, epoch, c.Token))
		}
		return text
	}
	var ops []string
	for _, op := range l.Ops {
		if said := recorded(op); said != "" {
			ops = append(ops, said)
		}
	}
	if len(ops) == 0 {
		return l.Holder
	}
	return l.Holder + ": " + strings.Join(ops, "; ")
}

// recorded is what an operation recorded, in a line.
func recorded(op storage.OpRecord) string {
	parts := slices.DeleteFunc([]string{op.Name, op.ID}, func(part string) bool { return part == "" })
	for _, key := range slices.Sorted(maps.Keys(op.Attrs)) {
		parts = append(parts, key+"="+op.Attrs[key])
	}
	return strings.Join(parts, " ")
}
