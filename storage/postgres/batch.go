package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

// The limits of one batch. They bound the server's answer, so that the server never waits for the
// client to read while its transaction holds locks.
const (
	maxStatements  = 100
	maxReturning   = 16
	maxResultBytes = 4096
)

// Batch is an operation whose statements are all known before it runs, for guard.Exec. The
// zero value is empty. BEGIN, the begin check, the statements, the seal and COMMIT travel in
// one write and one round trip. A batch makes no decision between its statements: what has
// to hold for it to take effect is said by conditions that the server checks, see
// [Statement.MustAffect].
//
//	var b postgres.Batch
//	b.Exec("update item set stock = stock - $2 where sku = $1 and stock >= $2", sku, n).MustAffect(1)
//	err := guard.Exec(ctx, g, "sku/"+sku, &b)
//
// Under load batches share transactions. A batch has one of its own if a statement does anything but
// read or change rows, such as SET, calls set_config, or has a pgx.QueryRewriter other than
// pgx.NamedArgs. A function of the database's own that changes a setting can't be seen: run it
// with guard.Do.
//
// COMMIT travels with the batch: from sending on, the end of the call's context has no effect.
// Config.StatementTimeout, for each statement, and StoreTimeout of
// guard.Config, for all together, bound it then.
//
// Its statements may run several times before one transaction with them takes effect. After the
// call the batch may be given to another one, which runs it anew: after a call that has returned
// nil it takes effect a second time, unless both have the same key of guard.Once. It has 1 to
// 100 statements, at most 16 of them with [Statement.Returning]. One goroutine at a time uses
// a Batch, and none while a call runs it.
type Batch struct{ statements []*Statement }

var (
	_ storage.BatchOp[pgx.Tx]  = (*Batch)(nil)
	_ storage.ResultOp[pgx.Tx] = (*Batch)(nil)
)

// Exec adds one statement. args are those of pgx.Tx's Exec, with a pgx.QueryRewriter such as
// pgx.NamedArgs as the only option. Rows that the statement returns are discarded unless it has
// [Statement.Returning]. A batch with a statement that begins or ends a transaction, such as
// COMMIT or ROLLBACK, is fence.ErrInvalid; ROLLBACK TO a savepoint is allowed. A semicolon at
// the end is ignored.
func (b *Batch) Exec(sql string, args ...any) *Statement {
	s := &Statement{number: len(b.statements) + 1, sql: strings.TrimRight(sql, sqlwords.WhiteSpace+";"), args: args}
	b.statements = append(b.statements, s)
	return s
}

// Run implements storage.Op. It runs the statements in tx, in a round trip of their own. A
// function that calls it has to return its error: if it returns nil after an [*AffectedError],
// the statements before that one, and the one itself, are committed. To go on without them run
// the batch in a savepoint, tx.Begin.
func (b *Batch) Run(ctx context.Context, tx pgx.Tx) error {
	if err := b.validate(); err != nil {
		return err
	}
	queued := &pgx.Batch{}
	for _, s := range b.statements {
		queued.Queue(s.wrapped(), s.args...)
	}
	results := tx.SendBatch(ctx, queued)
	for _, s := range b.statements {
		if err := s.readFrom(results); err != nil {
			return errors.Join(err, closeError(results, err))
		}
	}
	return results.Close()
}

// closeError closes the results of a batch that failed with err. It returns the error of Close,
// unless err already wraps that.
func closeError(results pgx.BatchResults, err error) error {
	if closing := results.Close(); !errors.Is(err, closing) {
		return closing
	}
	return nil
}

// validate checks what the batch was built from.
func (b *Batch) validate() error {
	if n := len(b.statements); n < 1 || n > maxStatements {
		return fmt.Errorf("%w: postgres: a batch has 1 to %d statements, this one has %d", fence.ErrInvalid, maxStatements, n)
	}
	if n := b.returning(); n > maxReturning {
		return fmt.Errorf("%w: postgres: a batch has at most %d statements with Returning, this one has %d", fence.ErrInvalid, maxReturning, n)
	}
	for _, s := range b.statements {
		if s.misuse != "" {
			return fmt.Errorf("%w: postgres: statement %d of the batch has %s: %s", fence.ErrInvalid, s.number, s.misuse, s.sql)
		}
		if sqlwords.ControlsTransaction(s.sql) {
			return fmt.Errorf("%w: postgres: statement %d of the batch begins or ends a transaction, which is up to the guard: %s", fence.ErrInvalid, s.number, s.sql)
		}
	}
	return nil
}

// returning returns how many statements have Returning.
func (b *Batch) returning() (n int) {
	for _, s := range b.statements {
		if s.returning {
			n++
		}
	}
	return n
}

// Results implements storage.ResultOp, for guard.Once.
func (b *Batch) Results() ([]byte, error) {
	results := make([]*statementResult, len(b.statements))
	for i, s := range b.statements {
		results[i] = s.result
	}
	return json.Marshal(results)
}

// SetResults implements storage.ResultOp, for guard.Once.
func (b *Batch) SetResults(kept []byte) error {
	var results []*statementResult
	if err := json.Unmarshal(kept, &results); err != nil {
		return err
	}
	if len(results) != len(b.statements) || slices.Contains(results, nil) {
		return fmt.Errorf("postgres: the call that took effect was not a batch of %d statements", len(b.statements))
	}
	for i, s := range b.statements {
		s.result = results[i]
	}
	return nil
}

// forget forgets the results of an earlier run.
func (b *Batch) forget() {
	for _, s := range b.statements {
		s.result = nil
	}
}
