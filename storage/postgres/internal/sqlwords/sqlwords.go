// Package sqlwords reads the first words of SQL statements.
package sqlwords

import (
	"strings"
	"unicode/utf8"
)

// Next returns the first word of sql in lower case, and the rest. It skips white space, comments, parentheses and
// semicolons.
func Next(sql string) (word, rest string) {
	for {
		sql = strings.TrimLeft(sql, WhiteSpace+"(;")
		switch {
		case strings.HasPrefix(sql, "--"):
			sql = strings.TrimLeftFunc(sql, inLine)
		case strings.HasPrefix(sql, "/*"):
			sql = sql[commentLength(sql):]
		default:
			rest = strings.TrimLeft(sql, letters)
			return strings.ToLower(sql[:len(sql)-len(rest)]), rest
		}
	}
}

const WhiteSpace = " \t\r\n\f\v"

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

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

// AnyControlsTransaction reports whether a statement in text begins or ends a transaction, whatever
// standard_conforming_strings is. It is true of a text that isn't UTF-8: in some encodings a part of a character
// looks like a backslash.
func AnyControlsTransaction(text string) bool {
	return !utf8.ValidString(text) || anyControlsTransaction(text, false) || strings.Contains(text, `\`) && anyControlsTransaction(text, true)
}

func anyControlsTransaction(text string, escapes bool) bool {
	for text != "" {
		if ControlsTransaction(text) {
			return true
		}
		text = text[statementLength(text, escapes):]
	}
	return false
}

// MentionsDeferrable reports whether text has DEFERRABLE or DEFERRED. Without them it makes nothing that runs at
// COMMIT, unless it puts the words together.
func MentionsDeferrable(text string) bool { return Contains(text, "deferr") }

func Forgets(text string) bool { return Contains(text, "deallocate") || Contains(text, "discard") }

func Contains(text, word string) bool {
	first := word[:1] + strings.ToUpper(word[:1])
	for {
		i := strings.IndexAny(text, first)
		if i < 0 || len(text)-i < len(word) {
			return false
		}
		if strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
		text = text[i+1:]
	}
}

// ControlsTransaction reports whether sql begins or ends a transaction. For a procedure or DO block the server
// refuses that.
func ControlsTransaction(sql string) bool {
	word, rest := Next(sql)
	switch word {
	case "abort", "begin", "commit", "end", "start":
		return true
	case "prepare":
		word, _ = Next(rest)
		return word == "transaction"
	case "rollback":
		if word, rest = Next(rest); word == "work" || word == "transaction" {
			word, _ = Next(rest)
		}
		return word != "to"
	}
	return false
}
