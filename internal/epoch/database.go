package epoch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
)

// Database is what a schema knows of its lock service's epoch.
type Database struct {
	Number  int64       // the highest epoch that has claimed, or that Raise.Apply has set, also if the setting says less
	MaxJump int64       // how far above Number the epoch of a claim may be
	Highest fence.Grant // the highest grant that has a fence; the zero Grant if there is none
	Raised  *Raise      // the last one; nil if there was none
}

// Read returns the epoch of a schema. It reads all fences. The reader role is enough. The error is
// pgx.ErrNoRows if the table of settings is empty.
func Read(ctx context.Context, db record.Beginner, schema string) (d Database, err error) {
	err = record.ReadTx(ctx, db, "", func(tx pgx.Tx) error {
		d, err = ReadIn(ctx, tx, schema)
		return err
	})
	return d, err
}

// ReadIn is Read in a transaction of record.ReadTx.
func ReadIn(ctx context.Context, tx pgx.Tx, schema string) (Database, error) {
	var d Database
	var resource, holder *string
	var epoch, token *int64
	var raised struct {
		epoch, token           *int64
		reason, operator, role *string
		at                     *time.Time
	}
	err := tx.QueryRow(ctx, fmt.Sprintf(`select s.epoch, s.max_epoch_jump, f.name::text, f.epoch, f.token, f.holder::text, r.epoch, r.token, r.reason, r.operator, r.role, r.at
		  from %[1]s.setting s
		  left join lateral (select * from %[1]s.resource order by epoch desc, token desc limit 1) f on true
		  left join lateral (select * from %[1]s.epoch_raise order by epoch desc limit 1) r on true`, pgx.Identifier{schema}.Sanitize())).
		Scan(&d.Number, &d.MaxJump, &resource, &epoch, &token, &holder,
			&raised.epoch, &raised.token, &raised.reason, &raised.operator, &raised.role, &raised.at)
	if err != nil {
		return Database{}, fmt.Errorf("reading the epoch: %w", err)
	}
	if resource != nil {
		d.Highest = fence.Grant{Resource: *resource, Epoch: *epoch, Token: fence.Token(*token), Holder: *holder}
		d.Number = max(d.Number, *epoch) // the table of settings may have been restored alone
	}
	if raised.epoch != nil {
		d.Number = max(d.Number, *raised.epoch)
		d.Raised = &Raise{Epoch: *raised.epoch, Token: fence.Token(*raised.token), Reason: *raised.reason, Operator: *raised.operator, Role: *raised.role, At: *raised.at}
	}
	return d, nil
}
