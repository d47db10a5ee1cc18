package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// queue adds a statement of the extended protocol to a batch. description is nil if the server
// infers the types of its parameters.
func queue(batch *pgconn.Batch, sql string, description *pgconn.StatementDescription, encoded *pgx.ExtendedQueryBuilder) {
	switch {
	case description == nil:
		batch.ExecParams(sql, encoded.ParamValues, nil, encoded.ParamFormats, encoded.ResultFormats)
	case description.Name == "":
		batch.ExecParams(sql, encoded.ParamValues, description.ParamOIDs, encoded.ParamFormats, encoded.ResultFormats)
	default:
		batch.ExecStatement(description, encoded.ParamValues, encoded.ParamFormats, encoded.ResultFormats)
	}
}

// next returns the next result. If there is none it reads the answer to its end.
func next(results *pgconn.MultiResultReader) (*pgconn.ResultReader, error) {
	if results.NextResult() {
		return results.ResultReader(), nil
	}
	if err := results.Close(); err != nil {
		return nil, err
	}
	return nil, errLacksResult
}

var errLacksResult = errors.New("postgres: the answer lacks a result: a pooler in between may have made it up")
