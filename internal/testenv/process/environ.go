package process

import "strings"

// WithoutPrefix drops variables that would configure a server behind our back.
func WithoutPrefix(env []string, prefix string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, prefix) {
			kept = append(kept, v)
		}
	}
	return kept
}
