package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// Policy says how long a schema keeps what Store.Prune deletes. Only the schema's owner can change it.
type Policy struct {
	// Keep is the age from which entries of the history and rejections may be deleted: at least an hour. 0, the
	// default: never, except by Prune with PruneOptions.
	Keep time.Duration
	// KeepEntries is how many entries of each resource are kept, however old: at least one. Default 1000.
	KeepEntries int64
	// KeepOnce is how long a key of guard.Once is kept: at least a minute. Default 7 days. Unless Store.Prune is
	// called at least four times in that period, no key is deleted.
	KeepOnce time.Duration
}

func (p Policy) validate() error {
	if (p.Keep != 0 && p.Keep < record.MinKeep) || p.Keep > record.MaxKeep || p.KeepEntries < 1 || p.KeepOnce < record.MinKeepOnce || p.KeepOnce > record.MaxKeep {
		return fmt.Errorf("%w: postgres.Policy keeps history for %v, %d entries of each resource, and Once keys for %v: "+
			"want at least 1h, or 0 for good, 1 entry and 1m, and at most 100,000 days", fence.ErrInvalid, p.Keep, p.KeepEntries, p.KeepOnce)
	}
	return nil
}

// ReadPolicy returns the policy of a schema ("" means DefaultSchema). The reader role may call it.
func ReadPolicy(ctx context.Context, pool *pgxpool.Pool, schema string) (p Policy, err error) {
	schema, err = identifierOf(schema)
	if err != nil {
		return p, err
	}
	var keep, keepOnce int64
	err = record.ReadTx(ctx, pool, "", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select coalesce("+micros("history_keep")+", 0), history_keep_entries, "+micros("once_retention")+
			" from "+schema+".setting").Scan(&keep, &p.KeepEntries, &keepOnce)
	})
	if err != nil {
		return p, fmt.Errorf("postgres: reading the policy: %w", err)
	}
	p.Keep, p.KeepOnce = time.Duration(keep)*time.Microsecond, time.Duration(keepOnce)*time.Microsecond
	return p, nil
}

// SetPolicy sets the policy of a schema ("" means DefaultSchema), from the next transaction of a prune on. The
// pool's role must own the schema. A field out of bounds is fence.ErrInvalid.
func SetPolicy(ctx context.Context, pool *pgxpool.Pool, schema string, p Policy) error {
	if err := p.validate(); err != nil {
		return err
	}
	return asOwner(ctx, pool, schema, "setting the policy", func(tx pgx.Tx, schema string) error {
		// Prunes lock the row FOR KEY SHARE, for which an update alone wouldn't wait.
		if _, err := tx.Exec(ctx, "select from "+schema+".setting where one for update"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update "+schema+".setting set history_keep = justify_hours($1), history_keep_entries = $2, once_retention = justify_hours($3)",
			nullIfZero(p.Keep), p.KeepEntries, p.KeepOnce)
		return err
	})
}

func asOwner(ctx context.Context, pool *pgxpool.Pool, schema, what string, change func(tx pgx.Tx, schema string) error) error {
	schema, err := identifierOf(schema)
	if err != nil {
		return err
	}
	if err := record.WriteTx(ctx, pool, func(tx pgx.Tx) error { return change(tx, schema) }); err != nil {
		return fmt.Errorf("postgres: %s: %w", what, err)
	}
	return nil
}

const maxReason = 1000

// HoldHistory keeps the history and the rejections of a resource from being pruned until ReleaseHistory. A second
// call replaces the reason and the role of the hold, but not its time. The resource needn't exist. The pool's role
// must own the schema ("" means DefaultSchema). A reason that is empty or longer than 1,000 bytes is
// fence.ErrInvalid. See audit.Database.Holds.
func HoldHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource, reason string) error {
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	if reason == "" || len(reason) > maxReason {
		return fmt.Errorf("%w: a hold needs a reason of at most %d bytes", fence.ErrInvalid, maxReason)
	}
	return asOwner(ctx, pool, schema, "holding the history of "+resource, func(tx pgx.Tx, schema string) error {
		if _, err := tx.Exec(ctx, "lock table "+schema+".hold in row exclusive mode"); err != nil {
			return err
		}
		// Verification compares this with the last prune, and the clock may have gone back since.
		_, err := tx.Exec(ctx, "insert into "+schema+".hold (name, reason, at) values ($1::text, $2, greatest(clock_timestamp(), "+
			"(select c.pruned_at from "+schema+".checkpoint c join "+schema+".resource r on r.id = c.resource where r.name = $1::text))) "+
			"on conflict (name) do update set reason = excluded.reason, role = session_user", resource, reason)
		return err
	})
}

// ReleaseHistory ends a hold, and reports whether there was one. The pool's role must own the schema ("" means
// DefaultSchema).
func ReleaseHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource string) (held bool, err error) {
	err = asOwner(ctx, pool, schema, "releasing the history of "+resource, func(tx pgx.Tx, schema string) error {
		tag, err := tx.Exec(ctx, "delete from "+schema+".hold where name = $1", resource)
		held = tag.RowsAffected() > 0
		return err
	})
	return held, err
}

const pruneAtATime = 1000

func withPauses(ctx context.Context, step func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := step()
		if err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Since(began)):
		}
	}
}

// Pruned says what a prune deleted.
type Pruned struct {
	Entries    int64 `json:"entries"`
	Rejections int64 `json:"rejections"`
	OnceKeys   int64 `json:"once_keys"`
}

// Prune deletes what the owner's Policy no longer keeps: by default only keys of guard.Once that are older than 7
// days.
//
// It deletes, oldest first, rejections older than Policy.Keep, and entries that are also not among the last
// Policy.KeepEntries of their resource. It keeps the last entry of each resource, the claim of the oldest remaining
// entry, claims that running transactions use, what is younger than an hour, and resources on hold (HoldHistory). A
// checkpoint for each resource lets the rest be verified.
//
// Call it from any process, at least once a day and four times per Policy.KeepOnce (fencekit.Config.PruneEvery
// does). Of concurrent calls one prunes the history. Prune deletes in small transactions, each followed by a pause
// of the same length, and takes no lock that a guarded transaction takes. It can be interrupted, and returns what
// it deleted even if it fails.
//
// An operation whose Once key was deleted can run again, so Prune deletes no key until, for a whole
// Policy.KeepOnce, each call has followed the previous one within a quarter of it by the server's clock. If the
// clock went back, or forward by more, that period starts again, and Prune fails with ErrNotReady, reason
// ClockJumped, after pruning the history. If entries that it may delete are missing, it keeps that resource as it
// is, and fails with ErrNotReady, reason HistoryGap, in the end.
func (s *Store) Prune(ctx context.Context) (Pruned, error) {
	p := &pruner{pool: s.pool, schema: s.sql.schema}
	return p.result(errors.Join(p.pruneByPolicy(ctx), p.forget(ctx)))
}

// PruneOptions say what Prune keeps, and where it exports to.
type PruneOptions struct {
	// Keep is the age from which entries and rejections may be deleted, if it is higher than Policy.Keep. If both
	// are 0, rejections are kept, and entries too unless KeepEntries is set.
	Keep time.Duration
	// KeepEntries is how many entries of each resource are kept, if it is higher than Policy.KeepEntries. If it is
	// set, and Keep and Policy.Keep are 0, entries older than an hour may go.
	KeepEntries int64
	// Resources is a pattern of names, as in audit.Filter; "" means all, and any other deletes no Once keys.
	Resources string
	// Export, if not nil, receives each entry before its deletion, as JSON lines for audit.VerifyExports, and is
	// synced first: an *os.File, for example. A claim may be exported more than once, and after a crash any entry.
	Export interface {
		io.Writer
		Sync() error
	}
	DryRun bool
}

// Prune deletes history of a schema ("" means DefaultSchema) as its owner asks; the pool's role must be the owner.
// It keeps and pauses as Store.Prune does, but also works while another prune runs. It returns what it deleted, or
// with DryRun would delete, even if it fails. If Export fails, the entries being exported stay.
func Prune(ctx context.Context, pool *pgxpool.Pool, schema string, o PruneOptions) (Pruned, error) {
	schema, err := identifierOf(schema)
	if err != nil {
		return Pruned{}, err
	}
	if err := o.validate(); err != nil {
		return Pruned{}, err
	}
	p := &pruner{pool: pool, schema: schema, PruneOptions: o}
	return p.result(p.run(ctx))
}

func (o PruneOptions) validate() error {
	if o.Keep < 0 || o.KeepEntries < 0 {
		return fmt.Errorf("%w: postgres.PruneOptions has Keep %v and KeepEntries %d: want at least 0", fence.ErrInvalid, o.Keep, o.KeepEntries)
	}
	if !utf8.ValidString(o.Resources) {
		return fmt.Errorf("%w: postgres.PruneOptions.Resources is %q, which is not UTF-8", fence.ErrInvalid, o.Resources)
	}
	return nil
}

type pruner struct {
	pool   *pgxpool.Pool
	schema string
	PruneOptions
	out  *record.Writer
	done Pruned
	gaps []string // resources that keep all entries, since some are missing
}

func (p *pruner) result(err error) (Pruned, error) {
	const most = 3
	if len(p.gaps) > 0 {
		names := strings.Join(p.gaps[:min(len(p.gaps), most)], ", ")
		if len(p.gaps) > most {
			names += fmt.Sprintf(" and %d more", len(p.gaps)-most)
		}
		err = errors.Join(err, fmt.Errorf("%w: %s; the prune deleted none of their entries; \"fencectl audit verify\" shows what is missing", notReady(HistoryGap), names))
	}
	if err != nil {
		err = fmt.Errorf("postgres: pruning: %w", err)
	}
	return p.done, err
}

func (p *pruner) addGaps(names ...string) {
	for _, name := range names {
		if !slices.Contains(p.gaps, name) {
			p.gaps = append(p.gaps, name)
		}
	}
}

func (p *pruner) each(ctx context.Context, some func(tx pgx.Tx, n *Pruned) (more bool, err error)) error {
	return withPauses(ctx, func() (more bool, err error) {
		var n Pruned
		err = record.WriteTx(ctx, p.pool, func(tx pgx.Tx) (err error) {
			more, err = some(tx, &n)
			return err
		})
		if err == nil {
			p.done.Entries += n.Entries
			p.done.Rejections += n.Rejections
			p.done.OnceKeys += n.OnceKeys
		}
		return more, err
	})
}

func (p *pruner) full(n int64) bool { return n == pruneAtATime && !p.DryRun }

func (p *pruner) pruneByPolicy(ctx context.Context) error {
	from := new(string)
	return p.each(ctx, func(tx pgx.Tx, n *Pruned) (more bool, err error) {
		var next *string
		var gaps []string
		err = tx.QueryRow(ctx, "select o_entries, o_rejections, o_next, o_gaps from "+p.schema+".prune_by_policy($1, $2)", from, pruneAtATime).
			Scan(&n.Entries, &n.Rejections, &next, &gaps)
		p.addGaps(gaps...)
		from = next
		return next != nil, err
	})
}

func (p *pruner) forget(ctx context.Context) error {
	jumpedFrom := ""
	err := p.each(ctx, func(tx pgx.Tx, n *Pruned) (more bool, err error) {
		err = tx.QueryRow(ctx, "select o_count, coalesce(o_jumped_from::text, '') from "+p.schema+".forget($1, $2)", pruneAtATime, p.DryRun).Scan(&n.OnceKeys, &jumpedFrom)
		return p.full(n.OnceKeys), err
	})
	if jumpedFrom == "" {
		return err
	}
	return errors.Join(err, fmt.Errorf("%w: when Once keys were pruned last it showed %s, which is more than a quarter of once_retention ago, or yet to come; "+
		"no key is deleted until the clock has run steadily for a whole once_retention; prune at least once a day, and at least four times per once_retention",
		notReady(ClockJumped), jumpedFrom))
}

func (p *pruner) run(ctx context.Context) error {
	from := ""
	err := p.each(ctx, func(tx pgx.Tx, n *Pruned) (more bool, err error) {
		from, more, err = p.entries(ctx, tx, from, &n.Entries)
		return more, err
	})
	if err == nil && p.out != nil {
		err = exportFailed(errors.Join(p.out.End(), p.Export.Sync()))
	}
	if err != nil {
		return err
	}
	err = p.each(ctx, func(tx pgx.Tx, n *Pruned) (more bool, err error) {
		err = tx.QueryRow(ctx, "select "+p.schema+".prune_rejections($1, greatest($2, (select history_keep from "+p.schema+".setting for key share)), $3, $4)",
			glob.Like(p.Resources), nullIfZero(p.Keep), pruneAtATime, p.DryRun).Scan(&n.Rejections)
		return p.full(n.Rejections), err
	})
	if err != nil || p.Resources != "" {
		return err
	}
	return p.forget(ctx)
}

type prunable struct {
	Resource   int32
	Name       string
	First, End int64 // positions of the first, and after the last
}

func (p *pruner) entries(ctx context.Context, tx pgx.Tx, from string, n *int64) (next string, more bool, err error) {
	limit := int64(pruneAtATime)
	if p.DryRun {
		limit = 1 << 40
	}
	keep := p.Keep
	if p.KeepEntries > 0 {
		keep = max(keep, time.Microsecond) // makes the policy, or the minimum, count
	}
	rows, err := tx.Query(ctx, "select o_resource, o_name, o_first, coalesce(o_end, -1) from "+p.schema+".prunable($1, $2, $3, $4, $5)",
		from, glob.Like(p.Resources), nullIfZero(keep), nullIfZero(p.KeepEntries), limit)
	if err != nil {
		return "", false, err
	}
	var ranges []prunable
	var resources []int32
	var firsts, ends []int64
	var r prunable
	_, err = pgx.ForEachRow(rows, []any{&r.Resource, &r.Name, &r.First, &r.End}, func() error {
		switch {
		case r.End < r.First:
			p.addGaps(r.Name)
		case r.End == r.First:
			next, more = r.Name, true
		default:
			ranges = append(ranges, r)
			resources, firsts, ends = append(resources, r.Resource), append(firsts, r.First), append(ends, r.End)
		}
		return nil
	})
	switch {
	case err != nil || len(ranges) == 0:
		return next, more, err
	case p.DryRun:
		err = tx.QueryRow(ctx, "select "+p.schema+".count_pruned($1, $2, $3)", resources, firsts, ends).Scan(n)
		return next, more, err
	case p.Export != nil:
		if err := p.export(ctx, tx, ranges); err != nil {
			return "", false, err
		}
	}
	err = tx.QueryRow(ctx, "select "+p.schema+".prune($1, $2)", resources, ends).Scan(n)
	return next, more, err
}

func nullIfZero[T int64 | time.Duration](value T) *T {
	if value == 0 {
		return nil
	}
	return &value
}

// export writes each range after the claim that an earlier prune has left before it.
func (p *pruner) export(ctx context.Context, tx pgx.Tx, ranges []prunable) error {
	if p.out == nil {
		begin := record.Begin{Of: record.OfPrune, Resources: p.Resources}
		err := record.Each(ctx, tx.Conn(), "select pg_catalog.clock_timestamp()", []any{&begin.At}, func() error { return nil })
		if err != nil {
			return err
		}
		if p.out, err = record.NewWriter(p.Export, begin); err != nil {
			return exportFailed(err)
		}
	}
	for _, r := range ranges {
		if err := p.exportRange(ctx, tx, r); err != nil {
			return err
		}
	}
	return exportFailed(errors.Join(p.out.Flush(), p.Export.Sync()))
}

func (p *pruner) exportRange(ctx context.Context, tx pgx.Tx, r prunable) error {
	resource := record.Resource{Number: r.Resource, Name: r.Name, To: r.End - 1}
	checkpoint := fmt.Sprintf("select %s from %s.checkpoint c where c.resource = %d", record.CheckpointColumns, p.schema, r.Resource)
	err := record.Each(ctx, tx.Conn(), checkpoint, []any{&resource.Checkpoint}, func() error { return nil })
	if err != nil {
		return err
	}
	if err := p.out.Write(&record.Line{Resource: &resource}); err != nil {
		return exportFailed(err)
	}
	entries := fmt.Sprintf("select %s from %s.entries_to_prune(%d, %d, %d) h", record.EntryColumns, p.schema, r.Resource, r.First, r.End)
	var entry record.Entry
	return record.Each(ctx, tx.Conn(), entries, []any{&entry}, func() error {
		return exportFailed(p.out.Write(&record.Line{Entry: &entry}))
	})
}

func exportFailed(err error) error {
	if err != nil {
		return fmt.Errorf("the export: %w", err)
	}
	return nil
}
