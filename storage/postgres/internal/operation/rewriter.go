package operation

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// rewriter is a pgx.QueryRewriter that doesn't get the connection.
type rewriter struct{ pgx.QueryRewriter }

func (r rewriter) RewriteQuery(ctx context.Context, _ *pgx.Conn, sql string, args []any) (string, []any, error) {
	return r.QueryRewriter.RewriteQuery(ctx, nil, sql, args)
}

// hideFromRewriters returns args such that no rewriter gets the connection. pgx
// calls a rewriter only among the options that precede the arguments; after them it is a
// value like any other, such as pgx.NamedArgs for jsonb.
func hideFromRewriters(args []any) []any {
	for i, arg := range args {
		switch arg := arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		case pgx.QueryRewriter:
			args = slices.Clone(args)
			args[i] = rewriter{arg}
		default:
			return args
		}
	}
	return args
}
