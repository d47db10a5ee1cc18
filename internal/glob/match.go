package glob

import (
	"regexp"
	"strings"
)

// Matcher returns what reports whether a name matches a pattern; "" matches all.
func Matcher(pattern string) func(name string) bool {
	if strings.Trim(pattern, "*") == "" {
		return func(string) bool { return true }
	}
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?s)\A` + expression + `\z`).MatchString
}

// Prefix returns what all names that match a pattern begin with.
func Prefix(pattern string) string {
	if i := strings.IndexAny(pattern, "*?"); i >= 0 {
		return pattern[:i]
	}
	return pattern
}
