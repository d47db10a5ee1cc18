package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

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

// set sets what the statement did. rows is nil if it returned none.
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
