// Package sqlwords reads what SQL statements begin with, and a few words that they have.
package sqlwords

import (
	"strings"
	"unicode/utf8"
)

const WhiteSpace = " \t\r\n\f\v"

// Next returns the first word of sql in lower case, or "" if it begins with something else, and the rest. It skips
// white space, comments, parentheses and semicolons.
func Next(sql string) (first, rest string) {
	for {
		first, rest = next(sql, false)
		if first != "(" && first != ";" {
			break
		}
		sql = rest
	}
	if wordLength(first) < max(len(first), 1) {
		return "", sql
	}
	return first, rest
}

// AnyControlsTransaction reports whether a statement in text begins or ends a transaction, whatever
// standard_conforming_strings is. It is true of a text that isn't UTF-8: in some encodings a part of a character
// looks like a backslash.
func AnyControlsTransaction(text string) bool {
	return !utf8.ValidString(text) || anyStatement(text, ControlsTransaction)
}

// AnyCopies reports whether a statement in text is a COPY FROM STDIN or TO STDOUT, whose rows are no part of it,
// whatever standard_conforming_strings is.
func AnyCopies(text string) bool {
	return Mentions(text, "stdin", "stdout") && anyStatement(text, copies)
}

func anyStatement(text string, is func(string) bool) bool {
	if !strings.Contains(text, ";") {
		return is(text)
	}
	escapes := false
	for {
		for statement := range statements(text, escapes) {
			if is(statement) {
				return true
			}
		}
		if escapes || !strings.Contains(text, `\`) {
			return false
		}
		escapes = true
	}
}

// copies looks for STDIN or STDOUT, which mean the same, behind the first FROM or TO that is none of a query's.
func copies(sql string) bool {
	first, sql := Next(sql)
	if first != "copy" {
		return false
	}
	depth, before := 0, ""
	for {
		var token string
		switch token, sql = next(sql, false); token {
		case "":
			return false
		case "(":
			depth++
		case ")":
			depth--
		case "from", "to":
			if depth == 0 && before != "." {
				where, _ := next(sql, false)
				return where == "stdin" || where == "stdout"
			}
		}
		before = token
	}
}

// MentionsDeferrable reports whether text has DEFERRABLE or DEFERRED. Without them it makes nothing that runs at
// COMMIT, unless it puts the words together.
func MentionsDeferrable(text string) bool { return Mentions(text, "deferrable", "deferred") }

func Forgets(text string) bool { return Mentions(text, "deallocate", "discard") }

// Mentions reports whether text has one of the words, in a literal for one. In a text with a backslash they may be
// parts of others, since an escape may end in a letter.
func Mentions(text string, words ...string) bool {
	parts := strings.Contains(text, `\`)
	for _, word := range words {
		for rest := text; ; {
			i := indexFold(rest, word)
			if i < 0 {
				break
			}
			start := len(text) - len(rest) + i
			end := start + len(word)
			if parts || (start == 0 || !inName(text[start-1])) && (end == len(text) || !inName(text[end])) {
				return true
			}
			rest = text[end:]
		}
	}
	return false
}

// indexFold expects word in lower case, beginning with a letter.
func indexFold(text, word string) int {
	for at := range len(text) - len(word) + 1 {
		if text[at]|0x20 == word[0] && strings.EqualFold(text[at:at+len(word)], word) {
			return at
		}
	}
	return -1
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
