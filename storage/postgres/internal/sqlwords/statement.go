package sqlwords

import (
	"iter"
	"regexp"
	"strings"
)

// statements yields the statements of text, each with its semicolon. The body of a routine, BEGIN ATOMIC ... END, is
// yielded as statements of its own, without the END: that is where a statement of the body would begin.
func statements(text string, escapes bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for inBody := false; text != ""; {
			n, begins := statementLength(text, escapes)
			statement := text[:n]
			if word, rest := Next(statement); inBody && word == "end" {
				inBody, statement = false, rest
			}
			if !yield(statement) {
				return
			}
			text, inBody = text[n:], inBody || begins
		}
	}
}

// statementLength includes the semicolon, or the BEGIN ATOMIC after which the body of a routine begins.
func statementLength(text string, escapes bool) (n int, beginsBody bool) {
	routine, depth, before := createsRoutine(text), 0, ""
	for rest := text; ; {
		var token string
		switch token, rest = next(rest, escapes); token {
		case "":
			return len(text), false
		case ";":
			return len(text) - len(rest), false
		case "(":
			depth++
		case ")":
			depth--
		case "atomic":
			if routine && depth == 0 && before == "begin" {
				return len(text) - len(rest), true
			}
		}
		before = token
	}
}

func createsRoutine(text string) bool {
	word, text := next(text, false)
	if word != "create" {
		return false
	}
	if word, text = next(text, false); word == "or" {
		_, text = next(text, false)
		word, _ = next(text, false)
	}
	return word == "function" || word == "procedure"
}

// next returns the first token of text and what follows: a word in lower case, a literal, a quoted name, or one byte of
// anything else. It returns "" at the end. Backslashes are escapes in E'...', and with escapes in '...' too.
func next(text string, escapes bool) (token, rest string) {
	text = skipSpace(text)
	n := 0
	switch {
	case text == "":
	case text[0] == '\'':
		n = quotedLength(text, escapes)
	case text[0] == '"':
		n = quotedLength(text, false)
	case text[0] == '$':
		n = dollarQuotedLength(text)
	default:
		if n = wordLength(text); n == 0 {
			n = 1
		} else if n == 1 && (text[0] == 'e' || text[0] == 'E') && strings.HasPrefix(text[1:], "'") {
			n += quotedLength(text[1:], true)
		} else {
			return strings.ToLower(text[:n]), text[n:]
		}
	}
	return text[:n], text[n:]
}

func skipSpace(text string) string {
	for {
		text = strings.TrimLeft(text, WhiteSpace)
		switch {
		case strings.HasPrefix(text, "--"):
			text = strings.TrimLeftFunc(text, func(r rune) bool { return r != '\n' && r != '\r' })
		case strings.HasPrefix(text, "/*"):
			text = text[commentLength(text):]
		default:
			return text
		}
	}
}

func commentLength(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "/*"):
			depth, i = depth+1, i+1
		case strings.HasPrefix(text[i:], "*/"):
			if depth, i = depth-1, i+1; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// wordLength is 0 if text doesn't begin with a word.
func wordLength(text string) int {
	for i := range len(text) {
		if b := text[i]; !inName(b) && b != '$' || i == 0 && b <= '9' {
			return i
		}
	}
	return len(text)
}

// inName leaves out the dollar, which also ends a quote.
func inName(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b == '_' || b >= 0x80
}

var (
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
