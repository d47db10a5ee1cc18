package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
)

// Epoch is what a schema knows of its lock service's epoch.
type Epoch struct {
	Number  int64       // the highest epoch that has claimed, or that RaiseEpoch has set
	MaxJump int64       // how far above Number the epoch of a claim may be
	Highest fence.Grant // the highest grant that has a fence; the zero Grant if there is none
	Raised  *EpochRaise // the last one; nil if there was none
}

// EpochRaise is the record of a raise of the epoch, which the owner's role can only append to.
type EpochRaise struct {
	Epoch int64
	// Token is the mark of the new epoch: how far the lock service has got. Tokens far above the
	// mark are rejected (storage.ReasonTokenJump). 0 accepts any token as the first.
	Token    fence.Token
	Reason   string    // 1 to 1,000 bytes
	Operator string    // who raised it, 1 to 1,000 bytes
	Role     string    // the role of the session; RaiseEpoch ignores it
	At       time.Time // by the database's clock; RaiseEpoch ignores it
}

// ReadEpoch returns the epoch of a schema ("" means DefaultSchema). It reads all fences. The reader
// role is enough.
func ReadEpoch(ctx context.Context, pool *pgxpool.Pool, schema string) (Epoch, error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return Epoch{}, err
	}
	var e Epoch
	var resource, holder *string
	var epoch, token *int64
	var raised struct {
		epoch, token           *int64
		reason, operator, role *string
		at                     *time.Time
	}
	err := pool.QueryRow(ctx, fmt.Sprintf(`select s.epoch, s.max_epoch_jump, f.name, f.epoch, f.token, f.holder, r.epoch, r.token, r.reason, r.operator, r.role, r.at
		  from %[1]s.setting s
		  left join lateral (select * from %[1]s.resource order by epoch desc, token desc limit 1) f on true
		  left join lateral (select * from %[1]s.epoch_raise order by epoch desc limit 1) r on true`, schemaIdentifier(schema))).
		Scan(&e.Number, &e.MaxJump, &resource, &epoch, &token, &holder,
			&raised.epoch, &raised.token, &raised.reason, &raised.operator, &raised.role, &raised.at)
	if err != nil {
		return Epoch{}, fmt.Errorf("postgres: reading the epoch: %w", err)
	}
	if resource != nil {
		e.Highest = fence.Grant{Resource: *resource, Epoch: *epoch, Token: fence.Token(*token), Holder: *holder}
		e.Number = max(e.Number, *epoch) // the table of settings may have been restored alone
	}
	if raised.epoch != nil {
		e.Raised = &EpochRaise{Epoch: *raised.epoch, Token: fence.Token(*raised.token), Reason: *raised.reason, Operator: *raised.operator, Role: *raised.role, At: *raised.at}
	}
	return e, nil
}

// errDryRun rolls a transaction back.
var errDryRun = errors.New("dry run")

// RaiseEpoch raises the epoch of a schema ("" means DefaultSchema), records it in the table
// epoch_raise, and reports true; or false, without having changed anything, if the epoch is that
// high already: it is never taken back. From then on claims of lower epochs are rejected
// (storage.ReasonEpochBehind), so raise the lock service's epoch as well, afterwards: "fencectl
// epoch bump" does both. The pool's role must own the schema. With dryRun all is rolled back: the
// result is what it would be without. RaiseEpoch fails with fence.ErrInvalid if a field is out of
// bounds. After any other error the epoch may have been raised.
func RaiseEpoch(ctx context.Context, pool *pgxpool.Pool, schema string, to EpochRaise, dryRun bool) (raised bool, err error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return false, err
	}
	if err := to.validate(); err != nil {
		return false, err
	}
	err = asOwner(ctx, pool, func(tx pgx.Tx) error {
		raised, err = to.raise(ctx, tx, schemaIdentifier(schema))
		if err == nil && dryRun {
			return errDryRun
		}
		return err
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return false, fmt.Errorf("postgres: raising the epoch: %w", err)
	}
	return raised, nil
}

func (r EpochRaise) validate() error {
	for _, text := range []string{r.Reason, r.Operator} {
		if text == "" || len(text) > maxReason {
			return fmt.Errorf("%w: a raise of the epoch needs a reason and an operator of 1 to %d bytes", fence.ErrInvalid, maxReason)
		}
	}
	if r.Epoch < 2 || r.Epoch > fence.MaxEpoch || r.Token < 0 || r.Token > fence.MaxToken {
		return fmt.Errorf("%w: can't raise the epoch to %d, with token %d: want 2 to %d, and 0 to %d", fence.ErrInvalid, r.Epoch, r.Token, fence.MaxEpoch, fence.MaxToken)
	}
	return nil
}

// raise is the transaction. It reports false if the epoch is not below r's.
func (r EpochRaise) raise(ctx context.Context, tx pgx.Tx, schema string) (bool, error) {
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
