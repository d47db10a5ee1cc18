// Package oneline puts errors of several lines on one.
package oneline

import (
	"slices"
	"strings"
)

// Error returns err with its lines joined into one, without repetitions: pgx writes a line
// for each address and each way to connect that it tried.
func Error(err error) error { return &lineError{err} }

type lineError struct{ error }

func (e *lineError) Unwrap() error { return e.error }

func (e *lineError) Error() string {
	var lines []string
	for line := range strings.Lines(e.error.Error()) {
		line = strings.TrimSpace(line)
		if said := func(earlier string) bool { return strings.Contains(earlier, line) }; !slices.ContainsFunc(lines, said) {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
