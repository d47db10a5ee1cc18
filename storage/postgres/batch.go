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

// closeError closes the results of a batch that failed with err, and returns an error that err doesn't wrap.
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
	number    int // in its batch, from 1
	sql       string
	args      []any
	want      *int64 // rows; nil if any number will do
	misuse    string // why the batch can't be sent; "" if it can
	returning bool
	result    *statementResult // nil if it isn't known
}

// statementResult is what a statement did.
type statementResult struct {
	Affected int64           `json:"affected"` // rows
	Rows     json.RawMessage `json:"rows,omitempty"`
}

// errNoResult is the error of Decode when there is nothing to decode.
var errNoResult = errors.New("postgres: the statement's rows are not known: no call with its batch has returned nil, or the batch took effect and the server's answer was lost")

// MustAffect makes the batch fail with an [*AffectedError], without effect, unless the
// statement inserts, updates or deletes exactly this many rows. It has to be an INSERT,
// UPDATE or DELETE without a RETURNING clause. With [Statement.Returning] it is any
// statement that returns rows, and they are counted. In neither case may the statement have a
// WITH that changes rows. With a negative number, or two calls for one statement, the batch is
// fence.ErrInvalid.
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

// Returning keeps the rows that the statement returns for [Statement.Decode]. The statement
// is a SELECT or has a RETURNING clause, and no WITH that changes rows. If the rows have more
// than 4 KiB as JSON, the batch fails without effect.
func (s *Statement) Returning() *Statement {
	s.returning = true
	return s
}

// RowsAffected returns how many rows the statement inserted, updated or deleted; or
// returned, with [Statement.Returning]. It returns -1 if that isn't known: before a call
// with the batch has returned nil, and if the batch took effect but the server's answer was
// lost and there is no [Statement.MustAffect].
func (s *Statement) RowsAffected() int64 {
	switch {
	case s.result != nil:
		return s.result.Affected
	case s.want != nil:
		return *s.want
	}
	return -1
}

// Decode decodes the rows that a statement with [Statement.Returning] has returned into dst,
// as json.Unmarshal does: the rows are an array of objects, one member for each column. It
// fails if they aren't known: before a call with the batch has returned nil, and if the
// batch took effect but the server's answer was lost. Then read them with another call.
func (s *Statement) Decode(dst any) error {
	if s.result == nil || s.result.Rows == nil {
		return errNoResult
	}
	if err := json.Unmarshal(s.result.Rows, dst); err != nil {
		return fmt.Errorf("postgres: what statement %d of the batch returned can't be decoded: %w: %s", s.number, err, s.sql)
	}
	return nil
}

// AffectedError says that a statement of a [Batch] did not affect as many rows as
// [Statement.MustAffect] wants. The batch took no effect.
type AffectedError struct {
	SQL      string // of the statement
	Number   int    // of the statement in its batch, from 1
	Affected int64  // rows
	Want     int64  // rows

	err error // of the server, if that has counted
}

// Unwrap returns the error of the server, if it has counted the rows.
func (e *AffectedError) Unwrap() error { return e.err }

func (e *AffectedError) Error() string {
	return fmt.Sprintf("postgres: statement %d of the batch affected %d rows, must affect %d: %s", e.Number, e.Affected, e.Want, e.SQL)
}

const (
	wrapHead = "with fencekit_rows as materialized (\n"
	wantTail = "\nreturning 1) select "
	wrapTail = "\n) select pg_catalog.count(*), pg_catalog.json_agg(fencekit_rows)::pg_catalog.text from fencekit_rows"
)

// wrapped returns the SQL of the statement as Batch.Run sends it: its rows are one JSON value if
// they are wanted.
func (s *Statement) wrapped() string {
	if s.returning {
		return wrapHead + s.sql + wrapTail
	}
	return s.sql
}

// checked returns the SQL of the statement as it is sent ahead of a seal: functions in schema
// check its conditions on the server.
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

// readFrom reads the result of the statement, which was sent as wrapped returns it, and checks
// its conditions.
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

// explain returns what err means. sent is the SQL with which the statement was sent: wrapped's or
// checked's.
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

// failed adds to err which statement it is of. If pgx fails before it sends any statement of a
// batch, its error is not always that of the statement being read, so failed takes the SQL from it.
func (s *Statement) failed(err error) error {
	if early := (pgx.ErrPreprocessingBatch{}); errors.As(err, &early) {
		return fmt.Errorf("postgres: a statement of the batch: %w: %s", err, strings.TrimSuffix(strings.TrimPrefix(early.SQL(), wrapHead), wrapTail))
	}
	return fmt.Errorf("postgres: statement %d of the batch: %w: %s", s.number, err, s.sql)
}

// hint adds to err which statements MustAffect and Returning are for, if the statement may not be
// one of them: it was sent as part of another statement, body, and the server can't run it as a
// part, or finds a syntax error at its first word or after its end.
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

// Shares implements storage.BatchOp. A setting that one batch makes is in force for the next one
// too. So a batch shares its transaction only if all its statements read and change rows, as far
// as their texts show. A batch that is not valid runs alone, so that it fails alone.
func (b *Batch) Shares() bool {
	return b.validate() == nil && !slices.ContainsFunc(b.statements, func(s *Statement) bool { return !s.shares() })
}

func (s *Statement) shares() bool {
	if s.rewritesItself() {
		return false // it may look at its context, which would be another call's
	}
	command, _ := sqlwords.Next(s.sql)
	return slices.Contains(rowCommands, command) && !sqlwords.Contains(s.sql, "set_config")
}

// mentionsDeferrable reports whether a statement may make something that can be deferred until COMMIT.
func (b *Batch) mentionsDeferrable() bool {
	return slices.ContainsFunc(b.statements, func(s *Statement) bool { return s.rewritesItself() || sqlwords.MentionsDeferrable(s.sql) })
}

// rewritesItself reports whether another rewriter than pgx's own makes the text: it isn't known yet.
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

// rowCommands are the first words of statements that read and change rows.
var rowCommands = []string{"select", "insert", "update", "delete", "with", "values", "merge"}
