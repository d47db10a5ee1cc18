package postgres

import "strings"

// nextWord returns the first word of sql in lower case, and what follows it. It passes over white
// space, comments, parentheses and semicolons; the word is "" if something else comes first.
func nextWord(sql string) (word, rest string) {
	for {
		sql = strings.TrimLeft(sql, whiteSpace+"(;")
		switch {
		case strings.HasPrefix(sql, "--"):
			sql = sql[len(sql)-len(strings.TrimLeftFunc(sql, func(r rune) bool { return r != '\n' && r != '\r' })):]
		case strings.HasPrefix(sql, "/*"):
			sql = sql[commentLength(sql):]
		default:
			rest = strings.TrimLeft(sql, letters)
			return strings.ToLower(sql[:len(sql)-len(rest)]), rest
		}
	}
}

const (
	whiteSpace = " \t\r\n\f\v"
	letters    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// commentLength returns the length of the comment with which sql begins, in which there may be others.
func commentLength(sql string) int {
	depth := 0
	for i := 0; i < len(sql); i++ {
		switch {
		case strings.HasPrefix(sql[i:], "/*"):
			depth, i = depth+1, i+1
		case strings.HasPrefix(sql[i:], "*/"):
			if depth, i = depth-1, i+1; depth == 0 {
				return i + 1
			}
		}
	}
	return len(sql)
}

// controlsTransaction reports whether sql begins or ends a transaction. No other statement can: in
// a transaction that BEGIN has begun the server refuses the COMMIT of a procedure or DO block.
func controlsTransaction(sql string) bool {
	word, rest := nextWord(sql)
	switch word {
	case "abort", "begin", "commit", "end", "start":
		return true
	case "prepare":
		word, _ = nextWord(rest)
		return word == "transaction"
	case "rollback":
		if word, rest = nextWord(rest); word == "work" || word == "transaction" {
			word, _ = nextWord(rest)
		}
		return word != "to" // a savepoint
	}
	return false
}
