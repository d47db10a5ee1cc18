package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// PruneOptions say what Prune keeps, and where it exports to.
type PruneOptions struct {
	// Keep is the age from which entries and rejections may be deleted. If Policy.Keep is higher,
	// that counts. 0 means Policy.Keep; if both are 0, rejections are kept, and so are entries
	// unless KeepEntries is set.
	Keep time.Duration
	// KeepEntries is how many entries of each resource are kept, however old. If
	// Policy.KeepEntries is higher, or this is 0, that counts. If this is set, and Keep and
	// Policy.Keep are 0, entries older than an hour may be deleted.
	KeepEntries int64
	// Resources is a pattern of names, as in audit.Filter; "" means all resources. With a pattern
	// no Once keys are deleted.
	Resources string
	// Export, if not nil, receives each entry before it is deleted, as JSON lines that
	// audit.VerifyExports reads, and is synced before the deletion: an *os.File, for example.
	// After a crash two exports may contain the same entry. A claim is exported with its entries,
	// and again when it is itself deleted.
	Export interface {
		io.Writer
		Sync() error // returns when what was written is durable
	}
	// DryRun only counts.
	DryRun bool
}

// Prune deletes history of a schema ("" means DefaultSchema) as its owner asks: the pool's role
// must own the schema. Like Store.Prune, it always keeps some entries, deletes Once keys by the
// policy alone, and pauses between small transactions. Unlike Store.Prune, it also works while
// another prune is running. It returns what it deleted, or with DryRun what it would delete, even
// if it fails. If Export fails, Prune deletes none of the entries that it was exporting.
func Prune(ctx context.Context, pool *pgxpool.Pool, schema string, o PruneOptions) (Pruned, error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return Pruned{}, err
	}
	if err := o.validate(); err != nil {
		return Pruned{}, err
	}
	p := &pruner{pool: pool, schema: schemaIdentifier(schema), PruneOptions: o}
	if o.Export != nil && !o.DryRun {
		p.export = &pruneExport{to: o.Export, schema: p.schema, resources: o.Resources}
	}
	if err := p.run(ctx); err != nil {
		return p.done, fmt.Errorf("postgres: pruning: %w", err)
	}
	return p.done, nil
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
	schema string // as an identifier
	PruneOptions
	export *pruneExport // nil if nothing is exported
	done   Pruned
	gaps   gaps
}

// prunable is a range of entries of one resource that may go.
type prunable struct {
	Resource   int32
	Name       string
	First, End int64 // the positions of the first, and after the last
	Gap        bool  // an entry is missing, so none may go
}

func (p *pruner) run(ctx context.Context) error {
	from := ""
	err := p.each(ctx, &p.done.Entries, func(tx pgx.Tx) (n int64, more bool, err error) {
		n, from, more, err = p.entries(ctx, tx, from)
		return n, more, err
	})
	if err == nil && p.export != nil {
		err = p.export.end()
	}
	if err != nil {
		return err
	}
	err = p.each(ctx, &p.done.Rejections, func(tx pgx.Tx) (n int64, more bool, err error) {
		n, err = p.rejections(ctx, tx)
		return n, p.full(n), err
	})
	if err != nil || p.Resources != "" {
		return errors.Join(err, p.gaps.err())
	}
	jumpedFrom := ""
	err = p.each(ctx, &p.done.OnceKeys, func(tx pgx.Tx) (n int64, more bool, err error) {
		n, jumpedFrom, err = p.onceKeys(ctx, tx)
		return n, p.full(n), err
	})
	return errors.Join(err, p.gaps.err(), clockJumped(jumpedFrom))
}

// full reports whether there may be more rejections or Once keys. A dry run counts all at once.
func (p *pruner) full(n int64) bool { return n == pruneAtATime && !p.DryRun }

// each runs some in one transaction after another, while there is more, and adds up what those
// deleted.
func (p *pruner) each(ctx context.Context, done *int64, some func(pgx.Tx) (n int64, more bool, err error)) error {
	return withPauses(ctx, func() (more bool, err error) {
		n := int64(0)
		err = record.WriteTx(ctx, p.pool, func(tx pgx.Tx) (err error) {
			n, more, err = some(tx)
			return err
		})
		if err == nil {
			*done += n
		}
		return more, err
	})
}

// entries prunes, or counts, entries of resources whose names don't come before from. It returns
// whether there may be more, and the name from which to go on.
func (p *pruner) entries(ctx context.Context, tx pgx.Tx, from string) (n int64, next string, more bool, err error) {
	limit := int64(pruneAtATime)
	if p.DryRun { // nothing is deleted, so it gets whole ranges
		limit = 1 << 40
	}
	keep := p.Keep
	if p.KeepEntries > 0 {
		keep = max(keep, time.Microsecond) // the policy, or what is the least
	}
	rows, err := tx.Query(ctx, "select o_resource, o_name, o_first, coalesce(o_end, 0), o_end is null from "+p.schema+".prunable($1, $2, $3, $4, $5)",
		from, glob.Like(p.Resources), nullIfZero(keep), nullIfZero(p.KeepEntries), limit)
	if err != nil {
		return 0, "", false, err
	}
	ranges, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prunable])
	if last := len(ranges) - 1; last >= 0 && !ranges[last].Gap && ranges[last].First == ranges[last].End {
		next, more, ranges = ranges[last].Name, true, ranges[:last]
	}
	ranges = slices.DeleteFunc(ranges, func(r prunable) bool {
		if r.Gap {
			p.gaps.add(r.Name)
		}
		return r.Gap
	})
	if err != nil || len(ranges) == 0 {
		return 0, next, more, err
	}
	n, err = p.pruneRanges(ctx, tx, ranges)
	return n, next, more, err
}

func (p *pruner) pruneRanges(ctx context.Context, tx pgx.Tx, ranges []prunable) (n int64, err error) {
	var resources []int32
	var firsts, ends []int64
	for _, r := range ranges {
		resources, firsts, ends = append(resources, r.Resource), append(firsts, r.First), append(ends, r.End)
	}
	if p.DryRun {
		err = tx.QueryRow(ctx, "select "+p.schema+".count_pruned($1, $2, $3)", resources, firsts, ends).Scan(&n)
		return n, err
	}
	if p.export != nil {
		if err := p.export.write(ctx, tx, ranges); err != nil {
			return 0, err
		}
	}
	err = tx.QueryRow(ctx, "select "+p.schema+".prune($1, $2)", resources, ends).Scan(&n)
	return n, err
}

func (p *pruner) rejections(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, "select "+p.schema+".prune_rejections($1, greatest($2, (select history_keep from "+p.schema+".setting for key share)), $3, $4)",
		glob.Like(p.Resources), nullIfZero(p.Keep), pruneAtATime, p.DryRun).Scan(&n)
	return n, err
}

func (p *pruner) onceKeys(ctx context.Context, tx pgx.Tx) (n int64, jumpedFrom string, err error) {
	err = tx.QueryRow(ctx, "select o_count, coalesce(o_jumped_from::text, '') from "+p.schema+".forget($1, $2)", pruneAtATime, p.DryRun).Scan(&n, &jumpedFrom)
	return n, jumpedFrom, err
}

func nullIfZero[T int64 | time.Duration](value T) *T {
	if value == 0 {
		return nil
	}
	return &value
}
