// Package glob turns patterns in which * stands for any text and ? for any character into
// patterns of LIKE.
package glob

import "strings"

// Like returns the LIKE pattern of a pattern; "" matches all.
func Like(pattern string) string {
	if pattern == "" {
		return "%"
	}
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`, "*", "%", "?", "_").Replace(pattern)
}
