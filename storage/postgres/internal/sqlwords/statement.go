package sqlwords

import (
	"regexp"
	"strings"
)

// statementLength returns the length of the first statement with its semicolon. Backslashes are escapes in E'...',
// and with escapes in '...' too.
func statementLength(text string, escapes bool) int {
	for i := 0; i < len(text); {
		rest, before := text[i:], text[max(0, i-8):i] // at least two characters
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

// Bytes from 0x80 on may be in names and tags.
var (
	escaped = regexp.MustCompile(`(^|[^0-9A-Za-z_$\x{80}-\x{10FFFF}])[eE]$`)
	inWord  = regexp.MustCompile(`[0-9A-Za-z_$\x{80}-\x{10FFFF}]$`)
	dollars = regexp.MustCompile(`^\$([A-Za-z_\x{80}-\x{10FFFF}][0-9A-Za-z_\x{80}-\x{10FFFF}]*)?\$`)
	// continued continues a literal after a quote: another quote, there or on a later line.
	continued = regexp.MustCompile(`^'|^(?:[ \t\f\v]|--[^\r\n]*)*[\r\n](?:[ \t\r\n\f\v]|--[^\r\n]*[\r\n])*'`)
)

// quotedLength returns the length of a quoted text. Without escapes a continuation may count as another one.
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

// dollarQuotedLength returns the length of what $$ or $TAG$ encloses; 1 if text begins with neither.
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
