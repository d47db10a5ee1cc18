package postgres

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

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
	return slices.Contains(rowCommands, command) && !containsFold(s.sql, "set_config")
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

// containsFold reports whether s contains word, in upper or lower case.
func containsFold(s, word string) bool {
	for ; len(s) >= len(word); s = s[1:] {
		if strings.EqualFold(s[:len(word)], word) {
			return true
		}
	}
	return false
}
