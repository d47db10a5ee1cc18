package postgres_test

import (
	"bytes"
)

// first is true for the first text that contains word.
func first(word string) func([]byte) bool {
	done := false
	return func(b []byte) bool {
		if done || !bytes.Contains(b, []byte(word)) {
			return false
		}
		done = true
		return true
	}
}
