package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

const maxPrepared = 256

const preparedKey = "fencekit: prepared statements"

// preparedStatements are the store's on one connection, by their SQL. Those of a function, after its first one, are
// pgx's.
type preparedStatements map[string]*preparedStatement

type preparedStatement struct {
	*pgconn.StatementDescription
	outdated bool
}

func preparedOn(conn *pgx.Conn) preparedStatements {
	data := conn.PgConn().CustomData()
	statements, ok := data[preparedKey].(preparedStatements)
	if !ok {
		statements = preparedStatements{}
		data[preparedKey] = statements
	}
	return statements
}

// preparedName is different for each SQL, since a pooler may exchange connections.
func preparedName(sql string) string {
	digest := sha256.Sum256([]byte(sql))
	return preparedPrefix + hex.EncodeToString(digest[:24])
}

func (p preparedStatements) usable(sql string) *pgconn.StatementDescription {
	if known := p[sql]; known != nil && !known.outdated {
		return known.StatementDescription
	}
	return nil
}

var errPrepare = errors.New("postgres: a statement was not prepared within the limit")

// prepare works in the modes in which pgx prepares. It returns nil in other modes, beyond maxPrepared, and if the
// server can't prepare sql; an error means that the connection is lost. It bounds the wait for a lock, for which
// the server has no limit before BEGIN.
func (s *Store) prepare(ctx context.Context, conn *pgx.Conn, sql string) (*pgconn.StatementDescription, error) {
	statements := preparedOn(conn)
	if description := statements.usable(sql); description != nil {
		return description, nil
	}
	name, known := "", statements[sql]
	switch {
	case s.mode == pgx.QueryExecModeCacheStatement:
		name = preparedName(sql)
	case s.mode != pgx.QueryExecModeCacheDescribe:
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.times.Lock, errPrepare)
	defer cancel()
	var err error
	if known != nil {
		delete(statements, sql)
		err = conn.PgConn().Deallocate(ctx, known.Name)
	} else if len(statements) >= maxPrepared {
		return nil, nil
	}
	if err == nil {
		var description *pgconn.StatementDescription
		if description, err = conn.PgConn().Prepare(ctx, name, sql, nil); err == nil {
			statements[sql] = &preparedStatement{StatementDescription: description}
			return description, nil
		}
	}
	switch {
	case !conn.IsClosed():
		return nil, nil
	case context.Cause(ctx) == errPrepare:
		err = &TransientError{fmt.Errorf("%w of %v (two fifths of postgres.Config.StatementTimeout): %w", errPrepare, s.cfg.times.Lock, err)}
	}
	return nil, err
}

func isPrepared(statements []wire.Statement) bool {
	return !slices.ContainsFunc(statements, func(s wire.Statement) bool { return s.Description == nil || s.Description.Name == "" })
}

// outdateIfUnfit has all prepared anew if one no longer fits, and all of the connection's if the server has lost
// one, as after DISCARD ALL.
func outdateIfUnfit(conn *pgx.Conn, err error, sql ...string) bool {
	if !unfit(err) {
		return false
	}
	if sqlstate.Of(err) == sqlstate.NoStatement {
		sql = slices.Collect(maps.Keys(preparedOn(conn)))
	}
	preparedOn(conn).outdate(sql...)
	return true
}

func (p preparedStatements) outdate(sql ...string) {
	for _, sql := range sql {
		if known := p[sql]; known != nil {
			known.outdated = true
		}
	}
}

func unfit(err error) bool {
	if err == nil {
		return false
	}
	switch sqlstate.Of(err) {
	case sqlstate.NoStatement, sqlstate.BadType, sqlstate.NoFunction, sqlstate.BadText, sqlstate.BadBinary, sqlstate.Protocol:
		return true
	}
	return replanned(err)
}
