package operation

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// rewriter is a pgx.QueryRewriter that doesn't get the connection, and whose text is noted.
type rewriter struct {
	pgx.QueryRewriter
	session *session
}

func (r rewriter) RewriteQuery(ctx context.Context, _ *pgx.Conn, sql string, args []any) (string, []any, error) {
	sql, args, err := r.QueryRewriter.RewriteQuery(ctx, nil, sql, args)
	r.session.noteText(sql)
	return sql, args, err
}

// hideFromRewriters returns args such that no rewriter gets the connection. pgx
// calls a rewriter only among the options that precede the arguments; after them it is a
// value like any other, such as pgx.NamedArgs for jsonb.
func (s *session) hideFromRewriters(args []any) []any {
	for i, arg := range args {
		switch arg := arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		case pgx.QueryRewriter:
			args = slices.Clone(args)
			args[i] = rewriter{arg, s}
		default:
			return args
		}
	}
	return args
}
