package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

type Statement struct {
	SQL         string
	Description *pgconn.StatementDescription // nil if the server has to infer the parameters' types
	pgx.ExtendedQueryBuilder
}

type Result struct {
	Row []string
	Tag pgconn.CommandTag
}

// StatementError is the error of a statement ahead. Later ones were not executed.
type StatementError struct {
	Number int
	Err    error
}

func (e *StatementError) Error() string { return e.Err.Error() }
func (e *StatementError) Unwrap() error { return e.Err }

func queue(fe *pgproto3.Frontend, statements []Statement) {
	var parsed *Statement
	for i := range statements {
		s, prepared := &statements[i], pgconn.StatementDescription{}
		if s.Description != nil {
			prepared = *s.Description
		}
		if prepared.Name == "" && (parsed == nil || s.SQL != parsed.SQL || s.Description != parsed.Description || s.SQL == "") {
			fe.SendParse(&pgproto3.Parse{Query: s.SQL, ParameterOIDs: prepared.ParamOIDs})
			parsed = s
		}
		fe.SendBind(&pgproto3.Bind{PreparedStatement: prepared.Name, ParameterFormatCodes: s.ParamFormats, Parameters: s.ParamValues})
		fe.SendExecute(&pgproto3.Execute{})
	}
	fe.SendSync(&pgproto3.Sync{})
}

func isStatementError(err error) bool { _, ok := err.(*StatementError); return ok }

// readResults appends to results, and returns the transaction status at the Sync, or 0 if that did not come.
func readResults(pg *pgconn.PgConn, results []Result) (_ []Result, status byte, failure error) {
	var row []string
	for {
		msg, err := pg.ReceiveMessage(context.Background())
		if err != nil {
			return results, 0, closedAfter(err, len(results))
		}
		switch msg := msg.(type) {
		case *pgproto3.DataRow:
			if row == nil {
				row = values(msg)
			}
		case *pgproto3.CommandComplete:
			results = append(results, Result{Row: row, Tag: pgconn.NewCommandTag(string(msg.CommandTag))})
			row = nil
		case *pgproto3.EmptyQueryResponse:
			results = append(results, Result{})
		case *pgproto3.ErrorResponse:
			failure = &StatementError{len(results), pgconn.ErrorResponseToPgError(msg)}
		case *pgproto3.CopyInResponse, *pgproto3.CopyOutResponse:
			return results, 0, fmt.Errorf("postgres: statement %d is a COPY, which can't be sent ahead", len(results))
		case *pgproto3.ReadyForQuery:
			return results, msg.TxStatus, failure
		}
	}
}

// closedAfter finds statement n's error if the pool's OnPgError closed the connection because of it.
func closedAfter(err error, n int) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR" {
		return &StatementError{n, pgErr}
	}
	return err
}

func values(msg *pgproto3.DataRow) []string {
	row := make([]string, len(msg.Values))
	for i, value := range msg.Values {
		row[i] = string(value)
	}
	return row
}
