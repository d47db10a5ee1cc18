package review

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// Pruned says where the history of a resource begins, if entries before that were pruned.
type Pruned struct {
	First int64     `json:"first_position"`
	At    time.Time `json:"first_at"` // of the entry there
	// Claim is the position of an earlier claim that the prune kept, since First is of its grant.
	Claim int64 `json:"claim_position,omitempty"`
}

// prunedQuery returns the beginning of a statement about resources with pruned entries.
func (r *Reader) prunedQuery() string {
	return "select f.name, c.first, e.at, case when e.claim < c.first then e.claim else 0 end from " + r.schema + ".checkpoint c join " + r.schema + ".resource f on f.id = c.resource" +
		" join " + r.schema + ".history e on e.resource = c.resource and e.seq = c.first where "
}

// pruned returns nil if nothing was pruned.
func (r *Reader) pruned(ctx context.Context, resource string) (*Pruned, error) {
	var found *Pruned
	err := r.eachPruned(ctx, "f.name = $1", []any{resource}, func(p PrunedResource) { found = &p.Pruned })
	return found, err
}

// readPruned reads of which resources entries were pruned whose times may lie within the period.
func (r *Reader) readPruned(ctx context.Context, report *Report) error {
	return r.eachPruned(ctx, "f.name like $1 and c.latest >= $2 order by f.name", []any{glob.Like(report.Resources), report.From}, func(p PrunedResource) {
		report.Counts.Pruned++
		report.Pruned = appendUpTo(report.Pruned, p)
	})
}

func (r *Reader) eachPruned(ctx context.Context, where string, args []any, each func(PrunedResource)) error {
	var p PrunedResource
	err := record.ReadTx(ctx, r.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, r.prunedQuery()+where, append([]any{pgx.QueryExecModeExec}, args...)...)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&p.Resource, &p.First, &p.At, &p.Claim}, func() error {
			p.At = p.At.UTC()
			each(p)
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("review: reading the checkpoints: %w", err)
	}
	return nil
}

// what says what the history begins with.
func (p Pruned) what() string {
	if p.Claim == 0 {
		return "position " + number(p.First)
	}
	return fmt.Sprintf("position %d, and the claim at %d", p.First, p.Claim)
}
