package postgres

import (
	"context"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/glob"
)

// Retention says what PruneHistory keeps.
type Retention struct {
	// Keep is how old an entry or rejection must be to go. 0 means the policy of the schema's
	// settings (Store.PruneHistory), below which it never goes.
	Keep time.Duration
	// KeepEntries is how many entries of each resource stay at least; 0 means the policy.
	KeepEntries int64
	// Resources is a pattern of names, in which * stands for any text and ? for any character;
	// "" means all resources.
	Resources string
	// Export, if not nil, gets each entry before it is deleted, as a line of JSON, and is
	// synced before the deletion begins: an *os.File, for example. After a crash an entry may be in two exports.
	Export interface {
		io.Writer
		Sync() error // returns when what was written is durable
	}
	// DryRun only counts.
	DryRun bool
}

// PruneHistory deletes entries and rejections as the owner of a schema ("" means
// DefaultSchema) asks for; see Store.PruneHistory for what stays in any case. Without Keep and
// without a policy it deletes nothing. It works in small transactions, and returns what it
// deleted, or would delete, also when it fails. If Export fails, nothing of what was being
// exported is deleted.
func PruneHistory(ctx context.Context, pool *pgxpool.Pool, schema string, r Retention) (Pruned, error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return Pruned{}, err
	}
	if r.Keep < 0 || r.KeepEntries < 0 {
		return Pruned{}, fmt.Errorf("%w: postgres.Retention keeps %v and %d entries: want at least 0", fence.ErrInvalid, r.Keep, r.KeepEntries)
	}
	if !utf8.ValidString(r.Resources) {
		return Pruned{}, fmt.Errorf("%w: postgres.Retention.Resources is %q, which is not UTF-8", fence.ErrInvalid, r.Resources)
	}
	p := &pruner{pool: pool, schema: schemaIdentifier(schema), Retention: r}
	if err := p.run(ctx); err != nil {
		return p.done, fmt.Errorf("postgres: pruning history: %w", err)
	}
	return p.done, nil
}

type pruner struct {
	pool   *pgxpool.Pool
	schema string // as an identifier
	Retention
	done Pruned
}

// prunable is a range of entries of one resource that may go.
type prunable struct {
	Resource   int32
	Name       string
	First, End int64 // the positions of the first, and behind the last
}

func (p *pruner) run(ctx context.Context) error {
	for from, more := "", true; more; {
		n := int64(0)
		err := asOwner(ctx, p.pool, func(tx pgx.Tx) (err error) {
			n, from, more, err = p.entries(ctx, tx, from)
			return err
		})
		if err != nil {
			return err
		}
		p.done.Entries += n
	}
	for more := true; more; {
		n := int64(0)
		err := asOwner(ctx, p.pool, func(tx pgx.Tx) (err error) {
			n, err = p.rejections(ctx, tx)
			return err
		})
		if err != nil {
			return err
		}
		p.done.Rejections += n
		more = n == pruneAtATime && !p.DryRun
	}
	return nil
}

// asOwner runs a transaction that doesn't depend on the defaults of database and role: at READ
// COMMITTED, and with names in UTF-8.
func asOwner(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local client_encoding = 'UTF8'"); err != nil {
			return err
		}
		return fn(tx)
	})
}

// entries prunes, or counts, entries of resources whose names don't come before from. It returns
// whether there may be more, and the name from which to go on.
func (p *pruner) entries(ctx context.Context, tx pgx.Tx, from string) (n int64, next string, more bool, err error) {
	limit := int64(pruneAtATime)
	if p.DryRun { // nothing is deleted, so it gets whole ranges
		limit = 1 << 40
	}
	rows, err := tx.Query(ctx, "select o_resource, o_name, o_first, o_end from "+p.schema+".prunable($1, $2, $3, $4, $5)",
		from, glob.Like(p.Resources), nullIfZero(p.Keep), nullIfZero(p.KeepEntries), limit)
	if err != nil {
		return 0, "", false, err
	}
	ranges, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prunable])
	if last := len(ranges) - 1; last >= 0 && ranges[last].First == ranges[last].End {
		next, more, ranges = ranges[last].Name, true, ranges[:last]
	}
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
	if p.Export != nil {
		if err := p.export(ctx, tx, resources, firsts, ends); err != nil {
			return 0, err
		}
	}
	err = tx.QueryRow(ctx, "select "+p.schema+".prune($1, $2)", resources, ends).Scan(&n)
	return n, err
}

// export writes the entries of ranges, each with the claim that an earlier prune has left before
// it, which may go too.
func (p *pruner) export(ctx context.Context, tx pgx.Tx, resources []int32, firsts, ends []int64) error {
	rows, err := tx.Query(ctx, "select pg_catalog.row_to_json(e)::text from "+p.schema+".entries_to_prune($1, $2, $3) e", resources, firsts, ends)
	if err != nil {
		return err
	}
	var line string
	_, err = pgx.ForEachRow(rows, []any{&line}, func() error {
		if _, err := io.WriteString(p.Export, line+"\n"); err != nil {
			return fmt.Errorf("the export: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.Export.Sync(); err != nil {
		return fmt.Errorf("the export: %w", err)
	}
	return nil
}

func (p *pruner) rejections(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, "select "+p.schema+".prune_rejections($1, greatest($2, (select history_keep from "+p.schema+".setting)), $3, $4)",
		glob.Like(p.Resources), nullIfZero(p.Keep), pruneAtATime, p.DryRun).Scan(&n)
	return n, err
}

func nullIfZero[T int64 | time.Duration](value T) *T {
	if value == 0 {
		return nil
	}
	return &value
}

// HoldHistory keeps the history of a resource from being pruned, for a reason, until
// ReleaseHistory. The resource needn't exist yet. A second call replaces the reason.
func HoldHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource, reason string) error {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return err
	}
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	if reason == "" || len(reason) > maxReason {
		return fmt.Errorf("%w: a hold needs a reason of at most %d bytes", fence.ErrInvalid, maxReason)
	}
	err := asOwner(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into "+schemaIdentifier(schema)+".hold (name, reason) values ($1, $2) "+
			"on conflict (name) do update set reason = excluded.reason, role = session_user, at = clock_timestamp()", resource, reason)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: holding the history of %s: %w", resource, err)
	}
	return nil
}

const maxReason = 1000

// ReleaseHistory ends a hold. It reports whether there was one.
func ReleaseHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource string) (held bool, err error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return false, err
	}
	err = asOwner(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "delete from "+schemaIdentifier(schema)+".hold where name = $1", resource)
		held = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: releasing the history of %s: %w", resource, err)
	}
	return held, nil
}
