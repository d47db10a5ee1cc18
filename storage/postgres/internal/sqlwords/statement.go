package sqlwords

import (
	"regexp"
	"strings"
)

// statementLength includes the semicolon. Backslashes are escapes in E'...', and with escapes in '...' too.
func statementLength(text string, escapes bool) int {
	for i := 0; i < len(text); {
		rest, before := text[i:], text[max(0, i-8):i]
		switch {
		case rest[0] == ';':
			return i + 1
		case rest[0] == '\'':
			i += quotedLength(rest, escapes || escaped.MatchString(before))
		case rest[0] == '"':
			i += quotedLength(rest, false)
		case rest[0] == '$' && !inWord.MatchString(before):
			i += dollarQuotedLength(rest)
		case strings.HasPrefix(rest, "--"):
			i += len(rest) - len(strings.TrimLeftFunc(rest, inLine))
		case strings.HasPrefix(rest, "/*"):
			i += commentLength(rest)
		default:
			i++
		}
	}
	return len(text)
}

func inLine(r rune) bool { return r != '\n' && r != '\r' }

// Bytes from 0x80 on may be in names.
var (
	escaped = regexp.MustCompile(`(^|[^0-9A-Za-z_$\x{80}-\x{10FFFF}])[eE]$`)
	inWord  = regexp.MustCompile(`[0-9A-Za-z_$\x{80}-\x{10FFFF}]$`)
	dollars = regexp.MustCompile(`^\$([A-Za-z_\x{80}-\x{10FFFF}][0-9A-Za-z_\x{80}-\x{10FFFF}]*)?\$`)
	// another quote, there or on a later line
	continued = regexp.MustCompile(`^'|^(?:[ \t\f\v]|--[^\r\n]*)*[\r\n](?:[ \t\r\n\f\v]|--[^\r\n]*[\r\n])*'`)
)

// quotedLength may count a continuation as another literal, except with escapes.
func quotedLength(text string, escapes bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] == text[0]:
			more := ""
			if escapes {
				more = continued.FindString(text[i+1:])
			}
			if more == "" {
				return i + 1
			}
			i += len(more)
		}
	}
	return len(text)
}

// dollarQuotedLength is 1 if text doesn't begin with $$ or $TAG$.
func dollarQuotedLength(text string) int {
	quote := dollars.FindString(text)
	if quote == "" {
		return 1
	}
	body := strings.Index(text[len(quote):], quote)
	if body < 0 {
		return len(text)
	}
	return body + 2*len(quote)
}
