package main

import (
	"regexp"
	"strings"
)

// glob returns what reports whether a name matches a pattern, in which * stands for any text,
// slashes included, and ? for one character.
func glob(pattern string) func(name string) bool {
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?s)\A` + expression + `\z`).MatchString
}
