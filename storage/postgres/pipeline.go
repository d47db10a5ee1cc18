package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// queue adds a statement to a pipeline. description is nil if the server infers the types of
// its parameters.
func queue(pipeline *pgconn.Pipeline, sql string, description *pgconn.StatementDescription, encoded *pgx.ExtendedQueryBuilder) {
	switch {
	case description == nil:
		pipeline.SendQueryParams(sql, encoded.ParamValues, nil, encoded.ParamFormats, encoded.ResultFormats)
	case description.Name == "":
		pipeline.SendQueryParams(sql, encoded.ParamValues, description.ParamOIDs, encoded.ParamFormats, encoded.ResultFormats)
	default:
		pipeline.SendQueryStatement(description, encoded.ParamValues, encoded.ParamFormats, encoded.ResultFormats)
	}
}

// next returns the next result of a pipeline.
func next(pipeline *pgconn.Pipeline) (*pgconn.ResultReader, error) {
	results, err := pipeline.GetResults()
	if err != nil {
		return nil, err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return nil, errLacksResult
	}
	return reader, nil
}

var errLacksResult = errors.New("postgres: the answer lacks a result: a pooler in between may have made it up")
