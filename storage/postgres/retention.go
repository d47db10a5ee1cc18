package postgres

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
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
	for from := ""; ; {
		ranges, full, err := p.prunable(ctx, from)
		if err != nil {
			return err
		}
		if err := p.entries(ctx, ranges); err != nil {
			return err
		}
		if !full {
			return p.rejections(ctx)
		}
		from = ranges[len(ranges)-1].Name
	}
}

// prunable returns ranges of resources whose names don't come before from, and whether there
// may be more, from the last one's name on. A dry run, which deletes nothing, gets whole ranges.
func (p *pruner) prunable(ctx context.Context, from string) (ranges []prunable, full bool, err error) {
	limit := int64(pruneAtATime)
	if p.DryRun {
		limit = 1 << 40
	}
	rows, err := p.pool.Query(ctx, "select o_resource, o_name, o_first, o_end from "+p.schema+".prunable($1, $2, $3, $4, $5)",
		from, likePattern(p.Resources), nullIfZero(p.Keep), nullIfZero(p.KeepEntries), limit)
	if err != nil {
		return nil, false, err
	}
	ranges, err = pgx.CollectRows(rows, pgx.RowToStructByPos[prunable])
	sum := int64(0)
	for _, r := range ranges {
		sum += r.End - r.First
		full = full || r.End == r.First // it has looked at as many as it does at once
	}
	return ranges, full || sum >= limit, err
}

func (p *pruner) entries(ctx context.Context, ranges []prunable) error {
	var resources []int32
	var ends []int64
	for _, r := range ranges {
		switch {
		case r.End == r.First:
			continue
		case p.DryRun:
			if err := p.count(ctx, r); err != nil {
				return err
			}
			continue
		}
		if err := p.export(ctx, r); err != nil {
			return err
		}
		resources, ends = append(resources, r.Resource), append(ends, r.End)
	}
	if len(resources) == 0 {
		return nil
	}
	if p.Export != nil {
		if err := p.Export.Sync(); err != nil {
			return fmt.Errorf("the export: %w", err)
		}
	}
	var n int64
	err := p.pool.QueryRow(ctx, "select "+p.schema+".prune($1, $2)", resources, ends).Scan(&n)
	p.done.Entries += n
	return err
}

// count counts the entries that a prune of a range would delete.
func (p *pruner) count(ctx context.Context, r prunable) error {
	var n int64
	err := p.pool.QueryRow(ctx, "select count(*) from "+p.schema+".history where resource = $1 and seq < $2 and seq <> (select claim from "+p.schema+".history where resource = $1 and seq = $2)",
		r.Resource, r.End).Scan(&n)
	p.done.Entries += n
	return err
}

// export writes all entries before the end of a range: the claim that an earlier prune left
// before its first one goes too.
func (p *pruner) export(ctx context.Context, r prunable) error {
	if p.Export == nil {
		return nil
	}
	rows, err := p.pool.Query(ctx, "select pg_catalog.row_to_json(e)::text from "+p.schema+".history e where resource = $1 and seq < $2 order by seq", r.Resource, r.End)
	if err != nil {
		return err
	}
	var line string
	_, err = pgx.ForEachRow(rows, []any{&line}, func() error {
		_, err := io.WriteString(p.Export, line+"\n")
		if err != nil {
			return fmt.Errorf("the export: %w", err)
		}
		return nil
	})
	return err
}

func (p *pruner) rejections(ctx context.Context) error {
	for {
		var n int64
		err := p.pool.QueryRow(ctx, "select "+p.schema+".prune_rejections($1, greatest($2, (select history_keep from "+p.schema+".setting)), $3, $4)",
			likePattern(p.Resources), nullIfZero(p.Keep), pruneAtATime, p.DryRun).Scan(&n)
		p.done.Rejections += n
		if err != nil || n < pruneAtATime || p.DryRun {
			return err
		}
	}
}

// likePattern returns the LIKE pattern of a pattern with * and ?.
func likePattern(pattern string) string {
	if pattern == "" {
		return "%"
	}
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`, "*", "%", "?", "_").Replace(pattern)
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
	_, err := pool.Exec(ctx, "insert into "+schemaIdentifier(schema)+".hold (name, reason) values ($1, $2) on conflict (name) do update set reason = excluded.reason, role = session_user, at = clock_timestamp()", resource, reason)
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
	tag, err := pool.Exec(ctx, "delete from "+schemaIdentifier(schema)+".hold where name = $1", resource)
	if err != nil {
		return false, fmt.Errorf("postgres: releasing the history of %s: %w", resource, err)
	}
	return tag.RowsAffected() > 0, nil
}
