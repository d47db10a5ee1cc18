package sqlwords

import (
	"regexp"
	"strings"
)

// statementLength returns the length of the first statement in text, with the semicolon that ends
// it. Backslashes are escapes in E'...', and in '...' if standard_conforming_strings is off.
func statementLength(text string, escapes bool) int {
	for i := 0; i < len(text); {
		rest, before := text[i:], text[max(0, i-8):i] // 8 bytes have the last two characters
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

// Each byte from 0x80 on may be in a name or a tag, whatever character it belongs to.
var (
	escaped = regexp.MustCompile(`(^|[^0-9A-Za-z_$\x{80}-\x{10FFFF}])[eE]$`)
	inWord  = regexp.MustCompile(`[0-9A-Za-z_$\x{80}-\x{10FFFF}]$`)
	dollars = regexp.MustCompile(`^\$([A-Za-z_\x{80}-\x{10FFFF}][0-9A-Za-z_\x{80}-\x{10FFFF}]*)?\$`)
	// continued is what continues a literal after a quote: another quote, there or on a later line.
	continued = regexp.MustCompile(`^'|^(?:[ \t\f\v]|--[^\r\n]*)*[\r\n](?:[ \t\r\n\f\v]|--[^\r\n]*[\r\n])*'`)
)

// quotedLength returns the length of what begins with a quote, up to the one that ends it. Without
// escapes a quote that continues the literal may as well begin another one.
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

// dollarQuotedLength returns the length of what begins with $$ or $TAG$, up to the same again; 1 if
// text begins with neither.
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
