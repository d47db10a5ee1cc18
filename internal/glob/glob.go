// Package glob matches names against patterns in which * stands for any text, slashes included,
// and ? for any one character. The pattern "" matches every name.
package glob

import (
	"regexp"
	"strings"
)

// Matcher returns a function that reports whether a name matches pattern. The function may be
// called concurrently.
func Matcher(pattern string) func(name string) bool {
	if strings.Trim(pattern, "*") == "" {
		return func(string) bool { return true }
	}
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?s)\A` + expression + `\z`).MatchString
}

// Prefix returns the longest prefix of pattern without * or ?. All matching names begin with it.
func Prefix(pattern string) string {
	if i := strings.IndexAny(pattern, "*?"); i >= 0 {
		return pattern[:i]
	}
	return pattern
}

// Like returns the pattern of SQL's LIKE that matches the same names.
func Like(pattern string) string {
	if pattern == "" {
		return "%"
	}
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`, "*", "%", "?", "_").Replace(pattern)
}
