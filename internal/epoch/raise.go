package epoch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
)

// MaxReason bounds Raise.Reason and Raise.Operator, in bytes.
const MaxReason = 1000

// Raise is one raise of a schema's epoch. The table of raises is append-only, for the schema's
// owner too.
type Raise struct {
	Epoch int64
	// Token is the mark of the new epoch: how far the lock service has got. Tokens far above the
	// mark are rejected (storage.ReasonTokenJump). 0 accepts any token as the first.
	Token    fence.Token
	Reason   string    // 1 to MaxReason bytes
	Operator string    // who raised it, 1 to MaxReason bytes
	Role     string    // the role of the session; Apply ignores it
	At       time.Time // by the database's clock; Apply ignores it
}

// Is reports whether recorded is the record of r, or of a raise that is equal but for its role and
// time.
func (r Raise) Is(recorded *Raise) bool {
	return recorded != nil && r.Epoch == recorded.Epoch && r.Token == recorded.Token && r.Reason == recorded.Reason && r.Operator == recorded.Operator
}

var errDryRun = errors.New("dry run")

// Apply raises the epoch of a schema and records it in the table epoch_raise. It reports false, and
// changes nothing, if the epoch is that high already: an epoch is never lowered. From then on claims
// of lower epochs are rejected (storage.ReasonEpochBehind); a grant that has a fence keeps it until
// the next claim. The pool's role must own the schema. With dryRun everything is rolled back: the
// result is what it would be without. Apply fails with fence.ErrInvalid if a field is out of bounds.
// After any other error the epoch may have been raised.
func (r Raise) Apply(ctx context.Context, pool *pgxpool.Pool, schema string, dryRun bool) (raised bool, err error) {
	if err := r.validate(); err != nil {
		return false, err
	}
	err = record.WriteTx(ctx, pool, func(tx pgx.Tx) error {
		raised, err = r.apply(ctx, tx, pgx.Identifier{schema}.Sanitize())
		if err == nil && dryRun {
			return errDryRun
		}
		return err
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return false, fmt.Errorf("raising the epoch: %w", err)
	}
	return raised, nil
}

func (r Raise) validate() error {
	for _, text := range []string{r.Reason, r.Operator} {
		if text == "" || len(text) > MaxReason {
			return fmt.Errorf("%w: a raise of the epoch needs a reason and an operator of 1 to %d bytes", fence.ErrInvalid, MaxReason)
		}
	}
	if r.Epoch < 2 || r.Epoch > fence.MaxEpoch || r.Token < 0 || r.Token > fence.MaxToken {
		return fmt.Errorf("%w: can't raise the epoch to %d, with token %d: want 2 to %d, and 0 to %d", fence.ErrInvalid, r.Epoch, r.Token, fence.MaxEpoch, fence.MaxToken)
	}
	return nil
}

// apply is the transaction. It reports false if the epoch is not below r's.
func (r Raise) apply(ctx context.Context, tx pgx.Tx, schema string) (bool, error) {
	if _, err := tx.Exec(ctx, "select "+schema+".raise_durability()"); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, "update "+schema+".setting set epoch = $1, token = $2 where one and epoch < $1", r.Epoch, int64(r.Token))
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	_, err = tx.Exec(ctx, "insert into "+schema+".epoch_raise (epoch, token, reason, operator) values ($1, $2, $3, $4)", r.Epoch, int64(r.Token), r.Reason, r.Operator)
	return true, err
}
