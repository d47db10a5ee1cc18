package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
	"github.com/fencekit/fencekit/storage/postgres/internal/usertx"
)

// Limits of one batch. They keep the server from waiting for the client to read while it holds locks.
const (
	maxStatements  = 100
	maxReturning   = 16
	maxResultBytes = 4096
)

// Batch is a guarded function whose statements are all known before it runs, for guard.Exec. The zero value is empty.
// BEGIN, the begin check, the statements, the seal and COMMIT travel in one round trip. A batch can't decide
// anything between its statements; the server checks the conditions under which it takes effect, see
// [Statement.MustAffect].
//
//	var b postgres.Batch
//	b.Exec("update item set stock = stock - $2 where sku = $1 and stock >= $2", sku, n).MustAffect(1)
//	err := guard.Exec(ctx, g, "sku/"+sku, &b)
//
// Under load batches share transactions, unless a statement does anything but read or change rows, such as SET,
// calls set_config, or has a pgx.QueryRewriter other than pgx.NamedArgs. A function in the database that changes a
// setting can't be seen: call it with guard.Do.
//
// COMMIT travels with the batch, so the end of the call's context has no effect once it was sent.
// Config.StatementTimeout bounds each statement then, and StoreTimeout of guard.Config all together.
//
// Its statements may run several times before a transaction with them takes effect. Another call may run the batch
// again: after a call that returned nil it takes effect a second time, unless both calls have the same key of guard.Once. It has 1 to
// 100 statements, at most 16 with [Statement.Returning]. It is not safe for concurrent use.
type Batch struct{ statements []*Statement }

var (
	_ storage.BatchOp[pgx.Tx]  = (*Batch)(nil)
	_ storage.ResultOp[pgx.Tx] = (*Batch)(nil)
)

// Exec adds a statement. args are those of pgx.Tx's Exec, with a pgx.QueryRewriter such as pgx.NamedArgs as the
// only option. Rows are discarded without [Statement.Returning]. A statement that begins or ends a transaction
// makes the batch fail with fence.ErrInvalid, except ROLLBACK TO a savepoint. A semicolon at the end is ignored.
func (b *Batch) Exec(sql string, args ...any) *Statement {
	s := &Statement{number: len(b.statements) + 1, sql: strings.TrimRight(sql, sqlwords.WhiteSpace+";"), args: args}
	b.statements = append(b.statements, s)
	return s
}

// Run implements storage.Op: it runs the statements in tx, in one round trip. A function that calls it must return
// its error: after an [*AffectedError] the statements so far would be committed. To go on without them, use a
// savepoint, tx.Begin.
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

func closeError(results pgx.BatchResults, err error) error {
	if closing := results.Close(); !errors.Is(err, closing) {
		return closing
	}
	return nil
}

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
		if sqlwords.AnyCopies(s.sql) {
			return s.failed(usertx.ErrCopy)
		}
	}
	return nil
}

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

func (b *Batch) forget() {
	for _, s := range b.statements {
		s.result = nil
	}
}

// Statement is one statement of a [Batch].
type Statement struct {
	number    int
	sql       string
	args      []any
	want      *int64
	misuse    string
	returning bool
	result    *statementResult
}

type statementResult struct {
	Affected int64           `json:"affected"`
	Rows     json.RawMessage `json:"rows,omitempty"`
}

var errNoResult = errors.New("postgres: the statement's rows are not known: no call with its batch has returned nil, or the batch took effect and the server's answer was lost")

// MustAffect makes the batch fail with an [*AffectedError], without effect, unless the statement affects exactly
// this many rows. It has to be an INSERT, UPDATE or DELETE without a RETURNING clause, or any statement with
// [Statement.Returning], whose rows are counted; and must have no WITH that changes rows. A negative number, or a
// second call, makes the batch fail with fence.ErrInvalid.
func (s *Statement) MustAffect(rows int64) *Statement {
	switch {
	case rows < 0:
		s.misuse = fmt.Sprintf("MustAffect(%d)", rows)
	case s.want != nil:
		s.misuse = "two MustAffect"
	}
	s.want = &rows
	return s
}

// Returning keeps the rows for [Statement.Decode]. It is for a SELECT or a statement with a RETURNING clause,
// without a WITH that changes rows. If the rows have more than 4 KiB as JSON, the batch fails without effect.
func (s *Statement) Returning() *Statement {
	s.returning = true
	return s
}

// RowsAffected returns how many rows the statement inserted, updated or deleted, or with [Statement.Returning]
// returned; -1 if unknown: before a call with the batch has returned nil, and if the answer was lost and there is
// no [Statement.MustAffect].
func (s *Statement) RowsAffected() int64 {
	switch {
	case s.result != nil:
		return s.result.Affected
	case s.want != nil:
		return *s.want
	}
	return -1
}

// Decode decodes the rows of a statement with [Statement.Returning] into dst, as json.Unmarshal does: an array of
// objects with a member for each column. It fails before a call with the batch has returned nil, and if the answer
// was lost; then read the rows with another call.
func (s *Statement) Decode(dst any) error {
	if s.result == nil || s.result.Rows == nil {
		return errNoResult
	}
	if err := json.Unmarshal(s.result.Rows, dst); err != nil {
		return fmt.Errorf("postgres: what statement %d of the batch returned can't be decoded: %w: %s", s.number, err, s.sql)
	}
	return nil
}

// AffectedError says that a statement of a [Batch] did not affect as many rows as [Statement.MustAffect] wants, so
// the batch took no effect.
type AffectedError struct {
	SQL      string
	Number   int
	Affected int64
	Want     int64

	err error // of the server, if it has counted
}

func (e *AffectedError) Unwrap() error { return e.err }

func (e *AffectedError) Error() string {
	return fmt.Sprintf("postgres: statement %d of the batch affected %d rows, must affect %d: %s", e.Number, e.Affected, e.Want, e.SQL)
}

const (
	wrapHead = "with fencekit_rows as materialized (\n"
	wantTail = "\nreturning 1) select "
	wrapTail = "\n) select pg_catalog.count(*), pg_catalog.json_agg(fencekit_rows)::pg_catalog.text from fencekit_rows"
)

func (s *Statement) wrapped() string {
	if s.returning {
		return wrapHead + s.sql + wrapTail
	}
	return s.sql
}

func (s *Statement) checked(schema string) string {
	if s.want == nil && !s.returning {
		return s.sql
	}
	want := "null"
	if s.want != nil {
		want = strconv.FormatInt(*s.want, 10)
	}
	count := fmt.Sprintf("%s.must_affect(pg_catalog.count(*), %s)", schema, want)
	if s.returning {
		rows := fmt.Sprintf("%s.must_fit(pg_catalog.json_agg(fencekit_rows)::pg_catalog.text, %d)", schema, maxResultBytes)
		return wrapHead + s.sql + "\n) select " + count + ", " + rows + " from fencekit_rows"
	}
	return wrapHead + s.sql + wantTail + count + " from fencekit_rows"
}

func (s *Statement) readFrom(results pgx.BatchResults) error {
	var affected int64
	var rows *string
	if s.returning {
		if err := results.QueryRow().Scan(&affected, &rows); err != nil {
			return s.explain(err, s.wrapped())
		}
	} else {
		tag, err := results.Exec()
		if err != nil {
			return s.explain(err, s.wrapped())
		}
		affected = tag.RowsAffected()
	}
	s.set(affected, rows)
	if s.want != nil && affected != *s.want {
		return s.notAffected(affected, nil)
	}
	if len(s.result.Rows) > maxResultBytes {
		return s.tooLarge()
	}
	return nil
}

func (s *Statement) set(affected int64, rows *string) {
	s.result = &statementResult{Affected: affected}
	switch {
	case rows != nil:
		s.result.Rows = json.RawMessage(*rows)
	case s.returning:
		s.result.Rows = json.RawMessage("[]")
	}
}

func (s *Statement) notAffected(affected int64, err error) error {
	return &AffectedError{SQL: s.sql, Number: s.number, Affected: affected, Want: *s.want, err: err}
}

func (s *Statement) tooLarge() error {
	return fmt.Errorf("%w: postgres: statement %d of the batch returns more than %d bytes: return less, or read in a function of guard.Do: %s", fence.ErrInvalid, s.number, maxResultBytes, s.sql)
}

func (s *Statement) explain(err error, sent string) error {
	var early pgx.ErrPreprocessingBatch
	if errors.As(err, &early) {
		sent = early.SQL()
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return s.failed(err)
	}
	switch pgErr.Code {
	case sqlstate.Affected:
		affected, _ := strconv.ParseInt(pgErr.Detail, 10, 64)
		return s.notAffected(affected, pgErr)
	case sqlstate.TooLarge:
		return s.tooLarge()
	}
	if body, wrapped := strings.CutPrefix(sent, wrapHead); wrapped {
		if head := int32(len(wrapHead)); pgErr.Position > head {
			pgErr.Position -= head
		}
		err = hint(err, pgErr, body)
	}
	return s.failed(err)
}

// failed names the statement. If pgx fails before it sends anything, err may be about another statement, whose SQL
// it has.
func (s *Statement) failed(err error) error {
	if early := (pgx.ErrPreprocessingBatch{}); errors.As(err, &early) {
		return fmt.Errorf("postgres: a statement of the batch: %w: %s", err, strings.TrimSuffix(strings.TrimPrefix(early.SQL(), wrapHead), wrapTail))
	}
	return fmt.Errorf("postgres: statement %d of the batch: %w: %s", s.number, err, s.sql)
}

// hint says what MustAffect and Returning are for, if err suggests that the statement can't run as a part of body.
func hint(err error, pgErr *pgconn.PgError, body string) error {
	own, _, must := strings.Cut(body, wantTail)
	inside := pgErr.Position != 1 && int(pgErr.Position) <= utf8.RuneCountInString(own)
	switch {
	case pgErr.Code != sqlstate.Syntax && (pgErr.Code != sqlstate.Unsupported || replanned(pgErr)):
		return err
	case pgErr.Code == sqlstate.Syntax && inside:
		return err
	case !must:
		return fmt.Errorf("%w (Returning is for a SELECT or a statement with a RETURNING clause, without a WITH that changes rows)", err)
	}
	return fmt.Errorf("%w (MustAffect is for an INSERT, UPDATE or DELETE without a WITH that changes rows; a SELECT, or a statement with a RETURNING clause, needs Returning, too)", err)
}

// Shares implements storage.BatchOp. A setting made by one batch would be in force for the next one, so a batch
// shares only if its statements read and change rows, as far as their texts show. An invalid batch runs alone, so
// that it fails alone.
func (b *Batch) Shares() bool {
	return b.validate() == nil && !slices.ContainsFunc(b.statements, func(s *Statement) bool { return !s.shares() })
}

func (s *Statement) shares() bool {
	if s.rewritesItself() {
		return false // it may look at its context, which would be another call's
	}
	command, _ := sqlwords.Next(s.sql)
	return slices.Contains(rowCommands, command) && !sqlwords.Mentions(s.sql, "set_config")
}

func (b *Batch) mentionsDeferrable() bool {
	return slices.ContainsFunc(b.statements, func(s *Statement) bool { return s.rewritesItself() || sqlwords.MentionsDeferrable(s.sql) })
}

// rewritesItself reports whether a rewriter other than pgx's own makes the text, which isn't known yet then.
func (s *Statement) rewritesItself() bool {
	if len(s.args) == 0 {
		return false
	}
	switch s.args[0].(type) {
	case pgx.NamedArgs, pgx.StrictNamedArgs:
		return false
	case pgx.QueryRewriter:
		return true
	}
	return false
}

var rowCommands = []string{"select", "insert", "update", "delete", "with", "values", "merge"}
