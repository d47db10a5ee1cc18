package audit

import (
	"regexp"
	"strings"
)

// pattern is a pattern of names; nil matches all.
type pattern struct {
	names  *regexp.Regexp
	prefix string // that all matching names have
}

func newPattern(text string) pattern {
	if strings.Trim(text, "*") == "" {
		return pattern{}
	}
	prefix, _, _ := strings.Cut(text, "*")
	prefix, _, _ = strings.Cut(prefix, "?")
	quoted := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(text))
	return pattern{regexp.MustCompile(`(?s)\A` + quoted + `\z`), prefix}
}

func (p pattern) matches(name string) bool { return p.names == nil || p.names.MatchString(name) }

// all reports whether p matches every name.
func (p pattern) all() bool { return p.names == nil }
