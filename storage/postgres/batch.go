package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Limits of a batch. They bound what the server answers, so that it never waits for the
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
// Its statements may run several times before one transaction with them takes effect, and
// after a call that failed the batch may be given to another one. It has 1 to 100
// statements, at most 16 of them with [Statement.Returning]. One goroutine at a time uses a
// Batch, and none while a call runs it.
type Batch struct{ statements []*Statement }

var (
	_ storage.BatchOp[pgx.Tx]  = (*Batch)(nil)
	_ storage.ResultOp[pgx.Tx] = (*Batch)(nil)
)

// Exec adds one statement, which doesn't end the transaction. args are those of pgx.Tx's
// Exec, with a pgx.QueryRewriter such as pgx.NamedArgs as the only option. Rows that the
// statement returns are discarded unless it has [Statement.Returning].
func (b *Batch) Exec(sql string, args ...any) *Statement {
	s := &Statement{number: len(b.statements), sql: sql, args: args}
	b.statements = append(b.statements, s)
	return s
}

// Batch implements storage.BatchOp.
func (b *Batch) Batch() {}

// Run implements storage.Op. It runs the statements in tx, in a round trip of their own.
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
			return errors.Join(s.explain(err, s.wrapped()), closeError(results, err))
		}
	}
	return results.Close()
}

// closeError closes the results of a batch that failed with err, and returns the error of
// that if it says something else.
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
